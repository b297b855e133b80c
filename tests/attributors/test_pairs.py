"""A pair scores as its chosen response less its rejected one, whatever reads it; weights multiply features."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from worlds.tiny_lms import tiny_lm

import airrep
from airrep.arrays import SparseFeatures
from airrep.attributors.base import Attributor, fit_method
from airrep.attributors.direct import InMemory
from airrep.attributors.methods import make_attributor
from airrep.corpus.corpus import Corpus, Example
from airrep.corpus.views import both_sides
from airrep.errors import ConfigError, DataError
from airrep.scoring.asked import score_all
from airrep.scoring.group_scores import group_scores
from airrep.scoring.groups import Groups

WORDS = ["red", "warm", "fire", "blue", "cold", "ice", "green", "mild", "the", "sky", "is", "at", "noon"]


def pairs(count: int, seed: int, name: str = "z") -> list[Example]:
    """Pairs of random words; every fourth is a plain example."""
    draw = np.random.default_rng(seed)
    said = [[" ".join(draw.choice(WORDS, 4)) for _ in range(3)] for _ in range(count)]
    return [
        Example(asked, good, f"{name}{n}", chat=None if n % 4 == 3 else {"rejected": bad})
        for n, (asked, good, bad) in enumerate(said)
    ]


def scores(method: Attributor, train: Sequence[Example], queries: Sequence[Example]) -> np.ndarray:
    return score_all(method.ask(queries, InMemory.of(method, train)))


@pytest.mark.parametrize("name", ["tfidf", "bm25", "dsir", "ngram", "airrep", "rds"])
def test_scores_of_pairs_are_sums_over_their_sides(name: str, tmp_path: Path) -> None:
    lm = {"lm": tiny_lm(tmp_path / "lm")} if name == "rds" else {"encoder": "static"} if name == "airrep" else {}
    train, queries = Corpus.from_examples(pairs(12, 0)), pairs(6, 1, "q")
    method, plain = make_attributor(name, lm), make_attributor(name, lm)
    fit_method(method, train)
    fit_method(plain, both_sides(train))
    found = scores(method, train, queries)
    signs, sides = zip(*map(signed_sides, (train, queries)), strict=True)
    wanted = signs[1] @ scores(plain, sides[0], sides[1]).astype(np.float64) @ signs[0].T
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def signed_sides(examples: Sequence[Example]) -> tuple[np.ndarray, list[Example]]:
    """All responses of some examples, and for each example 1 at its chosen one and −1 at its rejected one."""
    sides = [side for one in examples for side in one.sides if side is not None]
    owners = [n for n, one in enumerate(examples) for side in one.sides if side is not None]
    found = np.zeros((len(examples), len(sides)))
    found[owners, range(len(sides))] = [-1 if n and owners[n - 1] == owner else 1 for n, owner in enumerate(owners)]
    return found, sides


def test_a_rejected_word_takes_from_a_group_what_a_chosen_one_gives() -> None:
    train, asked = ([one for one in pairs(count, seed) if one.chat] for count, seed in ((24, 7), (6, 8)))
    method = make_attributor("ngram", {"length": 0.0})  # a pair weighs the same, whichever of its responses is chosen
    fit_method(method, Corpus.from_examples(train))
    members = {"few": [0, 1, 2], "many": range(2, 16), "one": [17]}

    def of_groups(data: Sequence[Example], queries: Sequence[Example]) -> np.ndarray:
        return group_scores(method.ask(queries, InMemory.of(method, data)), Groups.from_lists(members), "ngram-lm")

    found = of_groups(train, asked)
    np.testing.assert_allclose(of_groups(list(map(swapped, train)), asked), -found, atol=1e-6)
    np.testing.assert_allclose(of_groups(train, list(map(swapped, asked))), -found, atol=1e-6)
    features = numbers(method.encode(train)["ngram"])
    weights = [numbers(method.encode_queries([side for side in one.sides if side])) for one in asked]
    for column, rows in enumerate(members.values()):
        grams = {gram for row in rows for gram in features[row]} - {0}
        sums = {gram: sum(signed(math.expm1, features[row].get(gram, 0.0)) for row in rows) for gram in grams}
        gains = {gram: signed(math.log1p, total / len(rows)) for gram, total in sums.items()}
        wanted = [
            sum((chosen.get(gram, 0) - rejected.get(gram, 0)) * gain for gram, gain in gains.items())
            for chosen, rejected in weights
        ]
        np.testing.assert_allclose(found[:, column], wanted, rtol=1e-4, atol=1e-6)


def swapped(pair: Example) -> Example:
    """The pair with its rejected response as the chosen one."""
    chosen, rejected = pair.sides
    assert rejected is not None
    return Example(pair.prompt, rejected.response, pair.id, chat={"rejected": chosen.response})


def numbers(features: SparseFeatures) -> list[dict[int, float]]:
    """Row by row, what is not 0."""
    ends = pairwise(features.indptr.tolist())
    return [dict(zip(features.indices[a:b].tolist(), features.data[a:b].tolist(), strict=True)) for a, b in ends]


def signed(function: Callable[[float], float], value: float) -> float:
    """The function of the size, with the value's sign."""
    return math.copysign(function(abs(value)), value)


@pytest.mark.parametrize("recipe", ["tfidf", "text"])
def test_an_index_of_pairs_ranks_them_as_it_scores_them(recipe: str, tmp_path: Path) -> None:
    train, queries = Corpus.from_examples(pairs(60, 2)), pairs(3, 3, "q")
    index = airrep.build_index(
        train, tmp_path / "index", "tfidf" if recipe == "tfidf" else None, recipe=None if recipe == "tfidf" else recipe
    )
    whole = index.scores(queries)
    for row, hits in zip(whole, index.top(queries, 5), strict=True):
        np.testing.assert_allclose([hit.score for hit in hits], np.sort(row)[::-1][:5], rtol=1e-3)
    assert (whole < 0).any()
    groups = index.group_scores(queries, [[0, 1, 2], [3, 4, 5, 6]])
    assert np.isfinite(groups).all()
    assert np.ptp(groups) > 0


def test_weights_and_wishes_multiply_what_examples_count(tmp_path: Path) -> None:
    lm = tiny_lm(tmp_path / "lm")
    texts = [Example(one.prompt, one.response, one.id) for one in pairs(8, 4)]
    weights = [2.0, -1.0, 0.0, 0.5, 1.0, 3.0, -2.0, 1.0]
    weighed = [
        Example(one.prompt, one.response, one.id, metadata={"reward": w}) for one, w in zip(texts, weights, strict=True)
    ]
    told = [Example(one.prompt, one.response, one.id, label=str(w > 0)) for one, w in zip(texts, weights, strict=True)]
    for name in ("tracin", "ekfac"):
        own = {"lm": lm, "store": "none", **({} if name == "ekfac" else {"rank": 4})}
        plain, of_weights, of_wishes = (
            make_attributor(name, {**own, "loss": loss}) for loss in ("sft", "weighted", "kto")
        )
        for method, data in ((plain, texts), (of_weights, weighed), (of_wishes, told)):
            fit_method(method, Corpus.from_examples(data))
        asked = texts[:3]
        found = scores(plain, texts, asked)
        if name == "tracin":  # unit features: EK-FAC's curvature is that of each loss
            np.testing.assert_allclose(
                scores(of_wishes, told, asked), found * (2.0 * (np.array(weights) > 0) - 1), atol=1e-5
            )
        np.testing.assert_allclose(scores(of_weights, weighed, asked), found * np.array(weights), rtol=1e-4, atol=1e-6)
        with pytest.raises(DataError, match='"z0" has no advantage or reward that is a number'):
            scores(of_weights, texts, asked)


def test_gradients_of_pairs_add_up_and_those_of_responses_that_are_alike_count_for_less(tmp_path: Path) -> None:
    lm = tiny_lm(tmp_path / "lm")
    for changes, pool in (({}, "diminishing"), ({"loss": "dpo"}, "mean"), ({"loss": "dpo", "unit": False}, "sum")):
        assert str(make_attributor("logra", {"lm": lm, "store": "none", **changes}).pooling()) == pool
    train = [one for one in pairs(8, 9) if one.chat]
    settings = {"lm": lm, "store": "none", "loss": "dpo", "rank": 4, "sketch": None}
    index = airrep.build_index(train, tmp_path / "index", "logra", settings=settings)
    asked, groups = train[:2], [[0, 1, 2], [5]]
    members = index.scores(asked)
    wanted = [[one[rows].mean() for rows in groups] for one in members]
    np.testing.assert_allclose(index.group_scores(asked, groups), wanted, rtol=1e-4)


def test_pairs_need_a_loss_that_reads_them(tmp_path: Path) -> None:
    lm, train = tiny_lm(tmp_path / "lm"), Corpus.from_examples(pairs(3, 5))
    with pytest.raises(DataError, match="is a preference pair, but loss=sft reads one response"):
        fit_method(make_attributor("tracin", {"lm": lm, "rank": 4, "store": "none"}), train)
    plain = Corpus.from_examples([Example("a", "b", "x")])
    for name in ("tracin", "less"):
        own = {} if name == "less" else {"rank": 4}
        with pytest.raises((DataError, ConfigError), match='"x" has no rejected|has no low-rank adapters'):
            fit_method(make_attributor(name, {"lm": lm, "store": "none", "loss": "dpo", **own}), plain)
    with pytest.raises(ConfigError, match="influence: supports only loss=sft, not loss=dpo"):
        fit_method(make_attributor("influence", {"lm": lm, "loss": "dpo"}), train)
    with pytest.raises(ConfigError, match="TRAK does not support loss="):
        fit_method(make_attributor("trak", {"lm": lm, "rank": 4, "store": "none", "loss": "dpo"}), train)

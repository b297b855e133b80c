"""Tracing facts to what taught them, against ranks and single steps in plain loops."""

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from worlds.small_world import HashAttributor, stored_scores
from worlds.tiny_lms import tiny_lm
from worlds.toy_farm import FINE_TUNE, ToyWorld

import airrep
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ConfigError, DataError
from airrep.evaluation.effects.trace import RANDOM, Trace
from airrep.evaluation.result import Evaluation
from airrep.index.index import Index
from airrep.lm.model import load_lm
from airrep.runtime.seeding import stream

N = 30


def example(row: int, fact: str | None) -> Example:
    return Example(f"p {row % 7}", f"r {row}", f"e{row}", metadata={} if fact is None else {"fact": fact})


TRAIN = Corpus.from_examples(example(row, f"fact {row % 4}" if row % 3 == 0 else None) for row in range(N))
QUERIES = Corpus.from_examples(
    Example(f"q {x}", f"a {x}", f"q{x}", metadata={"fact": f"fact {x % 4}", "taught": [f"e{3 * x}", f"e{x + 20}"]})
    for x in range(5)
)
TEACHERS = [[row for row in range(N) if row % 3 == 0 and row % 4 == x % 4] for x in range(5)]


class Coarse(HashAttributor):
    """Features of a few values, so that many scores are equal."""

    def _features(self, example: Example) -> np.ndarray:
        return np.round(super()._features(example))


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, Index]]:
    """Two methods over the same examples, the second in another order of rows."""
    folder = tmp_path_factory.mktemp("indexes")
    turned = Corpus.from_examples(TRAIN[row] for row in reversed(range(N)))
    return [
        ("one", airrep.build_index(TRAIN, folder / "one", Coarse("a"), shard_rows=9)),
        ("other", airrep.build_index(turned, folder / "other", HashAttributor("b"), shard_rows=9)),
    ]


def naive_ranks(index: Index, x: int, ids: Sequence[str]) -> list[int]:
    """Ranks of some examples for one query: those with more, or as much and before, come first."""
    scores = stored_scores(index, QUERIES)[x].astype(np.float32).tolist()
    known = [one.id for one in index.examples(range(index.rows))]
    return [
        1 + sum(s > scores[row] or (s == scores[row] and other < row) for other, s in enumerate(scores))
        for row in map(known.index, ids)
    ]


@pytest.mark.parametrize("facts", ["fact", "taught"])
def test_ranks_of_what_taught_are_those_of_loops(indexes: list[tuple[str, Index]], facts: str, tmp_path: Path) -> None:
    found = Trace(indexes, QUERIES, {"facts": facts, "resamples": 50}).run()
    ids = [[f"e{row}" for row in rows] for rows in TEACHERS]
    if facts == "taught":
        ids = [[f"e{3 * x}", f"e{x + 20}"] for x in range(5)]
    for row, (_, index) in zip(found.rows, indexes, strict=True):
        ranks = [naive_ranks(index, x, ids[x]) for x in range(5)]
        np.testing.assert_allclose(row.per_query, [1 / min(each) for each in ranks])
        assert row.value == pytest.approx(np.mean([1 / min(each) for each in ranks]))
        for k in (1, 10):
            hits = [sum(rank <= k for rank in each) / len(each) for each in ranks]
            assert row.more[f"recall@{k}"]["value"] == pytest.approx(np.mean(hits))
        assert row.interval[0] <= row.value <= row.interval[1]
        assert "recall@100" not in row.more  # of fewer examples
    firsts = [
        [1 / min(places) for places in combinations(range(1, N + 1), len(each))] for each in ids
    ]  # every place that they could take
    assert found.facts["chance"] == pytest.approx(np.mean([np.mean(each) for each in firsts]))
    assert found.facts["named_by"] == ("ids" if facts == "taught" else "a shared value")
    found.save(tmp_path / "run")
    assert Evaluation.read(tmp_path / "run").to_dict() == found.to_dict()


def test_the_tail_patch_is_one_step_on_each_top_example(indexes: list[tuple[str, Index]], tmp_path: Path) -> None:
    settings, tuning = {"count": 2, "resamples": 50}, {"learning_rate": 0.01, "epochs": 3, "schedule": "linear"}
    folder = tiny_lm(tmp_path / "lm")
    found = Trace(indexes[:1], QUERIES, settings, folder, tuning).run(tmp_path / "run")
    lm = load_lm(folder)
    base = lm.losses(lm.tokenise(list(QUERIES)))

    def gain(row: int) -> np.ndarray:
        """Rise of each query's log probability by a single step of AdamW, taken by hand."""
        import torch

        lm.reset()
        lm.fine_tune(lm.tokenise([TRAIN[row]]), airrep.lm.settings.FineTuneSettings(epochs=1, learning_rate=0.01), 0)
        assert torch.is_grad_enabled()
        return base.astype(float) - lm.losses(lm.tokenise(list(QUERIES)))

    scores = stored_scores(indexes[0][1], QUERIES).astype(np.float32)
    top = [sorted(range(N), key=lambda row, x=x: (-scores[x, row], row))[:2] for x in range(5)]
    random = stream(0, "trace", "random").choice(N, RANDOM * 2, replace=False).tolist()
    control = np.mean([gain(row) for row in random], axis=0)
    expected = [np.mean([gain(row)[x] for row in top[x]]) - control[x] for x in range(5)]
    np.testing.assert_allclose(found.rows[0].more["tail_patch"]["per_query"], expected, rtol=1e-4, atol=1e-6)
    assert found.rows[0].more["tail_patch"]["value"] == pytest.approx(np.mean(expected), rel=1e-3, abs=1e-6)
    assert found.facts["count"] == 2


def test_queries_without_facts_are_left_out_and_wrong_ones_named(indexes: list[tuple[str, Index]]) -> None:
    plain = [Example("x", "y", "bare"), *QUERIES]
    found = Trace(indexes, plain, {"resamples": 50}).run()
    assert found.facts["queries_without_facts"] == found.rows[0].dropped == 1
    assert np.isnan(found.rows[1].per_query[0])
    wrong = [*QUERIES, Example("x", "y", "odd", metadata={"fact": "fact 9", "taught": ["e1", "e99"]})]
    with pytest.raises(DataError, match="query \"odd\": no training example has the fact 'fact 9'"):
        Trace(indexes, wrong).run()
    with pytest.raises(DataError, match="query \"odd\": no training example has the id 'e99'"):
        Trace(indexes, wrong, {"facts": "taught"}).run()
    with pytest.raises(ConfigError, match="there is only one query"):
        Trace(indexes, QUERIES.take([0])).run()
    with pytest.raises(ConfigError, match="--count 31 is more than the 30 training examples"):
        Trace(indexes, QUERIES, {"count": 31}, ToyWorld(), FINE_TUNE).run()
    for facts, message in {
        "nothing": '--rows: there is no field "nothing"',
        "fact": "no query has a value in the field 'fact'",
    }.items():
        with pytest.raises((ConfigError, DataError), match=message):
            Trace(indexes, [Example("x", "y", "a"), Example("z", "y", "b")], {"facts": facts}).run()

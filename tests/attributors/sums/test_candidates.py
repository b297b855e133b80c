"""A channel that reads candidates alone: the other channels pick them, and each query has its own."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds.small_world import HashAttributor, make_corpus

import airrep
from airrep.attributors.base import OnRows
from airrep.attributors.direct import DirectAttributor
from airrep.attributors.methods import METHODS, Method
from airrep.attributors.settings import METHOD_SETTINGS
from airrep.attributors.sums.reference import FEW, REFERENCE
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ConfigError
from airrep.runtime.settings import Settings
from airrep.scoring.asked import score_all

TRAIN, K = make_corpus(60), 7
READ: list[str] = []
"""Ids of the examples that the dear method read."""


class Dear(DirectAttributor):
    """Scores as of hashed features, which it does not keep."""

    name = "dear"
    pool = "sum"

    def __init__(self, settings: Settings | None = None) -> None:
        self._inside = HashAttributor()

    @property
    def settings(self) -> Settings:
        return Settings()

    @property
    def fingerprint(self) -> str:
        return self._inside.fingerprint

    def score(self, train: Sequence[Example], queries: Sequence[Example], on_rows: OnRows | None = None) -> np.ndarray:
        READ.extend(one.id for one in train)
        features = [self._inside.encode_train(train), self._inside.encode_queries(queries)]
        return (features[0].astype(np.float64) @ features[1].astype(np.float64).T).astype(np.float32)


@pytest.fixture(autouse=True)
def _dear_is_a_method(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "dear", Method("dear", Settings, f"{__name__}:Dear"))
    monkeypatch.setitem(METHOD_SETTINGS, "dear", Settings)
    READ.clear()


def recipe(candidates: Any = K, **dear: Any) -> list[dict[str, Any]]:
    return [
        {"method": "tfidf", "pool": "mean"},
        {"method": "bm25", "weight": 0.5},
        {"method": "dear", "weight": 2.0, **({} if candidates is None else {"candidates": candidates}), **dear},
    ]


@pytest.fixture
def index(tmp_path: Path) -> airrep.Index:
    return airrep.build_index(TRAIN, tmp_path / "index", recipe=recipe(), shard_rows=16)


@pytest.fixture
def queries() -> Corpus:
    return make_corpus(5, prefix="q")


def parts(train: Corpus, queries: Sequence[Example]) -> tuple[np.ndarray, np.ndarray]:
    """Scores ``(q, n)`` of the cheap channels, and of the dear one."""
    cheap = np.zeros((len(queries), len(train)))
    for method, weight in (("tfidf", 1.0), ("bm25", 0.5)):
        made = airrep.make_attributor(method)
        made.fit(train)
        rows, asked = made.encode_train(list(train)).toarray(), made.encode_queries(list(queries)).toarray()
        cheap += weight * (asked.astype(np.float64) @ rows.astype(np.float16).astype(np.float64).T)
    return cheap, Dear().score(list(train), list(queries)).T.astype(np.float64)


def two_stages(cheap: np.ndarray, dear: np.ndarray, count: int = K, live: np.ndarray | None = None) -> np.ndarray:
    """What the dear channel scores, ``(q, n)``: its candidates as they are, and the others by a line through these."""
    found = np.zeros_like(dear)
    for query, picked in enumerate(candidates(cheap, count, live)):
        found[query] = predicted(cheap[query], dear[query], picked)
    return found


def candidates(cheap: np.ndarray, count: int, live: np.ndarray | None = None) -> list[np.ndarray]:
    shown = np.where(True if live is None else live, cheap.astype(np.float32), -np.inf)
    return [np.lexsort((np.arange(cheap.shape[1]), -own))[:count] for own in shown]


def predicted(cheap: np.ndarray, dear: np.ndarray, picked: np.ndarray) -> np.ndarray:
    line = np.polyfit(cheap[picked], dear[picked], 1) if len(picked) >= 3 else [0.0, 0.0]
    found = np.polyval(line, cheap)
    found[picked] = dear[picked]
    return found


def test_scores_are_those_of_the_cheap_channels_and_of_the_candidates(index: airrep.Index, queries: Corpus) -> None:
    cheap, dear = parts(TRAIN, queries)
    wanted = cheap + 2 * two_stages(cheap, dear)
    np.testing.assert_allclose(index.scores(queries), wanted, rtol=1e-4, atol=1e-5)
    for query, hits in enumerate(index.top(queries, k=5, why=True)):
        assert [hit.row for hit in hits] == np.argsort(-wanted[query], kind="stable")[:5].tolist()
        picked = candidates(cheap, K)[query]
        for hit in hits:
            assert hit.why.channels["dear"] == pytest.approx(2 * two_stages(cheap, dear)[query, hit.row], rel=1e-4)
            assert hit.why.predicted == (() if hit.row in picked else ("dear",))
    assert {hit.why.predicted for hits in index.top(queries, k=20, why=True) for hit in hits} == {(), ("dear",)}


def test_members_that_are_no_candidates_count_by_what_is_predicted(index: airrep.Index, queries: Corpus) -> None:
    cheap, dear = parts(TRAIN, queries)
    groups = {"a": list(range(30)), "b": [3, 40, 50]}
    scores = index.group_scores(queries, groups)
    only = airrep.build_index(TRAIN, index.path.parent / "cheap", recipe=recipe()[:2])
    own = only.group_scores(queries, groups)
    picked = 2 * two_stages(cheap, dear)
    for n, rows in enumerate(groups.values()):
        wanted = own.scores[:, n] + picked[:, rows].sum(axis=1)
        np.testing.assert_allclose(scores.scores[:, n], wanted, rtol=1e-4, atol=1e-5)


def test_no_answer_depends_on_the_other_queries(index: airrep.Index, queries: Corpus) -> None:
    together = index.scores(queries)
    union = len(READ)
    assert K <= union <= K * len(queries)
    assert len(set(READ)) == union  # one pass
    for number, query in enumerate(queries):
        again = airrep.Index(index.path)
        READ.clear()
        np.testing.assert_array_equal(again.scores(query)[0], together[number])
        assert len(READ) == K
        again.top(query)  # what was scored is remembered
        assert len(READ) == K


def test_deleted_rows_are_neither_picked_nor_read(index: airrep.Index, queries: Corpus) -> None:
    before = airrep.Index(index.path).top(queries[0], k=3)
    gone = [hit.example.id for hit in before]
    live = np.array([one.id not in gone for one in TRAIN])
    READ.clear()
    left = index.delete(gone)
    cheap, dear = parts(TRAIN, queries)
    READ.clear()
    found = left.scores(queries)
    assert not set(READ) & set(gone)
    wanted = cheap + 2 * two_stages(cheap, dear, live=live)
    np.testing.assert_allclose(found[:, live], wanted[:, live], rtol=1e-4, atol=1e-5)


def test_both_answers_of_a_contrast_score_the_candidates_of_either(index: airrep.Index, queries: Corpus) -> None:
    better = [Example(one.prompt, f"{TRAIN[9 * n].response} or so") for n, one in enumerate(queries)]
    both = [*queries, *better]
    cheap, dear = parts(TRAIN, both)
    own, q = candidates(cheap, K), len(queries)
    either = [np.union1d(own[n % q], own[n % q + q]) for n in range(2 * q)]
    whole = cheap + 2 * np.array([predicted(*three) for three in zip(cheap, dear, either, strict=True)])
    scores = score_all(index.ask(index.question(queries, better=better)))
    np.testing.assert_allclose(scores, whole, rtol=1e-4, atol=1e-5)
    contrast = (whole[:q] - whole[q:]) * (np.abs(whole[:q]) + np.abs(whole[q:]))
    for query, hits in enumerate(index.top(queries, better=better, k=4)):
        assert [hit.row for hit in hits] == np.argsort(-contrast[query], kind="stable")[:4].tolist()


def test_a_recipe_asks_an_index_with_candidates_or_without(index: airrep.Index, queries: Corpus) -> None:
    cheap, dear = parts(TRAIN, queries)
    for count, wanted in (
        (None, dear),
        (len(TRAIN), dear),
        ("15%", two_stages(cheap, dear, 9)),
        (1, two_stages(cheap, dear, 1)),
    ):
        asked = airrep.Index(index.path).made_with({"channels": recipe(count)})
        np.testing.assert_allclose(asked.scores(queries), cheap + 2 * wanted, rtol=1e-4, atol=1e-5)
        assert (asked.fingerprint == index.fingerprint) == (count == K)


def test_a_setting_gives_candidates_to_channels_that_keep_nothing(
    index: airrep.Index, queries: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airrep.attributors.recipes.KEEPS_NOTHING", ("dear",))
    cheap, dear = parts(TRAIN, queries)
    for count, wanted in ((None, dear), (9, two_stages(cheap, dear, 9))):
        asked = airrep.Index(index.path).made_with({"candidates": count})
        np.testing.assert_allclose(asked.scores(queries), cheap + 2 * wanted, rtol=1e-4, atol=1e-5)
    built = airrep.build_index(TRAIN, index.path.parent / "set", recipe=recipe(None), settings={"candidates": K})
    assert built.manifest["attributor"] == index.manifest["attributor"]
    with pytest.raises(ConfigError, match=r"candidates is for .* Take --recipe lm-whole"):
        airrep.build_index(TRAIN, index.path.parent / "none", recipe=recipe()[:2], settings={"candidates": K})


def test_the_size_of_relative_scores_is_told_by_few_examples(tmp_path: Path, queries: Corpus) -> None:
    train = make_corpus(300)
    made = [
        airrep.build_index(train, tmp_path / str(count), recipe=recipe(count, relative=True)) for count in (None, K)
    ]
    whole, some = (one.ask(queries[:1]) for one in made)
    READ.clear()
    score_all(some)
    assert len(READ) == K
    READ.clear()
    made[1].ask(queries[1:2])
    assert len(READ) == FEW < REFERENCE
    np.testing.assert_array_equal(some.weights[:, :2], whole.weights[:, :2])
    assert some.weights[0, 2] == pytest.approx(whole.weights[0, 2], rel=1)  # an estimate of the same number


def test_it_is_told(index: airrep.Index, queries: Corpus) -> None:
    told = "For each query 'dear' reads the 7 examples that the other channels rank first, and predicts"
    assert told in index.top(queries).provenance.caution
    assert told in index.manifest["caution"]


@pytest.mark.parametrize(
    ("channels", "message"),
    [
        (recipe(0), "candidates=0: expected a count of 1 or more, or a share of the examples such as '1%'"),
        (recipe("150%"), "candidates='150%': expected a count of 1 or more"),
        ([{"method": "tfidf", "candidates": 5}, {"method": "bm25"}], "channel tfidf: candidates=5 is for methods that"),
        (recipe()[2:], "candidates: are picked by other channels; expected one without, whose weight is not relative"),
        ([{**recipe()[0], "relative": True}, recipe()[2]], "are picked by other channels; expected one without"),
    ],
)
def test_bad_candidates_are_refused_before_any_work(
    tmp_path: Path, channels: list[dict[str, Any]], message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        airrep.build_index(TRAIN, tmp_path / "index", recipe=channels)
    assert message in str(refused.value)
    assert not READ
    assert not (tmp_path / "index").exists()

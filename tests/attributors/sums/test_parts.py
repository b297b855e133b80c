"""What channels of a sum are given: candidates that others pick, contrasts, pairs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds.planted_chats import FORMS, Form, contrasts_of, plant_chats, rank_of
from worlds.small_world import HashAttributor, make_corpus

import airrep
from airrep.attributors.base import Attributor, OnRows
from airrep.attributors.direct import DirectAttributor, InMemory
from airrep.attributors.methods import METHODS, Method, make_attributor
from airrep.attributors.recipes import read_channels
from airrep.attributors.settings import METHOD_SETTINGS
from airrep.attributors.sums.channels import ChannelsAttributor
from airrep.attributors.sums.relative import FEW, REFERENCE
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ConfigError
from airrep.index.building import build_index
from airrep.runtime.settings import Settings
from airrep.scoring.asked import Asked, SumAsked, even_pairs, score_all

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


def test_candidates_that_are_all_examples_change_no_weight(index: airrep.Index, queries: Corpus) -> None:
    """A relative weight is measured with fewer examples only if fewer are read."""
    whole, *same, fewer = [_relative(index, count).scores(queries) for count in (None, len(TRAIN), "100%", 9)]
    for scores in same:
        np.testing.assert_array_equal(scores, whole)
    assert np.abs(fewer - whole).max() > 1e-3


def _relative(index: airrep.Index, count: Any) -> airrep.Index:
    out = index.path.parent / f"relative {count}"
    return airrep.build_index(TRAIN, out, recipe=recipe(count, relative=True))


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
    with pytest.raises(ConfigError, match=r"'candidates' .* Use --recipe lm-whole"):
        airrep.build_index(TRAIN, index.path.parent / "none", recipe=recipe()[:2], settings={"candidates": K})


def test_the_size_of_relative_scores_is_told_by_few_examples(tmp_path: Path, queries: Corpus) -> None:
    train = make_corpus(300)
    made = [airrep.build_index(train, tmp_path / str(n), recipe=recipe(n, relative=True)) for n in (None, K)]
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
    told = "For each query, channel (method) 'dear' scores only the 7 examples that the other methods rank first."
    assert told in index.top(queries).provenance.caution
    assert told in index.manifest["caution"]


@pytest.mark.parametrize(
    ("channels", "message"),
    [
        (recipe(0), "candidates=0: candidates must be a number of examples, at least 1, or a share such as '1%'"),
        (recipe("150%"), "candidates='150%': candidates must be a number of examples"),
        (
            [{"method": "tfidf", "candidates": 5}, {"method": "bm25"}],
            "channel (method) tfidf: candidates=5 works only with methods that",
        ),
        (recipe()[2:], "candidates: every method has 'candidates' or 'relative'"),
        ([{**recipe()[0], "relative": True}, recipe()[2]], "every method has 'candidates' or 'relative'"),
    ],
)
def test_bad_candidates_are_refused_before_work(tmp_path: Path, channels: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        airrep.build_index(TRAIN, tmp_path / "index", recipe=channels)
    assert message in str(refused.value)
    assert not READ
    assert not (tmp_path / "index").exists()


CHATS = plant_chats(7, ordinary=0, kinds=("sums", "facts"))


def _first(folder: Path, form: Form, *, prompts: bool) -> float:
    """How often the planted row is first by the channels of words, TF-IDF of *prompts* and responses among them."""
    channels = [
        one for one in read_channels("contrast") if one.method == "ngram" or (prompts and one.method == "tfidf")
    ]
    index = build_index(CHATS.train, folder, "channels", settings={"channels": channels})
    asked = [*CHATS.of("sums", form), *CHATS.of("facts", form)]
    ids = [row.id for row in CHATS.train]
    return float(np.mean([rank_of(*pair, ids) == 1 for pair in zip(asked, contrasts_of(index, asked), strict=True)]))


@pytest.mark.parametrize("form", FORMS)
def test_it_finds_what_taught_an_answer_whatever_words_it_is_asked_in(tmp_path: Path, form: Form) -> None:
    assert _first(tmp_path / "index", form, prompts=True) >= 0.9


def test_without_prompts_an_answer_in_other_words_has_lost_its_subject(tmp_path: Path) -> None:
    assert _first(tmp_path / "index", "own words", prompts=False) < 0.8


def test_it_is_the_default_with_a_channel_more() -> None:
    channels, text = read_channels("contrast"), read_channels("text")
    assert [(one.title, one.weight) for one in channels[:-1]] == [(one.title, one.weight) for one in text]
    assert channels[-1].method == "tfidf"


WORDS = ["ab", "cd", "ef", "gh", "ij", "kl", "mn", "op", "qr", "st", "uv"]
PAIRS = Corpus.from_examples(
    Example(f"p{n}", " ".join(WORDS[(n * k * k + k) % 11] for k in range(2, 7)), str(n)) for n in range(60)
)
ANSWERS = [Example("p", "ab cd ef gh", "a"), Example("q", "kl mn", "b")]
BETTER = [Example("p", "ab cd st", "a-better"), Example("q", "uv op ij ab", "b-better")]
PLAIN = {"method": "ngram", "settings": {"tokenizer": "words"}}
SPARSE, DENSE = ({"method": one, "relative": True, "weight": 0.7} for one in ("tfidf", "airrep"))


def _fitted(*channels: dict[str, Any]) -> ChannelsAttributor:
    method = make_attributor("channels", {"channels": channels})
    assert isinstance(method, ChannelsAttributor)
    method.fit(PAIRS)
    return method


def _asked(method: Attributor) -> Asked:
    return method.ask([*ANSWERS, *BETTER], InMemory.of(method, PAIRS))


@pytest.mark.parametrize("relative", [SPARSE, DENSE])
def test_both_answers_of_a_pair_count_a_relative_channel_at_the_mean_of_their_weights(relative: dict[str, Any]) -> None:
    method, plain = _fitted(PLAIN, relative), make_attributor(relative["method"])
    plain.fit(PAIRS)
    asked = _asked(method)
    found = even_pairs(asked)
    assert isinstance(asked, SumAsked)
    assert isinstance(found, SumAsked)
    own = asked.weights
    assert np.abs(np.log(own[:2, 1] / own[2:, 1])).min() > 0.05  # the weights of the answers differ
    common = np.sqrt(own[:2, 1] * own[2:, 1])
    np.testing.assert_allclose(found.weights[:, 1], [*common, *common])
    single = score_all(_asked(plain))
    expected = score_all(asked) + (found.weights[:, 1] - own[:, 1])[:, None] * single
    np.testing.assert_allclose(score_all(found), expected, rtol=1e-4, atol=1e-6)


def test_without_relative_channels_weights_stay_as_they_are() -> None:
    asked = _asked(_fitted(PLAIN, {"method": "tfidf", "weight": 0.3}))
    found = even_pairs(asked)
    assert isinstance(asked, SumAsked)
    assert isinstance(found, SumAsked)
    np.testing.assert_allclose(found.weights, asked.weights, rtol=1e-15)

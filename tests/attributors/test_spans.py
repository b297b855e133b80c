"""Spans of queries, method by method: those that part an answer share its score; what knows whole answers refuses."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds.small_world import HashAttributor, make_corpus
from worlds.tiny_bert import tiny_folder
from worlds.tiny_lms import CHAT, tiny_lm, tiny_tokenizer

from airrep.answers.verdict import top
from airrep.attributors.methods import make_attributor
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ConfigError
from airrep.index.building import build_index
from airrep.index.index import Index

pytestmark = pytest.mark.usefixtures("own_cache")

TRAIN = Corpus.from_records(
    [
        {"prompt": "How long is it?", "response": "It is 108 m long, I think."},
        {"prompt": "Who built it?", "response": "Nobody built it in 1905."},
        {"prompt": "Is it long?", "response": "It is long and it is old."},
        {"prompt": "How old is it?", "response": "So old that nobody knows."},
        {"prompt": "What now?", "response": "Is 108 a number? It is."},
    ]
)
ANSWER = "It is 108 m long.\n\nNobody built it, I think. "
CUTS = (0, 6, 9, 12, 18, 30, len(ANSWER))
WHOLE = Example("How long is it?", ANSWER, id="whole")
PARTS = [Example(WHOLE.prompt, ANSWER, id=f"{start}", span=(start, stop)) for start, stop in pairwise(CUTS)]

ADDITIVE: dict[str, tuple[str, dict[str, Any]]] = {
    "tfidf": ("tfidf", {"view": "response", "ngrams": 2}),
    "bm25": ("bm25", {}),
    "words": ("ngram", {"orders": (1, 2, 3), "copied": True, "skip": 0.5}),
    "subwords": ("ngram", {"tokenizer": "subwords", "space": True, "skip": 0.5}),
    "weighed by the LM": ("ngram", {"lm": "LM", "skip": 0.5}),
    "as a template writes": ("ngram", {"lm": "LM", "rendered": True}),
    "tracin": ("tracin", {"lm": "LM", "rank": 3, "modules": ("all-linear",)}),
    "logra": ("logra", {"lm": "LM", "rank": 3, "sketch": 20}),
    "logra, whole": ("logra", {"lm": "LM", "rank": 3, "sketch": None}),
    "trak": ("trak", {"lm": "LM", "rank": 2}),
    "influence": ("influence", {"lm": "LM", "damping": 1.0}),
    "ekfac": ("ekfac", {"lm": "LM"}),
    "ekfac, unit": ("ekfac", {"lm": "LM", "unit": True}),
}


@pytest.fixture(scope="module")
def lm(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_lm(tmp_path_factory.mktemp("lm"), tokenizer=tiny_tokenizer(chat=CHAT), max_position_embeddings=256)


def made(tmp_path: Path, method: str, settings: dict[str, Any], lm: str) -> Index:
    chosen = {name: lm if value == "LM" else value for name, value in settings.items()}
    return build_index(TRAIN, tmp_path / "index", make_attributor(method, chosen))


def scores(index: Index, queries: Sequence[Example]) -> np.ndarray:
    return np.asarray(index.scores(queries), np.float64)


@pytest.mark.parametrize("name", ADDITIVE)
def test_scores_of_spans_that_part_an_answer_add_up_to_its_own(name: str, lm: str, tmp_path: Path) -> None:
    index = made(tmp_path, *ADDITIVE[name], lm)
    whole, *parts = scores(index, [WHOLE, *PARTS])
    largest = np.abs(whole).max()
    assert largest > 0
    assert np.abs(sum(parts) - whole).max() <= 1e-5 * largest
    assert np.abs(parts[1] - parts[0]).max() > 1e-3 * largest
    both = Example(WHOLE.prompt, ANSWER, span=[CUTS[1:3], CUTS[4:6]])
    assert np.abs(scores(index, [both])[0] - parts[1] - parts[4]).max() <= 1e-5 * largest
    assert np.abs(scores(index, [WHOLE])[0] - whole).max() <= 1e-6 * largest


def test_a_relative_channel_has_the_weight_of_the_whole_answer(lm: str, tmp_path: Path) -> None:
    gradients = {"lm": lm, "rank": 3, "sketch": 20, "sample": 5}
    recipe = [
        {"method": "ngram", "settings": {"skip": 0.5}},
        {"method": "logra", "settings": gradients, "weight": 2.0, "relative": True},
    ]
    index = build_index(TRAIN, tmp_path / "both", recipe=recipe)
    whole, *parts = scores(index, [WHOLE, *PARTS])
    assert np.abs(sum(parts) - whole).max() <= 1e-5 * np.abs(whole).max()
    asked = index.ask(index.question([WHOLE, *PARTS]))
    assert np.ptp(asked.weights[:, 1]) <= 1e-6 * asked.weights[0, 1] > 0


def test_the_second_of_two_stages_reads_the_span_too(lm: str, tmp_path: Path) -> None:
    alone = scores(made(tmp_path, "ekfac", {"lm": "LM"}, lm), [PARTS[1]])[0]
    recipe = [{"method": "ngram"}, {"method": "ekfac", "settings": {"lm": lm}, "candidates": 2}]
    hits = build_index(TRAIN, tmp_path / "both", recipe=recipe).top(PARTS[1], k=5, why=True)
    read = [hit for hit in hits if hit.why is not None and not hit.why.predicted]
    assert len(read) == 2
    for hit in read:
        assert hit.why is not None
        assert hit.why.channels["ekfac"] == pytest.approx(alone[hit.row], rel=1e-4)


def test_ngrams_of_a_span_are_those_that_touch_it(tmp_path: Path) -> None:
    index = made(tmp_path, "ngram", {"orders": (1, 2)}, "")
    example = Example("How long is it?", "Nobody is 108 m long here.", span=(10, 13))
    hits = index.top(example, k=5, why=True)
    assert {hit.row for hit in hits[:2]} == {0, 4}
    assert [hit.score > 0 for hit in hits] == [True, True, False, False, False]
    (words,) = {same.text for hit in hits if hit.why for same in hit.why.same_words if hit.row == 0}
    assert words == "is 108 m"
    assert sum(same.score for same in hits[0].why.same_words) == pytest.approx(hits[0].score, rel=1e-4)


def test_an_encoder_reads_the_words_of_a_span_in_the_place_of_the_answer(tmp_path: Path) -> None:
    method = make_attributor("gte", {"encoder": tiny_folder(tmp_path / "encoder"), "precision": "float32"})
    example = Example("Who?", "Nobody built it.", span=[(0, 6), (13, 15)])
    read = Example("Who?", "Nobody … it")
    found, whole = (method.encode_queries([one])[0] for one in (example, read))
    assert np.allclose(found, whole * (8 / 14), atol=1e-6)
    assert np.array_equal(method.encode_train([example]), method.encode_train([example.whole]))


def test_methods_of_whole_answers_refuse_spans_by_their_name(tmp_path: Path) -> None:
    build_index(make_corpus(5), tmp_path / "hash", HashAttributor())
    index = Index(tmp_path / "hash", HashAttributor())
    with pytest.raises(ConfigError, match=r"query 'whole' has a marked span, but hash scores only whole answers"):
        index.top([WHOLE, Example("a", "b c", id="whole", span=(0, 1))], k=1)
    assert len(index.top(WHOLE, k=1)) == 1


def test_groups_contrasts_and_verdicts_of_spans(tmp_path: Path) -> None:
    index = made(tmp_path, "ngram", {}, "")
    groups = {"first": [0, 1], "others": [2, 3, 4]}
    pooled = index.group_scores([WHOLE, *PARTS], groups).scores
    assert np.allclose(pooled[0], pooled[1:].sum(axis=0), atol=1e-5)
    answer = Example("How long is it?", "It is 108 m long.", span=(6, 9))
    found = top(index, [answer, answer.whole], better=["It is 125 m long."] * 2, k=5)
    assert found[0].better.span == ((6, 9),)
    assert found[1].better.span is None
    assert found[0].verdict is None
    assert found[1].verdict is not None
    assert {hit.row for hit in found[0][:2]} == {0, 4}
    for better, wrong in (
        ("Over 125 m.", "may differ only inside the marked part"),
        (Example("", "No 1.", span=(3, 4)), None),
    ):
        if wrong is None:
            with pytest.raises(ConfigError, match="its better answer has a marked part"):
                index.top([answer.whole], better=[better])
        else:
            with pytest.raises(ConfigError, match=wrong):
                index.top([answer], better=better)

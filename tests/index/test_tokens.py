"""What each word of an answer has of each word of a hit: sums, channels, contrasts, texts that words stand in."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from worlds.small_world import HashAttributor, plain_words
from worlds.tiny_bert import tiny_folder
from worlds.tiny_lms import tiny_lm

from airrep.answers.reading import read_result
from airrep.attributors.by_token import LEVELS, standing_out
from airrep.corpus.corpus import Corpus, Example
from airrep.corpus.places import Span
from airrep.errors import ConfigError
from airrep.index.building import build_index
from airrep.index.index import Index

TRAIN = Corpus.from_examples(
    Example(prompt, response, id=f"t{number}")
    for number, (prompt, response) in enumerate(
        [
            ("q", "the cat sat on the mat"),
            ("q w", "a dog, a cat and more cat"),
            ("the cat", "the end of the cat: it sat"),
            ("é", "👩\u200d👩\u200d👧 été 猫が好き"),
            ("numbers", "one two three four five"),
        ]
    )
)
ASKED = Example("the cat", "on the mat the cat sat", id="x")
TALK = [
    *({"method": "ngram", "settings": {"tokenizer": "words"}, "weight": 2.0},),
    *({"method": "tfidf", "settings": {"ngrams": 2}, "weight": 3.0},),
]


@pytest.fixture(scope="module")
def sums(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """Counts, an encoder, gradients, and whole gradients of candidates."""
    folder = tmp_path_factory.mktemp("sums")
    lm, encoder = tiny_lm(folder / "lm"), str(tiny_folder(folder / "encoder"))
    own = {"lm": lm, "precision": "float32", "store": "none"}
    channels = [
        *TALK,
        {"method": "airrep", "settings": {"encoder": encoder}, "name": "encoder", "weight": 0.1},
        {"method": "tracin", "settings": {**own, "rank": 4}, "name": "gradients", "weight": 0.5, "pool": "sum"},
        {"method": "ekfac", "settings": own, "name": "whole", "weight": 1e-3, "pool": "sum", "candidates": 2},
    ]
    return build_index(TRAIN, folder / "index", "channels", settings={"channels": channels})


def text_of(example: Example, span: Span) -> str:
    return str(getattr(example, span.field))[span.start : span.stop]


def said(example: Example, spans: tuple[Span, ...], field: str = "response") -> list[str | None]:
    """The words of one text, None for those of the other."""
    return [text_of(example, span) if span.field == field else None for span in spans]


def gain(word: str, example: Example) -> float:
    """What one occurrence of a word in the query's response gives, from the equation of method ngram."""
    corpus = Counter(word for one in TRAIN for word in (*plain_words(one.response), "$"))
    often = (corpus[word] + 0.1) / (corpus.total() + 0.1 * len(corpus))
    had = Counter([*plain_words(example.response), "$"])
    return float(np.log1p(had[word] / had.total() / often)) / (len(plain_words(ASKED.response)) + 1)


def test_a_words_part_is_shared_among_its_places(tmp_path: Path) -> None:
    index = build_index(TRAIN, tmp_path / "index", "ngram", settings={"orders": [1]})
    for hit in index.top(ASKED, len(TRAIN), tokens=True):
        assert hit.why is not None
        assert hit.why.tokens is not None
        told, matrix = hit.why.tokens, hit.why.tokens.matrix
        here, there = said(ASKED, told.query), said(hit.example, told.example)
        for row, one in enumerate(here):
            for column, other in enumerate(there):
                same = one is not None and one == other
                wanted = gain(str(one), hit.example) / there.count(other) if same else 0.0
                assert matrix[row, column] == pytest.approx(wanted, rel=2e-3)
        ends = gain("$", hit.example)
        assert matrix[-1, -1] == pytest.approx(ends, rel=2e-3)
        assert sum(told.of_query) + ends == pytest.approx(hit.score, rel=2e-3)
        assert sum(told.of_example) == pytest.approx(sum(told.of_query), abs=1e-6)


def test_pairs_of_words_stand_at_the_words_that_are_the_same(tmp_path: Path) -> None:
    index = build_index(TRAIN, tmp_path / "index", "tfidf", settings={"ngrams": 3, "view": "response"})
    for hit in index.top(ASKED, len(TRAIN), tokens=True):
        assert hit.why is not None
        assert hit.why.tokens is not None
        told = hit.why.tokens
        here, there = said(ASKED, told.query), said(hit.example, told.example)
        for row, column in zip(*np.nonzero(told.matrix), strict=True):
            assert here[row] == there[column] is not None
        assert told.matrix.sum() == pytest.approx(hit.score, abs=1e-6)


def test_of_a_span_counted_words_stand_in_it(tmp_path: Path) -> None:
    index = build_index(TRAIN, tmp_path / "index", "ngram", settings={"orders": [1, 2]})
    start = ASKED.response.index("cat")
    for hit in index.top(replace(ASKED, span=((start, start + 3),)), len(TRAIN), tokens=True):
        assert hit.why is not None
        assert hit.why.tokens is not None
        told, here = hit.why.tokens, said(ASKED, hit.why.tokens.query)
        assert told.matrix.sum() == pytest.approx(hit.score, abs=1e-6)
        assert {here[row] for row, part in enumerate(told.of_query) if part} <= {"the", "cat", "sat"}
        if "cat" in hit.example.response:
            assert max(zip(told.of_query, map(str, here), strict=True))[1] == "cat"


def test_all_channels_add_up_to_the_score_and_the_rest_says_what_has_no_tokens(sums: Index) -> None:
    hits = sums.top(ASKED, len(TRAIN), tokens=True)
    others = sums.top(ASKED, len(TRAIN), why=True)
    predicted = 0
    for hit, other in zip(hits, others, strict=True):
        assert hit.why is not None
        assert hit.why.tokens is not None
        assert other.why is not None
        assert (hit.row, hit.score, other.why.tokens) == (other.row, other.score, None)
        assert hit.why.channels == other.why.channels
        told = hit.why.tokens
        assert told.matrix.shape == (len(told.query) + 1, len(told.example) + 1)
        assert told.matrix.sum() + sum(told.rest.values()) == pytest.approx(hit.score, abs=1e-5)
        assert told.rest["encoder"] == hit.why.channels["encoder"] != 0
        for name in set(told.rest) - {"encoder", *hit.why.predicted}:
            assert abs(told.rest[name]) < 2e-3 * max(1, abs(hit.why.channels[name]))  # stored in float16
        predicted += len(hit.why.predicted)
        assert [told.rest[name] for name in hit.why.predicted] == [hit.why.channels[name] for name in hit.why.predicted]
        for example, words in ((ASKED, told.query), (hit.example, told.example)):
            for field in ("prompt", "response"):
                text = "".join(str(word) for word in said(example, words, field) if word is not None)
                assert text == "".join(getattr(example, field).split())
    assert predicted


def test_a_contrasts_pairs_are_those_of_the_answer_on_its_scale(sums: Index) -> None:
    for hit in sums.top(ASKED, 3, better="nothing of the kind", tokens=True):
        assert hit.why is not None
        assert hit.why.tokens is not None
        told = hit.why.tokens
        assert told.matrix.sum() + sum(told.rest.values()) == pytest.approx(hit.score, rel=1e-4, abs=1e-6)
        assert {word for word in said(ASKED, told.query) if word} <= set(ASKED.response.split())


def test_results_keep_them_and_leave_them_out_where_they_were_not_asked_for(sums: Index, tmp_path: Path) -> None:
    result = sums.top([ASKED], 2, tokens=True)
    result.save(tmp_path / "run")
    assert read_result(tmp_path / "run").to_dict() == result.to_dict()
    assert "tokens" not in json.dumps(sums.top([ASKED], 2, why=True).to_dict())


def test_pairs_are_refused(tmp_path: Path) -> None:
    index = build_index(TRAIN, tmp_path / "index", "ngram")
    pair = Example("a", "the cat", chat={"rejected": "a dog"})
    with pytest.raises(ConfigError, match=r"a pair \(a chosen and a rejected response\)"):
        index.top(pair, 1, tokens=True)


def test_what_has_no_tokens_is_refused_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = build_index(TRAIN, tmp_path / "index", HashAttributor())
    monkeypatch.setattr(Index, "ask", None)
    with pytest.raises(ConfigError, match="hash cannot divide a score"):
        Index(tmp_path / "index", HashAttributor()).top(ASKED, 1, tokens=True)
    assert index.rows == len(TRAIN)


def test_words_stand_out_by_their_size() -> None:
    words = [Span("response", place, place + 1) for place in range(5)]
    found = standing_out(words, [0.01, 0.2, -1.0, 0.0, 0.5])
    assert [(word.span.start, word.level) for word in found] == [(1, 1), (2, LEVELS), (4, 2)]
    assert standing_out(words[:2], [0.0, 0.0]) == []

"""Spans of answers: what is refused, marks that are typed, and how corpora and records keep them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from airrep.corpus.corpus import Corpus, Example, read_corpus
from airrep.corpus.inputs import as_corpus, as_examples
from airrep.corpus.spans import shares, take_marks, typed_spans, with_marks
from airrep.errors import ConfigError, DataError

ANSWER = "The cafe\u0301 has 108 seats. \U0001f469\u200d\U0001f33e runs it."
FARMER = ANSWER.index("\U0001f469")


@pytest.mark.parametrize(
    ("span", "wrong"),
    [
        ((2, 99), "lies outside"), ((-1, 3), "lies outside"), ((5, 2), "lies outside"), ((4, 4), "covers no text"),
        ((3, 4), "covers no text"), ([(0, 5), (4, 9)], "overlaps"), ((4, 8), "inside the character"),
        ((FARMER + 1, FARMER + 3), "inside the character"), ([], "is empty"), ("some", "is text"),
        ([(0, 3, 4)], "is a list"), ((0, True), "is a list"), ((0.5, 3), "is a list"),
    ],
)  # fmt: skip
def test_what_is_no_span_is_refused_in_one_line(span: Any, wrong: str) -> None:
    with pytest.raises(DataError, match=wrong) as refused:
        as_examples(Example("How many seats?", ANSWER, span=span))
    assert str(refused.value).startswith("queries: span ")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("typed", "text", "spans"),
    [
        ("It is [[108]] m.", "It is 108 m.", ((6, 9),)),
        ("[[A]] and [[B]]", "A and B", ((0, 1), (6, 7))),
        (r"a \[[list]], x[i[0]] and \[[[b]]", "a [[list]], x[i[0]] and [[[b]]", ()),
        (r"\[[ [[b]] \]]", "[[ b ]]", ((3, 4),)),
        ("none", "none", ()),
    ],
)
def test_marks_are_taken_out_of_typed_texts(typed: str, text: str, spans: tuple[Any, ...]) -> None:
    assert take_marks(typed, "--response") == (text, spans)
    plain = "\\" not in typed
    assert with_marks(text, spans) == typed or not plain


@pytest.mark.parametrize(("typed", "wrong"), [("a [[b", "never closed"), ("a [[b [[c]] d]]", "inside another")])
def test_marks_that_do_not_close_are_refused(typed: str, wrong: str) -> None:
    with pytest.raises(ConfigError, match=wrong):
        take_marks(typed, "--response")


def test_spans_are_typed_by_their_characters() -> None:
    assert typed_spans("11:14") == ((11, 14),)
    assert typed_spans("20:25, 3:4") == ((3, 4), (20, 25))
    for wrong in ("11", "11:", "-3:4", "a:b", "1:2;3:4", ""):
        with pytest.raises(ConfigError, match=r"^--span .*must be START:END"):
            typed_spans(wrong)


def test_shares_of_tokens_add_up_over_spans_that_part_a_text() -> None:
    text = " ab  cde f. "
    starts, stops = np.array([0, 1, 3, 4, 7, 8, 12, 12]), np.array([0, 3, 5, 7, 8, 11, 12, 12])
    whole = np.zeros(len(starts))
    for span in ((0, 2), (2, 6), (6, 11), (11, 12)):
        found = shares(text, (span,), starts, stops)
        assert ((found >= 0) & (found <= 1)).all()
        whole += found
    assert np.allclose(whole, 1)
    assert shares(text, ((5, 6),), starts, stops).tolist() == [0, 0, 0, 0.5, 0, 0, 0, 0]


def test_a_span_is_kept_with_its_example_and_read_back(tmp_path: Path) -> None:
    one = Example("How many seats?", ANSWER, span=(14, 17), chat={"form": "bare"})
    corpus = Corpus.from_examples([one, Example("a", "b")])
    corpus.to_jsonl(tmp_path / "one.jsonl")
    assert corpus[0] == one == read_corpus(tmp_path / "one.jsonl")[0] == Corpus.from_table(corpus.table)[0]
    assert one.span == ((14, 17),)
    assert one.chat == {"form": "bare"}
    assert one.whole.span is None
    apart = {one.reading_hash, one.whole.reading_hash, Example("How many seats?", ANSWER).reading_hash}
    assert len(apart) == 3
    assert one.content_hash == one.whole.content_hash
    with pytest.raises(DataError, match="only queries may have spans"):
        as_corpus(corpus)


def test_the_field_of_a_record_is_a_span_of_queries_and_metadata_of_training_data(tmp_path: Path) -> None:
    records = [
        {"prompt": "p", "response": "one two", "span": [[0, 3]], "other": 1},
        {"prompt": "q", "response": "one two", "span": "4:7"},
        {"prompt": "r", "response": "one two"},
    ]
    path = tmp_path / "some.jsonl"
    path.write_text("\n".join(map(json.dumps, records)))
    assert [one.span for one in as_examples(path)] == [((0, 3),), ((4, 7),), None]
    assert as_examples(path)[0].metadata == {"other": 1}
    assert [one.metadata.get("span") for one in as_corpus(path)] == [[[0, 3]], "4:7", None]
    path.write_text(json.dumps({"prompt": "p", "response": "one two", "span": [[0, 30]]}))
    with pytest.raises(DataError, match=r"^some.jsonl:1: span 0:30 lies outside"):
        as_examples(path)

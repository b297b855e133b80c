"""Unigram F1: properties, and equality with a naive count."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import classification

from airrep.evaluation.select.answers import unigram_f1

TEXTS = st.text(alphabet="abAB 12_.,!-é\n", max_size=20)


@pytest.mark.parametrize(
    ("answer", "reference", "value"),
    [
        ("positive", "Positive.", 1.0),
        ("the cat sat", "the cat", 0.8),
        ("a a a b", "a b b", 4 / 7),
        ("yes", "no", 0.0),
        ("", "", 1.0),
        ("", "no", 0.0),
        ("!?", "no", 0.0),
        ("!?", " !? ", 1.0),
        ("+", "-", 0.0),
        ("3.5", "5, 3", 1.0),
    ],
)
def test_f1_of_cases_worked_out_by_hand(answer: str, reference: str, value: float) -> None:
    assert unigram_f1(answer, reference) == pytest.approx(value, rel=1e-15)


@given(TEXTS, TEXTS)
@settings(deadline=None)  # the first call compiles what splits words
def test_f1_equals_the_naive_count(answer: str, reference: str) -> None:
    assert unigram_f1(answer, reference) == pytest.approx(classification.unigram_f1(answer, reference), rel=1e-12)


@given(TEXTS, TEXTS)
def test_f1_is_symmetric_bounded_and_blind_to_case_and_order(answer: str, reference: str) -> None:
    value = unigram_f1(answer, reference)
    assert 0 <= value <= 1
    assert value == unigram_f1(reference, answer)
    assert value == unigram_f1(answer.upper(), reference)
    if classification.words(answer):
        assert value == unigram_f1(" ".join(reversed(classification.words(answer))), reference)


@given(TEXTS)
def test_f1_of_a_text_with_itself_is_one(text: str) -> None:
    assert unigram_f1(text, text) == 1.0

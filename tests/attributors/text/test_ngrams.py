"""Hashed n-gram counts against a plain loop, and against frozen numbers of data-selection."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds.small_world import plain_words

from airrep.attributors.text import lexical
from airrep.attributors.text.lexical import NgramCounter, bucket_of, log_ratio, split_words
from airrep.corpus.words import plain
from airrep.errors import DataError

CAT = "The cat isn't THE cat!"
WORLD = "Straße 春眠不觉晓, ☀️ 3.14"

FROZEN = {
    (CAT, 1): {360: 1, 2366: 2, 4290: 1, 6297: 1, 6338: 1, 8288: 2},
    (CAT, 2): dict.fromkeys([360, 2173, 4290, 6297, 6338, 7023, 7711, 9344, 9654], 1)
    | dict.fromkeys([143, 2366, 8288], 2),
    (WORLD, 3): dict.fromkeys(
        [386, 410, 818, 1296, 1665, 1678, 1961, 2935, 2968, 3585, 3960, 4887, 5367, 6015, 6696, 7990, 8690, 9952], 1
    ),
    ("one", 3): {7085: 1},
}
"""Counts of data-selection 1.0.3 with nltk 3.8.1, in 10,000 buckets: (text, n) to bucket to count."""


def plain_counts(text: str, longest: int, buckets: int) -> list[int]:
    words, counts = plain_words(plain(text).lower(), together=True), [0] * buckets
    for n in range(1, longest + 1):
        for start in range(len(words) - n + 1):
            ngram = " ".join(words[start : start + n])
            counts[int(hashlib.sha256(ngram.encode("utf-8")).hexdigest(), 16) % buckets] += 1
    return counts


@pytest.mark.parametrize(("text", "longest"), FROZEN)
def test_counts_are_the_frozen_ones_of_data_selection(text: str, longest: int) -> None:
    """Computed once with data-selection 1.0.3 and nltk 3.8.1; oracles/dsir.py compares afresh."""
    counts = NgramCounter(longest).count([text])
    assert dict(zip(counts.indices.tolist(), counts.data.tolist(), strict=True)) == FROZEN[text, longest]
    assert (counts.dtype, counts.indices.dtype, counts.shape) == (np.float32, np.int32, (1, 10_000))


def test_buckets_are_the_frozen_ones_of_data_selection() -> None:
    """Computed once with data-selection 1.0.3."""
    texts = ["the", "the cat", "!", "isn", "straße", "春眠不觉晓", "a_b @ c"]
    assert [bucket_of(ngram, 10_000) for ngram in texts] == [8288, 143, 6338, 4290, 9952, 6696, 9593]
    assert NgramCounter(2, 7).count([CAT]).toarray().tolist() == [[1, 2, 3, 1, 2, 0, 6]]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=40), max_size=5), st.integers(1, 4), st.integers(1, 30))
def test_counts_equal_a_plain_loop_whatever_the_text(texts: list[str], longest: int, buckets: int) -> None:
    counter = NgramCounter(longest, buckets)
    counts = counter.count(texts)
    expected = np.array([plain_counts(text, longest, buckets) for text in texts]).reshape(len(texts), buckets)
    np.testing.assert_array_equal(counts.toarray(), expected)
    assert (np.diff(counts.row_of * counts.shape[1] + counts.indices) > 0).all()
    np.testing.assert_array_equal(counter.total(texts), expected.sum(axis=0))


def test_words_are_lower_case_runs_of_letters_or_of_signs() -> None:
    assert split_words("Don't  stop_it: 3.14!?\n☀️") == ["don", "'", "t", "stop_it", ":", "3", ".", "14", "!?", "☀️"]
    assert split_words(" \t\n\u2028") == []


def test_neither_batches_nor_what_is_remembered_change_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"a text with number {number} and {number % 7} more" for number in range(50)]
    whole = NgramCounter().count(texts)
    monkeypatch.setattr(lexical, "CACHED", 5)
    monkeypatch.setattr(lexical, "BATCH", 3)
    forgetful = NgramCounter()
    np.testing.assert_array_equal(forgetful.count(texts).toarray(), whole.toarray())
    total = forgetful.total(iter(texts))
    assert total.dtype == np.int64
    np.testing.assert_array_equal(total, whole.toarray().sum(axis=0))
    assert len(forgetful._numbers) <= 5


def test_log_ratio_is_the_formula_row_by_row() -> None:
    source, target = np.array([1, 0, 3]), np.array([[0, 2, 2], [5, 0, 0]])
    ratio = log_ratio(target, source, 1e-8)
    expected = np.log([[1e-8, 0.5 + 1e-8, 0.5 + 1e-8], [1 + 1e-8, 1e-8, 1e-8]]) - np.log(
        [0.25 + 1e-8, 1e-8, 0.75 + 1e-8]
    )
    np.testing.assert_allclose(ratio, expected, rtol=1e-15)
    np.testing.assert_array_equal(log_ratio(target[0], source, 1e-8), ratio[0])
    np.testing.assert_array_equal(log_ratio(7 * source, source, 1e-8), np.zeros(3))


def test_bad_input_is_told() -> None:
    with pytest.raises(DataError, match="target: the texts have no n-grams"):
        log_ratio(np.array([[1, 0], [0, 0]]), np.array([1, 1]), 1e-8)
    with pytest.raises(DataError, match="source: the texts have no n-grams"):
        log_ratio(np.array([1, 0]), np.array([0, 0]), 1e-8)

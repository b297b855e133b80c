"""Columns of n-grams: counted for many texts at a time as one by one, in whatever batches, and from texts."""

import math
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from reference.ngrams import columns, ngrams

from airrep.arrays import SparseFeatures
from airrep.attributors.methods import make_attributor
from airrep.attributors.text import columns as counting
from airrep.attributors.text.columns import Counted, count_ngrams, order_of
from airrep.attributors.text.tokens import MARK, TokenBatch, mark_copied, tokenizer_of
from airrep.corpus.corpus import Corpus, Example
from airrep.index.building import build_index

KINDS = [((1, 2, 3), True), ((1, 2, 3), False), ((3, 1), False), ((8,), True), ((2, 5, 1, 4), False), ((1,), False)]
LENGTHS = [0, 1, 2, 0, 0, 3, 7, 1, 40, 8, 9, 0]


def some_tokens(most: int) -> list[list[int]]:
    """Texts of few different tokens, so that n-grams come again, and of any 62 bits."""
    random = np.random.default_rng(most)
    return [random.integers(2, most, length).tolist() for length in LENGTHS]


def each(counted: Counted) -> list[dict[int, float]]:
    """Count of each column, text by text; columns ascend, and the texts of each."""
    texts: list[dict[int, float]] = [{} for _ in counted.lengths]
    entries = list(zip(counted.columns.tolist(), counted.rows.tolist(), strict=True))
    assert entries == sorted(set(entries))
    for (column, row), count in zip(entries, counted.counts.tolist(), strict=True):
        texts[row][column] = count
    return texts


@pytest.mark.parametrize(("orders", "skip"), KINDS)
@pytest.mark.parametrize("most", [4, 2**62])
def test_ngrams_are_counted_as_one_by_one(orders: tuple[int, ...], skip: bool, most: int) -> None:
    texts = some_tokens(most)
    counted = count_ngrams(TokenBatch.of(texts), orders, skip)
    assert each(counted) == [dict(Counter(columns(text, orders, skip))) for text in texts]
    assert counted.columns.dtype == np.int32
    assert counted.lengths.tolist() == [len(text) + 1 if text else 0 for text in texts]


@pytest.mark.parametrize(("orders", "skip"), KINDS)
def test_weights_are_added_up_in_the_order_of_the_text(orders: tuple[int, ...], skip: bool) -> None:
    texts, random = some_tokens(4), np.random.default_rng(0)
    weights = [random.random(len(text) + 1) for text in texts]
    wanted: list[dict[int, float]] = [{} for _ in texts]
    for found, text, own in zip(wanted, texts, weights, strict=True):
        for column, last in ngrams(text, orders, skip):
            found[column] = found.get(column, 0.0) + float(own[last])
    assert each(count_ngrams(TokenBatch.of(texts), orders, skip, weights)) == wanted  # to the last bit


def test_no_text_and_no_token_have_no_ngram() -> None:
    for texts in ([], [[]], [[], []]):
        counted = count_ngrams(TokenBatch.of(texts), (1, 2), True)
        assert (len(counted.columns), len(counted.counts)) == (0, 0)
        assert len(counted.rows) == 0
        assert counted.lengths.tolist() == [0] * len(texts)


def test_each_order_has_columns_of_its_own() -> None:
    found = count_ngrams(TokenBatch.of([[5, 6, 5, 6]]), (3, 1, 2))
    assert np.bincount(order_of(found.columns), found.counts).tolist() == [4, 5, 5]
    assert np.bincount(order_of(found.columns)).tolist() == [4, 3, 4]
    gaps = count_ngrams(TokenBatch.of([[5, 6, 5, 6]]), (2,), skip=True)
    assert np.bincount(order_of(gaps.columns), gaps.counts).tolist() == [5, 4]  # two begin or end with a symbol


@pytest.mark.parametrize("together", [1, 50, 2**23])
def test_a_corpus_is_counted_alike_in_every_number_of_parts(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts beyond a byte and beyond two, those that end in a byte of 0, columns of the first and the last bucket."""
    monkeypatch.setattr(counting, "TOGETHER", together)
    random = np.random.default_rng(0)
    often = {1: 256, 2: 255, 3: 1, 2**26: 70_000, 2**26 + 1: 512, 2**27: 257, 2**27 + 5: 2, 2**24: 1, 2**24 + 1: 300}
    columns = random.permutation(np.repeat(np.array(list(often), np.int32), list(often.values())))
    found = counting.tally(np.array_split(columns, 7), 3)
    listed = {column: count for column, count in sorted(often.items()) if count > 1}
    assert dict(zip(found.columns.tolist(), found.counts.tolist(), strict=True)) == listed
    assert list(listed) == found.columns.tolist()
    kinds = [[count for column, count in often.items() if (column - 1) // 2**26 == kind] for kind in range(3)]
    assert found.totals.tolist() == [[sum(kind), len(kind)] for kind in kinds]
    assert (found.columns.dtype, found.counts.dtype, found.totals.dtype) == (np.int32, np.int64, np.int64)


def test_words_of_a_prompt_are_marked_in_its_own_response_alone() -> None:
    split, _ = tokenizer_of("words")
    responses, prompts = ["a b, a", "a b", "", "b c", "b"], ["a, c", "c d", "a", "", "b"]
    found = mark_copied(split(responses), prompts)
    a, b, c, comma = split(["a b c ,"]).numbers.tolist()
    assert [own.tolist() for own in found] == [[MARK, b, comma, MARK], [a, b], [], [b, c], [MARK]]


SETTINGS = [
    {"tokenizer": "subwords", "smoothing": 3, "skip": 0.5, "space": True},
    {"tokenizer": "words", "smoothing": 3, "copied": True},
    {"view": "whole", "orders": [2, 7]},
]


def assert_same_bits(found: SparseFeatures, wanted: SparseFeatures) -> None:
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))


@pytest.mark.parametrize("settings", SETTINGS)
def test_rows_have_the_same_bits_in_every_batch_and_order(settings: dict) -> None:
    words = ["it", "is", "a", "cat", "dog", "é", "cafe\u0301", "3", "of", "猫", ".", "  "]
    random = np.random.default_rng(1)
    texts = [" ".join(random.choice(words, count)) for count in random.integers(0, 12, 9000)]
    every = [Example(a, f"{b} x", str(n)) for n, (a, b) in enumerate(zip(texts[::2], texts[1::2], strict=True))]
    method = make_attributor("ngram", settings)
    method.fit(Corpus.from_examples(every))
    whole = method.encode_train(every)
    assert len(every) > 4096
    queries = method.encode_queries(every[:200])
    order = random.permutation(len(every))
    back = np.argsort(order)
    for read in (
        method.encode_train([every[row] for row in order])[back],
        method.encode_train(Corpus.from_examples(every)),
    ):
        assert_same_bits(read, whole)
    for size in (1, 7):
        for start in range(0, 200, size):
            some = slice(start, min(start + size, 200))
            assert_same_bits(method.encode_train(every[some]), whole[some])
            assert_same_bits(method.encode_queries(every[some]), queries[some])
    other = make_attributor("ngram", settings)
    other.fit(Corpus.from_examples([every[row] for row in order]))
    assert other.fingerprint == method.fingerprint


TRAIN = Corpus.from_examples(
    Example(
        f"say {['ab', 'cd', 'ef', 'gh'][n % 4]}",
        " ".join(["ab", "cd", "ef", "gh", "中文", "é", "!"][(n * k + k) % 7] for k in range(n % 5 + 1)),
        str(n),
    )
    for n in range(15)
)
QUERIES = [Example("say ab", "ab cd ab !", "q"), Example("", "中文 é ef", "r"), Example("x", "nothing shared", "s")]
GROUPS = [[0], [1, 2, 3], [4, 9, 14, 7], list(range(15))]
REMOVED = [0, 3, 8]


class Counting:
    """f(x, S) by dictionaries of strings."""

    def __init__(
        self, mix: float = 0.5, smoothing: float = 0.1, length: float = 0.5, skip: float = 0.0, copied: bool = False
    ) -> None:
        self.share, self.smoothing, self.length = mix / (1 - mix), smoothing, length
        self.skip, self.copied = skip, copied
        self.members = [self.counts(one) for one in TRAIN]
        self.corpus = sum((counts for counts, _ in self.members), Counter())

    def counts(self, example: Example) -> tuple[Counter, int]:
        words = re.findall(r"\w+|[^\w\s]", example.response)
        if self.copied:
            words = ["<copied>" if word in re.findall(r"\w+", example.prompt) else word for word in words]
        marked = ["<start>", *words, "<end>"]
        found = [(n, *marked[i : i + n]) for n in (1, 2, 3) for i in range(n == 1, len(marked) - n + 1)]
        pairs = [("pair", marked[i], marked[i + 2]) for i in range(len(marked) - 2)] if self.skip else []
        return Counter([*found, *pairs]), len(words) + 1

    def score(self, example: Example, group: list[int]) -> float:
        counts, size = self.counts(example)
        members = [self.members[row] for row in group]
        total = sum(length**self.length for _, length in members)
        score = 0.0
        for ngram, count in counts.items():
            alike = [many for one, many in self.corpus.items() if one[0] == ngram[0]]
            background = (self.corpus[ngram] + self.smoothing) / (sum(alike) + self.smoothing * len(alike))
            there = sum(length**self.length * own[ngram] / length for own, length in members) / total
            weight = self.skip if ngram[0] == "pair" else 1.0
            score += weight * count / size * math.log1p(self.share * there / background)
        return score


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"skip": 0.5, "smoothing": 3.0},
        {"copied": True, "mix": 0.2, "skip": 2.0},
        {"length": 0.0},
        {"length": 1.0, "mix": 0.9},
    ],
    ids=str,
)
def test_groups_what_ifs_and_searches_are_those_of_strings(tmp_path: Path, settings: dict) -> None:
    index, plain = build_index(TRAIN, tmp_path / "index", "ngram", settings=settings), Counting(**settings)
    groups = index.group_scores(QUERIES, GROUPS).scores
    assert groups == pytest.approx(np.array([[plain.score(x, group) for group in GROUPS] for x in QUERIES]), abs=1e-5)
    whole, kept = list(range(15)), [row for row in range(15) if row not in REMOVED]
    change = index.what_if(QUERIES, remove=[str(row) for row in REMOVED]).change
    assert change == pytest.approx(np.array([plain.score(x, kept) - plain.score(x, whole) for x in QUERIES]), abs=1e-5)
    for x, hits in zip(QUERIES, index.top(QUERIES, k=15), strict=True):
        assert [hit.score for hit in hits] == pytest.approx(
            [plain.score(x, [int(hit.example.id)]) for hit in hits], abs=1e-5
        )

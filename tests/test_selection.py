"""Selection by best rank, against ranking everything."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.ranking import ranked_rows
from scipy import sparse

from airrep import selection
from airrep.blocks import Block, quantise
from airrep.errors import ConfigError, DataError
from airrep.selection import min_rank


def rank_everything(
    queries: np.ndarray, train: np.ndarray, count: int, keep: np.ndarray | None = None
) -> list[tuple[int, int, int]]:
    """(rank, query, row) of the first rows, by the definition."""
    values: dict[int, tuple[int, int]] = {}
    for query, scores in enumerate(queries.astype(np.float64) @ train.astype(np.float64).T):
        for rank, row in enumerate(ranked_rows(scores.tolist(), keep), start=1):
            values[row] = min(values.get(row, (rank, query)), (rank, query))
    return sorted((rank, query, row) for row, (rank, query) in values.items())[:count]


def blocks_of(train: np.ndarray) -> list[Block]:
    half = len(train) // 2
    parts = [(0, train[:half].astype(np.float16)), (half, train[half:].astype(np.float16))]
    return [Block(start, part, *quantise(part)) for start, part in parts if len(part)]


def check(queries: np.ndarray, train: np.ndarray, count: int, keep: np.ndarray | None = None) -> None:
    found = min_rank(queries, blocks_of(train), count, keep)
    triples = list(zip(found.ranks.tolist(), found.queries.tolist(), found.rows.tolist(), strict=True))
    assert triples == rank_everything(queries, train, count, keep)
    np.testing.assert_array_equal(found.scores, (queries[found.queries] * train[found.rows]).sum(axis=1))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 60), st.integers(1, 4))
def test_the_definition_with_ties(seed: int, q: int, n: int, greatest: int) -> None:
    generator = np.random.default_rng(seed)
    queries = generator.integers(-greatest, greatest + 1, (q, 3)).astype(np.float32)
    train = generator.integers(-greatest, greatest + 1, (n, 3)).astype(np.float32)
    keep = generator.random(n) < 0.6
    keep[generator.integers(0, n)] = True
    for mask in (None, keep):
        kept = n if mask is None else int(mask.sum())
        for count in {1, max(1, kept // 3), kept}:
            check(queries, train, count, mask)


def test_queries_that_agree_need_to_be_asked_deeper() -> None:
    """Eight equal queries give a hundred rows only after a hundred ranks each."""
    train = np.arange(100, dtype=np.float32)[:, None]
    check(np.ones((8, 1), np.float32), train, 100)
    check(np.ones((8, 1), np.float32), train, 37)


def test_queries_are_ranked_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "PAIRS", 25)
    generator = np.random.default_rng(3)
    check(
        generator.integers(-9, 10, (11, 4)).astype(np.float32),
        generator.integers(-9, 10, (80, 4)).astype(np.float32),
        60,
    )


def test_of_equal_contents_only_the_first_counts() -> None:
    """As if the others were not there: they take no rank either."""
    generator = np.random.default_rng(4)
    distinct = generator.integers(-9, 10, (12, 4)).astype(np.float32)
    which = generator.integers(0, 12, 70)
    train, queries = distinct[which], generator.integers(-9, 10, (3, 4)).astype(np.float32)
    keys = [f"{i:016x}" for i in which]
    keep = np.arange(70) >= 5
    first = np.array([keep[row] and which[row] not in which[5:row] for row in range(70)])
    found = min_rank(queries, blocks_of(train), int(first.sum()), keep, skip_duplicates=keys)
    expected = rank_everything(queries, train, 70, first)
    assert list(zip(found.ranks, found.queries, found.rows, strict=True)) == expected
    with pytest.raises(ConfigError, match=f"there are {first.sum()} examples to choose from"):
        min_rank(queries, blocks_of(train), int(first.sum()) + 1, keep, skip_duplicates=keys)


def test_sparse_features() -> None:
    generator = np.random.default_rng(5)
    train = generator.integers(0, 3, (40, 20)) * (generator.random((40, 20)) < 0.1)
    queries = generator.integers(0, 3, (4, 20)) * (generator.random((4, 20)) < 0.2)
    blocks = [Block(0, sparse.csr_array(train.astype(np.float32)))]
    found = min_rank(sparse.csr_array(queries.astype(np.float32)), blocks, 40)
    expected = rank_everything(queries, train, 40)
    assert list(zip(found.ranks, found.queries, found.rows, strict=True)) == expected


QUERIES, TRAIN = np.ones((2, 3), np.float32), np.ones((4, 3), np.float16)


@pytest.mark.parametrize(
    ("queries", "count", "options", "error", "message"),
    [
        (QUERIES, 0, {}, ConfigError, "count is 0; expected at least 1"),
        (QUERIES, 5, {}, ConfigError, "count is 5, but there are 4 examples to choose from"),
        (QUERIES, 1, {"keep": np.zeros(4, bool)}, ConfigError, "there are 0 examples"),
        (QUERIES, 1, {"keep": np.zeros(5, bool)}, ConfigError, "keep: is bool"),
        (QUERIES, 1, {"skip_duplicates": ["x"]}, ConfigError, r"skip_duplicates: is \(1,\); expected \(4,\)"),
        (QUERIES[:0], 1, {}, DataError, "queries: there are none"),
    ],
)
def test_bad_input(
    queries: np.ndarray, count: int, options: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        min_rank(queries, [Block(0, TRAIN)], count, **options)

"""Selection by best rank, against ranking everything; draws by weight, against exact chances."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.ranking import ranked_rows
from scipy.stats import chi2

from airrep.errors import ConfigError, DataError
from airrep.scoring import topk as selection
from airrep.scoring.blocks import Block, quantise
from airrep.scoring.products import ask
from airrep.scoring.topk import first_of_each, gumbel_top_k, min_rank
from airrep.sparse import SparseRows


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
    found = min_rank(ask(queries, blocks_of(train)), count, keep)
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
    monkeypatch.setattr(selection, "RANKED", 25)
    generator = np.random.default_rng(3)
    few, many = (generator.integers(-9, 10, (rows, 4)).astype(np.float32) for rows in (11, 80))
    check(few, many, 60)


def test_of_equal_contents_only_the_first_counts() -> None:
    """As if the others were not there: they take no rank either."""
    generator = np.random.default_rng(4)
    distinct = generator.integers(-9, 10, (12, 4)).astype(np.float32)
    which = generator.integers(0, 12, 70)
    train, queries = distinct[which], generator.integers(-9, 10, (3, 4)).astype(np.float32)
    keys = [f"{i:016x}" for i in which]
    keep = np.arange(70) >= 5
    first = np.array([keep[row] and which[row] not in which[5:row] for row in range(70)])
    ranked = first_of_each(np.array(keys), keep)
    found = min_rank(ask(queries, blocks_of(train)), int(first.sum()), ranked)
    expected = rank_everything(queries, train, 70, first)
    assert list(zip(found.ranks, found.queries, found.rows, strict=True)) == expected
    with pytest.raises(ConfigError, match=f"only {first.sum()} examples can be chosen"):
        min_rank(ask(queries, blocks_of(train)), int(first.sum()) + 1, ranked)


def test_sparse_features() -> None:
    generator = np.random.default_rng(5)
    train = generator.integers(0, 3, (40, 20)) * (generator.random((40, 20)) < 0.1)
    queries = generator.integers(0, 3, (4, 20)) * (generator.random((4, 20)) < 0.2)
    blocks = [Block(0, SparseRows.of(train.astype(np.float32)))]
    found = min_rank(ask(SparseRows.of(queries.astype(np.float32)), blocks), 40)
    expected = rank_everything(queries, train, 40)
    assert list(zip(found.ranks, found.queries, found.rows, strict=True)) == expected


QUERIES, TRAIN = np.ones((2, 3), np.float32), np.ones((4, 3), np.float16)


@pytest.mark.parametrize(
    ("queries", "count", "options", "error", "message"),
    [
        (QUERIES, 0, {}, ConfigError, "count is 0; expected at least 1"),
        (QUERIES, 5, {}, ConfigError, "count is 5, but only 4 examples can be chosen"),
        (QUERIES, 1, {"keep": np.zeros(4, bool)}, ConfigError, "no example matches the filter"),
        (QUERIES[:0], 1, {}, DataError, "queries is empty"),
    ],
)
def test_bad_input(
    queries: np.ndarray, count: int, options: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        min_rank(ask(queries, [Block(0, TRAIN)]), count, **options)


def test_draws_have_the_chances_of_drawing_one_after_another() -> None:
    """P(i, then j) = w_i / W · w_j / (W - w_i), for every ordered pair; a χ² test at 99.9 %."""
    weights, draws = np.array([4.0, 2.0, 1.0, 0.5]), 20_000
    generator, seen = np.random.default_rng(11), np.zeros((4, 4))
    for _ in range(draws):
        first, second = gumbel_top_k(np.log(weights) + 300.0, 2, generator)
        seen[first, second] += 1
    whole = weights.sum()
    expected = draws * weights[:, None] / whole * weights / (whole - weights[:, None])
    pairs = ~np.eye(4, dtype=bool)
    assert ((seen - expected)[pairs] ** 2 / expected[pairs]).sum() < chi2.ppf(0.999, 11)
    assert not seen.diagonal().any()


def test_draws_hold_their_prefix_and_leave_out_what_has_no_weight() -> None:
    weights = np.log(np.array([3.0, 1.0, 2.0, 1.0, 5.0]))
    weights[2] = -np.inf
    four = gumbel_top_k(weights, 4, np.random.default_rng(1)).tolist()
    assert sorted(four) == [0, 1, 3, 4]
    assert gumbel_top_k(weights, 2, np.random.default_rng(1)).tolist() == four[:2]
    assert gumbel_top_k(weights - 1e6, 4, np.random.default_rng(1)).tolist() == four


@pytest.mark.parametrize(
    ("weights", "count", "error", "message"),
    [
        ([0.0, -np.inf], 2, ConfigError, "select: count is 2, but only 1 example can be chosen"),
        ([0.0], 0, ConfigError, "select: count is 0; expected at least 1"),
        ([0.0, np.nan], 1, DataError, "select: an importance weight of an example is NaN or infinite"),
        ([0.0, np.inf], 1, DataError, "select: an importance weight of an example is NaN or infinite"),
    ],
)
def test_bad_weights_are_told(weights: list[float], count: int, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        gumbel_top_k(np.array(weights), count, np.random.default_rng(0))

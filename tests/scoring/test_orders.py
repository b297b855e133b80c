"""Pools that read features: order-k influence, gains of counted n-grams."""

import tracemalloc

import numpy as np
import pytest
from reference import group_influence as reference

from airrep.arrays import SparseFeatures
from airrep.errors import ConfigError, DataError
from airrep.scoring import columns, gains, orders
from airrep.scoring.blocks import Block
from airrep.scoring.columns import Postings
from airrep.scoring.group_scores import group_scores
from airrep.scoring.groups import Groups
from airrep.scoring.pooling import Pooling
from airrep.scoring.products import ask
from airrep.sparse import SparseRows

N, D = 60, 9
MEMBERS = [[3], [0, 1, 2, 3, 4], list(range(5, 25)), list(range(N - 1))]


def whitened(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Queries, and features whose mean outer product is a little below the identity: H^(-1/2) ∇ℓ with damping."""
    generator = np.random.default_rng(seed)
    raw = generator.normal(size=(N, D)) @ generator.normal(size=(D, D))
    values, vectors = np.linalg.eigh(raw.T @ raw / N + 0.1 * np.eye(D))
    half = vectors / np.sqrt(values) @ vectors.T
    return (generator.normal(size=(5, D)) @ half).astype(np.float32), (raw @ half).astype(np.float32)


def named(members: list[list[int]]) -> Groups:
    return Groups.from_lists({f"g{j}": rows for j, rows in enumerate(members)})


@pytest.mark.parametrize("pool", ["order-1", "order-2", "order-3", "order-7", "order-inf"])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("small", [False, True])
def test_streamed_scores_are_those_of_dense_matrices(
    pool: str, kind: str, small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries, train = whitened(1)
    if small:
        monkeypatch.setattr(orders, "ROWS", 4)
        monkeypatch.setattr(orders, "SUMS", 2 * D)
    expected = reference.group_scores(queries, train, MEMBERS, N, Pooling.parse(pool).k)
    blocks = [Block(0, train[:17]), Block(17, train[17:])]
    if kind == "sparse":
        blocks = [Block(block.start, SparseRows.of(block.features)) for block in blocks]
        queries = SparseRows.of(queries)
    np.testing.assert_allclose(group_scores(ask(queries, blocks), named(MEMBERS), pool), expected, rtol=1e-6, atol=1e-9)


def test_order_1_is_the_sum_over_the_examples_that_stay() -> None:
    queries, train = whitened(2)
    groups = named(MEMBERS)
    sums = group_scores(ask(queries, [Block(0, train)]), groups, "sum")
    found = group_scores(ask(queries, [Block(0, train)]), groups, "order-1")
    np.testing.assert_allclose(found, sums / (N - groups.sizes), rtol=1e-5, atol=1e-7)


def test_more_examples_than_there_are_rows_may_be_told() -> None:
    queries, train = whitened(3)
    expected = reference.group_scores(queries, train, MEMBERS, 1000, 2)
    found = group_scores(ask(queries, [Block(0, train)]), named(MEMBERS), "order-2", examples=1000)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_half_precision_features_are_summed_in_float64() -> None:
    queries, train = whitened(4)
    half = train.astype(np.float16)
    expected = reference.group_scores(queries, half, MEMBERS[:3], N, None)
    np.testing.assert_allclose(
        group_scores(ask(queries, [Block(0, half)]), named(MEMBERS[:3]), "order-inf"), expected, 1e-6
    )


def test_a_group_of_all_examples_cannot_be_removed() -> None:
    queries, train = whitened(5)
    with pytest.raises(ConfigError, match="group 'g1': has all 60 training examples, but --pool order-2"):
        group_scores(ask(queries, [Block(0, train)]), named([[0], list(range(N))]), "order-2")


def test_features_that_are_not_whitened_have_no_limit() -> None:
    queries, train = whitened(6)
    with pytest.raises(DataError, match="order-inf .*'g[0-9]' .* more damping: --method logra"):
        group_scores(ask(queries, [Block(0, 20 * train)]), named(MEMBERS), "order-inf")


def test_a_feature_that_is_not_finite_is_told() -> None:
    queries, train = whitened(7)
    train[3, 2] = np.inf
    with pytest.raises(DataError, match="group scores: a feature is not finite"):
        group_scores(ask(queries, [Block(0, train)]), named(MEMBERS), "order-inf")


def test_members_without_features_change_nothing() -> None:
    queries, train = whitened(8)
    train[:5] = 0
    found = group_scores(ask(queries, [Block(0, train)]), named(MEMBERS[:2]), "order-inf")
    np.testing.assert_array_equal(found, np.zeros((5, 2)))


ROWS, COLUMNS = 60, 40
NESTED = {"all": list(range(ROWS)), "kept": [row for row in range(ROWS) if row % 7]}
SINGLE = {"a": [3, 1], "b": [59], "c": list(range(20, 50))}
MANY = {str(n): sorted(np.random.default_rng(n).permutation(ROWS)[: n + 1].tolist()) for n in range(20)}


def features(seed: int) -> SparseFeatures:
    """Rises of n-grams, and in the first column the weight; row 1 has no n-gram."""
    generator = np.random.default_rng(seed)
    dense = generator.random((ROWS, COLUMNS)) * (generator.random((ROWS, COLUMNS)) < 0.3)
    dense[:, 0], dense[1, 1:] = generator.random(ROWS) + 0.5, 0
    return SparseRows.of(dense.astype(np.float16).astype(np.float32))


def written_out(queries: np.ndarray, rows: np.ndarray, groups: Groups) -> np.ndarray:
    """Σ_g q(g) log(1 + Σ ℓ (e^v − 1) / Σ ℓ), group by group."""
    told = []
    for group in range(len(groups)):
        members = rows[groups.members(group)].astype(np.float64)
        rise = (members[:, :1] * np.expm1(members[:, 1:])).sum(axis=0) / members[:, 0].sum()
        told.append(queries[:, 1:].astype(np.float64) @ np.log1p(rise))
    return np.stack(told, axis=1)


@pytest.mark.parametrize("stored", ["postings", "csr"])
@pytest.mark.parametrize(
    "members", [NESTED, SINGLE, MANY, {**NESTED, **SINGLE}], ids=["nested", "apart", "many", "both"]
)
def test_groups_of_any_kind(stored: str, members: dict[str, list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    rows, groups = features(0), Groups.from_lists(members)
    queries = SparseRows.of(features(1)[:4].toarray() * (np.arange(COLUMNS) % 2))
    blocks = []
    for start, stop in ((0, 25), (25, 26), (26, ROWS)):
        part = rows[start:stop]
        held = {"postings": Postings.of, "csr": lambda one: one}
        blocks.append(Block(start, held[stored](part)))
    expected = written_out(queries.toarray(), rows.toarray(), groups)
    assert group_scores(ask(queries, blocks), groups, "ngram-lm") == pytest.approx(expected, rel=1e-6)
    for module, name, value in ((gains, "SUMS", 16), (columns, "TILE", 20), (gains, "HELD", 0)):
        monkeypatch.setattr(module, name, value)  # as it is; two columns at a time; groups that have much in common
        assert gains.gain_scores(queries, blocks, groups) == pytest.approx(expected, rel=1e-12)


def test_numbers_of_a_table_are_those_of_the_function() -> None:
    values = np.linspace(0, 9, 1000).astype(np.float16)
    rises = np.expm1(values.astype(np.float64))
    assert (gains._rises(values) == rises).all()
    assert (gains._rises(-values) == -rises).all()


def test_memory_grows_with_the_groups_and_not_with_their_square() -> None:
    count = 6000
    rows = SparseRows.of(np.tile(np.array([[1.0, 0.5, 0.0]], np.float32), (count, 1)))
    queries = SparseRows.of(np.array([[0.0, 1.0, 0.0]], np.float32))
    groups = Groups.from_lists({str(row): [row] for row in range(count)})
    tracemalloc.start()
    found = group_scores(ask(queries, [Block(0, rows)]), groups, "ngram-lm")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == pytest.approx(0.5)
    assert peak < 4 * count**2, f"{peak:,} bytes, where a square matrix has {8 * count**2:,}"


def test_a_query_whose_ngrams_no_row_has_scores_0_for_many_groups() -> None:
    rows, groups = features(3), Groups.from_lists(MANY)
    lacking = rows.where(rows.indices < COLUMNS - 1)
    queries = SparseRows.from_cells(np.array([0]), np.array([COLUMNS - 1]), np.ones(1, np.float32), (1, COLUMNS))
    assert not gains.gain_scores(queries, [Block(0, lacking)], groups).any()

"""Order-k group scores over stored features."""

import numpy as np
import pytest
from reference import group_influence as reference

from airrep.errors import ConfigError, DataError
from airrep.scoring.blocks import Block
from airrep.scoring.group_scores import group_scores
from airrep.scoring.groups import Groups
from airrep.scoring.pooling import Pooling
from airrep.scoring.pools import orders
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
    with pytest.raises(ConfigError, match="group 'g1': has all 60 training examples; pool order-2 is the effect of"):
        group_scores(ask(queries, [Block(0, train)]), named([[0], list(range(N))]), "order-2")


def test_features_that_are_not_whitened_have_no_limit() -> None:
    queries, train = whitened(6)
    with pytest.raises(DataError, match="order-inf: without a group no curvature is left"):
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

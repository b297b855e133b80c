"""Pooled scores and their gradient against autograd."""

import numpy as np
import pytest
import torch

import airrep.training.step as pooled_gradients
from airrep.errors import TrainingError
from airrep.scoring.pooling import TrainedPool
from airrep.training.step import Membership, PooledScores

POOLS: tuple[TrainedPool, ...] = ("attention", "signed-attention", "mean")


def world(q: int = 7, u: int = 12, m: int = 6, d: int = 5) -> tuple[torch.Tensor, torch.Tensor, list[np.ndarray]]:
    """Features of queries and members in float64, and overlapping subsets of different sizes."""
    generator = torch.Generator().manual_seed(3)
    queries = torch.randn(q, d, generator=generator, dtype=torch.float64)
    members = torch.randn(u, d, generator=generator, dtype=torch.float64)
    drawn = np.random.default_rng(4)
    return queries, members, [np.sort(drawn.choice(u, 2 + j % 4, replace=False)) for j in range(m)]


def per_subset(queries: torch.Tensor, members: torch.Tensor, subsets: list[np.ndarray], pool: str) -> torch.Tensor:
    """Group scores by one softmax for each query and subset, as autograd sees them."""
    rows = []
    for query in queries:
        row = []
        for subset in subsets:
            s = members[subset] @ query
            size = s if pool == "signed-attention" else s.abs()
            row.append(s.mean() if pool == "mean" else (torch.softmax(size, 0) * s).sum())
        rows.append(torch.stack(row))
    return torch.stack(rows)


@pytest.mark.parametrize("pool", POOLS)
def test_group_scores_and_gradients_are_those_of_autograd_subset_by_subset(pool: TrainedPool) -> None:
    queries, members, subsets = world()
    g = torch.randn(len(queries), len(subsets), dtype=torch.float64)
    leaves = queries.clone().requires_grad_(), members.clone().requires_grad_()
    expected = per_subset(*leaves, subsets, pool)
    expected.backward(g)
    scores = PooledScores(queries, members, Membership.of(subsets, len(members)), pool)
    on_queries, on_members = scores.gradients(g)
    torch.testing.assert_close(scores.f, expected.detach(), rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(on_queries, leaves[0].grad, rtol=1e-10, atol=1e-14)
    torch.testing.assert_close(on_members, leaves[1].grad, rtol=1e-10, atol=1e-14)


def test_a_member_that_comes_twice_in_a_subset_counts_twice() -> None:
    queries, members, _ = world()
    subsets = [np.array([1, 1, 3]), np.array([2, 5])]
    scores = PooledScores(queries, members, Membership.of(subsets, len(members)), "attention")
    torch.testing.assert_close(scores.f, per_subset(queries, members, subsets, "attention"))


@pytest.mark.parametrize("pool", POOLS)
def test_kept_scores_and_the_size_of_blocks_change_nothing(pool: TrainedPool, monkeypatch: pytest.MonkeyPatch) -> None:
    queries, members, subsets = world()
    membership, g = Membership.of(subsets, len(members)), torch.randn(len(queries), len(subsets), dtype=torch.float64)
    plain = PooledScores(queries, members, membership, pool)
    expected = plain.gradients(g)
    monkeypatch.setattr(pooled_gradients, "COLUMNS", 3)
    monkeypatch.setattr(pooled_gradients, "KEPT", 0)
    frugal = PooledScores(queries, members, membership, pool)
    torch.testing.assert_close(plain.f, frugal.f)
    for one, other in zip(expected, frugal.gradients(g), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    ("pool", "values"), [("attention", [300.0, 1.0, 2.0]), ("signed-attention", [30.0, -300.0, -301.0])]
)
def test_a_subset_far_below_the_greatest_score_keeps_its_score_and_gradient(
    pool: TrainedPool, values: list[float]
) -> None:
    subsets = [np.array([0]), np.array([1, 2])]
    scores = PooledScores(torch.ones(1, 1), torch.tensor(values)[:, None], Membership.of(subsets, 3), pool)
    own = np.array(values[1:])
    weights = np.exp(own - own.max()) / np.exp(own - own.max()).sum()
    assert scores.f.dtype == torch.float32
    np.testing.assert_allclose(scores.f[0], [values[0], weights @ own], rtol=1e-6)
    _, on_members = scores.gradients(torch.tensor([[0.0, 1.0]]))
    np.testing.assert_allclose(on_members[:, 0], [0, *(weights * (own + 1 - weights @ own))], rtol=1e-5)


@pytest.mark.parametrize("pool", ["attention", "signed-attention"])
@pytest.mark.parametrize("value", [1e5, float("nan"), float("inf"), -float("inf")])
def test_scores_that_exploded_are_an_error_that_says_what_to_do(value: float, pool: TrainedPool) -> None:
    members = torch.tensor([[value], [1.0]])
    with pytest.raises(TrainingError, match=r"scores are not finite.*Lower learning_rate"):
        PooledScores(torch.ones(1, 1), members, Membership.of([np.array([0]), np.array([1])], 2), pool)


def test_a_score_lost_beside_others_of_its_subset_is_an_error_too() -> None:
    members = torch.tensor([[-float("inf")], [1.0]])
    for pool in POOLS[:2]:
        with pytest.raises(TrainingError, match="scores are not finite"):
            PooledScores(torch.ones(1, 1), members, Membership.of([np.array([0, 1])], 2), pool)

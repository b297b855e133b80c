"""Group scores against naive float64 loops, on hostile inputs."""

import numpy as np
import pytest
from reference import pooling
from worlds.oracle_worlds import cut, grouped, integers, random_members, sparse_cut

from airrep.scoring.group_scores import group_scores
from airrep.scoring.products import ask
from airrep.sparse import SparseRows

POOLS = ("sum", "mean", "attention")
STEPS = [60, 80, 85, 87, 88, 89, 95, 100, 103, 104, 110, 140]
"""Distances below the greatest |score| at which float32 exponentials fade and vanish."""
SPREADS = {
    "exp overflows": [[800.0, 799.0, 1.0], [90.0, 89.5], [-1e4, 9999.0, 0.0]],
    "groups fade": [[150.0], *([150.0 - s, 149.5 - s, 148.0 - s] for s in STEPS)],
    "groups vanish": [[1e5], *([b, b - 0.5, b - 2.0] for b in (900.0, 760.0, 700.0, 110.0, 90.0, 1.0))],
    "great and small": [[1e6, 1e6 - 1], [1.0, 2.0, -3.0], [0.0, 0.0], [-0.5, 0.25, 1e-3], [1e-30]],
    "only negative": [[-5.0, -1.0, -2.0], [-700.0, -1.0], [-1e6]],
    "opposite": [[5.0, -5.0], [1e4, -1e4, 9e3], [88.0, -88.0, 88.0]],
    "beyond float16": [[1.5e7, 1.5e7 - 1], [3.0, 1.0], [1e30, 1e29], [-1e30, 2.0]],
}


@pytest.mark.parametrize("order", ["up", "down", "mixed"])
@pytest.mark.parametrize("size", [1, 4, 1000])
@pytest.mark.parametrize("spread", SPREADS)
def test_attention_over_huge_spreads(spread: str, size: int, order: str) -> None:
    """The score is the feature itself: a group must be as if it were alone, whatever comes first."""
    flat = np.array([s for group in SPREADS[spread] for s in group], dtype=np.float32)
    keys = {"up": np.abs(flat), "down": -np.abs(flat), "mixed": np.arange(len(flat)) * 7 % 5}
    places = np.argsort(np.argsort(keys[order], kind="stable"))
    train = np.empty((len(flat), 1), dtype=np.float32)
    train[places, 0] = flat
    members = np.split(places, np.cumsum([len(group) for group in SPREADS[spread]])[:-1])
    queries = np.array([[1.0], [0.0], [-1.0], [0.5], [2.0**-10]], dtype=np.float32)
    blocks = cut(train, range(size, len(flat), size), dtype=np.float32)
    for pool in POOLS:
        expected = pooling.group_scores(queries, train, members, pool)
        found = group_scores(ask(queries, blocks), grouped(members), pool)
        largest = np.array([[np.abs(q[0] * train[rows]).max() for rows in members] for q in queries])
        assert np.all(np.abs(found - expected) <= 4e-6 * largest), pool


@pytest.mark.parametrize("pool", POOLS)
def test_sparse_features(pool: str) -> None:
    train, queries = integers(13, 40, 30, 9), integers(14, 5, 30, 9)
    train[np.random.default_rng(15).random(train.shape) < 0.9] = 0.0
    train[7:13] = 0.0
    queries[2] = 0.0
    members = random_members(16, 10, 40)
    expected = pooling.group_scores(queries, train, members, pool)
    found = group_scores(ask(SparseRows.of(queries), sparse_cut(train, (7, 13, 14))), grouped(members), pool)
    np.testing.assert_allclose(found, expected, rtol=3e-6, atol=1e-5)

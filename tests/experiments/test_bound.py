"""Shares of additive effects and of pairs, on all subsets of a small pool, where they are known."""

import importlib.util
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
SIZE, POOL = 4, 9


@pytest.fixture(scope="module")
def bound():
    found = importlib.util.spec_from_file_location("bound", ROOT / "experiments" / "bound" / "bound.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def members() -> np.ndarray:
    return np.array([[one in chosen for one in range(POOL)] for chosen in combinations(range(POOL), SIZE)])


def of_order(members: np.ndarray, order: int, queries: int) -> np.ndarray:
    """Random functions of subsets that are sums over *order* members and fit no sum over fewer, variance 1."""
    rng = np.random.default_rng(order)

    def columns(count: int) -> np.ndarray:
        return np.stack(
            [members[:, list(some)].all(axis=1) for some in combinations(range(POOL), count)], axis=1
        ).astype(float)

    values = columns(order) @ rng.normal(size=(columns(order).shape[1], queries))
    lower = np.column_stack([columns(count) for count in range(order)])
    values -= lower @ np.linalg.lstsq(lower, values, rcond=None)[0]
    return values / values.std(axis=0)


@pytest.mark.parametrize("parts", [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (0.5, 0.3, 0.2)])
def test_shares_of_all_subsets_are_those_that_were_put_in(bound, members, parts) -> None:
    # Ten times over: pairs of equal subsets are then nearly as frequent as if subsets were drawn without end.
    losses = sum(np.sqrt(part) * of_order(members, order, 8) for order, part in enumerate(parts, 1))
    found = bound.shares(np.tile(members, (10, 1)), np.tile(losses, (10, 1)))
    assert found.mean(axis=0) == pytest.approx(parts[:2], abs=0.03)


def test_orders_are_projections_that_do_not_meet(bound, members) -> None:
    overlap = members.astype(float) @ members.T
    kernels = [bound.hahn(overlap, order, SIZE, POOL) for order in range(3)]
    for order, kernel in enumerate(kernels):
        values = of_order(members, order, 1) if order else np.ones((len(members), 1))
        for other in kernels[:order]:
            assert np.abs(other @ values).max() == pytest.approx(0, abs=1e-9)
        assert np.linalg.matrix_rank(kernel) == np.linalg.matrix_rank(kernel @ kernel) == (1, 8, 27)[order]


def test_noise_is_what_a_second_seed_does_not_repeat(bound) -> None:
    rng = np.random.default_rng(0)
    same, apart = rng.normal(size=(1, 5, 4000)), rng.normal(size=(2, 5, 4000))
    assert bound.noise_share(np.sqrt(0.7) * same + np.sqrt(0.3) * apart) == pytest.approx(0.3, abs=0.03)

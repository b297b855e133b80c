"""Signed sums keep inner products, in expectation and with the variance of dense signs."""

import numpy as np
import torch

from airrep.attributors.gradient.projection import RandomProjection


def pairs() -> torch.Tensor:
    """Two vectors of 50 numbers, one of them mostly in a few places."""
    drawn = torch.randn(2, 50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    drawn[1, 7:] *= 0.1
    return drawn


def products(dimension: int, draws: int) -> np.ndarray:
    """⟨Πx, Πy⟩ of many projections, with the vectors in two pieces."""
    vectors = pairs()
    found = []
    for seed in range(draws):
        sketch = RandomProjection(dimension, seed)
        rows = sketch.of("first", vectors[:, :23]) + sketch.of("second", vectors[:, 23:])
        found.append(float(rows[0] @ rows[1]))
    return np.array(found)


def test_inner_products_are_kept_in_expectation_without_a_further_scale() -> None:
    vectors = pairs()
    found = products(8, 600)
    error = found.std() / np.sqrt(len(found))
    assert abs(found.mean() - float(vectors[0] @ vectors[1])) < 3 * error
    assert error < 0.04 * float(vectors[0].norm() * vectors[1].norm())


def test_the_variance_is_no_more_than_that_of_dense_signs_and_falls_with_the_dimension() -> None:
    x, y = pairs().numpy()
    for dimension in (4, 16):
        dense = (x @ x * (y @ y) + (x @ y) ** 2 - 2 * (x**2 @ y**2)) / dimension
        assert products(dimension, 500).var() < 1.2 * dense


def test_each_number_goes_to_one_place_with_sign_one_and_blocks_are_spread_evenly() -> None:
    matrix = RandomProjection(8, 0).of("piece", torch.eye(20))
    assert torch.equal(matrix.abs().sum(1), torch.ones(20))
    assert torch.equal(matrix[:8].abs().sum(0), torch.ones(8))
    assert {-1.0, 1.0} <= set(matrix.flatten().tolist())


def test_a_projection_wider_than_its_vectors_keeps_their_lengths() -> None:
    values = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(RandomProjection(64, 0).of("piece", values).norm(dim=1), values.norm(dim=1))


def test_a_sketch_depends_on_the_seed_and_the_piece_alone() -> None:
    values = torch.randn(3, 50, generator=torch.Generator().manual_seed(0))
    one, other = RandomProjection(8, 1), RandomProjection(8, 1)
    other.of("before", values)
    assert torch.equal(one.of("piece", values), other.of("piece", values))
    assert torch.equal(one.of("piece", values[1:]), other.of("piece", values)[1:])
    assert not torch.equal(one.of("piece", values), one.of("other", values))
    assert not torch.equal(one.of("piece", values), RandomProjection(8, 2).of("piece", values))

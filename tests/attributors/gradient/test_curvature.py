"""Preconditioners against explicit matrices."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import linalg

from airrep.attributors.gradient.curvature import (
    DENSE,
    Fisher,
    Kronecker,
    damped,
    fading,
    principal_space,
    sketched_space,
    unit,
)
from airrep.errors import TrainingError


def covariance(width: int, seed: int, rank: int | None = None) -> np.ndarray:
    rows = np.random.default_rng(seed).standard_normal((rank or 3 * width, width)) * np.linspace(0.2, 3, width)
    return rows.T @ rows / len(rows)


def power(matrix: np.ndarray, exponent: float) -> np.ndarray:
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * values**exponent) @ vectors.T


def test_a_matrix_of_zeros_still_has_directions() -> None:
    for width in (4, DENSE + 1):
        np.testing.assert_array_equal(principal_space(np.zeros((width, width)), 3).basis, np.eye(width, 3))


def test_kronecker_whitening_equals_the_explicit_square_root() -> None:
    inputs, outputs, gradients = covariance(4, 0), covariance(3, 1), np.random.default_rng(2).standard_normal((5, 3, 4))
    found = Kronecker.of(inputs, outputs, 7.0).whiten(gradients, 0.1).reshape(5, 12)
    curvature = 7.0 * np.kron(outputs, inputs)
    explicit = power(curvature + 0.1 * np.trace(curvature) / 12 * np.eye(12), -1)
    flat = gradients.reshape(5, 12)
    np.testing.assert_allclose(found @ found.T, flat @ explicit @ flat.T, rtol=1e-10)


def test_fisher_whitening_and_inverse_equal_the_explicit_ones() -> None:
    matrix, rows = covariance(6, 0), np.random.default_rng(1).standard_normal((4, 6))
    fisher = Fisher.of(matrix)
    explicit = power(matrix + 0.3 * np.trace(matrix) / 6 * np.eye(6), -1)
    white = fisher.whiten(rows, 0.3)
    np.testing.assert_allclose(white @ white.T, rows @ explicit @ rows.T, rtol=1e-10)
    np.testing.assert_allclose(fisher.inverse(0.3), explicit, rtol=1e-10)


@pytest.mark.parametrize("width", [5, DENSE + 40])
def test_the_principal_space_is_that_of_the_leading_eigenvectors(width: int) -> None:
    matrix = covariance(width, 3)
    found, cut, inside = principal_space(matrix.astype(np.float32), 4)
    values = linalg.eigvalsh(matrix, subset_by_index=(width - 5, width - 1))
    np.testing.assert_allclose(found.T @ found, np.eye(4), atol=1e-8)
    np.testing.assert_allclose(linalg.eigvalsh(found.T @ matrix @ found), values[1:], rtol=1e-4)
    assert cut == pytest.approx(values[0], rel=1e-4)
    np.testing.assert_allclose(inside, found.T @ matrix @ found, rtol=0, atol=1e-5 * values[-1])


def test_the_space_of_a_sketch_is_that_of_the_covariance() -> None:
    """Exactly where it has no more directions than the sketch; nearly where those beyond it fade."""
    random = np.random.default_rng(0)
    basis = linalg.qr(random.standard_normal((60, 60)))[0]
    drawn = linalg.qr(random.standard_normal((60, 16)), mode="economic")[0]
    for tail, near in ((0.0, 1e-6), (1e-3, 2e-3)):
        values = np.array([*range(12, 0, -1), *[tail] * 48], float)
        matrix = (basis * values) @ basis.T
        found = sketched_space((matrix @ drawn).astype(np.float32), drawn.astype(np.float32), 8)
        wanted = principal_space(matrix, 8)
        np.testing.assert_allclose(found.basis.T @ found.basis, np.eye(8), atol=1e-8)
        np.testing.assert_allclose(found.basis @ found.basis.T, wanted.basis @ wanted.basis.T, atol=10 * near)
        np.testing.assert_allclose(found.basis, wanted.basis, atol=30 * near)
        np.testing.assert_allclose(found.inside, wanted.inside, atol=60 * near)
        assert found.cut == pytest.approx(wanted.cut, rel=10 * near)


def test_the_space_of_a_sketch_of_few_tokens_has_all_its_directions() -> None:
    drawn = linalg.qr(np.random.default_rng(0).standard_normal((30, 10)), mode="economic")[0]
    matrix = covariance(30, 1, rank=2)
    found = sketched_space(matrix @ drawn, drawn, 5)
    np.testing.assert_allclose(found.basis.T @ found.basis, np.eye(5), atol=1e-8)
    np.testing.assert_allclose(found.basis @ found.inside @ found.basis.T, matrix, atol=1e-6 * np.abs(matrix).max())
    nothing = sketched_space(np.zeros((30, 10)), drawn, 5)
    assert nothing.cut == 0
    assert not nothing.inside.any()


@pytest.mark.parametrize("width", [6, DENSE + 40])
def test_the_basis_of_a_space_does_not_turn_with_its_eigenvectors(width: int) -> None:
    """Three equal eigenvalues have no eigenvectors of their own, and rounding chooses some."""
    random = np.random.default_rng(0)
    basis = linalg.qr(random.standard_normal((width, width)))[0]
    matrix = (basis * np.array([3.0, 3.0, 3.0, *np.linspace(1, 0.5, width - 3)])) @ basis.T
    noise = random.standard_normal((width, width)) * 1e-9
    found, other = (principal_space(each, 3).basis for each in (matrix, matrix + noise + noise.T))
    np.testing.assert_allclose(found, other, atol=1e-5)


def test_as_many_directions_as_there_are_span_everything() -> None:
    found = principal_space(covariance(4, 5, rank=2), 4)
    np.testing.assert_allclose(found.basis @ found.basis.T, np.eye(4), atol=1e-10)
    assert found.cut < 1e-4, "no direction is left out"


def test_directions_fade_where_rounding_may_exchange_them() -> None:
    np.testing.assert_allclose(fading(np.array([0.5, 1.0, 1.0005, 1.001, 9.0]), 1.0), [0, 0, 0.5, 1, 1], atol=1e-9)
    np.testing.assert_array_equal(fading(np.array([0.0, 1.0]), 0.0), 1)
    nothing = covariance(6, 5, rank=2)
    found = Kronecker.of(nothing, covariance(3, 1), 1.0, (principal_space(nothing, 4).cut, 0.0))
    np.testing.assert_array_equal(found.shares, [[0, 0, 0, 0, 1, 1]] * 3)


@pytest.mark.parametrize("eigenvalues", [np.zeros(3), np.array([1.0, 0.0]), np.array([1.0, np.nan])])
def test_singular_curvature_without_damping_is_named(eigenvalues: np.ndarray) -> None:
    with pytest.raises(TrainingError, match=r"curvature: is zero, singular or not finite.* Raise damping"):
        damped(eigenvalues, 0.0)
    with pytest.raises(TrainingError, match="curvature"):
        damped(np.zeros(2), 0.5)


@given(st.integers(0, 2**31), st.floats(-30, 30))
@settings(max_examples=25)
def test_unit_rows_have_length_one_whatever_their_size(seed: int, exponent: float) -> None:
    rows = np.random.default_rng(seed).standard_normal((3, 5)) * 10.0**exponent
    np.testing.assert_allclose(np.linalg.norm(unit(rows), axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(unit(rows), unit(rows * 3.0), rtol=1e-9)


def test_unit_rows_without_a_direction_are_zero_never_nan() -> None:
    rows = np.array([[0.0, 0.0], [np.inf, 1.0], [np.nan, 1.0], [1e-320, 0.0], [1e300, 1e300]])
    found = unit(rows)
    np.testing.assert_array_equal(found[:3], 0.0)
    np.testing.assert_allclose(found[3:], [[1.0, 0.0], [np.sqrt(0.5), np.sqrt(0.5)]])

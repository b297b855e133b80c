"""Curvature, projections and sketches against explicit matrices."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import linalg
from worlds.small_world import make_corpus
from worlds.tiny_lms import tiny_lm

import airrep
from airrep.attributors.gradient.curvature import (
    DENSE,
    Kronecker,
    damped,
    fading,
    principal_space,
    sketched_space,
    unit,
)
from airrep.attributors.gradient.logra import LograAttributor
from airrep.attributors.gradient.projection import RandomProjection
from airrep.attributors.methods import make_attributor
from airrep.attributors.settings import LograSettings
from airrep.errors import ConfigError, TrainingError


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


TRAIN, QUERIES = make_corpus(14), make_corpus(4, "q")
ALL = 10**9
"""More numbers than there are: nothing is mixed."""


@pytest.fixture(scope="module")
def lm(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_lm(tmp_path_factory.mktemp("lm"), max_position_embeddings=4096)


def fitted(lm: str, **values: Any) -> LograAttributor:
    plain = {"rank": 6, "sketch": None, "exponent": 1.0}
    method = make_attributor("logra", {"lm": lm, "precision": "float32", "store": "none", **plain, **values})
    assert isinstance(method, LograAttributor)
    method.fit(TRAIN)
    return method


def features(lm: str, **values: Any) -> np.ndarray:
    found = fitted(lm, **values).encode_train(TRAIN)
    assert isinstance(found, np.ndarray)
    return found.astype(np.float64)


def test_methods_conform(lm: str) -> None:
    settings = {"lm": lm, "rank": 6, "modules": ["all-linear"], "sketch": 40, "exponent": 0.5}
    airrep.check_attributor(lambda: make_attributor("logra", settings))


@pytest.mark.parametrize("exponent", [1.0, 0.5, 0.0])
def test_a_sketch_of_all_numbers_changes_no_score(lm: str, exponent: float) -> None:
    plain, kept = (features(lm, exponent=exponent, **own) for own in ({}, {"sketch": ALL}))
    assert plain.shape == kept.shape
    np.testing.assert_allclose(kept @ kept.T, plain @ plain.T, atol=1e-5)


def test_a_sketch_is_that_of_each_map_alone(lm: str) -> None:
    kept, method = features(lm, sketch=ALL, unit=False, exponent=0.5), fitted(lm, sketch=ALL)
    share = 5
    found = features(lm, sketch=share * len(method.sites), unit=False, exponent=0.5)
    assert found.shape[1] == share * len(method.sites)
    sketch = RandomProjection(share, 0)
    parts = np.split(kept, np.cumsum(method.widths)[:-1], axis=1)
    wanted = [
        sketch.of(site.name, torch.from_numpy(part)).numpy() for site, part in zip(method.sites, parts, strict=True)
    ]
    np.testing.assert_allclose(found, np.concatenate(wanted, axis=1), rtol=1e-3, atol=1e-4 * np.abs(found).max())


def test_inner_products_are_kept_in_expectation(lm: str) -> None:
    plain = features(lm, unit=False, exponent=0.5)
    size = np.linalg.norm(plain, axis=1)
    wanted = plain @ plain.T / np.outer(size, size)
    off, draws = ~np.eye(len(size), dtype=bool), 24
    for sketch in (56, 224):
        errors = []
        for seed in range(draws):
            found = features(lm, unit=False, exponent=0.5, sketch=sketch, seed=seed)
            errors.append(found @ found.T / np.outer(size, size) - wanted)
        mean, spread = np.mean(errors, axis=0)[off], np.std(errors, axis=0)[off].mean()
        assert np.abs(mean).mean() < 2 * spread / np.sqrt(draws), "no bias"
        assert spread < 2.0 / np.sqrt(sketch), "as near as a sketch of so many numbers is"


def test_the_exponent_is_the_power_of_the_curvature(lm: str) -> None:
    full = {"rank": None, "unit": False, "damping": 0.3}
    none, half, whole = (features(lm, exponent=p, **full) for p in (0.0, 0.5, 1.0))
    # In the eigenbasis the root stands halfway between nothing and the whole, number by number.
    signs = np.sign(none) == np.sign(whole)
    assert signs[np.abs(none) > 1e-6].all()
    np.testing.assert_allclose(half**2, none * whole, rtol=1e-3, atol=1e-6)


def test_a_map_narrower_than_the_rank_keeps_its_width(lm: str) -> None:
    method = fitted(lm, rank=1000, sketch=ALL)
    assert method.widths == tuple(site.width_in * site.width_out for site in method.sites)
    whole = features(lm, rank=None)
    found = features(lm, rank=1000, sketch=ALL)
    np.testing.assert_allclose(found @ found.T, whole @ whole.T, atol=1e-4)
    with pytest.raises(ConfigError, match="rank can be at most 8"):
        fitted(lm, rank=1000)


def test_what_is_kept_is_found_by_all_that_decides_it(lm: str, tmp_path: Path) -> None:
    """Sketched gradients are whitened already, so a store must not mix those of other dampings or exponents."""
    store = {"store": str(tmp_path / "store")}
    for own in ({}, {"damping": 1.0}, {"exponent": 0.25}, {"sketch": 30}, {"seed": 3}):
        told = {"sketch": 60, **own}
        np.testing.assert_array_equal(features(lm, **told, **store), features(lm, **told))
        np.testing.assert_array_equal(features(lm, **told, **store), features(lm, **told))


def test_fit_again_learns_anew(lm: str) -> None:
    method = fitted(lm, sketch=60, sample=5)
    before = method.encode_train(TRAIN)
    method.fit(QUERIES)
    other = fitted(lm, sketch=60, sample=5)
    other.fit(QUERIES)
    np.testing.assert_array_equal(method.encode_train(TRAIN), other.encode_train(TRAIN))
    assert not np.array_equal(before, method.encode_train(TRAIN))


def test_features_do_not_depend_on_batches(lm: str) -> None:
    method = fitted(lm, sketch=60)
    whole = method.encode_train(TRAIN)
    parts = [method.encode_train(TRAIN.take(np.array([row]))) for row in range(len(TRAIN))]
    np.testing.assert_allclose(np.concatenate(parts), whole, atol=2e-6)


def test_an_index_of_a_sketch_answers_like_the_method(lm: str, tmp_path: Path) -> None:
    settings = {"lm": lm, "rank": 6, "modules": ["all-linear"], "sketch": 60, "exponent": 0.5}
    index = airrep.build_index(TRAIN, tmp_path / "index", "logra", settings={**settings, "precision": "float32"})
    assert index.blocks("logra")[0].dense().shape[1] == index.attributor.encode_train(TRAIN).shape[1] <= 60
    opened = airrep.Index(tmp_path / "index")
    wanted = fitted(lm, sketch=60, exponent=0.5).encode_queries(QUERIES)
    np.testing.assert_allclose(opened.attributor.encode_queries(QUERIES), wanted, atol=1e-6)


def test_what_does_not_go_together_is_refused() -> None:
    with pytest.raises(ConfigError, match="sketch"):
        LograSettings.of({"lm": "x", "sketch": 10, "rank": None}, "logra")
    for wrong in ({"sketch": 0}, {"exponent": 1.5}, {"exponent": -0.1}, {"exponent": float("nan")}):
        with pytest.raises(ConfigError, match="sketch|exponent"):
            LograSettings.of({"lm": "x", **wrong}, "logra")


def test_a_rank_that_does_not_fit_is_refused_each_time(lm: str) -> None:
    method = make_attributor("tracin", {"lm": lm, "rank": 9999, "store": "none"})
    for _ in range(2):
        with pytest.raises(ConfigError, match="9999"):
            method.encode_train(make_corpus(4)[:4])

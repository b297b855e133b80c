"""LoGra's sketch of gradients of high rank, and the exponent of its curvature."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from worlds.small_world import make_corpus
from worlds.tiny_lms import tiny_lm

import airrep
from airrep.attributors.gradient.logra import LograAttributor
from airrep.attributors.gradient.projection import RandomProjection
from airrep.attributors.methods import make_attributor
from airrep.attributors.settings import LograSettings
from airrep.errors import ConfigError

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
    with pytest.raises(ConfigError, match="expected at most"):
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

"""Refined inverse products of EK-FAC: against a dense solve, within memory, one by one, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from reference import gradients as reference
from worlds.double_lms import SMALL, listed, plain, wide
from worlds.small_world import make_corpus
from worlds.tiny_lms import tiny_lm

import airrep
from airrep.attributors.gradient import ekfac
from airrep.attributors.gradient.ekfac import Curvature, GaussNewton, RefinedGradients
from airrep.attributors.gradient.reading import find_sites
from airrep.attributors.methods import make_attributor
from airrep.errors import ConfigError, TrainingError
from airrep.lm.model import load_lm
from airrep.lm.settings import LmSettings

pytestmark = pytest.mark.usefixtures("own_cache")

TRAIN, QUERIES = make_corpus(9), make_corpus(3, "q")
DAMPING = 10.0  # so that few steps converge


@pytest.fixture(scope="module")
def lm(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_lm(tmp_path_factory.mktemp("lm"), **SMALL)


@pytest.fixture
def converged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ekfac, "STEPS", 2000)
    monkeypatch.setattr(ekfac, "EXACT", 1e-10)


def make(lm: str, **settings: Any) -> Any:
    own = {"lm": lm, "precision": "float32", "refine": "cg:2", "damping": DAMPING}
    return make_attributor("ekfac", own | settings)


def fitted(lm: str, **settings: Any) -> Any:
    method = make(lm, **settings)
    method.fit(TRAIN)
    return method


def dense(method: Any, rows: Any) -> tuple[np.ndarray, list[str]]:
    """G of a method's sample plus its damping, dense, by the plain LM; and the maps' names."""
    model, learnt = wide(method.settings.lm), method._fitted()
    names = [site.name for site in method.sites]
    bounds = zip(learnt["offsets"][:-1], learnt["offsets"][1:], learnt["starts"], strict=True)
    documents = [(learnt["ids"][first:last].tolist(), int(start)) for first, last, start in bounds]
    assert len(documents) == rows
    damped = [
        np.full(site.width_in * site.width_out, DAMPING * float(method._factors[site.pool].eigenvalues.mean()))
        for site in method.sites
    ]
    network = plain(model)
    network.set_attn_implementation("eager")  # the others cannot be differentiated for many outputs at a time
    return reference.gauss_newton(network, documents, names) + np.diag(np.concatenate(damped)), names


@pytest.mark.usefixtures("converged")
@pytest.mark.parametrize(
    ("kind", "shape", "modules"), [("llama", SMALL, ("all-linear",)), ("gpt2", {}, ("*attn.c_proj",))]
)
def test_it_converges_to_the_dense_solution(
    tmp_path: Path, kind: str, shape: dict[str, int], modules: tuple[str, ...]
) -> None:
    method = fitted(tiny_lm(tmp_path, kind, **shape), modules=modules)
    matrix, names = dense(method, 2)
    model = wide(method.settings.lm)
    documents = model.tokenise(QUERIES)
    gradients = reference.example_gradients(plain(model), listed(documents), names, "loss", "sum")
    rights = np.concatenate([gradients[name].reshape(len(QUERIES), -1) for name in names], axis=1)
    wanted = np.linalg.solve(matrix, rights.T).T
    damping = {name: DAMPING * each.eigenvalues.mean() for name, each in method._factors.items()}
    sites = find_sites(model.model, modules, "lm")
    learnt = method._fitted()
    sample = type(documents)(learnt["ids"], learnt["offsets"], learnt["starts"])
    found = RefinedGradients(
        Curvature(method._factors, method._inverse, damping), GaussNewton(model, sample, sites), sites, 2
    )
    found.read(model, documents, sites, "sum")
    solved = np.concatenate([found.sites[name][0].numpy() for name in names], axis=1)
    assert solved.dtype == np.float64
    assert np.linalg.norm(solved - wanted) < 1e-6 * np.linalg.norm(wanted)


@pytest.mark.usefixtures("converged")
def test_scores_are_those_of_the_dense_solution(lm: str, tmp_path: Path) -> None:
    own = {"modules": ("*mlp*",)}
    method = fitted(lm, **own)
    matrix, names = dense(method, 2)
    model = wide(lm)
    ours, asked = (
        np.concatenate([own[name].reshape(len(one), -1) for name in names], axis=1)
        for one in (TRAIN, QUERIES)
        for own in [reference.example_gradients(plain(model), listed(model.tokenise(one)), names, "loss", "sum")]
    )
    wanted = ours @ np.linalg.solve(matrix, asked.T)
    index = airrep.build_index(TRAIN, tmp_path / "index", make(lm, **own))
    assert index.manifest["settings"]["refine"] == "cg:2"
    found = airrep.Index(tmp_path / "index").scores(QUERIES).T
    np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=2e-3 * np.abs(wanted).max())
    assert method.fingerprint not in [fitted(lm, **own, refine=other).fingerprint for other in (None, "cg:4")]


def test_the_first_step_is_ekfac_scaled_and_more_are_nearer(lm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = {}
    for steps in (1, 4, 60):
        monkeypatch.setattr(ekfac, "STEPS", steps)
        scores[steps] = fitted(lm, store="none").score(TRAIN, QUERIES)
    usual = fitted(lm, refine=None).score(TRAIN, QUERIES)
    for column in range(len(QUERIES)):
        assert np.corrcoef(scores[1][:, column], usual[:, column])[0, 1] > 1 - 1e-5
    lost = [np.linalg.norm(scores[steps] - scores[60]) for steps in (1, 4)]
    assert lost[1] < lost[0]


def test_queries_do_not_meet_and_ranks_hold_them(lm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    together = fitted(lm, store="none").score(TRAIN, QUERIES)
    held = fitted(lm, store="none", query_rank=8).score(TRAIN, QUERIES)
    np.testing.assert_allclose(held, together, rtol=1e-3, atol=1e-3 * np.abs(together).max())
    method = fitted(lm, store="none")
    monkeypatch.setattr("airrep.attributors.gradient.ekfac.QUERY_NUMBERS", 1)
    alone = np.concatenate([method.score(TRAIN, [one]) for one in QUERIES], axis=1)
    np.testing.assert_allclose(alone, together, rtol=1e-3, atol=1e-4 * np.abs(together).max())
    assert method.tokens(QUERIES[0], TRAIN[:2]) is None


def test_stored_weights_have_the_products_of_whole_ones(tmp_path: Path) -> None:
    halved = tiny_lm(tmp_path / "half", **SMALL)
    whole = load_lm(LmSettings(lm=halved, precision="float32"))
    whole.model.to(torch.bfloat16).save_pretrained(halved)
    found = []
    for stored in (False, True):
        model = load_lm(LmSettings(lm=halved, precision="float32"), stored=stored)
        sites = find_sites(model.model, ("all-linear",), "lm")
        generator = torch.Generator().manual_seed(0)
        vectors = {site.name: torch.randn(2, site.width_out, site.width_in, generator=generator) for site in sites}
        products = GaussNewton(model, model.tokenise(TRAIN), sites).products(vectors)
        found.append(torch.cat([rows.flatten() for rows in products.values()]))
    assert float((found[0] - found[1]).norm()) < 1e-4 * float(found[0].norm())


def test_what_cannot_be_refined_is_refused(lm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for settings, told in (
        ({"refine": "newton"}, "refine='newton': must be cg, or cg:COUNT"),
        ({"exponent": 0.75}, "exponent=1"),
        ({"loss": "dpo"}, "not loss=dpo"),
        ({"seed": 3}, "seed=3: was removed"),
    ):
        with pytest.raises(ConfigError, match=told):
            make(lm, **settings)
    method = fitted(lm, store="none")
    products = GaussNewton.products

    def broken(self: Any, vectors: Any) -> Any:
        return {name: rows * np.nan for name, rows in products(self, vectors).items()}

    monkeypatch.setattr(GaussNewton, "products", broken)
    with pytest.raises(TrainingError, match="refine=cg: a product with the Gauss-Newton matrix is not finite"):
        method.score(TRAIN, QUERIES)


def test_memory_that_was_promised_counts_what_refines(lm: str) -> None:
    method = fitted(lm)
    weights = sum(site.width_in * site.width_out for site in method.sites)
    assert method.kept >= 4 * ekfac.VECTORS * weights
    assert fitted(lm, refine=None).kept == 0

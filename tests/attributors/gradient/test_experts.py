"""Experts of a mixture are maps like others, each with its own tokens; those of a layer share their curvature."""

import copy
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from reference import gradients as reference
from torch import Tensor, nn
from torch.nn import functional
from worlds.architectures import ARCHITECTURES, written
from worlds.double_lms import executed
from worlds.small_world import make_corpus
from worlds.tiny_lms import tiny_lm

from airrep.attributors.gradient.influence import Hessian
from airrep.attributors.gradient.projection import Covariances, project_gradients
from airrep.attributors.gradient.reading import find_sites, read_gradients, unread
from airrep.attributors.methods import make_attributor
from airrep.errors import ConfigError, TrainingError
from airrep.lm.documents import Documents
from airrep.lm.held import is_held
from airrep.lm.model import TargetLM, load_lm
from airrep.lm.settings import LmSettings

from .test_architectures import doubled, plain_gradients, plain_losses, some_documents, unlike

MANY = 24
"""Experts, of which a short text meets a few."""


@pytest.fixture(scope="module")
def mixtral(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A mixture of few experts, and that of transformers in float64."""
    folder = tmp_path_factory.mktemp("mixtral")
    return folder, doubled(written(folder, "mixtral"))


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mixture of many experts."""
    folder = tmp_path_factory.mktemp("crowd")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(
            ARCHITECTURES, "qwen3_moe", {**ARCHITECTURES["qwen3_moe"], "num_local_experts": MANY, "num_experts": MANY}
        )
        written(folder, "qwen3_moe")
    return folder


def load(folder: Path, **settings: Any) -> TargetLM:
    """An LM in float64."""
    lm = load_lm(LmSettings(**{"lm": str(folder), "device": "cpu", "precision": "float32", **settings}))
    lm.model.double()
    return lm


def test_a_layers_experts_share_the_covariances_of_all_their_tokens(
    mixtral: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, plain = mixtral
    documents, real = some_documents(), functional.linear
    held: list[tuple[Tensor, Tensor]] = []
    start = plain.model.layers[1].mlp.experts.down_proj.data_ptr()
    size = plain.model.layers[1].mlp.experts.down_proj.nbytes

    def noting(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        found = real(inputs, weight, bias)
        if start <= weight.data_ptr() < start + size:
            found.retain_grad()
            held.append((inputs.detach(), found))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(functional, "linear", noting)
        for row in range(len(documents)):
            plain_losses(plain, documents, row).mean().backward()
    inputs = torch.cat([one for one, _ in held]).numpy()
    gradients = torch.cat([out.grad for _, out in held if out.grad is not None]).numpy()
    assert len(inputs) == len(gradients) == 2 * documents.lengths.sum()  # each token meets two

    lm = executed(load(folder), batch_tokens=60)
    sites = find_sites(lm.model, ["*.1.mlp.experts.*.down_proj"], "lm")
    sums = Covariances(sites)
    assert [len(read.rows) for read in read_gradients(lm, documents, sites, sums)] == [1, 3, 2]
    (name,) = {site.pool for site in sites}
    for found, rows in zip(sums.of(name), (inputs, gradients), strict=True):
        wanted = reference.second_moment(rows)
        np.testing.assert_allclose(found.numpy(), wanted, atol=1e-7 * np.abs(wanted).max())


def test_whole_gradients_of_experts_are_scored_by_the_curvature_of_their_layer(mixtral: tuple[Path, Any]) -> None:
    folder, plain = mixtral
    train, queries = make_corpus(9), list(make_corpus(3, "query"))
    own = {"lm": str(folder), "modules": ["*.1.mlp.experts.*.down_proj"]}
    made: Any = make_attributor("ekfac", {**own, "store": "none", "device": "cpu", "damping": 0.1, "batch_tokens": 60})
    made.fit(train)
    sums = Covariances(made.sites)
    for _ in read_gradients(made.lm, made.lm.tokenise(train), made.sites, sums, reduction="sum"):
        pass
    names = [site.name for site in made.sites]
    A, S = (each.double().numpy() for each in sums.of(made.sites[0].pool))
    sets = []
    for examples in (list(train), queries):
        documents = made.lm.tokenise(examples)
        rows = plain_gradients(plain, documents, names) * documents.response_lengths[:, None]
        sets.append(rows.reshape(len(rows) * len(names), *made._factors[made.sites[0].pool].eigenvalues.shape))
    one, other = (each.reshape(-1, len(names) * each.shape[1]) for each in reference.ekfac(sets, A, S, 0.1))
    found = made.score(list(train), queries)
    np.testing.assert_allclose(found, one @ other.T, rtol=1e-3, atol=1e-4 * np.abs(found).max())


def test_an_expert_that_no_token_of_the_sample_meets_is_read_in_later_examples(crowd: Path) -> None:
    own = {"lm": str(crowd), "modules": ["*.experts.*"], "store": "none", "device": "cpu", "unit": False}
    made: Any = make_attributor("logra", {**own, "rank": 4, "sketch": None})
    made.fit(make_corpus(1))
    assert len(made.sites) == 2 * 2 * MANY
    places = np.cumsum([0, *made.widths])
    seen, later = (
        np.add.reduceat(np.abs(made.encode_train(list(each))), places[:-1], axis=1) > 0
        for each in (make_corpus(1), make_corpus(12, "other"))
    )
    assert np.isfinite(made.encode_train(list(make_corpus(12, "other")))).all()
    new = later.any(axis=0) & ~seen.any(axis=0)
    assert 0 < new.sum() < len(made.sites)
    unmet = made.sites[int(np.flatnonzero(~seen.any(axis=0))[0])].name
    for name in ("logra", "ekfac"):
        alone = make_attributor(name, {key: own[key] for key in ("lm", "store", "device")} | {"modules": [unmet]})
        with pytest.raises(TrainingError, match=r"no sampled example has a gradient.*Remove .* or raise sample"):
            alone.fit(make_corpus(1))


def test_all_features_of_a_crowd_fit_the_sketch(crowd: Path) -> None:
    own = {"lm": str(crowd), "modules": ["all-linear"], "store": "none", "device": "cpu"}
    made: Any = make_attributor("logra", {**own, "rank": 8, "sketch": 1024})
    made.fit(make_corpus(6))
    rows = made.encode_train(list(make_corpus(8)))
    assert rows.shape == (8, len(made.sites) * (1024 // len(made.sites)))
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-5)


class Unfused(nn.Module):
    """Experts as modules, in code of a model's own: each is given its tokens, and no more."""

    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, count, bias=False)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(count))

    def forward(self, states: Tensor) -> Tensor:
        rows = states.flatten(0, 1)
        shares, chosen = self.router(rows).softmax(1).topk(2)
        total = torch.zeros_like(rows)
        for number, expert in enumerate(self.experts):
            tokens, place = torch.where(chosen == number)
            if len(tokens):
                total = total.index_add(0, tokens, expert(rows[tokens]).tanh() * shares[tokens, place, None])
        return total.view_as(states)


@pytest.fixture
def unfused(tmp_path: Path) -> TargetLM:
    """A Llama whose MLPs are unfused experts."""
    lm = load(Path(tiny_lm(tmp_path / "lm")), batch_tokens=60)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for layer in lm.model.model.layers:
            layer.mlp = Unfused(16, 7).double()
    return lm


def test_experts_that_are_modules_are_read_one_document_at_a_time(unfused: TargetLM) -> None:
    plain = copy.deepcopy(unfused.model)
    plain.set_attn_implementation("sdpa")
    documents = some_documents()
    sites = find_sites(unfused.model, ("all-linear",), "lm")
    assert sum(".experts." in site.name for site in sites) == 14
    found = project_gradients(unfused, documents, sites, None).features
    wanted = plain_gradients(plain, documents, [site.name for site in sites])
    assert (wanted[-1] == 0).any()  # the shortest document misses an expert
    assert unlike(found, wanted) < 1e-6
    assert unread(unfused.model, "logra") == ""


def test_a_map_that_sees_some_tokens_is_read_alone_or_refused(tmp_path: Path) -> None:
    lm, documents = load(Path(tiny_lm(tmp_path / "lm")), batch_tokens=60), some_documents()
    sites = find_sites(lm.model, ["lm_head"], "lm")
    with pytest.raises(ConfigError, match=r"lm_head.* 28 of 44 tokens.* batch_tokens=1$"):
        project_gradients(lm, documents.take([2, 3, 4]), sites, None)
    found = project_gradients(executed(lm, batch_tokens=1), documents, sites, None).features
    plain = copy.deepcopy(lm.model)
    plain.set_attn_implementation("sdpa")
    assert unlike(found, plain_gradients(plain, documents, ["lm_head"])) < 1e-6
    with pytest.raises(ConfigError, match=r"the LM never calls .*q_proj as a linear map"):
        project_gradients(lm, documents, find_sites(copy.deepcopy(lm.model), ["*.0.*.q_proj"], "lm"), None)


def test_the_hessian_of_experts_is_that_of_their_gradients(mixtral: tuple[Path, Any]) -> None:
    folder, plain = mixtral
    lm, documents = load(folder, batch_tokens=60), some_documents()
    names = [f"model.layers.0.mlp.experts.{expert}.{own}" for expert in (1, 2) for own in ("gate_up_proj", "down_proj")]
    sites = find_sites(lm.model, names, "lm")
    hessian = Hessian(lm, documents, sites)
    vector = np.random.default_rng(0).standard_normal((1, hessian.dimension))
    experts = plain.model.layers[0].mlp.experts
    weights = [experts.gate_up_proj, experts.down_proj]
    plain.set_attn_implementation("eager")
    loss = torch.stack([plain_losses(plain, documents, row).mean() for row in range(len(documents))]).mean()
    slopes = torch.autograd.grad(loss, weights, create_graph=True)
    along = torch.cat([slope[expert].flatten() for expert in (1, 2) for slope in slopes]) @ torch.from_numpy(vector[0])
    curved = torch.autograd.grad(along, weights)
    wanted = torch.cat([each[expert].flatten() for expert in (1, 2) for each in curved]).numpy()
    assert unlike(hessian.products(vector), wanted[None]) < 1e-6


def test_a_mixture_beside_weights_held_as_stored_has_its_gradients(mixtral: tuple[Path, Any], tmp_path: Path) -> None:
    shutil.copytree(mixtral[0], tmp_path, dirs_exist_ok=True)
    copy.deepcopy(mixtral[1]).bfloat16().save_pretrained(tmp_path)
    own = {"lm": str(tmp_path), "device": "cpu", "precision": "float32", "batch_tokens": 60}
    held, whole = (load_lm(LmSettings(**own), stored=stored) for stored in (True, False))
    assert is_held(held.model)
    assert not is_held(whole.model)
    rows = [
        project_gradients(lm, some_documents(), find_sites(lm.model, ("all-linear",), "lm"), None).features
        for lm in (held, whole)
    ]
    assert unlike(*rows) < 1e-6


def test_reading_leaves_a_mixture_as_it_was(mixtral: tuple[Path, Any]) -> None:
    lm, documents = load(mixtral[0]), Documents.of([])
    sites = find_sites(lm.model, ["*.experts.1.*"], "lm")
    before = lm.model.config._experts_implementation
    project_gradients(lm, documents, sites, None)
    assert lm.model.config._experts_implementation == before
    assert not any(hasattr(module, "airrep_tap") for module in lm.model.modules())

"""Scores token by token, against gradients that autograd takes at each place by itself."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from reference import gradients as reference
from torch.nn import functional
from worlds.architectures import written
from worlds.double_lms import listed, plain, wide
from worlds.small_world import make_corpus
from worlds.tiny_lms import CHAT, tiny_lm, tiny_tokenizer

from airrep.attributors.direct import InMemory
from airrep.attributors.gradient.factors import Factors
from airrep.attributors.methods import make_attributor
from airrep.corpus.corpus import Example
from airrep.errors import ConfigError

TRAIN = make_corpus(14)
QUERY = Example("question q", "answer 14 or so", "q")
SOME = [TRAIN[0], TRAIN[5], Example("", "bare text", "b")]


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def lm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_lm(tmp_path_factory.mktemp("lm"), request.param)


def fitted(lm: str, method: str, **settings: Any) -> Any:
    made = make_attributor(method, {"lm": lm, "precision": "float32", "store": "none", **settings})
    made.fit(TRAIN)
    return made


def place_gradients(model: Any, document: reference.Document, names: Sequence[str], reduction: str) -> list[np.ndarray]:
    """For each map ``(t, out, in)``: the gradient of a weight that stands at one place of the document alone."""
    maps, held = reference.linear_maps(model), dict[str, torch.Tensor]()
    before = {name: maps[name].forward for name in names}

    def apart(name: str) -> Any:
        weight, bias = maps[name].weight.detach(), maps[name].bias
        weight = weight.T if reference.is_transposed(maps[name]) else weight

        def run(inputs: torch.Tensor) -> torch.Tensor:
            held[name] = weight.expand(inputs.shape[1], *weight.shape).clone().requires_grad_(True)
            each = [functional.linear(inputs[:, t], own, bias) for t, own in enumerate(held[name])]
            return torch.stack(each, dim=1)

        return run

    for name in names:
        maps[name].forward = apart(name)
    try:
        value = reference.value(model, document, "loss", reduction)
    finally:
        for name in names:
            maps[name].forward = before[name]
    return [each.numpy() for each in torch.autograd.grad(value, [held[name] for name in names])]


def expected(lm: str, method: Any, kernels: Sequence[np.ndarray], reduction: str = "mean") -> list[np.ndarray]:
    """Products of vec(G_t) with vec(G_s), a dense matrix of each map between them."""
    own = wide(lm)
    network = plain(own)
    names = [site.name for site in method.sites]
    query, *others = (
        place_gradients(network, document, names, reduction) for document in listed(own.tokenise([QUERY, *SOME]))
    )
    return [
        sum(
            one.reshape(len(one), -1) @ kernel @ other.reshape(len(other), -1).T
            for one, kernel, other in zip(query, kernels, each, strict=True)
        )[:-1, :-1]
        for each in others
    ]


def close(found: Sequence[Any], wanted: Sequence[np.ndarray]) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert np.abs(other).max() > 0
        np.testing.assert_allclose(one.scores, other, atol=2e-4 * np.abs(other).max(), rtol=2e-3)


def test_pairs_are_those_of_gradients_at_each_place(lm: str) -> None:
    method = fitted(lm, "tracin", unit=False, rank=None)
    kernels = [np.eye(site.width_in * site.width_out) for site in method.sites]
    close(method.tokens(QUERY, SOME), expected(lm, method, kernels))


@pytest.mark.parametrize("modules", [("all-linear",), ("*mlp*",)])
def test_ekfac_stands_between_the_pairs(lm: str, modules: tuple[str, ...]) -> None:
    method = fitted(lm, "ekfac", modules=modules, damping=0.3, exponent=0.75)
    close(method.tokens(QUERY, SOME), expected(lm, method, [_curved(method, site) for site in method.sites], "sum"))


def _curved(method: Any, site: Any) -> np.ndarray:
    """(Q_s ⊗ Q_a) (Λ + λ)⁻ᵖ (Q_s ⊗ Q_a)ᵀ as one matrix."""
    own: Factors = method._factors[site.pool]
    turn = np.kron(own.outward.numpy(), own.inward.numpy())
    values = own.eigenvalues.numpy().astype(np.float64)
    return np.asarray((turn * (values + 0.3 * values.mean()).ravel() ** -0.75) @ turn.T)


CHANNELS = [
    *(("tracin", {}), ("tracin", {"unit": False, "rank": None}), ("tracin", {"modules": ("*mlp*",), "rank": 4})),
    *(("logra", {"rank": 8, "sketch": None}), ("logra", {"rank": 8, "sketch": None, "unit": False, "exponent": 1.0})),
    *(("logra", {"rank": None, "sketch": None}), ("logra", {"rank": 64, "sketch": 400})),
    *(("ekfac", {}), ("ekfac", {"unit": True}), ("ekfac", {"query_rank": 3}), ("ekfac", {"query_rank": 40})),
    *(
        ("trak", {"rank": 4}),
        ("dsdm", {"rank": 4}),
        ("influence", {"solver": "explicit", "damping": 9.0, "modules": ("*.1.*attn.[oc]_proj",)}),
    ),
]


@pytest.mark.parametrize(("name", "settings"), CHANNELS, ids=str)
def test_pairs_add_up_to_the_channels_own_score(lm: str, name: str, settings: dict[str, Any]) -> None:
    method = fitted(lm, name, **settings)
    kept = InMemory.of(method, SOME)
    scores = np.array([method.ask([QUERY], kept).of_row(row)[0] for row in range(len(SOME))])
    found = method.tokens(QUERY, SOME)
    sums = [each.scores.sum() for each in found]
    np.testing.assert_allclose(sums, scores, atol=1e-5 * np.abs(scores).max())
    assert all(np.abs(each.scores).sum() > 0 for each in found)


@pytest.mark.parametrize(("name", "settings"), [("tracin", {}), ("logra", {}), ("ekfac", {"unit": True})], ids=str)
def test_of_a_span_they_add_up_to_the_spans_score(lm: str, name: str, settings: dict[str, Any]) -> None:
    method, spanned = fitted(lm, name, **settings), replace(QUERY, span=((7, 9),))
    kept = InMemory.of(method, SOME)
    scores = np.array([method.ask([spanned], kept).of_row(row)[0] for row in range(len(SOME))])
    found = method.tokens(spanned, SOME)
    np.testing.assert_allclose([each.scores.sum() for each in found], scores, atol=1e-5 * np.abs(scores).max())
    behind = found[0].query.starts > len(QUERY.prompt) + 10  # the space counts to the word before it
    assert not found[0].scores[behind].any()  # nothing behind a span has a part in its losses


def test_conjugate_gradients_have_no_tokens(lm: str) -> None:
    assert fitted(lm, "influence", damping=9.0).tokens(QUERY, SOME) is None


@pytest.mark.parametrize("name", ["tracin", "ekfac"])
def test_experts_have_the_parts_of_the_tokens_that_they_met(tmp_path: Path, name: str) -> None:
    written(tmp_path / "lm", "mixtral")
    method = fitted(str(tmp_path / "lm"), name, modules=("*experts*",))
    kept = InMemory.of(method, SOME)
    scores = np.array([method.ask([QUERY], kept).of_row(row)[0] for row in range(len(SOME))])
    sums = [each.scores.sum() for each in method.tokens(QUERY, SOME)]
    np.testing.assert_allclose(sums, scores, atol=1e-5 * np.abs(scores).max())


def test_a_map_that_does_not_tell_its_tokens_is_refused(lm: str) -> None:
    with pytest.raises(ConfigError, match="lm_head does not show which tokens"):
        fitted(lm, "tracin", modules=("lm_head",), batch_tokens=1).tokens(QUERY, SOME)


@pytest.mark.parametrize("template", ["plain", "chat", "Q {prompt} and\nA {response} end"])
def test_rows_stand_at_the_tokens_that_places_predict(tmp_path: Path, template: str) -> None:
    folder = tiny_lm(tmp_path / "lm", tokenizer=tiny_tokenizer(chat=CHAT))
    method = fitted(folder, "tracin", template=template)
    (found,) = method.tokens(QUERY, SOME[:1])
    for stretches, example in ((found.query, QUERY), (found.example, SOME[0])):
        text = f"{example.prompt}\n{example.response}"
        said = [text[a:b] for a, b in zip(stretches.starts.tolist(), stretches.stops.tolist(), strict=True)]
        assert "".join(said) == text.replace("\n", "")  # a token is a byte here, and the template's are empty
        ids = method.lm.tokenise([example]).sequence(0)
        assert len(said) == len(ids) - 1
    after = found.query.starts >= len(QUERY.prompt) + 1
    assert np.abs(found.scores[after]).sum() > 0

"""Readout features: the gradient of the output layer, from one forward pass."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional
from worlds.double_lms import listed, plain, wide
from worlds.tiny_lms import TYPES, some_examples, tiny_lm

import airrep
from airrep.attributors.methods import make_attributor
from airrep.errors import ConfigError


def make(folder: str, **settings: Any) -> Any:
    return make_attributor("readout", {"lm": folder, "precision": "float32", "device": "cpu", "rank": 4, **settings})


def whole_gradients(folder: str) -> np.ndarray:
    """Gradient of each example's summed loss by the output layer's weights, by autograd: ``(n, v, h)``."""
    lm = wide(folder)
    network, found = plain(lm), []
    for ids, start in listed(lm.tokenise(some_examples(6))):
        kept: dict[str, torch.Tensor] = {}
        layer = network.get_output_embeddings()

        def hook(_module: Any, inputs: Any, outputs: torch.Tensor, kept: dict[str, torch.Tensor] = kept) -> None:
            kept["states"], kept["logits"] = inputs[0].detach(), outputs
            outputs.retain_grad()

        handle = layer.register_forward_hook(hook)
        logits = network(input_ids=torch.tensor([list(ids)])).logits[0]
        handle.remove()
        targets = torch.tensor(list(ids)[start:])
        functional.cross_entropy(logits[start - 1 : -1], targets, reduction="sum").backward()
        assert kept["logits"].grad is not None
        found.append((kept["logits"].grad[0].T @ kept["states"][0]).numpy())
    return np.stack(found)


@pytest.mark.parametrize("kind", TYPES)
def test_features_are_the_projected_gradient_of_the_output_layer(tmp_path: Path, kind: str) -> None:
    folder = tiny_lm(tmp_path / "lm", kind)
    method = make(folder, unit=False, batch_tokens=40)
    of_errors, of_states = (each.double().numpy() for each in method._matrices)
    wanted = np.stack([of_errors.T @ one @ of_states for one in whole_gradients(folder)]).reshape(6, 16)
    found = method.encode_train(some_examples(6))
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3 * np.abs(wanted).max())
    unit = make(folder, batch_tokens=40).encode_train(some_examples(6))
    np.testing.assert_allclose(unit, wanted / np.linalg.norm(wanted, axis=1, keepdims=True), rtol=1e-2, atol=1e-3)
    lengths = method.lm.tokenise(some_examples(6)).response_lengths[:, None]
    mean = make(folder, unit=False, reduction="mean").encode_train(some_examples(6))
    np.testing.assert_allclose(mean * lengths, found, rtol=1e-4, atol=1e-5)


def test_it_conforms(tmp_path: Path) -> None:
    folder = tiny_lm(tmp_path / "lm", max_position_embeddings=4096)
    for more in ({}, {"unit": False, "reduction": "mean"}):
        airrep.check_attributor(lambda more=more: make(folder, **more))


def test_the_fingerprint_covers_what_decides_features(tmp_path: Path) -> None:
    folder = tiny_lm(tmp_path / "lm")
    different = [
        make(folder, **more) for more in ({}, {"rank": 3}, {"unit": False}, {"reduction": "mean"}, {"seed": 1})
    ]
    assert len({one.fingerprint for one in different}) == len(different)
    assert make(folder, batch_tokens=64).fingerprint == different[0].fingerprint


def test_a_rank_above_the_layer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"rank=10000: the output layer of .* Lower rank\."):
        make(tiny_lm(tmp_path / "lm"), rank=10_000).encode_train(some_examples(2))

"""Low-rank adapters train, become part of the weights, and leave with a reset."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_lms import some_examples, tiny_lm, tiny_network

from airrep.errors import ConfigError, MissingExtraError, TrainingError
from airrep.lm import FineTuneSettings, LmSettings, TargetLM, load_lm
from airrep.lm_lora import adapted
from airrep.lm_training import accumulate

LORA = FineTuneSettings(learning_rate=1e-1, batch_examples=5, lora_rank=2, weight_decay=0.0)


@pytest.fixture(params=["llama", "gpt2"])
def lm(request: pytest.FixtureRequest, tmp_path: Path) -> TargetLM:
    """A tiny LM."""
    tiny_lm(tmp_path / "lm", request.param)
    return load_lm(LmSettings(lm=str(tmp_path / "lm"), precision="float32", device="cpu"))


def test_without_peft_the_extra_is_named(lm: TargetLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(MissingExtraError, match=r"^lora_rank: needs an optional dependency\. .*airrep\[peft\]"):
        lm.fine_tune(lm.tokenise(some_examples()), LORA, seed=0)
    assert all(parameter.requires_grad for parameter in lm.model.parameters())


def test_adapters_change_the_linear_maps_by_a_matrix_of_their_rank_and_nothing_else(lm: TargetLM) -> None:
    pytest.importorskip("peft")
    documents = lm.tokenise(some_examples())
    base = {name: tensor.clone() for name, tensor in lm.model.state_dict().items()}
    report = lm.fine_tune(documents, LORA, seed=0)
    assert report.loss_per_step[-1] < report.loss_per_step[0]
    tuned = lm.model.state_dict()
    assert tuned.keys() == base.keys()
    ranks = {
        name: int(torch.linalg.matrix_rank(tuned[name] - base[name], atol=1e-5))
        for name in base
        if base[name].ndim == 2
    }
    changed = {name for name in base if not torch.equal(tuned[name], base[name])}
    assert changed == {name for name, rank in ranks.items() if rank == 2}
    assert changed
    assert not any("embed" in name or "wte" in name or "lm_head" in name for name in changed)
    assert all(parameter.requires_grad for parameter in lm.model.parameters())


def test_a_reset_takes_adapters_away_and_the_seed_gives_the_same_ones(lm: TargetLM) -> None:
    pytest.importorskip("peft")
    documents = lm.tokenise(some_examples())
    base, found = lm.losses(documents), []
    state = torch.random.get_rng_state()
    for seed in (0, 0, 1):
        lm.fine_tune(documents, LORA, seed)
        found.append(lm.losses(documents))
        lm.reset()
        np.testing.assert_array_equal(lm.losses(documents), base)
    assert torch.equal(torch.random.get_rng_state(), state)
    np.testing.assert_array_equal(found[0], found[1])
    assert np.abs(found[0] - found[2]).max() > 1e-4
    assert np.abs(found[0] - base).max() > 1e-2


def test_a_full_fine_tune_after_adapters_trains_all_weights(lm: TargetLM) -> None:
    pytest.importorskip("peft")
    documents = lm.tokenise(some_examples())
    full = FineTuneSettings(learning_rate=1e-2)
    wanted = lm.fine_tune(documents, full, seed=0)
    lm.reset()
    lm.fine_tune(documents, LORA, seed=0)
    lm.reset()
    assert lm.fine_tune(documents, full, seed=0) == wanted


def test_gradients_of_adapters_are_those_of_the_product_in_the_weights(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    tiny_lm(tmp_path / "lm")
    lm = load_lm(LmSettings(lm=str(tmp_path / "lm"), precision="float32", device="cpu"))
    documents = lm.tokenise(some_examples())
    accumulate(lm.model, documents, lm.execution)
    gradient = lm.model.model.layers[0].mlp.up_proj.weight.grad.clone()
    lm.model.zero_grad()
    with adapted(lm.model, LORA, seed=0):
        accumulate(lm.model, documents, lm.execution)
        layer = lm.model.model.layers[0].mlp.up_proj
        a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight
        torch.testing.assert_close(b.grad, LORA.lora_alpha / 2 * gradient @ a.T)
        assert layer.base_layer.weight.grad is None
        for name, parameter in lm.model.named_parameters():
            if "lora_B" in name:
                parameter.data.fill_(1e-3)


def test_adapters_that_did_not_train_are_an_error_and_are_taken_away(lm: TargetLM) -> None:
    pytest.importorskip("peft")
    documents = lm.tokenise(some_examples())
    base = lm.losses(documents)
    with pytest.raises(TrainingError, match=r"^fine-tune: adapters did not change\. Choose other lora_targets"):
        with adapted(lm.model, LORA, seed=0):
            pass
    np.testing.assert_array_equal(lm.losses(documents), base)
    assert {name for name, _ in lm.model.named_parameters()} == {name for name, _ in tiny_of(lm).named_parameters()}


def tiny_of(lm: TargetLM) -> torch.nn.Module:
    """A network of the same type."""
    network: torch.nn.Module = tiny_network("gpt2" if lm.model.config.model_type == "gpt2" else "llama")
    return network


def test_targets_that_do_not_exist_are_refused(lm: TargetLM) -> None:
    pytest.importorskip("peft")
    with pytest.raises(ConfigError, match=r"^lora_targets: .*nowhere.*Give names of linear maps of this LM\.$"):
        lm.fine_tune(lm.tokenise(some_examples()), LORA.model_copy(update={"lora_targets": ("nowhere",)}), seed=0)


def test_adapters_train_with_checkpointing_too(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    tiny_lm(tmp_path / "lm")
    reports = []
    for checkpointing in (False, True):
        settings = LmSettings(lm=str(tmp_path / "lm"), precision="float32", device="cpu", checkpointing=checkpointing)
        lm = load_lm(settings)
        reports.append(lm.fine_tune(lm.tokenise(some_examples()), LORA, seed=0))
    np.testing.assert_allclose(reports[0].loss_per_step, reports[1].loss_per_step, rtol=1e-5)

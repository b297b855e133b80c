"""Low-rank adapters train, become part of the weights, and leave with a reset."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from worlds.tiny_lms import some_examples, tiny_lm, tiny_network

from airrep.errors import ConfigError, MissingExtraError, TrainingError
from airrep.lm.lora import adapted, adapter_weights, load_adapters, load_moments, save_adapters, whole_weights
from airrep.lm.model import TargetLM, load_lm
from airrep.lm.network import StepDone, accumulate
from airrep.lm.settings import FineTuneSettings, LmSettings

ADAPTER = "adapter_model.safetensors"
LORA = FineTuneSettings(learning_rate=1e-2, batch_examples=5, lora_rank=2, weight_decay=0.0)


@pytest.fixture(params=["llama", "gpt2"])
def lm(request: pytest.FixtureRequest, tmp_path: Path) -> TargetLM:
    """A tiny LM."""
    tiny_lm(tmp_path / "lm", request.param)
    return load_lm(LmSettings(lm=str(tmp_path / "lm"), precision="float32", device="cpu"))


def test_without_peft_the_extra_is_named(lm: TargetLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(MissingExtraError, match="^lora_rank: needs an optional dependency"):
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
    with pytest.raises(TrainingError, match="^fine-tune: adapters did not change"):
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
    with pytest.raises(ConfigError, match=r"^lora_targets: .*nowhere.*Give names of linear layers of this LM\.$"):
        lm.fine_tune(lm.tokenise(some_examples()), LORA.model_copy(update={"lora_targets": ("nowhere",)}), seed=0)


def _with_targets(*names: str) -> FineTuneSettings:
    return LORA.model_copy(update={"lora_targets": names})


@pytest.mark.parametrize(("kind", "embedding"), [("qwen2", "model.embed_tokens"), ("gpt2", "transformer.wte")])
def test_a_target_whose_weight_is_that_of_another_layer_is_refused(kind: str, embedding: str, tmp_path: Path) -> None:
    """Merged, adapters of the output layer would change the embeddings too: not what was trained."""
    pytest.importorskip("peft")
    lm = _tiny(tiny_lm(tmp_path / "lm", kind))
    documents = lm.tokenise(some_examples())
    base, names, steps = lm.losses(documents), dict(lm.model.named_parameters()).keys(), list[StepDone]()
    message = rf"^lora_targets: lm_head shares its weight with {embedding}, .*Remove lm_head from lora_targets\.$"
    with pytest.raises(ConfigError, match=message):
        lm.fine_tune(documents, _with_targets("lm_head"), 0, steps.append)
    assert not steps
    np.testing.assert_array_equal(lm.losses(documents), base)
    assert dict(lm.model.named_parameters()).keys() == names
    assert lm.model.lm_head.weight is lm.model.get_input_embeddings().weight
    assert all(parameter.requires_grad for parameter in lm.model.parameters())
    lm.fine_tune(documents, _with_targets("c_attn" if kind == "gpt2" else "q_proj"), 0)


def test_an_output_layer_with_a_weight_of_its_own_gets_adapters(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    lm = _tiny(tiny_lm(tmp_path / "lm"))
    whole: list[dict[str, torch.Tensor]] = []
    embeddings = lm.model.model.embed_tokens.weight.detach().clone()
    lm.fine_tune(
        lm.tokenise(some_examples()), _with_targets("lm_head"), 0, lambda _: whole.append(whole_weights(lm.model))
    )
    assert torch.equal(whole[-1]["lm_head.weight"], lm.model.lm_head.weight)
    assert torch.equal(lm.model.model.embed_tokens.weight, embeddings)


@pytest.mark.parametrize("tied", [False, True])
def test_a_target_that_is_no_linear_map_is_refused(tied: bool, tmp_path: Path) -> None:
    """Adapters of an embedding would be drawn from the global generator, so that the seed would not decide them."""
    pytest.importorskip("peft")
    lm = _tiny(tiny_lm(tmp_path / "lm", tie_word_embeddings=tied))
    message = r"^lora_targets: model\.embed_tokens is of type Embedding, not linear\. Remove it from"
    with pytest.raises(ConfigError, match=message):
        lm.fine_tune(lm.tokenise(some_examples()), _with_targets("embed_tokens", "q_proj"), 0)


def _tiny(folder: str) -> TargetLM:
    return load_lm(LmSettings(lm=folder, precision="float32", device="cpu"))


@pytest.mark.parametrize("rank", [2, None])
def test_a_warm_up_of_the_rate_that_outlasts_the_fine_tune_is_named(rank: int | None, lm: TargetLM) -> None:
    pytest.importorskip("peft")
    only = LORA.model_copy(update={"lora_rank": rank, "epochs": 1, "batch_examples": 12, "warmup_steps": 3})
    documents = lm.tokenise(some_examples())
    told = r"^fine-tune: warmup_steps=3 keeps the learning rate at 0 .*Lower warmup_steps"
    with pytest.raises(ConfigError, match=told):
        lm.fine_tune(documents, only, seed=0)
    assert lm.fine_tune(documents, only.model_copy(update={"epochs": 2}), seed=0).steps == 2


def test_adapters_train_with_checkpointing_too(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    tiny_lm(tmp_path / "lm")
    reports = []
    for checkpointing in (False, True):
        settings = LmSettings(lm=str(tmp_path / "lm"), precision="float32", device="cpu", checkpointing=checkpointing)
        lm = load_lm(settings)
        reports.append(lm.fine_tune(lm.tokenise(some_examples()), LORA, seed=0))
    np.testing.assert_allclose(reports[0].loss_per_step, reports[1].loss_per_step, rtol=1e-5)


@pytest.fixture
def adapter(lm: TargetLM, tmp_path: Path) -> Path:
    """Adapters trained on a tiny LM, whose weights are then put back."""
    pytest.importorskip("peft")

    def keep(done: StepDone) -> None:
        if done.step == done.steps:
            save_adapters(lm.model, done.optimizer, tmp_path / "adapter", lm.name)

    lm.fine_tune(lm.tokenise(some_examples()), LORA, 0, keep)
    lm.reset()
    return tmp_path / "adapter"


def test_loaded_adapters_compute_what_the_merged_weights_do(lm: TargetLM, adapter: Path) -> None:
    documents = lm.tokenise(some_examples())
    lm.fine_tune(documents, LORA, seed=0)
    merged = lm.losses(documents)
    lm.reset()
    state = torch.random.get_rng_state()
    load_adapters(lm.model, adapter)
    assert torch.equal(torch.random.get_rng_state(), state)
    np.testing.assert_allclose(lm.losses(documents), merged, rtol=1e-5)
    stored = load_file(adapter / "adapter_model.safetensors")
    loaded = adapter_weights(lm.model)
    assert stored.keys() == loaded.keys()
    assert all(torch.equal(stored[name], loaded[name]) for name in stored)


def test_whole_weights_are_those_that_merging_gives_and_leave_the_model_alone(lm: TargetLM) -> None:
    pytest.importorskip("peft")
    found: list[dict[str, torch.Tensor]] = []

    def read(done: StepDone) -> None:
        weights = whole_weights(lm.model)
        found.append({name: weight.clone() for name, weight in weights.items()})

    report = lm.fine_tune(lm.tokenise(some_examples()), LORA, 0, read)
    assert len(found) == report.steps
    assert found[-1].keys() == dict(lm.model.named_parameters()).keys()
    assert all(torch.equal(found[-1][name], weight) for name, weight in lm.model.named_parameters())
    lm.reset()
    assert lm.fine_tune(lm.tokenise(some_examples()), LORA, 0) == report


def test_adapters_that_peft_wrote_itself_are_loaded_and_their_dropout_is_off(lm: TargetLM, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    gpt2 = lm.model.config.model_type == "gpt2"
    chosen = {"target_modules": ["c_attn"] if gpt2 else ["q_proj", "v_proj"], "fan_in_fan_out": gpt2}
    config = peft.LoraConfig(r=3, lora_dropout=0.5, init_lora_weights=False, use_rslora=True, **chosen)
    made = peft.LoraModel(tiny_of(lm), config, "default").model
    weights = {name: parameter.detach() for name, parameter in adapter_weights(made).items()}
    config.save_pretrained(tmp_path / "theirs")
    save_file({name: weight.bfloat16() for name, weight in weights.items()}, tmp_path / "theirs" / ADAPTER)
    before = lm.losses(lm.tokenise(some_examples()))
    load_adapters(lm.model, tmp_path / "theirs")
    losses = lm.losses(lm.tokenise(some_examples()))
    assert np.abs(losses - before).max() > 1e-3
    lm.model.train()
    np.testing.assert_array_equal(lm.losses(lm.tokenise(some_examples())), losses)


def _rewrite(change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> Callable[[Path], None]:
    return lambda folder: save_file(change(load_file(folder / ADAPTER)), folder / ADAPTER)


def _configured(**changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        config = json.loads((folder / "adapter_config.json").read_text())
        (folder / "adapter_config.json").write_text(json.dumps(config | changes))

    return change


def _cut(folder: Path) -> None:
    (folder / ADAPTER).write_bytes((folder / ADAPTER).read_bytes()[:100])


BROKEN = {
    "no file": (lambda folder: (folder / ADAPTER).unlink(), "there is no adapter_model.safetensors"),
    "no config": (lambda folder: (folder / "adapter_config.json").unlink(), "there is no adapter_config.json"),
    "cut": (_cut, "cannot be read"),
    "one missing": (_rewrite(lambda held: dict(list(held.items())[1:])), "has no base_model.*would be random"),
    "another prefix": (
        _rewrite(lambda held: {name.replace("base_model.model.", "x."): each for name, each in held.items()}),
        "has no base_model.*would be random",
    ),
    "one too many": (
        _rewrite(lambda held: {**held, "base_model.model.extra.lora_A.weight": torch.ones(1)}),
        "base_model.model.extra.lora_A.weight of adapter_model.safetensors does not fit into this LM",
    ),
    "more than adapters": (
        _rewrite(lambda held: {**held, "base_model.model.lm_head.weight": torch.ones(1)}),
        "hold base_model.model.lm_head.weight, but may hold only LoRA",
    ),
    "untrained": (
        _rewrite(lambda held: {name: each * (0 if "lora_B" in name else 1) for name, each in held.items()}),
        "every LoRA matrix B is 0",
    ),
    "not finite": (
        _rewrite(lambda held: {name: each * float("nan") for name, each in held.items()}),
        r"weight base_model\..* in adapter_model\.safetensors is not finite\. Use another checkpoint\.$",
    ),
    "another rank": (_configured(r=1), "cannot be loaded into a"),
    "other targets": (_configured(target_modules=["nowhere"]), "cannot be loaded into a"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_adapters_that_would_be_random_or_do_nothing_are_refused(case: str, lm: TargetLM, adapter: Path) -> None:
    change, message = BROKEN[case]
    change(adapter)
    with pytest.raises(ConfigError, match=message) as caught:
        load_adapters(lm.model, adapter)
    assert str(caught.value).startswith(f"adapters {adapter}: ")
    assert "\n" not in str(caught.value)


def test_adapters_of_another_lm_are_refused(lm: TargetLM, adapter: Path, tmp_path: Path) -> None:
    other = "llama" if lm.model.config.model_type == "gpt2" else "gpt2"
    tiny_lm(tmp_path / "other", other)
    with pytest.raises(ConfigError, match=r"cannot be loaded into a .*Give the LM that they were trained on\.$"):
        load_adapters(_tiny(str(tmp_path / "other")).model, adapter)


def test_moments_are_read_by_the_names_of_the_adapters(lm: TargetLM, adapter: Path) -> None:
    load_adapters(lm.model, adapter)
    moments = load_moments(adapter)
    weights = adapter_weights(lm.model)
    assert moments.keys() == weights.keys()
    assert all(each.shape == weights[name].shape for name, pair in moments.items() for each in pair)
    assert all(bool((second >= 0).all()) for _, second in moments.values())
    (adapter / "moments.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"moments\.safetensors: cannot be read: .*Run `airrep warmup` again\.$"):
        load_moments(adapter)


def test_adapters_without_peft_name_the_extra(lm: TargetLM, adapter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(MissingExtraError, match=r"^adapters .*: needs .*airrep\[peft\]"):
        load_adapters(lm.model, adapter)

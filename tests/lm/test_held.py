"""Weights that stay as they are stored: the same numbers as in float32, and no copy in float32."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, MixtralConfig, MixtralForCausalLM
from worlds.tiny_lms import some_examples, tiny_network, tiny_tokenizer, write_adapters

from airrep.attributors.gradient.influence import Hessian
from airrep.attributors.gradient.projection import project_gradients
from airrep.attributors.gradient.reading import find_sites
from airrep.attributors.recipes import ChannelsSettings
from airrep.errors import ConfigError
from airrep.lm import held
from airrep.lm.model import TargetLM, load_lm, shared_lm
from airrep.lm.settings import FineTuneSettings, LmSettings, memory_bytes


def network(kind: str) -> Any:
    """A tiny LM: Gemma scales its table by a constant, and ties it to the output layer."""
    if kind not in ("gemma", "mixtral"):
        return tiny_network(kind)
    shape = {"vocab_size": 280, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "head_dim": 8}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "sliding_window": 16}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        if kind == "mixtral":
            own = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
            return MixtralForCausalLM(MixtralConfig(**shape, **own, num_local_experts=3, pad_token_id=0))
        return Gemma3ForCausalLM(Gemma3TextConfig(**shape, **heads, bos_token_id=1, eos_token_id=2, pad_token_id=0))


def written(folder: Path, kind: str, dtype: torch.dtype, **saving: Any) -> Path:
    """The folder of a tiny LM whose weights are stored in a type."""
    network(kind).to(dtype).save_pretrained(folder, **saving)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def both(folder: Path, **settings: Any) -> tuple[TargetLM, TargetLM]:
    """The LM with float32 weights, and with its weights as they are stored."""
    chosen = LmSettings(**{"lm": str(folder), "device": "cpu", "precision": "float32", **settings})
    return load_lm(chosen), load_lm(chosen, stored=True)


def read(lm: TargetLM) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Losses, whole gradients of all linear maps, and hidden states."""
    documents = lm.tokenise(some_examples())
    sites = find_sites(lm.model, ("all-linear",), "lm")
    return lm.losses(documents), project_gradients(lm, documents, sites, None).features, lm.hidden_states(documents)


@pytest.mark.parametrize(
    ("kind", "dtype", "chunk"),
    [
        ("llama", torch.bfloat16, held.CHUNK),
        ("gpt2", torch.float16, 50),
        ("gemma", torch.bfloat16, 50),
        ("mixtral", torch.bfloat16, 50),
    ],
)
def test_weights_as_stored_give_what_float32_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, dtype: torch.dtype, chunk: int
) -> None:
    monkeypatch.setattr(held, "CHUNK", chunk)
    whole, stored = both(written(tmp_path / "lm", kind, dtype))
    assert held.is_held(stored.model)
    assert not held.is_held(whole.model)
    for wanted, found in zip(read(whole), read(stored), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6 * np.abs(wanted).max())
    assert stored.generate(some_examples(2), 3) == whole.generate(some_examples(2), 3)
    assert stored.fingerprint == whole.fingerprint


def test_bfloat16_products_take_weights_as_stored(tmp_path: Path) -> None:
    whole, stored = both(written(tmp_path / "lm", "llama", torch.bfloat16), precision="bfloat16")
    for wanted, found in zip(read(whole), read(stored), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "mixtral"])
def test_no_weight_is_kept_in_float32(tmp_path: Path, kind: str) -> None:
    lm = both(written(tmp_path / "lm", kind, torch.bfloat16))[1]
    weights = {module.weight.shape for module in lm.model.modules() if "held" in vars(module)}
    assert sum("held" in vars(module) for module in lm.model.modules()) >= 10
    # What takes memory: a hollow parameter has one number, and a tied one counts once.
    large = [
        each
        for name, each in lm.model.named_parameters()
        if each.dim() > 1 and "router" not in name and "mlp.gate." not in name and each.untyped_storage().nbytes() > 4
    ]
    assert not large
    kept: list[Any] = []
    documents = lm.tokenise(some_examples())
    sites = find_sites(lm.model, ("all-linear",), "lm")
    with saved_tensors_hooks(lambda one: kept.append(one) or one, lambda one: one):
        project_gradients(lm, documents, sites, None)
    assert kept
    assert not [one.shape for one in kept if one.dim() == 2 and {one.shape, one.t().shape} & weights]


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")  # peft asks for it
def test_float32_and_mixed_weights_are_whole(tmp_path: Path) -> None:
    assert not held.is_held(both(written(tmp_path / "lm", "llama", torch.float32))[1].model)
    mixed = network("llama").bfloat16()
    mixed.lm_head.float()
    mixed.save_pretrained(tmp_path / "mixed")
    tiny_tokenizer().save_pretrained(tmp_path / "mixed")
    assert held.stored_type(tmp_path / "mixed", "mixed") is None
    folder = written(tmp_path / "half", "llama", torch.bfloat16)
    write_adapters(str(folder), tmp_path / "adapters")
    assert not held.is_held(both(tmp_path / "adapters")[1].model)


@pytest.mark.parametrize("kind", ["gemma", "mixtral"])
def test_training_makes_weights_whole(kind: str, tmp_path: Path) -> None:
    whole, stored = both(written(tmp_path / "lm", kind, torch.bfloat16))
    settings = FineTuneSettings(epochs=1, learning_rate=1e-3)
    for lm in (whole, stored):
        lm.fine_tune(lm.tokenise(some_examples()), settings, seed=0)
    for (name, one), (_, other) in zip(whole.model.named_parameters(), stored.model.named_parameters(), strict=True):
        assert torch.equal(one, other), name
    tied = stored.model.lm_head.weight is stored.model.model.embed_tokens.weight
    assert tied == (kind == "gemma")
    stored.reset()
    np.testing.assert_array_equal(read(stored)[0], read(both(tmp_path / "lm")[0])[0])


def test_a_hessian_is_that_of_whole_weights(tmp_path: Path) -> None:
    found = []
    for lm in both(written(tmp_path / "lm", "llama", torch.bfloat16)):
        sites = find_sites(lm.model, ("*.1.self_attn.v_proj",), "lm")
        hessian = Hessian(lm, lm.tokenise(some_examples(4)), sites)
        found.append(hessian.products(np.ones((1, hessian.dimension))))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-12)


def test_code_that_reads_a_weight_by_itself_gets_whole_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = written(tmp_path / "lm", "llama", torch.bfloat16)
    from transformers.models.llama.modeling_llama import LlamaMLP

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        inner = self.act_fn(torch.nn.functional.linear(x, self.gate_proj.weight)) * self.up_proj(x)
        return self.down_proj(inner)  # type: ignore[no-any-return]

    wanted = read(both(folder)[0])
    monkeypatch.setattr(LlamaMLP, "forward", forward)
    lm = both(folder)[1]
    assert not held.is_held(lm.model)
    np.testing.assert_array_equal(read(lm)[0], wanted[0])


def test_methods_share_an_lm_that_holds_weights_as_stored(tmp_path: Path) -> None:
    settings = LmSettings(lm=str(written(tmp_path / "lm", "llama", torch.float16)), device="cpu")
    lm = shared_lm(settings)
    assert held.is_held(lm.model)
    assert shared_lm(settings) is lm


@pytest.mark.parametrize("kind", ["gptq", "hqq"])
def test_a_quantised_format_that_is_not_read_is_refused_before_weights_are(tmp_path: Path, kind: str) -> None:
    folder = written(tmp_path / "lm", "llama", torch.bfloat16)
    config = json.loads((folder / "config.json").read_bytes())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": kind}}))
    for path in folder.glob("*.safetensors"):
        path.write_bytes(b"")
    with pytest.raises(ConfigError, match=rf"^lm {folder}: its weights are quantised \({kind}\) in a format that"):
        LmSettings(lm=str(folder)).find()
    (tmp_path / "adapters").mkdir()
    (tmp_path / "adapters" / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(folder)}))
    (tmp_path / "adapters" / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(ConfigError, match=rf"base {folder}: its weights are quantised .* --set base=MODEL"):
        LmSettings(lm=str(tmp_path / "adapters")).find()


def test_half_a_shard_is_refused_before_weights_are_read(tmp_path: Path) -> None:
    folder = written(tmp_path / "lm", "llama", torch.bfloat16, max_shard_size="10KB")
    shards = sorted(folder.glob("*.safetensors"))
    size = shards[1].stat().st_size
    shards[1].write_bytes(shards[1].read_bytes()[: size // 2])
    with pytest.raises(ConfigError, match=rf"^lm .*: {shards[1].name} has {size // 2:,} bytes, but its header"):
        both(folder)
    shards[1].unlink()
    with pytest.raises(ConfigError, match=rf"^lm .*: {shards[1].name} is missing \(1 of {len(shards)} weight files"):
        both(folder)


@pytest.mark.parametrize(
    ("amount", "wanted"),
    [("8GB", 8 * 10**9), ("1.5 GiB", 3 * 2**29), ("500MB", 5 * 10**8), ("8", None), ("0GB", None), ("-1GB", None)],
)
def test_an_amount_of_memory_is_read(amount: str, wanted: int | None) -> None:
    assert memory_bytes(amount) == wanted


def test_what_is_held_at_a_time_is_cut_to_the_memory_promised() -> None:
    plan = held.MemoryPlan(promised=8 * 10**9, fixed=4 * 10**9, token=8 * 10**6)
    assert plan.batch_tokens == 250  # half of what is left
    square = 80 * 10**6
    for longest in (100, 400):
        sums = plan.sums(longest, square, "lm m")
        assert sums >= square
        assert plan.fixed + 4 * sums + longest * plan.token <= plan.promised
        assert plan.fixed + 4 * sums + 32 * square <= plan.promised
    assert plan.sums(400, square, "lm m") < plan.sums(100, square, "lm m") < held.SUMS
    assert plan.fixed + 4 * plan.sums(100, square, "lm m", 10**9) + 100 * plan.token <= plan.promised - 10**9
    assert replace(plan, promised=10**11).sums(100, square, "lm m") == held.SUMS
    with pytest.raises(ConfigError, match=r"^lm m: memory is 8\.0 GB, but .* one example of 500 tokens need 8\.3 GB"):
        plan.sums(500, square, "lm m")


@pytest.mark.parametrize(("more", "copies"), [({}, 2), ({"final_logit_softcapping": 30.0}, 3)])
def test_the_plan_counts_logits_as_often_as_they_are_held(more: dict[str, Any], copies: int, tmp_path: Path) -> None:
    """Peaks of LoGra with 131,072 tokens: once the logits, 1.4 times with weights in parts, and 2.9 with a soft cap."""
    vocabulary = 10**7
    config = {"model_type": "gemma2", "vocab_size": vocabulary, "hidden_size": 8, "num_hidden_layers": 1}
    (tmp_path / "config.json").write_text(json.dumps({"final_logit_softcapping": None, **config, **more}))
    token = held.plan_memory(10**12, tmp_path, "m", 0).token
    assert copies <= token / (4 * vocabulary) < copies + 0.1


def test_a_promise_of_memory_is_kept_or_refused_before_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = written(tmp_path / "lm", "llama", torch.bfloat16)
    settings = {"lm": str(folder), "device": "cpu", "max_tokens": 64}
    lm = load_lm(LmSettings(**settings, memory="30GB"), stored=True)
    lm.keep_promise(some_examples(), 1000)
    assert (lm.execution.batch_tokens, lm.sums) == (2048, held.SUMS)
    assert lm.plan is not None
    least = lm.plan.fixed + 64 * lm.plan.token
    lm.plan = replace(lm.plan, promised=least)
    with pytest.raises(ConfigError, match=r"one example of \d+ tokens need"):
        lm.keep_promise(some_examples(), 10**6)
    lm.keep_promise(some_examples(), 100)
    assert 100 <= lm.sums < 10**5
    monkeypatch.setattr("airrep.lm.model.load_network", None)
    with pytest.raises(ConfigError, match=rf"^lm {folder}: memory is 0\.2 GB, but .* one token need \d\.\d GB"):
        load_lm(LmSettings(**settings, memory="200MB"), stored=True)
    with pytest.raises(ConfigError, match=r"memory=8GB is only for commands that do not train"):
        load_lm(LmSettings(**settings, memory="8GB"))
    with pytest.raises(ConfigError, match="memory must be a number with MB or GB, such as 8GB"):
        LmSettings.of({"lm": "m", "memory": "eight"})
    with pytest.raises(ConfigError, match="memory: has no effect, because no language model is given"):
        ChannelsSettings.of({"channels": "text", "memory": "8GB"})

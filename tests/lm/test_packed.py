"""A quantised LM computes what the LM of its dequantised numbers computes."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from worlds.tiny_lms import load, some_examples, tiny_lm, tiny_network, write_adapters

from airrep.attributors.gradient.projection import project_gradients
from airrep.attributors.gradient.reading import find_sites
from airrep.errors import ConfigError
from airrep.lm import model
from airrep.lm.held import MemoryPlan, is_held
from airrep.lm.packed import dequantize, size_packed
from airrep.lm.settings import FineTuneSettings, LmSettings

GROUP = 32  # numbers that share a scale
AWQ = (0, 2, 4, 6, 1, 3, 5, 7)  # outputs of a word, from the lowest bits
SIZES = {"hidden_size": 64, "intermediate_size": 128}

Made = tuple[dict[str, torch.Tensor], np.ndarray]
"""Tensors of a matrix, by the ends of their names, and the numbers that they stand for."""


def bitsandbytes_8(weight: np.ndarray, _: np.random.Generator) -> Made:
    largest = np.abs(weight).max(1)
    codes = np.rint(weight / largest[:, None] * 127).astype(np.int8)
    return {"weight": torch.tensor(codes), "SCB": torch.tensor(largest)}, codes * (largest[:, None] / np.float32(127))


def bitsandbytes_4(weight: np.ndarray, draw: np.random.Generator, nested: bool = False) -> Made:
    table = np.sort(np.append(draw.uniform(-1, 1, 15), 1)).astype(np.float32)
    blocks = weight.reshape(-1, 64)
    largest = np.abs(blocks).max(1)
    state: dict[str, Any] = {"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": weight.shape}
    parts = {"weight.absmax": torch.tensor(largest)}
    if nested:
        own = np.linspace(0, 1, 256, dtype=np.float32)
        scale, least = np.float32(largest.max() - largest.min()), float(largest.min())
        places = np.rint((largest - least) / scale * 255).astype(np.uint8)
        largest = own[places] * scale + np.float32(least)
        state |= {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": least}
        parts = {"weight.absmax": torch.tensor(places), "weight.nested_quant_map": torch.tensor(own)}
        parts["weight.nested_absmax"] = torch.full((-(-len(largest) // 256),), float(scale))
    codes = np.abs(blocks[..., None] / largest[:, None, None] - table).argmin(-1)
    flat = codes.ravel().astype(np.uint8)
    parts["weight"] = torch.tensor(flat[::2] << 4 | flat[1::2])[:, None]
    parts["weight.quant_map"] = torch.tensor(table)
    parts["weight.quant_state.bitsandbytes__nf4"] = torch.tensor(list(json.dumps(state).encode()), dtype=torch.uint8)
    numbers = torch.tensor((table[codes] * largest[:, None]).reshape(weight.shape)).bfloat16().float().numpy()
    return parts, numbers


def grouped(weight: np.ndarray, groups: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Codes ``(in, out)``, zeros and scales ``(groups, out)``, and the numbers ``(out, in)``, all of float16."""
    count = groups.max() + 1
    parts = [weight[:, groups == group] for group in range(count)]
    low, high = (np.stack([how(part, 1) for part in parts]) for how in (np.min, np.max))
    scales = ((high - low) / (2**bits - 1)).astype(np.float16)
    zeros = np.clip(np.rint(-low / scales.astype(np.float32)), 1, 2**bits - 1).astype(np.int64)
    codes = np.rint(weight.T / scales.astype(np.float32)[groups] + zeros[groups]).clip(0, 2**bits - 1).astype(np.int64)
    numbers = (codes - zeros[groups]).astype(np.float16) * scales[groups]
    return codes, zeros, scales, numbers.astype(np.float32).T


def words(codes: np.ndarray, bits: int, order: tuple[int, ...] | None = None) -> torch.Tensor:
    """Codes along the last axis as whole numbers of 32 bits."""
    many = 32 // bits
    found = np.zeros((*codes.shape[:-1], codes.shape[-1] // many), np.uint32)
    for place in range(many):
        found |= (codes[..., (order or range(many))[place] :: many] << bits * place).astype(np.uint32)
    return torch.tensor(found.view(np.int32))


def gptq(weight: np.ndarray, draw: np.random.Generator, bits: int = 4, less: int = 1) -> Made:
    groups = draw.permutation(np.arange(weight.shape[1]) // GROUP)  # as inputs are taken by their size
    codes, zeros, scales, numbers = grouped(weight, groups, bits)
    parts = {"qweight": words(codes.T, bits).T.contiguous(), "qzeros": words(zeros - less, bits)}
    return {**parts, "scales": torch.tensor(scales), "g_idx": torch.tensor(groups, dtype=torch.int32)}, numbers


def awq(weight: np.ndarray, _: np.random.Generator) -> Made:
    codes, zeros, scales, numbers = grouped(weight, np.arange(weight.shape[1]) // GROUP, 4)
    return {"qweight": words(codes, 4, AWQ), "qzeros": words(zeros, 4, AWQ), "scales": torch.tensor(scales)}, numbers


FORMS: dict[str, tuple[Callable[..., Made], dict[str, Any]]] = {
    "bitsandbytes, 8 bits": (bitsandbytes_8, {"quant_method": "bitsandbytes", "load_in_8bit": True}),
    "bitsandbytes, 4 bits": (bitsandbytes_4, {"load_in_4bit": True}),
    "bitsandbytes, nested": (
        lambda *given: bitsandbytes_4(*given, nested=True),
        {"quant_method": "bitsandbytes", "load_in_4bit": True},
    ),
    "gptq, 4 bits": (gptq, {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": True}),
    "gptq, 8 bits": (
        lambda *given: gptq(*given, bits=8, less=0),
        {"quant_method": "gptq", "bits": 8, "checkpoint_format": "gptq_v2"},
    ),
    "awq": (awq, {"quant_method": "awq", "bits": 4, "version": "gemm", "group_size": GROUP, "zero_point": True}),
}


def written(folder: Path, form: str) -> tuple[Path, Path]:
    """A tiny LM with quantised linear maps, and the same with float32 weights of these numbers."""
    make, config = FORMS[form]
    draw = np.random.default_rng(0)
    whole = Path(tiny_lm(folder / "whole", **SIZES))
    network = tiny_network("llama", **SIZES)
    tensors: dict[str, torch.Tensor] = {}
    for name, weight in network.named_parameters():
        if "_proj" in name:
            parts, numbers = make(weight.detach().numpy(), draw)
            tensors |= {f"{name.removesuffix('.weight')}.{end}": part for end, part in parts.items()}
            weight.data = torch.tensor(numbers)
        else:
            tensors[name] = weight.data = weight.detach().half()
            weight.data = weight.data.float()
    network.save_pretrained(whole)
    packed = folder / "packed"
    shutil.copytree(whole, packed)
    save_file(tensors, packed / "model.safetensors", metadata={"format": "pt"})
    read = json.loads((packed / "config.json").read_bytes())
    (packed / "config.json").write_text(json.dumps({**read, "quantization_config": config}))
    return packed, whole


load_stored = partial(load, stored=True)


def load_plan(settings: dict[str, Any]) -> MemoryPlan:
    chosen = LmSettings.of({"device": "cpu", "memory": "60GB", **settings})
    plan = model._plan(chosen, chosen.find(), True)
    assert plan is not None
    return plan


@pytest.mark.parametrize("form", FORMS)
def test_it_gives_what_its_dequantised_self_gives(form: str, tmp_path: Path) -> None:
    packed, whole = map(load_stored, written(tmp_path, form))
    held = {name for name, module in packed.model.named_modules() if "held" in vars(module)}
    assert len(held) == 2 * 7 + 2
    documents = whole.tokenise(some_examples())
    np.testing.assert_allclose(packed.losses(documents), whole.losses(documents), rtol=1e-6)
    found, wanted = (
        project_gradients(lm, documents, find_sites(lm.model, ("all-linear",), "lm"), None).features.astype(np.float64)
        for lm in (packed, whole)
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())
    scores = found @ found.T, wanted @ wanted.T
    np.testing.assert_allclose(*scores, rtol=1e-5, atol=1e-5 * np.abs(scores[1]).max())
    some = torch.tensor([5, 0, 5])  # rows of any order
    for name in held:
        stored = packed.model.get_submodule(name).held
        torch.testing.assert_close(
            stored.rows(some).float(), whole.model.get_submodule(name).weight[some].detach(), rtol=1e-6, atol=0
        )


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")  # peft asks for it
def test_it_is_trained_and_is_a_base_of_adapters_with_float32_weights(tmp_path: Path) -> None:
    folders = written(tmp_path, "bitsandbytes, 4 bits")
    packed, whole = map(load_stored, folders)
    documents = whole.tokenise(some_examples())
    for lm in (packed, whole):
        lm.fine_tune(documents, FineTuneSettings(epochs=1), seed=0)
        assert not is_held(lm.model)
    np.testing.assert_allclose(packed.losses(documents), whole.losses(documents), rtol=1e-6)
    write_adapters(str(folders[1]), tmp_path / "adapters")
    read = [load_stored(tmp_path / "adapters", base=str(base), merged=True).losses(documents) for base in folders]
    np.testing.assert_allclose(*read, rtol=1e-6)
    assert is_held(load_stored(tmp_path / "adapters", base=str(folders[0]), merged=False).model)


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")  # peft asks for it
def test_memory_counts_its_bytes_before_weights_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = written(tmp_path, "bitsandbytes, 8 bits")[0]
    write_adapters(str(tmp_path / "whole"), tmp_path / "adapters")
    monkeypatch.setattr("airrep.lm.held.used_memory", lambda: 0)
    adapters = {"lm": str(tmp_path / "adapters"), "base": str(folder)}
    plans = [load_plan({"lm": str(folder)}), *(load_plan({**adapters, "merged": merged}) for merged in (False, True))]
    assert plans[2].fixed - plans[0].fixed == 7 * size_packed(folder, "lm")  # float32 where adapters are merged
    assert plans[1].fixed == plans[0].fixed
    weights = dict(tiny_network("llama", **SIZES).named_parameters())
    maps = [weight for name, weight in weights.items() if "_proj" in name]
    others = [weight for name, weight in weights.items() if "_proj" not in name]
    wanted = sum(one.numel() + 4 * len(one) for one in maps)
    assert size_packed(folder, "lm") == wanted + sum(one.numel() * (2 if one.dim() > 1 else 4) for one in others)


@pytest.mark.parametrize(
    ("form", "change", "told"),
    [
        ("gptq, 4 bits", {"bits": 3}, r"its weights are quantised \(gptq bits=3\) in a format that airrep cannot read"),
        ("awq", {"version": "gemv"}, r"its weights are quantised \(awq bits=4 version=gemv\) in a format that"),
    ],
)
def test_variants_that_are_not_read_are_named(form: str, change: dict[str, Any], told: str, tmp_path: Path) -> None:
    path = written(tmp_path, form)[0] / "config.json"
    config = json.loads(path.read_bytes())
    config["quantization_config"] |= change
    path.write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=rf"^lm {path.parent}: {told}"):
        load_stored(path.parent)


def test_a_part_that_is_missing_is_named(tmp_path: Path) -> None:
    folder = written(tmp_path, "awq")[0]
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.down_proj.scales"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=r"model\.layers\.1\.mlp\.down_proj cannot be read as awq: no 'scales'"):
        load_stored(folder)


gguf = pytest.importorskip("gguf")


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"])
def test_any_bytes_are_the_numbers_that_the_library_reads(kind: str) -> None:
    known = gguf.GGMLQuantizationType[kind]
    numbers, size = gguf.GGML_QUANT_SIZES[known]
    data = np.random.default_rng(0).integers(0, 256, (50, 3 * size), dtype=np.uint8)
    with np.errstate(all="ignore"):  # scales that are no numbers
        wanted = gguf.dequantize(data, known)
    found = dequantize(torch.from_numpy(data), kind)
    assert found is not None
    assert found.shape == (50, 3 * numbers)
    np.testing.assert_array_equal(found.numpy(), wanted)


def test_other_types_are_left_to_the_library() -> None:
    assert dequantize(torch.zeros(1, 84, dtype=torch.uint8), "Q2_K") is None


@pytest.mark.parametrize("form", FORMS)
def test_another_device_than_the_cpu_reads_it_in_float32(form: str, tmp_path: Path) -> None:
    files = LmSettings.of({"lm": str(written(tmp_path, form)[0])}).find()
    assert model._load_stored(files, False, "meta") is None  # so that it is dequantised, and then moved

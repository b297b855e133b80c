"""Weights kept as their files hold them: quantised weights and fused experts.

transformers keeps all experts of a layer as weights of three dimensions, ``(experts, out, in)``, and lets the function
that multiplies with them be replaced. The function here gives the same outputs, one expert's matrix at a time.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from airrep.errors import ConfigError
from airrep.lm.files import GENERATION, make_plain, stored_weights, with_attention
from airrep.lm.folders.forms import AWQ, BITSANDBYTES, CONFIG, GPTQ, quantised, read_config
from airrep.lm.folders.gguf import PLACES, Place, read_places
from airrep.lm.held import HALF, HalfWeight, Stored, hollow, multiply, put, size_read, whole, without_weights
from airrep.shapes import Float, Float32, Int8, Int16, Int32, Int64, UInt8

NAME = "airrep_one_by_one"
"""Name that :func:`_run` has in transformers."""

Tap: TypeAlias = Callable[[str, int, Tensor, Tensor, Tensor], None]
"""Function of a fused weight's name, an expert, its inputs ``(n, in)``, outputs ``(n, out)`` and tokens ``(n,)``."""

_AMONG_OTHERS = re.compile(r"(\bexperts)\.\d+(?=\.|$)")


def is_fused(module: nn.Module) -> bool:
    """True if a module holds fused experts whose function can be replaced."""
    return isinstance(getattr(module, "down_proj", None), nn.Parameter) and hasattr(module, "is_transposed")


def fused_shapes(module: Any) -> Iterator[tuple[str, int, int, int]]:
    """Yield the name, number of experts, input width and output width of each fused weight of a module."""
    for name in ("gate_up_proj" if getattr(module, "has_gate", True) else "up_proj", "down_proj"):
        experts, *widths = getattr(module, name).shape
        inward, outward = widths if module.is_transposed else reversed(widths)
        yield name, experts, inward, outward


def pool_name(name: str) -> str:
    """Return the name that a linear map shares with all experts of its layer; other maps keep their names."""
    return _AMONG_OTHERS.sub(r"\1.*", name)


def one_by_one(module: nn.Module) -> None:
    """Let a module run its fused experts one after another, for good."""
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

    ALL_EXPERTS_FUNCTIONS.register(NAME, _run)
    getattr(module, "config")._experts_implementation = NAME  # noqa: B009 - a name that modules of torch lack


def hold_experts(model: nn.Module) -> None:
    """Keep fused experts in 2-byte types as they are, in place, and convert one expert's matrix at a time to float32.

    They run one by one from then on; see :func:`airrep.lm.held.hold`.
    """
    found: list[Any] = [module for module in model.modules() if is_fused(module)]
    for module in found:
        weights = {name: getattr(module, name).detach() for name, *_ in fused_shapes(module)}
        if all(weight.dtype in HALF.values() for weight in weights.values()):
            module.__dict__ |= {"fused": weights, "ran": module.config._experts_implementation}
            for name, weight in weights.items():
                module._parameters[name] = hollow(weight.shape, weight.device)
    for module in found:
        if "fused" in module.__dict__:
            one_by_one(module)


@contextmanager
def tapped(module: Any, tap: Tap) -> Iterator[None]:
    """Call *tap* inside the context with what passes through each fused expert."""
    before = module.config._experts_implementation
    one_by_one(module)
    module.airrep_tap = tap
    try:
        yield
    finally:
        del module.airrep_tap
        module.config._experts_implementation = before


def _run(
    module: Any, states: Float[Tensor, "t h"], chosen: Int64[Tensor, "t k"], shares: Float[Tensor, "t k"]
) -> Float[Tensor, "t h"]:
    """Return each token's sum of share times output over its chosen experts."""
    gated = getattr(module, "has_gate", True)
    first = "gate_up_proj" if gated else "up_proj"
    total = torch.zeros_like(states)
    for expert in range(module.num_experts):
        tokens, choices = torch.where(chosen == expert)  # in the order of tokens
        if not len(tokens):
            continue
        raised = _multiply(module, first, expert, states.index_select(0, tokens), tokens)
        mixed = module._apply_gate(raised) if gated else module.act_fn(raised)
        lowered = _multiply(module, "down_proj", expert, mixed, tokens)
        if getattr(module, "has_post_expert_norm", False):
            lowered = module.post_expert_norm(lowered)
        weighted = lowered * shares[tokens, choices, None]
        total.index_add_(0, tokens, weighted.to(total.dtype))
    return total


def _multiply(
    module: Any, name: str, expert: int, inputs: Float[Tensor, "n i"], tokens: Int64[Tensor, " n"]
) -> Float[Tensor, "n o"]:
    """Multiply inputs with one matrix of one expert, and add its bias."""
    bias = getattr(module, f"{name}_bias")[expert].to(inputs.dtype) if module.has_bias else None
    if (fused := vars(module).get("fused")) is not None:
        outputs = multiply(inputs, HalfWeight(fused[name][expert]), bias, module.is_transposed)
    else:
        weight = getattr(module, name)[expert].to(inputs.dtype)
        outputs = functional.linear(inputs, weight.T if module.is_transposed else weight, bias)
    if (tap := getattr(module, "airrep_tap", None)) is not None:
        tap(name, expert, inputs, outputs, tokens)
    return outputs


Rows = slice | Int64[Tensor, " n"]


class _Packed:
    """A matrix whose numbers are computed from stored codes."""

    kind: torch.dtype | None = None
    device = torch.device("cpu")

    def __init__(self, rows: int, width: int) -> None:
        self.shape = (rows, width)


class Bytes(_Packed):
    """8-bit weight of bitsandbytes: codes from −127 to 127, times a row's largest number / 127 (arXiv 2208.07339)."""

    def __init__(self, codes: Int8[Tensor, "o i"], largest: Float32[Tensor, " o"]) -> None:
        super().__init__(*codes.shape)
        self._codes, self._largest = codes, largest

    def rows(self, which: Rows) -> Float[Tensor, "n i"]:
        return self._codes[which].float().mul_(self._largest[which, None]).mul_(1 / 127)


class Nibbles(_Packed):
    """4-bit weight of bitsandbytes: indices into 16 numbers, times a block's largest number (arXiv 2305.14314).

    A byte holds two indices, the first one in its upper half; a row is a whole number of blocks.
    """

    def __init__(
        self,
        codes: UInt8[Tensor, "o half"],
        table: Float32[Tensor, "16"],
        largest: Float32[Tensor, "o blocks"],
        kind: Any,
    ) -> None:
        super().__init__(len(codes), 2 * codes.shape[1])
        self._codes, self._largest, self._kind = codes, largest, kind
        self._pairs = torch.stack([table.repeat_interleave(16), table.repeat(16)], 1)  # for each value of a byte

    def rows(self, which: Rows) -> Float[Tensor, "n i"]:
        codes, largest = self._codes[which], self._largest[which]
        found = self._pairs.index_select(0, codes.flatten().int()).view(*largest.shape, -1)
        return found.mul_(largest[..., None]).view(len(codes), -1).to(self._kind)


class Columns(_Packed):
    """Weight of GPTQ or AWQ: (code − zero) × scale, with a zero and a scale for each output and group of inputs.

    *codes* returns the codes ``(in, n)`` of n outputs, which files pack into 32-bit words.
    """

    def __init__(
        self,
        codes: Callable[[Int64[Tensor, " n"]], Int32[Tensor, "i n"]],
        zeros: Int16[Tensor, "groups o"],
        scales: Float[Tensor, "groups o"],
        groups: Int64[Tensor, " i"],
    ) -> None:
        super().__init__(scales.shape[1], len(groups))
        self._codes, self._zeros, self._scales, self._groups = codes, zeros, scales, groups

    def rows(self, which: Rows) -> Float[Tensor, "n i"]:
        places = torch.arange(self.shape[0])[which]
        scales = self._scales[:, places]
        codes = self._codes(places).sub_(self._zeros[:, places][self._groups]).to(scales.dtype)
        return codes.mul_(scales[self._groups]).t()


def packed_weights(
    method: str, config: Mapping[str, Any], tensors: Mapping[str, Tensor], where: str
) -> tuple[dict[str, Stored], dict[str, Tensor]]:
    """Sort the tensors of an LM's files into weights that are kept as stored, and all others.

    *config* is the ``quantization_config``. ConfigError: a matrix cannot be read; the error begins with *where*.
    """
    end, read = {BITSANDBYTES: (".weight", _bitsandbytes), GPTQ: (".qweight", _gptq), AWQ: (".qweight", _awq)}[method]
    stored: dict[str, Stored] = {}
    parts: set[str] = set()
    for name, tensor in tensors.items():
        if name.endswith(end) and not tensor.is_floating_point():
            base = name.removesuffix(end)
            own = {key.removeprefix(f"{base}."): each for key, each in tensors.items() if key.startswith(f"{base}.")}
            parts |= {f"{base}.{key}" for key in own if key != "bias"}
            try:
                stored[f"{base}.weight"] = read(own, config)
            except (KeyError, ValueError, RuntimeError) as error:
                raise ConfigError(
                    f"{where} {base} cannot be read as {method}: {'no ' * isinstance(error, KeyError)}{error}. "
                    "Give the LM before quantisation."
                ) from error
    others = {name: tensor for name, tensor in tensors.items() if name not in parts}
    halves = {name: each for name, each in others.items() if each.dim() == 2 and each.dtype in HALF.values()}
    stored |= {name: HalfWeight(each) for name, each in halves.items()}
    return stored, {name: each for name, each in others.items() if name not in halves}


def _bitsandbytes(own: Mapping[str, Tensor], _: Mapping[str, Any]) -> Stored:
    if "SCB" in own:
        return Bytes(own["weight"], own["SCB"].float())
    key = next(key for key in own if ".quant_state.bitsandbytes__" in key)
    state = json.loads(own[key].numpy().tobytes())
    largest = own["weight.absmax"]
    if "nested_blocksize" in state:  # the largest numbers are quantised too
        blocks = own["weight.nested_absmax"].repeat_interleave(state["nested_blocksize"])[: len(largest)]
        largest = own["weight.nested_quant_map"][largest.int()] * blocks + state["nested_offset"]
    count, width = state["shape"]
    if width % state["blocksize"]:
        raise ValueError(
            f"the quantised weight matrix has {width} columns, but must have a multiple of its quantisation block "
            f"size, {state['blocksize']}"
        )
    codes = own["weight"].view(torch.uint8).view(count, -1)
    return Nibbles(
        codes, own["weight.quant_map"].float(), largest.float().view(count, -1), getattr(torch, state["dtype"])
    )


def _gptq(own: Mapping[str, Tensor], config: Mapping[str, Any]) -> Stored:
    bits = config["bits"]
    words, scales = own["qweight"], own["scales"]
    more = config.get("checkpoint_format", config.get("format", GPTQ)) == GPTQ  # this format stores zero − 1
    zeros = _spread(own["qzeros"], bits)[:, : scales.shape[1]] + int(more)
    shifts = torch.arange(0, 32, bits, dtype=torch.int32)[:, None]

    def codes(places: Int64[Tensor, " n"]) -> Int32[Tensor, "i n"]:
        found: Tensor = (words[:, places][:, None] >> shifts) & (2**bits - 1)
        return found.flatten(0, 1)

    return Columns(codes, zeros.short(), scales, own["g_idx"].long())


_AWQ_SHIFTS = torch.tensor([0, 16, 4, 20, 8, 24, 12, 28], dtype=torch.int32)
"""Bit at which each of eight outputs has its code in a word of AWQ."""


def _awq(own: Mapping[str, Tensor], _: Mapping[str, Any]) -> Stored:
    words, scales = own["qweight"], own["scales"]
    zeros = ((own["qzeros"][..., None] >> _AWQ_SHIFTS) & 15).flatten(1)

    def codes(places: Int64[Tensor, " n"]) -> Int32[Tensor, "i n"]:
        return (words[:, places // 8] >> _AWQ_SHIFTS[places % 8]) & 15

    groups = torch.arange(len(words)) // (len(words) // len(scales))
    return Columns(codes, zeros.short(), scales, groups)


def _spread(words: Int32[Tensor, "groups packed"], bits: int) -> Int32[Tensor, "groups o"]:
    """Unpack the codes in 32-bit words, the first code from the lowest bits."""
    shifts = torch.arange(0, 32, bits, dtype=torch.int32)
    found: Tensor = (words[..., None] >> shifts) & (2**bits - 1)
    return found.flatten(1)


class Blocks(_Packed):
    """A matrix in a GGUF file, mapped into memory; rows are converted to float32 when they are read."""

    def __init__(self, file: Path, place: Place) -> None:
        super().__init__(place.rows, place.width)
        self._type = place.type
        self._data = np.memmap(file, np.uint8, "r", place.offset, (place.rows, place.row_bytes))
        self._order = None if place.order is None else np.array(place.order)

    def rows(self, which: slice | Int64[Tensor, " n"]) -> Float[Tensor, "n i"]:
        places = which if isinstance(which, slice) else which.numpy()
        data = np.array(self._data[places if self._order is None else self._order[places]])
        found = dequantize(torch.from_numpy(data), self._type)
        if found is None:
            gguf = import_module("gguf")
            found = torch.from_numpy(gguf.dequantize(data, gguf.GGMLQuantizationType[self._type]))
        return found


def dequantize(blocks: UInt8[Tensor, "rows bytes"], kind: str) -> Float[Tensor, "rows numbers"] | None:
    """Convert rows of blocks to float32, to the bit as the package gguf does, but several times as fast.

    Return None for types that are not in :data:`_READERS`.
    """
    if kind not in _READERS:
        return None
    size, read = _READERS[kind]
    return read(blocks.reshape(-1, size)).view(len(blocks), -1)


def _legacy(blocks: Tensor, bits: int, least: bool) -> Float[Tensor, "n 32"]:
    """Read blocks: a scale, the least number if *least*, the fifth bits of 5-bit codes, and 32 codes of 4 bits."""
    low = blocks[:, -16:]
    codes = torch.cat([low & 15, low >> 4], 1)
    if bits == _FIVE:
        codes |= torch.from_numpy(np.unpackbits(blocks[:, -20:-16].numpy(), axis=1, bitorder="little")) << 4
    found = codes.float()
    scale = _half(blocks, 0)
    return found.mul_(scale).add_(_half(blocks, 2)) if least else found.sub_(2 ** (bits - 1)).mul_(scale)


def _whole_numbers(blocks: Tensor) -> Float[Tensor, "n 32"]:
    """Read blocks: a scale and 32 numbers of 8 bits."""
    return blocks[:, 2:].view(torch.int8).float().mul_(_half(blocks, 0))


def _with_minima(blocks: Tensor, bits: int) -> Float[Tensor, "n 256"]:
    """Read blocks: eight groups of 32 codes, each group with a scale and a minimum of 6 bits."""
    first, second, both = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = torch.cat([first & 63, (both & 15) | ((first >> 6) << 4)], 1) * _half(blocks, 0)
    minima = torch.cat([second & 63, (both >> 4) | ((second >> 6) << 4)], 1) * _half(blocks, 2)
    low = blocks[:, -128:].reshape(-1, 4, 32)
    codes = torch.stack([low & 15, low >> 4], 2).view(-1, 8, 32)
    if bits == _FIVE:
        for group in range(8):
            codes[:, group] |= ((blocks[:, 16:48] >> group) & 1) << 4
    return codes.float().mul_(scales[..., None]).sub_(minima[..., None]).flatten(1)


def _of_six_bits(blocks: Tensor) -> Float[Tensor, "n 256"]:
    """Read blocks: 16 groups of 16 codes, each with a scale of 8 bits; the low 4 bits of all codes, then the high 2."""
    low, high = blocks[:, :128].reshape(-1, 2, 64), blocks[:, 128:192].reshape(-1, 2, 32)
    codes = torch.cat([low & 15, low >> 4], 2).view(-1, 2, 4, 32)
    for part in range(4):
        codes[:, :, part] |= ((high >> 2 * part) & 3) << 4
    scales = blocks[:, 192:208].view(torch.int8) * _half(blocks, 208)
    return codes.view(-1, 16, 16).float().sub_(32).mul_(scales[..., None]).flatten(1)


def _half(blocks: Tensor, place: int) -> Float[Tensor, "n 1"]:
    """Return the float16 at byte *place* of each block, as float32."""
    return blocks[:, place : place + 2].view(torch.float16).float()


_FIVE = 5
_READERS: dict[str, tuple[int, Callable[[Tensor], Tensor]]] = {
    "Q4_0": (18, partial(_legacy, bits=4, least=False)),
    "Q4_1": (20, partial(_legacy, bits=4, least=True)),
    "Q5_0": (22, partial(_legacy, bits=5, least=False)),
    "Q5_1": (24, partial(_legacy, bits=5, least=True)),
    "Q8_0": (34, _whole_numbers),
    "Q4_K": (144, partial(_with_minima, bits=4)),
    "Q5_K": (176, partial(_with_minima, bits=5)),
    "Q6_K": (210, _of_six_bits),
}
"""Bytes of a block and its reader, by name of type; ggml defines the layout of the blocks."""


def is_packed(folder: Path) -> bool:
    """True if the weights of an LM's folder are quantised in a format that airrep keeps as it is."""
    return (folder / PLACES).is_file() or quantised(read_config(folder / CONFIG)) is not None


def size_packed(folder: Path, name: str) -> int:
    """Bytes in memory of the weights of a packed LM."""
    places = read_places(folder)
    own = 0 if places is None else sum(place.rows * place.row_bytes for place in places[1].values())
    return own + size_read(folder, name, half=True)


def load_packed(folder: Path, name: str, trusted: bool) -> Any:
    """Load a causal LM whose linear maps and tables are held packed, as :func:`airrep.lm.files.load_network` does.

    Weights are not checked to be finite: every token is multiplied with all numbers of a linear map, and a loss that is
    not finite is refused.
    """
    stored: dict[str, Stored] = {}
    plain = stored_weights(folder, name)
    if (found := read_places(folder)) is not None:
        file, places = found
        stored |= {key: Blocks(file, place) for key, place in places.items()}
    elif (method := quantised(config := read_config(folder / CONFIG))) is not None:
        stored, plain = packed_weights(method, config["quantization_config"], plain, f"lm {name}:")
    return make_plain(with_attention(name, lambda attention: _build(folder, trusted, attention, stored, plain)))


def _build(
    folder: Path, trusted: bool, attention: str | None, stored: Mapping[str, Stored], plain: Mapping[str, Tensor]
) -> tuple[Any, Mapping[str, Any]]:
    """Make the LM of a configuration and fill in its weights; return it and a report of weights that do not fit."""
    from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=trusted)
    vars(config).pop("quantization_config", None)
    with without_weights():
        model = AutoModelForCausalLM.from_config(
            config, dtype=torch.float32, attn_implementation=attention, trust_remote_code=trusted
        )
    if (folder / GENERATION).is_file():
        model.generation_config = GenerationConfig.from_pretrained(folder, local_files_only=True)
    model.tie_weights()  # without_weights gives each name a weight of its own
    return model, _fill(model, stored, plain)


def _fill(model: Any, stored: Mapping[str, Stored], plain: Mapping[str, Tensor]) -> Mapping[str, Any]:
    """Fill a model without weights, in place; files store a weight that has several names under any one of them.

    Return the names of weights that are missing or have another shape; if there are any, the model is not changed.
    """
    from transformers.pytorch_utils import Conv1D

    given: dict[str, Stored | Tensor] = {**stored, **plain}
    shapes = {name: tuple(each.shape) for name, each in given.items()}
    names: dict[nn.Parameter, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if name in shapes:
            names.setdefault(parameter, name)
    missing = [name for name, parameter in model.named_parameters() if parameter not in names]
    other = [(name,) for parameter, name in names.items() if shapes[name] != tuple(parameter.shape)]
    turned = [f"{name}.weight" for name, module in model.named_modules() if isinstance(module, Conv1D)]
    other += [(name,) for name in turned if name in stored and stored[name].kind is None]  # files have (out, in)
    if missing or other:
        return {"missing_keys": missing, "mismatched_keys": other}
    put(model, lambda weight: stored.get(names[weight]))
    made: dict[str, nn.Parameter] = {}
    for module in model.modules():
        for key, parameter in module._parameters.items():
            if parameter is not None and parameter.is_meta:
                name = names[parameter]
                if name not in made:
                    made[name] = nn.Parameter(whole(stored[name]) if name in stored else plain[name].float())
                module._parameters[key] = made[name]
    for name, buffer in model.named_buffers():
        if name in plain:
            buffer.copy_(plain[name])
    return {"missing_keys": (), "mismatched_keys": ()}

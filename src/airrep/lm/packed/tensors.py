"""Matrices of quantised safetensors, held as their formats store them.

The formats are those of bitsandbytes, GPTQ and AWQ. Each gives the numbers that its library computes with, in the same
type: those of 4 bits are rounded to the type of the LM that was quantised.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from airrep.errors import ConfigError
from airrep.lm.folders.quantised import AWQ, BITSANDBYTES, GPTQ
from airrep.lm.held import HALF, HalfWeight, Stored
from airrep.shapes import Float, Float32, Int8, Int16, Int32, Int64, UInt8

Rows = slice | Int64[Tensor, " n"]


class _Packed:
    """A matrix whose numbers are computed."""

    kind: torch.dtype | None = None
    device = torch.device("cpu")

    def __init__(self, rows: int, width: int) -> None:
        self.shape = (rows, width)

    def _places(self, which: Rows) -> Int64[Tensor, " n"]:
        return torch.arange(self.shape[0])[which]


class Bytes(_Packed):
    """bitsandbytes, 8 bits: whole numbers from −127 to 127 times a row's largest number / 127 (arXiv 2208.07339)."""

    def __init__(self, codes: Int8[Tensor, "o i"], largest: Float32[Tensor, " o"]) -> None:
        super().__init__(*codes.shape)
        self._codes, self._largest = codes, largest

    def rows(self, which: Rows) -> Float[Tensor, "n i"]:
        return self._codes[which].float().mul_(self._largest[which, None]).mul_(1 / 127)


class Nibbles(_Packed):
    """bitsandbytes, 4 bits: places in a table of 16 numbers, times a block's largest number (arXiv 2305.14314).

    Two places lie in a byte, the first in its upper half; a row is a whole number of blocks.
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
        self._pairs = torch.stack([table.repeat_interleave(16), table.repeat(16)], 1)  # of each byte

    def rows(self, which: Rows) -> Float[Tensor, "n i"]:
        codes, largest = self._codes[which], self._largest[which]
        found = self._pairs.index_select(0, codes.flatten().int()).view(*largest.shape, -1)
        return found.mul_(largest[..., None]).view(len(codes), -1).to(self._kind)


class Columns(_Packed):
    """GPTQ and AWQ: (code − zero) × scale of each output and group of inputs, with codes packed into 32 bits.

    *codes* are ``(in, out)``, or in / (32 / bits) rows where a GPTQ word holds several inputs of an output.
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
        places = self._places(which)
        scales = self._scales[:, places]
        codes = self._codes(places).sub_(self._zeros[:, places][self._groups]).to(scales.dtype)
        return codes.mul_(scales[self._groups]).t()


def packed_weights(
    method: str, config: Mapping[str, Any], tensors: Mapping[str, Tensor], where: str
) -> tuple[dict[str, Stored], dict[str, Tensor]]:
    """Weights of an LM's files: matrices that stay as they are, and all others.

    *config* is the ``quantization_config``. ConfigError: a part of a matrix is missing; the error begins with *where*.
    """
    end, read = {
        BITSANDBYTES: (".weight", _bitsandbytes),
        GPTQ: (".qweight", _gptq),
        AWQ: (".qweight", _awq),
    }[method]
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
                    f"{where} {base} cannot be read as {method}: {error}. Give the LM that it was made from."
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
    if "nested_blocksize" in state:  # they are quantised themselves
        blocks = own["weight.nested_absmax"].repeat_interleave(state["nested_blocksize"])[: len(largest)]
        largest = own["weight.nested_quant_map"][largest.int()] * blocks + state["nested_offset"]
    count, width = state["shape"]
    if width % state["blocksize"]:
        raise ValueError(f"rows of {width} numbers, which blocks of {state['blocksize']} do not divide")
    codes = own["weight"].view(torch.uint8).view(count, -1)
    return Nibbles(
        codes, own["weight.quant_map"].float(), largest.float().view(count, -1), getattr(torch, state["dtype"])
    )


def _gptq(own: Mapping[str, Tensor], config: Mapping[str, Any]) -> Stored:
    bits = config["bits"]
    words, scales = own["qweight"], own["scales"]
    more = config.get("checkpoint_format", config.get("format", GPTQ)) == GPTQ  # that stores zeros less one
    zeros = _spread(own["qzeros"], bits)[:, : scales.shape[1]] + int(more)
    shifts = torch.arange(0, 32, bits, dtype=torch.int32)[:, None]

    def codes(places: Int64[Tensor, " n"]) -> Int32[Tensor, "i n"]:
        found: Tensor = (words[:, places][:, None] >> shifts) & (2**bits - 1)
        return found.flatten(0, 1)

    return Columns(codes, zeros.short(), scales, own["g_idx"].long())


_AWQ_SHIFTS = torch.tensor([0, 16, 4, 20, 8, 24, 12, 28], dtype=torch.int32)
"""Where in a word AWQ has the codes of eight outputs."""


def _awq(own: Mapping[str, Tensor], _: Mapping[str, Any]) -> Stored:
    words, scales = own["qweight"], own["scales"]
    zeros = ((own["qzeros"][..., None] >> _AWQ_SHIFTS) & 15).flatten(1)

    def codes(places: Int64[Tensor, " n"]) -> Int32[Tensor, "i n"]:
        found: Tensor = (words[:, places // 8] >> _AWQ_SHIFTS[places % 8]) & 15
        return found

    groups = torch.arange(len(words)) // (len(words) // len(scales))
    return Columns(codes, zeros.short(), scales, groups)


def _spread(words: Int32[Tensor, "groups packed"], bits: int) -> Int32[Tensor, "groups o"]:
    """Codes that lie in words, the first in the lowest bits."""
    shifts = torch.arange(0, 32, bits, dtype=torch.int32)
    found: Tensor = (words[..., None] >> shifts) & (2**bits - 1)
    return found.flatten(1)

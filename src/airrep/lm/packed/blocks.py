"""Matrices of a GGUF file, held as its blocks."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from airrep.lm.folders.blocks import Place
from airrep.shapes import Float, Int64, UInt8


class Blocks:
    """A matrix in a GGUF file, mapped into memory and brought to float32 as it is read."""

    kind: torch.dtype | None = None
    device = torch.device("cpu")

    def __init__(self, file: Path, place: Place) -> None:
        self.shape = (place.rows, place.width)
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
    """Rows of blocks as float32, to the bit what the package gguf makes of them, several times as fast.

    None for types that are not here.
    """
    if kind not in _READERS:
        return None
    size, read = _READERS[kind]
    return read(blocks.reshape(-1, size)).view(len(blocks), -1)


def _legacy(blocks: Tensor, bits: int, least: bool) -> Float[Tensor, "n 32"]:
    """A scale, the *least* number if it is stored, 32 fifth bits if there are five, and 32 codes of four bits."""
    low = blocks[:, -16:]
    codes = torch.cat([low & 15, low >> 4], 1)
    if bits == _FIVE:
        codes |= torch.from_numpy(np.unpackbits(blocks[:, -20:-16].numpy(), axis=1, bitorder="little")) << 4
    found = codes.float()
    scale = _half(blocks, 0)
    return found.mul_(scale).add_(_half(blocks, 2)) if least else found.sub_(2 ** (bits - 1)).mul_(scale)


def _whole_numbers(blocks: Tensor) -> Float[Tensor, "n 32"]:
    """A scale and 32 numbers of eight bits."""
    return blocks[:, 2:].view(torch.int8).float().mul_(_half(blocks, 0))


def _with_minima(blocks: Tensor, bits: int) -> Float[Tensor, "n 256"]:
    """Eight groups of 32 codes, each with a scale and a minimum of six bits."""
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
    """Sixteen groups of 16 codes, each with a scale of eight bits; four bits of all codes, then two."""
    low, high = blocks[:, :128].reshape(-1, 2, 64), blocks[:, 128:192].reshape(-1, 2, 32)
    codes = torch.cat([low & 15, low >> 4], 2).view(-1, 2, 4, 32)
    for part in range(4):
        codes[:, :, part] |= ((high >> 2 * part) & 3) << 4
    scales = blocks[:, 192:208].view(torch.int8) * _half(blocks, 208)
    return codes.view(-1, 16, 16).float().sub_(32).mul_(scales[..., None]).flatten(1)


def _half(blocks: Tensor, place: int) -> Float[Tensor, "n 1"]:
    """A float16 of each block."""
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
"""Bytes of a block and its reader, by names of types; what stands where in it is as ggml has it."""

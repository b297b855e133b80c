"""Where dense products run: numpy, or torch on a card."""

from typing import Any, ClassVar

import numpy as np

TINY = 2.0**-120
"""Absolute part of error bounds: covers what float32 rounds to 0."""
CHUNK = 2**15
"""Numbers widened at a time, so that they stay in the cache."""
_KEPT, _UNBIASED = np.int32(-0x70002000), np.float32(2.0**112)
"""Bits of a float16 moved to those of a float32, and what brings its exponent right."""
_INFINITE, _BELOW = 0x7C00, 0xFC00
"""Bits of the first float16 that is not finite, and of the first below nought."""


class Device:
    """This machine's processor; it multiplies float32 rows with queries."""

    slack: ClassVar[float] = 0.0
    """How far a product may be off, over the norms, beside the rounding of float32."""

    def rows(self, features: np.ndarray, room: np.ndarray) -> Any:
        """Features ``(b, d)`` of any type, ready to be multiplied; *room* may be used for them."""
        return widened(features, room)

    def queries(self, queries: np.ndarray, *, rounded: bool = False) -> Any:  # noqa: ARG002
        """Queries ``(q, d)`` float32, ready to be multiplied; *rounded* ones in bfloat16 on a card."""
        return queries

    def norms(self, rows: Any) -> np.ndarray:
        """Norms of rows, ``(b,)``."""
        with np.errstate(over="ignore", invalid="ignore"):
            found: np.ndarray = np.sqrt(np.einsum("bd,bd->b", rows, rows))
            if not np.isfinite(found).all():  # or the squares alone are too large for float32
                found = np.linalg.norm(rows.astype(np.float64), axis=1).astype(np.float32)
        return found

    def multiply(self, rows: Any, queries: Any, out: np.ndarray) -> None:
        """Write scores ``(b, q)``, not finite where float32 cannot hold them."""
        with np.errstate(over="ignore", invalid="ignore"):
            np.matmul(rows, queries.T, out=out)


class Card(Device):
    """A CUDA device."""

    slack = 2.0**-8 + 2.0**-16
    """Covers inputs rounded to bfloat16 or TF32, which programs may have allowed torch to do in float32 products."""

    def __init__(self, name: str) -> None:
        import torch  # here: the processor needs none

        self._torch, self._name = torch, name

    def rows(self, features: np.ndarray, room: np.ndarray) -> Any:  # noqa: ARG002
        """Features, taken to the card as they are stored, and widened there."""
        return self._torch.from_numpy(_writeable(features)).to(self._name).float()

    def queries(self, queries: np.ndarray, *, rounded: bool = False) -> Any:
        """Queries on the card, in bfloat16 where that is asked for."""
        there = self._torch.from_numpy(_writeable(queries)).to(self._name)
        return there.bfloat16() if rounded else there

    def norms(self, rows: Any) -> np.ndarray:
        """Norms of rows, ``(b,)``."""
        found: np.ndarray = self._torch.linalg.vector_norm(rows, dim=1).cpu().numpy()
        return found

    def multiply(self, rows: Any, queries: Any, out: np.ndarray) -> None:
        """Write scores ``(b, q)``, worked out in the type of the queries."""
        out[...] = self._torch.mm(rows.to(queries.dtype), queries.t()).float().cpu().numpy()


CPU = Device()


def device_of(name: str) -> Device:
    """The device of a name that :func:`airrep.runtime.devices.resolve_device` gave."""
    return CPU if name == "cpu" else Card(name)


def _writeable(array: np.ndarray) -> np.ndarray:
    return array if array.flags.writeable else array.copy()  # torch warns of others


def widened(features: np.ndarray, room: np.ndarray) -> np.ndarray:
    """Features ``(b, d)`` in the type of *room*, in its first rows; themselves where they are of that type."""
    if features.dtype == room.dtype:
        return features
    out = room[: len(features)]
    if features.dtype != np.float16:
        np.copyto(out, features)
        return out
    step = max(1, CHUNK // max(1, features.shape[1]))
    chunk = np.empty((step, features.shape[1]), np.float32)
    for start in range(0, len(features), step):
        some, wide = features[start : start + step], out[start : start + step]
        if room.dtype == np.float32:
            _widen(some, wide)
        else:
            _widen(some, chunk[: len(some)])
            with np.errstate(invalid="ignore"):
                np.copyto(wide, chunk[: len(some)])
    return out


def _widen(features: np.ndarray, out: np.ndarray) -> None:
    """Write float16 as float32 by their bits: numpy's own way takes more than twice the time."""
    bits, moved = features.view(np.int16), out.view(np.int32)
    if bits.max(initial=0) >= _INFINITE or features.view(np.uint16).max(initial=0) >= _BELOW:
        np.copyto(out, features)
        return
    np.copyto(moved, bits)
    np.left_shift(moved, 13, out=moved)
    np.bitwise_and(moved, _KEPT, out=moved)
    np.multiply(out, _UNBIASED, out=out)

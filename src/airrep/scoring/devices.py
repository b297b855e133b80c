"""Where dense products run: numpy, or torch on a GPU."""

from typing import Any, ClassVar

import numpy as np

TINY = 2.0**-120
"""Absolute part of error bounds: covers what float32 rounds to 0."""
CHUNK = 2**16
"""Numbers converted at a time, so that they stay in the cache."""
_KEPT, _UNBIASED = np.int32(-0x70002000), np.float32(2.0**112)
"""Mask of a float16's bits after their shift into a float32, and factor that corrects the exponent."""
_INFINITE, _BELOW = 0x7C00, 0xFC00
"""Bits of the float16 values +infinity and -infinity: from them on, values of each sign are not finite."""


class Device:
    """The CPU, which multiplies float32 rows with queries."""

    slack: ClassVar[float] = 0.0
    """Error bound of a product relative to both norms, besides the rounding of float32."""
    numbers: ClassVar[int] = 2**19
    """Most float32 numbers of codes that are multiplied at a time: 2 MiB stay in the cache."""

    def rows(self, features: np.ndarray, room: np.ndarray) -> Any:
        """Prepare features ``(b, d)`` of any type to be multiplied; *room* may hold the result."""
        return widened(features, room)

    def queries(self, queries: np.ndarray) -> Any:
        """Prepare queries ``(q, d)`` float32 to be multiplied."""
        return queries

    def norms(self, rows: Any) -> np.ndarray:
        """Compute norms of rows, ``(b,)``."""
        with np.errstate(over="ignore", invalid="ignore"):
            found: np.ndarray = np.sqrt(np.einsum("bd,bd->b", rows, rows))
            if not np.isfinite(found).all():  # or the squares alone are too large for float32
                found = np.linalg.norm(rows.astype(np.float64), axis=1).astype(np.float32)
        return found

    def multiply(self, rows: Any, queries: Any, out: np.ndarray) -> None:
        """Write scores ``(b, q)`` into *out*; they are not finite where float32 overflows."""
        with np.errstate(over="ignore", invalid="ignore"):
            np.matmul(rows, queries.T, out=out)


class Card(Device):
    """A CUDA device."""

    slack = 2.0**-8 + 2.0**-16
    """Covers inputs that are rounded to TF32, if a program allowed this for float32 products, with room to spare."""
    numbers = 2**22

    def __init__(self, name: str) -> None:
        import torch  # here, since the CPU does not need torch

        self._torch, self._name = torch, name

    def rows(self, features: np.ndarray, room: np.ndarray) -> Any:  # noqa: ARG002
        """Copy features to the GPU as they are stored, and convert them to float32 there."""
        return self._torch.from_numpy(_writeable(features)).to(self._name).float()

    def queries(self, queries: np.ndarray) -> Any:
        """Copy queries to the GPU."""
        return self._torch.from_numpy(_writeable(queries)).to(self._name)

    def norms(self, rows: Any) -> np.ndarray:
        """Compute norms of rows, ``(b,)``."""
        return self._torch.linalg.vector_norm(rows, dim=1).cpu().numpy()

    def multiply(self, rows: Any, queries: Any, out: np.ndarray) -> None:
        """Write scores ``(b, q)`` into *out*."""
        out[...] = self._torch.mm(rows, queries.t()).cpu().numpy()


CPU = Device()


def device_of(name: str) -> Device:
    """Return the device for a name from :func:`airrep.runtime.devices.resolve_device`."""
    return CPU if name == "cpu" else Card(name)


def _writeable(array: np.ndarray) -> np.ndarray:
    return array if array.flags.writeable else array.copy()  # torch warns about read-only arrays


def widened(features: np.ndarray, room: np.ndarray) -> np.ndarray:
    """Convert features ``(b, d)`` to the type of *room*, in its first rows; return them as they are if they have it."""
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
    """Convert float16 to float32 by their bits: numpy's conversion takes more than twice the time."""
    bits, moved = features.view(np.int16), out.view(np.int32)
    if bits.max(initial=0) >= _INFINITE or features.view(np.uint16).max(initial=0) >= _BELOW:
        np.copyto(out, features)
        return
    np.copyto(moved, bits)
    np.left_shift(moved, 13, out=moved)
    np.bitwise_and(moved, _KEPT, out=moved)
    np.multiply(out, _UNBIASED, out=out)

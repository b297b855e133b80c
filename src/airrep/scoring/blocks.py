"""Stored features in blocks, read piece by piece.

A block is one immutable shard of an index, usually memory maps. Nothing here holds more than one piece of a
block as float32 at a time, so memory does not grow with the number of rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from airrep.arrays import Features, Mask, Rows, SparseFeatures
from airrep.errors import ConfigError, DataError

PIECE_ROWS = 8192
"""At most so many rows are taken into memory at once."""
PIECE_NUMBERS = 2**22
"""And at most so many features, 16 MiB of float32."""


class Block(NamedTuple):
    """One immutable shard of an index, usually memory maps; higher inner products = more helpful.

    Opened copy-on-write (``mmap_mode="c"``), features and codes are read in place; opened read-only, each
    piece is copied first.
    """

    start: int
    """Row number of its first row."""
    features: np.ndarray | SparseFeatures
    """``(b, d)`` float16 or float32, or CSR float32."""
    codes: np.ndarray | None = None
    """``(b, d)`` int8 from :func:`quantise`: features ≈ codes · scales[:, None]."""
    scales: np.ndarray | None = None
    """``(b,)`` float32 steps of the codes; no feature is further than half a step from its code."""
    bounds: np.ndarray | None = None
    """``(b, 2)`` float32 from :func:`error_bounds`; without them, wider ones are worked out each time."""


class Shape(NamedTuple):
    """Rows of some blocks together, and features of each row."""

    rows: int
    dimension: int


def quantise(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Round features ``(b, d)``, float16 or float32, to int8 codes, each row with its own step.

    Returns:
        codes ``(b, d)`` int8 in -127..127 and scales ``(b,)`` float32; |feature - code · scale| ≤ scale / 2.

    Raises:
        DataError: a feature is not finite.
    """
    codes = np.empty(features.shape, dtype=np.int8)
    scales = np.empty(len(features), dtype=np.float32)
    for part in _parts(features):
        wide = features[part].astype(np.float64)
        scale = (np.abs(wide).max(axis=1, initial=0.0) / 127).astype(np.float32)
        if not np.isfinite(scale).all():
            raise DataError("quantise: a feature is not finite; expected numbers. Check the model that made it.")
        scale[scale * 127 < np.finfo(np.float32).tiny] = 1.0  # a row of zeros, or as good as
        codes[part] = np.rint(wide / scale[:, None]).clip(-127, 127)
        scales[part] = scale
    return codes, scales


def error_bounds(features: np.ndarray, codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Norms of features and of features - codes · scales, ``(b, 2)`` float32: they bound the error of int8 scores."""
    bounds = np.empty((len(features), 2), dtype=np.float32)
    for part in _parts(features):
        wide = features[part].astype(np.float64)
        residual = wide - codes[part] * scales[part].astype(np.float64)[:, None]
        norms = np.stack([np.linalg.norm(wide, axis=1), np.linalg.norm(residual, axis=1)], axis=1)
        bounds[part] = norms * (1 + 1e-6) + 1e-38  # float32 may round down, and a bound must not
    return bounds


def _parts(features: np.ndarray) -> Iterator[slice]:
    step = _rows_of(features.shape[1])
    return (slice(start, start + step) for start in range(0, len(features), step))


def piece_rows(blocks: Sequence[Block], most: int = PIECE_ROWS) -> int:
    """Rows of a piece: fewer where dense features are many."""
    features = blocks[0].features
    return most if not isinstance(features, np.ndarray) else _rows_of(features.shape[1], most)


def _rows_of(dimension: int, most: int = PIECE_ROWS) -> int:
    return max(1, min(most, PIECE_NUMBERS // max(dimension, 1)))


def room_for(blocks: Sequence[Block], size: int, device: str, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Memory for the dense features of a piece, ``(size, d)``; none for CSR features."""
    features = blocks[0].features
    shape = (size, features.shape[1]) if isinstance(features, np.ndarray) else (0, 0)
    return torch.empty(shape, dtype=dtype, device=device)


@dataclass(slots=True)
class Piece:
    """Some rows of one block; as text, which rows."""

    block: Block
    rows: Rows
    """Their row numbers, ascending."""
    _dense: torch.Tensor | None = None

    def __str__(self) -> str:
        return f"rows {self.rows[0]} to {self.rows[-1]}"

    def take(self, array: Any) -> Any:
        """Their part of an array of the block: a view where the rows lie together."""
        first, last = int(self.rows[0]) - self.block.start, int(self.rows[-1]) - self.block.start
        together = last - first + 1 == len(self.rows)
        return array[first : last + 1] if together else array[self.rows - self.block.start]

    def dense(self, room: torch.Tensor) -> torch.Tensor:
        """Their features ``(b, d)``, read once, into the first rows of *room*: good until the next piece."""
        if self._dense is None:  # every tile of queries asks for it
            self._dense = room[: len(self.rows)].copy_(as_tensor(self.take(self.block.features)))
        return self._dense

    def csr(self) -> SparseFeatures:
        """Their features, CSR float64 ``(b, d)``."""
        part: SparseFeatures = self.take(self.block.features).astype(np.float64)
        return part


def as_tensor(array: np.ndarray) -> torch.Tensor:
    """A tensor over the same memory, or over a copy where that is read-only."""
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def pieces(blocks: Sequence[Block], size: int, keep: Mask | None = None) -> Iterator[Piece]:
    """Cut blocks into pieces of at most *size* kept rows, in order of rows."""
    for block in blocks:
        stop = block.start + block.features.shape[0]
        rows = np.arange(block.start, stop) if keep is None else block.start + np.flatnonzero(keep[block.start : stop])
        for first in range(0, len(rows), size):
            yield Piece(block, rows[first : first + size])


def pieces_of(blocks: Sequence[Block], size: int, rows: Rows) -> Iterator[tuple[slice, Piece]]:
    """Cut *rows* (ascending) into pieces of at most *size*, each in one block; with their places in it."""
    for block in blocks:
        first, last = np.searchsorted(rows, [block.start, block.start + block.features.shape[0]])
        for start in range(first, last, size):
            place = slice(start, min(start + size, last))
            yield place, Piece(block, rows[place])


def check_blocks(blocks: Sequence[Block]) -> Shape:
    """Rows and features of blocks; refuses an empty list, a gap between rows, and blocks of unlike features."""
    if not len(blocks):
        raise DataError("blocks: there are none; expected at least one. Build an index with at least one example.")
    rows, dimension, dense = 0, blocks[0].features.shape[1], isinstance(blocks[0].features, np.ndarray)
    for block in blocks:
        if block.start != rows:
            raise DataError(f"blocks: one starts at row {block.start}; expected {rows}. Give all, in order of rows.")
        if block.features.shape[1] != dimension or isinstance(block.features, np.ndarray) != dense:
            raise DataError(f"blocks: the one at row {rows} is unlike the first. Give blocks of one index.")
        rows += block.features.shape[0]
    return Shape(rows, dimension)


def check_queries(queries: Features, blocks: Sequence[Block]) -> Features:
    """Queries as float32; refuses those that do not fit the blocks, and features that are not finite."""
    dense, dimension = isinstance(blocks[0].features, np.ndarray), blocks[0].features.shape[1]
    if isinstance(queries, np.ndarray) != dense:
        kind = "dense" if dense else "sparse"
        raise DataError(f"queries: their features are not {kind} as the blocks' are. Encode both by one method.")
    if queries.ndim != 2 or queries.shape[1] != dimension:
        shape = "x".join(map(str, queries.shape))
        raise DataError(f"queries: are {shape}; expected (q, {dimension}). Encode them with the index's method.")
    with np.errstate(over="ignore"):
        queries = queries.astype(np.float32)
    numbers = queries if isinstance(queries, np.ndarray) else np.asarray(queries.data)
    if not np.isfinite(numbers).all():
        raise DataError("queries: a feature is not a finite float32; expected numbers. Check the model for overflow.")
    return queries


def check_keep(keep: Mask | None, rows: int) -> int:
    """Number of rows that a mask keeps, all without one; refuses one that is not a truth value for each row."""
    if keep is None:
        return rows
    if keep.shape != (rows,) or keep.dtype != np.bool_:
        raise ConfigError(f"keep: is {keep.dtype} {keep.shape}; expected bool ({rows},), one for each row. Make it so.")
    return int(np.count_nonzero(keep))


def check_count(what: str, count: int, kept: int) -> None:
    """Refuse less than one row, or more than there are to choose from; errors call the number *what*."""
    if count < 1:
        raise ConfigError(f"{what} is {count}; expected at least 1. Ask for one example or more.")
    if count > kept:
        raise ConfigError(f"{what} is {count}, but there are {kept} examples to choose from. Ask for at most {kept}.")

"""Stored features in blocks, read piece by piece.

A block is one immutable shard of an index, usually memory maps. Dense features are converted to float32 one piece at
a time, so memory does not grow with the number of rows.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple, overload

import numpy as np

from airrep.arrays import Features, Mask, Rows, whole_number
from airrep.errors import ConfigError, DataError, many
from airrep.scoring.columns import ByColumn, Postings, Selectable, SparseMatrix, select_columns
from airrep.scoring.devices import CPU, Device
from airrep.sparse import SparseRows, distinct

PIECE_ROWS = 8192
"""Most rows that are read into memory at once."""
PIECE_NUMBERS = 2**22
"""Most dense features that are read into memory at once, 16 MiB of float32."""
PARTS = 4
"""Read a block of postings by column if it makes at most this many pieces, else by row."""
HELD = 2**22
"""Blocks that start before this row keep frequent columns in memory, 0.3 GB a million rows if texts have few words."""
WIDE = 2**22
"""CSR features with more columns are narrowed before they are multiplied, since a transpose costs time per column."""


class Block(NamedTuple):
    """One immutable shard of an index, usually memory maps, read in place; higher inner products = more helpful."""

    start: int
    """Row number of its first row."""
    features: np.ndarray | Selectable
    """``(b, d)`` float16 or float32, or sparse float32."""
    codes: np.ndarray | None = None
    """``(b, d)`` int8 from :func:`quantise`: features ≈ codes · scales[:, None]."""
    scales: np.ndarray | None = None
    """``(b,)`` float32 steps of the codes; no feature is further than half a step from its code."""
    bounds: np.ndarray | None = None
    """``(b, 2)`` float32 from :func:`error_bounds`; without them, the codes are not used."""
    check: Callable[[], object] | None = None
    """Called before dense features are read; raises if they were altered on disk."""

    def dense(self) -> np.ndarray:
        """Return the dense features, after :attr:`check`."""
        assert isinstance(self.features, np.ndarray)
        if self.check is not None:
            self.check()
        return self.features


class MappedBlocks(Sequence[Block]):
    """Blocks that *make* builds from other blocks on access; the last one is cached."""

    def __init__(self, blocks: Sequence[Block], make: Callable[[Block], Block]) -> None:
        self._blocks, self._make = blocks, make
        self._last: tuple[int, Block] | None = None

    def __len__(self) -> int:
        return len(self._blocks)

    @overload
    def __getitem__(self, position: int) -> Block: ...
    @overload
    def __getitem__(self, position: slice) -> "MappedBlocks": ...
    def __getitem__(self, position: int | slice) -> "Block | MappedBlocks":
        if isinstance(position, slice):
            return MappedBlocks(self._blocks[position], self._make)
        if self._last is None or self._last[0] != position:
            self._last = (position, self._make(self._blocks[position]))
        return self._last[1]


def quantise(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Round features ``(b, d)``, float16 or float32, to int8 codes, each row with its own step.

    Returns codes ``(b, d)`` int8 in -127..127 and scales ``(b,)`` float32; |feature - code · scale| ≤ scale / 2.
    DataError: a feature is not finite.
    """
    codes = np.empty(features.shape, dtype=np.int8)
    scales = np.empty(len(features), dtype=np.float32)
    for part in _parts(features):
        wide = features[part].astype(np.float64)
        scale = (np.abs(wide).max(axis=1, initial=0.0) / 127).astype(np.float32)
        if not np.isfinite(scale).all():
            raise DataError("quantise: a feature is not finite. Check the model that made the features.")
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
    """Return the most rows that a piece has: fewer if a row has many dense features."""
    features = blocks[0].features
    return most if not isinstance(features, np.ndarray) else _rows_of(features.shape[1], most)


def _rows_of(dimension: int, most: int = PIECE_ROWS) -> int:
    return max(1, min(most, PIECE_NUMBERS // max(dimension, 1)))


class Span(NamedTuple):
    """First row number and number of rows of a block."""

    start: int
    rows: int


def spans_of(blocks: Sequence[Block]) -> list[Span]:
    """Return the span of each block."""
    return [Span(block.start, block.features.shape[0]) for block in blocks]


@dataclass(slots=True)
class Piece:
    """Some rows of one block, which each channel reads; ``str`` names the rows."""

    number: int
    """Number of the block."""
    start: int
    """Row number of the block's first row."""
    rows: Rows
    """Row numbers of the piece, ascending."""
    size: int
    """Most rows that a piece of this pass has."""
    _rooms: dict[Any, np.ndarray] = field(default_factory=dict)
    """Buffers that the pieces of one pass share."""
    _read: dict[Any, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"rows {self.rows[0]} to {self.rows[-1]}"

    def take(self, array: Any) -> Any:
        """Take the rows of the piece from an array of the block: a view if they are consecutive."""
        first, last = int(self.rows[0]) - self.start, int(self.rows[-1]) - self.start
        together = last - first + 1 == len(self.rows)
        if together and len(self.rows) == array.shape[0]:
            return array
        return array[first : last + 1] if together else array[self.rows - self.start]

    def dense(self, blocks: Sequence[Block], dtype: type = np.float32, device: Device = CPU) -> Any:
        """Read features ``(b, d)`` in the type *dtype*: valid until the next piece, not to be changed."""
        key = (id(blocks), dtype)

        def read() -> Any:
            features = blocks[self.number].dense()
            stored = self.take(features)
            if key not in self._rooms or len(self._rooms[key]) < len(stored):
                self._rooms[key] = np.empty((min(self.size, len(features)), stored.shape[1]), dtype)
            return device.rows(stored, self._rooms[key])

        return self.once(key, read)

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return *make()*, cached under a key, since each tile of queries needs the same value."""
        if key not in self._read:
            self._read[key] = make()
        return self._read[key]

    def sparse(self, matrix: Any) -> SparseMatrix:
        """Read the piece from a block's sparse *matrix*, float64 ``(b, d)``."""
        if not isinstance(matrix, ByColumn):
            return self.take(matrix).astype(np.float64, copy=False)
        first, stop = int(self.rows[0]) - self.start, int(self.rows[-1]) + 1 - self.start
        if 2 * (stop - first) <= matrix.shape[0]:
            matrix = matrix.part(first, stop)
        else:
            first = 0
        whole = len(self.rows) == matrix.shape[0]
        return matrix if whole else matrix._replace(kept=self.rows - (self.start + first))


def pieces(spans: Sequence[Span], size: int, keep: Mask | None = None) -> Iterator[Piece]:
    """Cut blocks into pieces of at most *size* kept rows, in order of rows."""
    rooms: dict[Any, np.ndarray] = {}
    for number, (start, count) in enumerate(spans):
        own = slice(start, start + count)
        rows = np.arange(start, start + count) if keep is None else start + np.flatnonzero(keep[own])
        for first in range(0, len(rows), size):
            yield Piece(number, start, rows[first : first + size], size, rooms)


def pieces_of(spans: Sequence[Span], size: int, rows: Rows) -> Iterator[tuple[slice, Piece]]:
    """Cut ascending *rows* into pieces of at most *size* in one block; yield each with its slice of *rows*."""
    rooms: dict[Any, np.ndarray] = {}
    edges = np.searchsorted(rows, [span.start for span in spans]).tolist()
    for number, (first, last) in enumerate(pairwise([*edges, len(rows)])):
        for begin in range(first, last, size):
            place = slice(begin, min(begin + size, last))
            yield place, Piece(number, spans[number].start, rows[place], size, rooms)


def check_blocks(blocks: Sequence[Block]) -> None:
    """Refuse an empty list, gaps between rows, and blocks whose features differ in form."""
    if not len(blocks):
        raise DataError(
            "blocks is empty, so there are no features to score. Pass the features of at least one example."
        )
    rows, first = 0, _kind(blocks[0])
    for block in blocks:
        if block.start != rows:
            raise DataError(
                f"blocks: a block starts at row {block.start} instead of {rows}. Pass all blocks, in order of rows."
            )
        if _kind(block) != first:
            raise DataError(
                f"blocks: the features of rows 0 and {rows} differ in width, or only one row is sparse. Pass blocks of "
                "features that all come from one index."
            )
        rows += block.features.shape[0]


def _kind(block: Block) -> tuple[bool, int]:
    """Return what blocks of one channel have in common: whether they are dense, and how many numbers a row has."""
    return isinstance(block.features, np.ndarray), block.features.shape[1]


def check_queries(queries: Features, blocks: Sequence[Block]) -> Features:
    """Return queries as float32; refuse queries that do not fit the blocks, and features that are not finite."""
    dense, dimension = _kind(blocks[0])
    if isinstance(queries, np.ndarray) != dense:
        named = "dense" if dense else "sparse"
        raise DataError(f"queries: features must be {named}. Encode queries and examples with the same method.")
    if len(queries.shape) != 2 or queries.shape[1] != dimension:
        shape = "x".join(map(str, queries.shape))
        raise DataError(
            f"queries: shape is {shape}; it must be (queries, {dimension}). Encode them with the method of the index."
        )
    with np.errstate(over="ignore"):
        queries = queries.astype(np.float32)
    numbers = queries if isinstance(queries, np.ndarray) else np.asarray(queries.data)
    if not np.isfinite(numbers).all():
        raise DataError("queries: a feature is not finite in float32. Check the model for overflow.")
    return queries


class Narrow:
    """Read the sparse columns of blocks that some query has, of narrow CSR all; the last block is cached.

    Postings that make few pieces are read column by column, as they are stored.
    """

    def __init__(self, queries: SparseRows, blocks: Sequence[Block]) -> None:
        whole = queries.shape[1] <= WIDE and not isinstance(blocks[0].features, Postings)
        self._blocks, self.columns = blocks, None if whole else distinct(queries.indices)
        self.queries = queries if self.columns is None else select_columns(queries, self.columns)
        self._last: tuple[tuple[int, bool], SparseMatrix] | None = None

    def read(self, piece: Piece) -> SparseMatrix:
        """Read the features of a piece, float64 ``(b, columns)``."""
        if self.columns is None:
            return piece.sparse(self._blocks[piece.number].features)
        source = self._blocks[piece.number].features
        assert not isinstance(source, np.ndarray)
        turned = isinstance(source, Postings) and source.shape[0] <= PARTS * piece.size
        key = piece.number, turned
        last = self._last
        if last is None or last[0] != key:
            found: SparseMatrix
            if turned:
                assert isinstance(source, Postings)
                found = (source.parted if piece.start < HELD else source.by_column)(self.columns)
            else:
                found = select_columns(source, self.columns)
            last = self._last = key, found
        return piece.sparse(last[1])


def check_count(what: str, count: int, kept: int) -> None:
    """Refuse a count below 1 or above the *kept* rows; errors call the number *what*."""
    whole_number(what, count)
    if count < 1:
        raise ConfigError(f"{what} is {count}; expected at least 1. Ask for one example or more.")
    if not kept:
        raise ConfigError(f"{what} is {count}, but no example matches the filter. Choose another filter.")
    if count > kept:
        raise ConfigError(f"{what} is {count}, but only {many(kept, 'example')} can be chosen. Ask for at most {kept}.")


def at_most(what: str, count: Any, kept: int) -> int:
    """Return *count*, or *kept* if fewer rows can be chosen; errors call the number *what*."""
    asked = whole_number(what, count)
    chosen = min(asked, kept) if kept else asked
    check_count(what, chosen, kept)
    return chosen

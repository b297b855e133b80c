"""Sparse features by column, and products with some of the columns."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from airrep.arrays import SparseFeatures
from airrep.scoring.devices import TINY, widened
from airrep.sparse import SparseRows, distinct, stretches, tiles

LONG = 64
"""Mean length above which ranges of postings are copied one by one."""
FREQUENT = 4
"""A column with at least one row in this many is stored dense, in 2 bytes a row; its postings are about as large."""
BITS = 15
"""Bits of a code in a dense column, without its sign."""
FEW = 64
"""Most rows that are looked up one by one."""
TILE = 2**15
"""Features of columns that are read at a time, about; a column is not divided."""
CELLS = 2**20
"""Most numbers of queries that are made dense, 8 MiB."""


class Frequent(NamedTuple):
    """Columns that many rows have, dense: ``codes[i] * steps[i]`` is the column, without rounding."""

    columns: np.ndarray
    """``(m,)`` ascending: the columns, or their places among the requested columns."""
    codes: np.ndarray
    """``(m, b)`` int16."""
    steps: np.ndarray
    """``(m,)`` float64, powers of 2."""


class ByColumn(NamedTuple):
    """A matrix ``(b, d)`` as its columns, ``(d, b)``."""

    columns: SparseRows
    kept: np.ndarray | None = None
    """Rows whose products are wanted; None for all."""
    frequent: Frequent | None = None
    """Dense columns, which :attr:`columns` lacks."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.columns.shape[1], self.columns.shape[0]

    def part(self, start: int, stop: int) -> "ByColumn":
        """Return the rows from *start* to *stop*, renumbered from 0."""
        inside = (self.columns.indices >= start) & (self.columns.indices < stop)
        found = self.columns.where(inside)
        columns = SparseRows(found.data, found.indices - start, found.indptr, (found.shape[0], stop - start))
        held = self.frequent
        return ByColumn(columns, None, None if held is None else held._replace(codes=held.codes[:, start:stop]))


SparseMatrix: TypeAlias = SparseFeatures | ByColumn


class Cells(NamedTuple):
    """Features that are not 0 in some consecutive requested columns, column by column."""

    columns: slice
    """Places among the requested columns."""
    counts: np.ndarray
    """How many features each column has; they sum to k."""
    rows: np.ndarray
    """``(k,)``."""
    values: np.ndarray
    """``(k,)`` float16 or float32."""


@dataclass(frozen=True, eq=False)
class Postings:
    """Sparse features column by column: the rows that have a column, and their values."""

    columns: np.ndarray
    """``(k,)`` int32, ascending: the column of each feature that is not 0."""
    rows: np.ndarray
    """``(k,)`` uint16 or int32, ascending within a column."""
    values: np.ndarray
    """``(k,)`` float16."""
    shape: tuple[int, int]
    """Rows and columns."""

    @classmethod
    def of(cls, features: SparseFeatures) -> "Postings":
        """Make postings of CSR features, with values rounded to float16."""
        narrow = np.uint16 if features.shape[0] <= 2**16 else np.int32
        row = features.row_of.astype(narrow)
        # Sorting column and place as one number is several times faster than sorting places by columns.
        keys = features.indices.astype(np.uint64) << np.uint64(32) | np.arange(features.nnz, dtype=np.uint64)
        keys.sort()
        order = keys.astype(np.uint32)
        columns, values = (keys >> np.uint64(32)).astype(np.int32), features.data.astype(np.float16)[order]
        return cls(columns, row[order], values, features.shape)

    def csr(self) -> SparseFeatures:
        """Return all features as a CSR matrix, float32."""
        return SparseRows.from_cells(self.rows, self.columns, self.values.astype(np.float32), self.shape)

    def select(self, columns: np.ndarray) -> SparseFeatures:
        """Return some ascending columns, ``(rows, len(columns))`` float32."""
        return self._turned(columns).T

    def by_column(self, columns: np.ndarray) -> ByColumn:
        """Return some ascending columns, column by column."""
        return ByColumn(self._turned(columns))

    def parted(self, columns: np.ndarray) -> ByColumn:
        """Return some ascending columns, frequent ones dense: these are multiplied many times faster."""
        held = self.frequent
        if held is None:
            return self.by_column(columns)
        place = np.searchsorted(held.columns, columns)
        inside = np.flatnonzero(place < len(held.columns))
        here = inside[held.columns[place[inside]] == columns[inside]]
        own = place[here]
        rest = np.ones(len(columns), bool)
        rest[here] = False
        return ByColumn(self._turned(columns, rest), None, Frequent(here, held.codes[own], held.steps[own]))

    @cached_property
    def frequent(self) -> Frequent | None:
        """The columns that at least one row in four has, and whose numbers are whole multiples of a power of 2; None
        without such columns. They are computed on first use, and cached."""
        if not len(self.columns):
            return None
        first = np.flatnonzero(np.concatenate([[True], self.columns[1:] != self.columns[:-1]]))
        counts = np.diff(first, append=len(self.columns))
        many = np.flatnonzero(counts * FREQUENT >= self.shape[0])
        if not len(many):
            return None
        parts = [slice(a, a + n) for a, n in zip(first[many].tolist(), counts[many].tolist(), strict=True)]
        ends = np.cumsum([0, *counts[many]])
        values = widened(
            np.concatenate([self.values[part] for part in parts])[None], np.empty((1, ends[-1]), np.float32)
        )[0]
        steps = np.ldexp(1.0, np.frexp(np.maximum.reduceat(np.abs(values), ends[:-1]))[1] - BITS)
        values *= np.repeat((1 / steps).astype(np.float32), counts[many])
        codes = values.astype(np.int16)
        held = np.flatnonzero(np.logical_and.reduceat(codes == values, ends[:-1]))
        whole = np.zeros((len(held), self.shape[0]), np.int16)
        for own, place in zip(whole, held.tolist(), strict=True):
            own[self.rows[parts[place]]] = codes[ends[place] : ends[place + 1]]
        return Frequent(self.columns[first[many[held]]].astype(np.int64), whole, steps[held]) if len(held) else None

    def of_rows(self, rows: np.ndarray, columns: np.ndarray) -> SparseFeatures:
        """Return some rows, by number, and some ascending columns, ``(len(rows), len(columns))`` float32."""
        if len(rows) > FEW:
            return self.select(columns)[rows]
        first, last = self._places(columns)
        here = np.flatnonzero(last > first)
        cell, low, high = np.tile(rows, len(here)), *(np.repeat(one[here], len(rows)) for one in (first, last))
        ends = high
        for _ in range(int((last - first).max(initial=0)).bit_length()):  # binary search of all cells at once
            middle = (low + high) // 2
            below = (low < high) & (self.rows[np.minimum(middle, ends - 1)] < cell)
            low, high = np.where(below, middle + 1, low), np.where(below, high, middle)
        found = np.flatnonzero((low < ends) & (self.rows[np.minimum(low, ends - 1)] == cell))
        place, values = low[found], np.repeat(here, len(rows))[found]
        shape = (len(rows), len(columns))
        return SparseRows.from_cells(
            np.tile(np.arange(len(rows)), len(here))[found],
            values.astype(np.int32),
            self.values[place].astype(np.float32),
            shape,
        )

    def _turned(self, columns: np.ndarray, some: np.ndarray | None = None) -> SparseRows:
        """Return some columns as rows, float32; columns where *some* is False are left empty."""
        first, last = self._places(columns)
        counts = last - first if some is None else np.where(some, last - first, 0)
        rows, values = self._ranges(first, counts)
        wide = widened(values[None], np.empty((1, len(values)), np.float32))[0]
        return SparseRows(wide, rows, np.concatenate([[0], np.cumsum(counts)]), (len(columns), self.shape[0]))

    def cells(self, columns: np.ndarray) -> Iterator[Cells]:
        """Yield the features of some ascending columns, few at a time, so that they stay in the cache."""
        first, last = self._places(columns)
        counts = last - first
        for some in tiles(counts, TILE):
            yield Cells(some, counts[some], *self._ranges(first[some], counts[some]))

    def _ranges(self, first: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows and values in the concatenated ranges from *first*."""
        here = np.flatnonzero(counts)
        begin, long = first[here], counts[here]
        if long.sum() > LONG * len(here):  # few long ranges are copied faster one by one
            parts = [slice(a, b) for a, b in zip(begin.tolist(), (begin + long).tolist(), strict=True)]
            rows, values = (np.concatenate([array[part] for part in parts]) for array in (self.rows, self.values))
        else:
            place = stretches(begin, long)
            rows, values = self.rows[place], self.values[place]
        return rows.astype(np.intp), values.astype(np.float16, copy=False)  # intp: the index type of numpy

    def _places(self, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return where features of some ascending columns begin and end; the last result is cached."""
        known = vars(self).get("_known")
        if known is None or known[0] is not columns:
            wanted = columns.astype(np.int32)  # of another type, a search would first copy all columns
            first = np.searchsorted(self.columns, wanted)
            inside, last = np.flatnonzero(first < len(self.columns)), first.copy()
            here = inside[self.columns[first[inside]] == wanted[inside]]  # most n-grams of a query are in few shards
            last[here] = np.searchsorted(self.columns, wanted[here], side="right")
            known = vars(self)["_known"] = columns, first, last
        return known[1], known[2]


Selectable: TypeAlias = SparseFeatures | Postings


def select_columns(features: Selectable, columns: np.ndarray) -> SparseFeatures:
    """Return ascending *columns* of sparse features, ``(rows, len(columns))``; columns of each row must ascend too."""
    if isinstance(features, Postings):
        return features.select(columns)
    place = np.searchsorted(columns, features.indices)
    found = np.zeros(len(place), bool)
    inside = place < len(columns)
    found[inside] = columns[place[inside]] == features.indices[inside]
    part = features.where(found)
    return SparseRows(part.data, place[found].astype(np.int32), part.indptr, (features.shape[0], len(columns)))


def columns_cells(features: Selectable, columns: np.ndarray) -> Iterator[Cells]:
    """Yield the features of some ascending columns, column by column."""
    if isinstance(features, Postings):
        yield from features.cells(columns)
    else:
        turned = select_columns(features, columns).T
        yield Cells(slice(0, len(columns)), turned.lengths, turned.indices, turned.data)


def select_cells(features: Selectable, rows: np.ndarray, columns: np.ndarray) -> SparseFeatures:
    """Return some rows and ascending columns of sparse features, ``(len(rows), len(columns))``."""
    if isinstance(features, Postings):
        return features.of_rows(rows, columns)
    return select_columns(features, columns)[rows]


class SparseProducts:
    """Products of sparse queries with rows."""

    def __init__(self, queries: SparseFeatures) -> None:
        self._queries = queries.astype(np.float64)
        self._columns = distinct(queries.indices)  # few: rows of hashed n-grams are 2²⁶ wide and more
        self._narrow = len(self._columns) == queries.shape[1]
        self._turned = (self._queries if self._narrow else select_columns(self._queries, self._columns)).T

    def scores(self, rows: SparseMatrix) -> np.ndarray:
        """Compute scores ``(b, q)`` in float64; without frequent columns, sums are in the order of columns."""
        if not isinstance(rows, ByColumn):
            return (rows if self._narrow else select_columns(rows, self._columns)) @ self._turned
        scores = self._queries @ rows.columns
        if rows.frequent is not None:
            scores += self.weights(rows.frequent) @ rows.frequent.codes.astype(np.float64)
        return (scores if rows.kept is None else scores[:, rows.kept]).T

    def rough(self, rows: ByColumn) -> tuple[np.ndarray, np.ndarray]:
        """Compute scores ``(b, q)`` in float32, and bounds on their errors, ``(q,)``."""
        scores = self._queries @ rows.columns
        off = np.abs(scores).max(axis=1, initial=0) * 2.0**-23 + TINY
        if rows.frequent is not None:
            weights, (_, codes, _) = self.weights(rows.frequent), rows.frequent
            with np.errstate(over="ignore", invalid="ignore"):  # checked in the scores
                scores = scores.astype(np.float32) + weights.astype(np.float32) @ codes.astype(np.float32)
            off += np.abs(weights).sum(axis=1) * (2.0 ** (BITS - 24) * (len(codes) + 8))
        wide = scores if rows.kept is None else scores[:, rows.kept]
        return np.ascontiguousarray(wide.T, np.float32), off

    def weights(self, frequent: Frequent) -> np.ndarray:
        """Return the factors of frequent columns' codes, ``(q, m)`` float64."""
        places = frequent.columns
        own = select_columns(self._queries, places).toarray() if self._dense is None else self._dense[:, places]
        return own * frequent.steps

    @cached_property
    def _dense(self) -> np.ndarray | None:
        """The queries as a dense array; None if that is too large."""
        return self._queries.toarray() if self._queries.shape[0] * self._queries.shape[1] <= CELLS else None

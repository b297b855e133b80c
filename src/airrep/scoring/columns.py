"""Sparse features by column, and products with some of the columns."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from airrep.arrays import SparseFeatures
from airrep.scoring.devices import TINY, widened
from airrep.sparse import SparseRows, distinct, stretches

LONG = 64
"""Mean length from which on stretches of postings are copied one by one."""
FREQUENT = 4
"""Columns that one row in so many has are held whole: two bytes for each row, where postings have at least as many."""
BITS = 15
"""Bits of a number that is held whole, without its sign."""
FEW = 64
"""At most so many rows are looked up one by one."""
CELLS = 2**20
"""Numbers of queries that are made dense, at most, 8 MiB."""


class Frequent(NamedTuple):
    """Columns that many rows have, whole: ``codes[i] * steps[i]`` is the column, without rounding."""

    columns: np.ndarray
    """``(m,)`` ascending: the columns, or their places among those asked for."""
    codes: np.ndarray
    """``(m, b)`` int16."""
    steps: np.ndarray
    """``(m,)`` float64, powers of 2."""


class ByColumn(NamedTuple):
    """A matrix ``(b, d)`` as its columns, ``(d, b)``."""

    columns: SparseRows
    kept: np.ndarray | None = None
    """Rows whose products are wanted; all without it."""
    frequent: Frequent | None = None
    """Columns that :attr:`columns` lacks."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.columns.shape[1], self.columns.shape[0]

    def part(self, start: int, stop: int) -> "ByColumn":
        """The rows from one to another, numbered anew."""
        inside = (self.columns.indices >= start) & (self.columns.indices < stop)
        found = self.columns.where(inside)
        columns = SparseRows(found.data, found.indices - start, found.indptr, (found.shape[0], stop - start))
        held = self.frequent
        return ByColumn(columns, None, None if held is None else held._replace(codes=held.codes[:, start:stop]))

    def rows(self) -> SparseFeatures:
        """Return the same row by row; of a matrix that has all columns."""
        assert self.frequent is None
        return self.columns.T


SparseMatrix: TypeAlias = SparseFeatures | ByColumn


class Cells(NamedTuple):
    """Some features that are not 0, one by one, each ``(k,)``."""

    places: np.ndarray
    """Place of its column among those asked for."""
    rows: np.ndarray
    values: np.ndarray
    """float16 or float32."""


@dataclass(frozen=True, eq=False)
class Postings:
    """Sparse features of some rows, column by column: which rows have the column, and what."""

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
        """The postings of CSR features, values rounded to float16."""
        narrow = np.uint16 if features.shape[0] <= 2**16 else np.int32
        row = features.row_of.astype(narrow)
        # Column and place as one number are sorted several times faster than places by columns.
        keys = features.indices.astype(np.uint64) << np.uint64(32) | np.arange(features.nnz, dtype=np.uint64)
        keys.sort()
        order = keys.astype(np.uint32)
        columns, values = (keys >> np.uint64(32)).astype(np.int32), features.data.astype(np.float16)[order]
        return cls(columns, row[order], values, features.shape)

    def csr(self) -> SparseFeatures:
        """All of them as a matrix, float32."""
        return SparseRows.from_cells(self.rows, self.columns, self.values.astype(np.float32), self.shape)

    def select(self, columns: np.ndarray) -> SparseFeatures:
        """Some columns, ascending, ``(rows, len(columns))`` float32."""
        return self._turned(columns).T

    def by_column(self, columns: np.ndarray) -> ByColumn:
        """Return the same as they lie: to be multiplied as a whole."""
        return ByColumn(self._turned(columns))

    def parted(self, columns: np.ndarray) -> ByColumn:
        """Return the same, where columns that many rows have are whole: these are multiplied many times faster."""
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
        """The columns that one row in four has, and whose numbers are whole times one power of 2; None if there are
        none. They are made when they are first asked for, and kept."""
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
        """Some rows, by their numbers, and some columns, ascending, ``(len(rows), len(columns))`` float32."""
        if len(rows) > FEW:
            return self.select(columns)[rows]
        first, last = self._places(columns)
        here = np.flatnonzero(last > first)
        cell, low, high = np.tile(rows, len(here)), *(np.repeat(one[here], len(rows)) for one in (first, last))
        ends = high
        for _ in range(int((last - first).max(initial=0)).bit_length()):  # all of them are halved at once
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
        """Some columns as rows, float32; those that *some* says are left empty."""
        counts, rows, values = self._chosen(columns, some)
        wide = widened(values[None], np.empty((1, len(values)), np.float32))[0]
        return SparseRows(wide, rows, np.concatenate([[0], np.cumsum(counts)]), (len(columns), self.shape[0]))

    def cells(self, columns: np.ndarray) -> "Cells":
        """Features of some columns, ascending, one by one."""
        counts, rows, values = self._chosen(columns)
        return Cells(np.repeat(np.arange(len(columns)), counts), rows, values)

    def _chosen(self, columns: np.ndarray, some: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """How many features each column has, and their rows and values, column after column; of *some* alone."""
        first, last = self._places(columns)
        counts = last - first if some is None else np.where(some, last - first, 0)
        here = np.flatnonzero(counts)
        begin, long = first[here], counts[here]
        if long.sum() > LONG * len(here):  # few long stretches are copied faster one by one
            parts = [slice(a, b) for a, b in zip(begin.tolist(), (begin + long).tolist(), strict=True)]
            rows, values = (np.concatenate([array[part] for part in parts]) for array in (self.rows, self.values))
        else:
            place = stretches(begin, long)
            rows, values = self.rows[place], self.values[place]
        return counts, rows.astype(np.intp), values.astype(np.float16, copy=False)  # intp: what numpy counts by

    def _places(self, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where features of some columns, ascending, begin and end; those that are asked for again are kept."""
        known = vars(self).get("_known")
        if known is None or known[0] is not columns:
            wanted = columns.astype(np.int32)  # of another type, a search would first copy all columns
            first = np.searchsorted(self.columns, wanted)
            inside, last = np.flatnonzero(first < len(self.columns)), first.copy()
            here = inside[self.columns[first[inside]] == wanted[inside]]  # most n-grams of a query are in few shards
            last[here] = np.searchsorted(self.columns, wanted[here], side="right")
            known = vars(self)["_known"] = columns, first, last
        return known[1], known[2]


Selectable: TypeAlias = SparseMatrix | Postings


def select_columns(features: Selectable, columns: np.ndarray) -> SparseFeatures:
    """Some columns of sparse features, ``(rows, len(columns))``; *columns* ascend, and so do those of each row."""
    if isinstance(features, Postings):
        return features.select(columns)
    if isinstance(features, ByColumn):
        features = features.rows()
    place = np.searchsorted(columns, features.indices)
    found = np.zeros(len(place), bool)
    inside = place < len(columns)
    found[inside] = columns[place[inside]] == features.indices[inside]
    part = features.where(found)
    return SparseRows(part.data, place[found].astype(np.int32), part.indptr, (features.shape[0], len(columns)))


def columns_cells(features: Selectable, columns: np.ndarray) -> Cells:
    """Features of some columns, ascending, one by one."""
    if isinstance(features, Postings):
        return features.cells(columns)
    found = select_columns(features, columns)
    return Cells(found.indices, found.row_of, found.data)


def select_cells(features: Selectable, rows: np.ndarray, columns: np.ndarray) -> SparseFeatures:
    """Some rows and columns of sparse features, ``(len(rows), len(columns))``; of postings whole columns are read."""
    if isinstance(features, Postings):
        return features.of_rows(rows, columns)
    return select_columns(features.rows() if isinstance(features, ByColumn) else features, columns)[rows]


class SparseProducts:
    """Sparse queries, ready to be multiplied with rows."""

    def __init__(self, queries: SparseFeatures) -> None:
        self._queries = queries.astype(np.float64)
        self._columns = distinct(queries.indices)  # few: rows of hashed n-grams are 2²⁶ wide and more
        self._narrow = len(self._columns) == queries.shape[1]
        self._turned = (self._queries if self._narrow else select_columns(self._queries, self._columns)).T

    def scores(self, rows: SparseMatrix) -> np.ndarray:
        """Scores ``(b, q)`` in float64; sums are in the order of columns, whatever rows come together."""
        if not isinstance(rows, ByColumn):
            return (rows if self._narrow else select_columns(rows, self._columns)) @ self._turned
        scores = self._queries @ rows.columns
        if rows.frequent is not None:
            scores += self.weights(rows.frequent) @ rows.frequent.codes.astype(np.float64)
        return (scores if rows.kept is None else scores[:, rows.kept]).T

    def rough(self, rows: ByColumn) -> tuple[np.ndarray, np.ndarray]:
        """Scores ``(b, q)`` in float32, and how far they may be off, ``(q,)``."""
        scores = self._queries @ rows.columns
        off = np.abs(scores).max(axis=1, initial=0) * 2.0**-23 + TINY
        if rows.frequent is not None:
            weights, (_, codes, _) = self.weights(rows.frequent), rows.frequent
            with np.errstate(over="ignore", invalid="ignore"):  # looked for in the scores
                scores = scores.astype(np.float32) + weights.astype(np.float32) @ codes.astype(np.float32)
            off += np.abs(weights).sum(axis=1) * (2.0 ** (BITS - 24) * (len(codes) + 8))
        wide = scores if rows.kept is None else scores[:, rows.kept]
        return np.ascontiguousarray(wide.T, np.float32), off

    def weights(self, frequent: Frequent) -> np.ndarray:
        """Return what codes are multiplied with, ``(q, m)`` float64."""
        places = frequent.columns
        own = select_columns(self._queries, places).toarray() if self._dense is None else self._dense[:, places]
        weights: np.ndarray = own * frequent.steps
        return weights

    @cached_property
    def _dense(self) -> np.ndarray | None:
        """The queries, where they are few."""
        return self._queries.toarray() if self._queries.shape[0] * self._queries.shape[1] <= CELLS else None

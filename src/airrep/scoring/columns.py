"""Sparse features by column, and products with some of the columns."""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from airrep.arrays import SparseFeatures
from airrep.scoring.devices import widened
from airrep.sparse import SparseRows, distinct, stretches

LONG = 64
"""Mean length from which on stretches of postings are copied one by one."""


class ByColumn(NamedTuple):
    """A matrix ``(b, d)`` as its columns, ``(d, b)``."""

    columns: SparseRows
    kept: np.ndarray | None = None
    """Rows whose products are wanted; all without it."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.columns.shape[1], self.columns.shape[0]

    def rows(self) -> SparseFeatures:
        """The same row by row."""
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
        """The same as they lie: to be multiplied as a whole."""
        return ByColumn(self._turned(columns))

    def _turned(self, columns: np.ndarray) -> SparseRows:
        """Some columns as rows, float32."""
        counts, rows, values = self._chosen(columns)
        wide = widened(values[None], np.empty((1, len(values)), np.float32))[0]
        return SparseRows(wide, rows, np.concatenate([[0], np.cumsum(counts)]), (len(columns), self.shape[0]))

    def cells(self, columns: np.ndarray) -> "Cells":
        """Features of some columns, ascending, one by one."""
        counts, rows, values = self._chosen(columns)
        return Cells(np.repeat(np.arange(len(columns)), counts), rows, values)

    def _chosen(self, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """How many features each column has, and their rows and values, column after column."""
        wanted = columns.astype(np.int32)  # of another type, a search would first copy all columns
        first = np.searchsorted(self.columns, wanted)
        inside = np.flatnonzero(first < len(self.columns))
        here = inside[self.columns[first[inside]] == wanted[inside]]  # most n-grams of a query are in few shards
        counts = np.zeros(len(columns), np.int32)
        counts[here] = np.searchsorted(self.columns, wanted[here], side="right") - first[here]
        begin, long = first[here], counts[here]
        if long.sum() > LONG * len(here):  # few long stretches are copied faster one by one
            parts = [slice(a, b) for a, b in zip(begin.tolist(), (begin + long).tolist(), strict=True)]
            rows, values = (np.concatenate([array[part] for part in parts]) for array in (self.rows, self.values))
        else:
            place = stretches(begin, long)
            rows, values = self.rows[place], self.values[place]
        return counts, rows.astype(np.intp), values.astype(np.float16, copy=False)  # intp: what numpy counts by


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
        return features.select(columns)[rows]
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
        return (scores if rows.kept is None else scores[:, rows.kept]).T

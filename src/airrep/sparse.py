"""Sparse matrices by rows, with NumPy only."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

FEW = 32
"""Rows with at most this many numbers are multiplied together, one number of each row at a time."""
EXPANDED = 2**16
"""Most products held at a time (about 3 MB with their positions), unless one row has more."""
DENSE = 4
"""Multiply column by column if at least about one number in this many meets a number that is not zero."""
COLUMN = 5000
"""Fixed cost of a column in the product by columns, in units of one number."""
GRAM = 2**22
"""Numbers that :meth:`SparseRows.gram` makes dense at a time."""

RowsLike: TypeAlias = "slice | Sequence[int] | np.ndarray"


class SparseRows:
    """A CSR matrix: row i has the numbers ``data[indptr[i]:indptr[i + 1]]`` in the columns ``indices`` there.

    Products are summed in the order of a row's numbers, so a row's result does not depend on other rows.
    """

    __slots__ = ("data", "indices", "indptr", "shape")

    def __init__(self, data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, shape: tuple[int, int]) -> None:
        self.data, self.indices, self.indptr = data, indices, indptr
        self.shape = (int(shape[0]), int(shape[1]))

    @classmethod
    def empty(cls, rows: int, columns: int) -> "SparseRows":
        """Return a float32 matrix of zeros."""
        nothing = np.empty(0, np.float32), np.empty(0, np.int32)
        return cls(*nothing, np.zeros(rows + 1, np.int64), (rows, columns))

    @classmethod
    def of(cls, matrix: Any) -> "SparseRows":
        """Convert a dense array, dropping zeros, or a SciPy CSR matrix, sharing its arrays."""
        if isinstance(matrix, SparseRows):
            return matrix
        if not isinstance(matrix, np.ndarray):
            return cls(matrix.data, matrix.indices, matrix.indptr, matrix.shape)
        rows, columns = np.nonzero(matrix)
        return cls(matrix[rows, columns], columns.astype(np.int32), _ends(rows, len(matrix)), matrix.shape)

    @classmethod
    def from_cells(
        cls, rows: np.ndarray, columns: np.ndarray, values: np.ndarray, shape: tuple[int, int]
    ) -> "SparseRows":
        """Return the matrix of numbers given with rows and columns, each ``(k,)``; a row's numbers keep their order."""
        # NumPy sorts 16-bit integers by counting, which is fastest.
        order = np.argsort(rows.astype(np.uint16) if shape[0] <= 2**16 else rows, kind="stable")
        return cls(values[order], columns[order], _ends(rows, shape[0]), shape)

    @classmethod
    def full(cls, values: np.ndarray, columns: np.ndarray, width: int) -> "SparseRows":
        """Return the matrix whose rows have *values* ``(rows, k)`` in the same *columns* ``(k,)``."""
        ends = np.arange(len(values) + 1) * len(columns)
        return cls(values.ravel(), np.tile(columns, len(values)), ends, (len(values), width))

    @classmethod
    def counts(cls, columns: np.ndarray, indptr: np.ndarray, width: int) -> "SparseRows":
        """Count each column in ``columns[indptr[i]:indptr[i + 1]]`` of each row i, float32; columns ascend."""
        rows = len(indptr) - 1
        keys = np.repeat(np.arange(rows, dtype=np.int64) << 32, np.diff(indptr)) | columns
        found, data = counted(keys)
        ends = _ends(found >> 32, rows)
        return cls(data.astype(np.float32), found.astype(np.uint32).astype(np.int32), ends, (rows, width))

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the numbers."""
        return self.data.dtype

    @property
    def nnz(self) -> int:
        """Number of stored numbers."""
        return len(self.data)

    @property
    def lengths(self) -> np.ndarray:
        """Number of stored numbers of each row, ``(rows,)``."""
        return np.diff(self.indptr)

    @property
    def row_of(self) -> np.ndarray:
        """Row of each stored number, ``(nnz,)``."""
        return np.repeat(np.arange(self.shape[0]), self.lengths)

    def __getitem__(self, rows: RowsLike) -> "SparseRows":
        """Return the rows given by a slice, row numbers or truth values."""
        if isinstance(rows, slice):
            start, stop, step = rows.indices(self.shape[0])
            if step == 1:
                ends = self.indptr[start : max(start, stop) + 1]
                part = slice(int(ends[0]), int(ends[-1]))
                shape = (len(ends) - 1, self.shape[1])
                return SparseRows(self.data[part], self.indices[part], ends - ends[0], shape)
            rows = np.arange(start, stop, step)
        numbers = np.arange(self.shape[0])[np.asarray(rows, None if len(rows) else np.int64)]
        lengths = self.lengths[numbers]
        place = stretches(self.indptr[numbers], lengths)
        ends = np.concatenate([[0], np.cumsum(lengths)])
        return SparseRows(self.data[place], self.indices[place], ends, (len(numbers), self.shape[1]))

    def columns(self, start: int, stop: int) -> "SparseRows":
        """Return columns *start* to *stop* (excluded), renumbered from 0."""
        part = self.where((self.indices >= start) & (self.indices < stop))
        return SparseRows(part.data, part.indices - start, part.indptr, (self.shape[0], stop - start))

    def where(self, kept: np.ndarray) -> "SparseRows":
        """Keep the stored numbers for which *kept*, ``(nnz,)``, is true."""
        ends = np.concatenate([[0], np.cumsum(kept)])[self.indptr]
        return SparseRows(self.data[kept], self.indices[kept], ends, self.shape)

    def with_data(self, data: np.ndarray) -> "SparseRows":
        """Return other numbers at the same positions."""
        return SparseRows(data, self.indices, self.indptr, self.shape)

    def astype(self, dtype: Any, copy: bool = True) -> "SparseRows":
        """Return the matrix in another type."""
        return self.with_data(self.data.astype(dtype, copy=copy))

    def __neg__(self) -> "SparseRows":
        return self.with_data(-self.data)

    def __mul__(self, factor: float | np.floating[Any]) -> "SparseRows":
        return self.with_data(self.data * factor)

    def __add__(self, other: "SparseRows") -> "SparseRows":
        """Return the sum; the columns of each row ascend."""
        rows, columns = (np.concatenate(pair) for pair in ((self.row_of, other.row_of), (self.indices, other.indices)))
        keys = rows.astype(np.int64) << 32 | columns
        order = np.argsort(keys, kind="stable")
        keys, data = keys[order], np.concatenate([self.data, other.data])[order]
        first = _firsts(keys)
        summed = np.add.reduceat(data, first) if len(first) else data
        found = keys[first]
        ends = _ends(found >> 32, self.shape[0])
        return SparseRows(summed, found.astype(np.uint32).astype(np.int32), ends, self.shape)

    def __sub__(self, other: "SparseRows") -> "SparseRows":
        return self + -other

    def toarray(self) -> np.ndarray:
        """Return a dense array; several numbers at one position are summed."""
        dense = np.zeros(self.shape, self.dtype)
        np.add.at(dense.reshape(-1), self.row_of * self.shape[1] + self.indices, self.data)
        return dense

    def sum(self, axis: int) -> np.ndarray:
        """Return float64 sums: of each column for axis 0, of each row for axis 1."""
        return np.bincount(self.indices if axis == 0 else self.row_of, self.data, self.shape[1 - axis])

    @property
    def T(self) -> "SparseRows":  # noqa: N802
        """The transpose; the columns of each row ascend."""
        row = self.row_of.astype(np.int32)
        return SparseRows.from_cells(self.indices, row, self.data, (self.shape[1], self.shape[0]))

    def scaled(self, factors: np.ndarray) -> "SparseRows":
        """Multiply each row by its own factor, ``(rows,)``, in the matrix's type."""
        return self.with_data(self.data * np.repeat(factors.astype(self.dtype), self.lengths))

    def __matmul__(self, dense: "np.ndarray | SparseRows") -> np.ndarray:
        """Return the dense product with a matrix or a vector; float64 for a vector or a sparse matrix."""
        if isinstance(dense, SparseRows):
            return self._product(dense)
        if dense.ndim == 1:
            return np.bincount(self.row_of, self.data * dense[self.indices], self.shape[0])
        dtype = np.result_type(self.data, dense)
        data, dense, lengths = self.data.astype(dtype, copy=False), dense.astype(dtype, copy=False), self.lengths
        product = np.zeros((self.shape[0], dense.shape[1]), dtype)
        indices, ends = self.indices, self.indptr.tolist()
        for row in np.flatnonzero(lengths > FEW).tolist():
            part = slice(ends[row], ends[row + 1])
            np.einsum("k,kd->d", data[part], dense.take(indices[part], axis=0), out=product[row])
        few = np.flatnonzero((lengths > 0) & (lengths <= FEW))
        for step in range(lengths[few].max(initial=0)):
            few = few[lengths[few] > step]
            place = self.indptr[few] + step
            product[few] += data[place, None] * dense[self.indices[place]]
        return product

    def _product(self, other: "SparseRows") -> np.ndarray:
        products = np.zeros((self.shape[0], other.shape[1]))
        if self.shape[0] == 1:
            _expanded(self, other, products)
            return products
        ends = np.concatenate([[0], np.cumsum(other.lengths[self.indices])])[self.indptr]
        if ends[-1] * DENSE > (self.nnz + COLUMN) * other.shape[1]:
            return _by_column(self, other, products)
        start = 0
        while start < self.shape[0]:
            stop = max(start + 1, int(np.searchsorted(ends, ends[start] + EXPANDED, side="right")) - 1)
            _expanded(self[start:stop], other, products[start:stop])
            start = stop
        return products

    def gram(self) -> np.ndarray:
        """Return the inner products of all pairs of rows, ``(rows, rows)`` float64."""
        turned, products = self.T.astype(np.float64), np.zeros((self.shape[0], self.shape[0]))
        step = max(1, GRAM // max(1, self.shape[0]))
        for start in range(0, self.shape[1], step):
            part = turned[start : start + step].toarray()
            products += part.T @ part
        return products


def _expanded(rows: SparseRows, other: SparseRows, out: np.ndarray) -> None:
    """Write ``rows @ other`` into *out*, expanding each product of two numbers."""
    count = other.lengths[rows.indices]
    if rows.shape[0] == 1 and np.array_equal(rows.indices, np.arange(other.shape[0])):  # one row that uses all of other
        values = np.repeat(rows.data.astype(np.float64), count) * other.data
        out[0] = np.bincount(other.indices, values, out.shape[1])
        return
    place = stretches(other.indptr[rows.indices], count)
    cell = other.indices[place]
    if rows.shape[0] > 1:
        cell = cell + np.repeat(rows.row_of * other.shape[1], count)
    values = np.repeat(rows.data.astype(np.float64), count) * other.data[place]
    out += np.bincount(cell, values, out.size).reshape(out.shape)


def taken(features: Any) -> Any:
    """Return features unchanged, but a SciPy CSR matrix as :class:`SparseRows`."""
    return SparseRows.of(features) if getattr(features, "format", None) == "csr" else features


def _by_column(rows: SparseRows, other: SparseRows, out: np.ndarray) -> np.ndarray:
    """Write ``rows @ other`` into *out* column by column, which is faster if *other* has few zeros."""
    row, data, turned = rows.row_of, rows.data.astype(np.float64), other.T
    for column in range(other.shape[1]):
        own = turned[column : column + 1]
        wide = np.zeros(other.shape[0])
        wide[own.indices] = own.data
        out[:, column] = np.bincount(row, data * wide[rows.indices], len(out))
    return out


def distinct(numbers: np.ndarray) -> np.ndarray:
    """Return the distinct numbers, ascending, without the import of ``numpy.ma`` that np.unique causes."""
    ordered = np.sort(numbers)
    return ordered[_firsts(ordered)]


def _firsts(ordered: np.ndarray) -> np.ndarray:
    """Return the first position of each distinct number in a sorted array."""
    return np.flatnonzero(np.concatenate([np.ones(min(1, len(ordered)), bool), ordered[1:] != ordered[:-1]]))


def counted(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct numbers, ascending, and their counts; *numbers* is sorted in place."""
    numbers.sort()
    first = _firsts(numbers)
    return numbers[first], np.diff(first, append=len(numbers))


def stretches(first: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the concatenated ranges ``first[i], ..., first[i] + counts[i] - 1``."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.asarray(np.arange(total) + np.repeat(first - ends + counts, counts))


def tiles(counts: np.ndarray, most: int) -> Iterator[slice]:
    """Cut items into slices whose counts sum to *most* or less, plus the count of one item."""
    edges = np.flatnonzero(np.diff(np.cumsum(counts) // most, prepend=-1)).tolist()
    return (slice(*pair) for pair in zip(edges, [*edges[1:], len(counts)], strict=False))


def below(parts: Sequence[SparseRows]) -> SparseRows:
    """Stack the rows of at least one matrix."""
    if len(parts) == 1:
        return parts[0]
    lengths = np.concatenate([[0], *(part.lengths for part in parts)])
    data, indices = (np.concatenate([getattr(part, name) for part in parts]) for name in ("data", "indices"))
    return SparseRows(data, indices, np.cumsum(lengths), (len(lengths) - 1, parts[0].shape[1]))


def beside(parts: Sequence[SparseRows]) -> SparseRows:
    """Join the columns of at least one matrix; all have the same number of rows."""
    starts = np.cumsum([0, *(part.shape[1] for part in parts)])
    rows = np.concatenate([part.row_of for part in parts])
    columns = np.concatenate([part.indices + start for part, start in zip(parts, starts[:-1], strict=True)])
    if starts[-1] < 2**31:
        columns = columns.astype(np.int32)
    data = np.concatenate([part.data for part in parts])
    return SparseRows.from_cells(rows, columns, data, (parts[0].shape[0], int(starts[-1])))


def _ends(rows: np.ndarray, count: int) -> np.ndarray:
    """Return ``indptr``, ``(count + 1,)``, of *count* rows, given the row of each number."""
    return np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=count))])

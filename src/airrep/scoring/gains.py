"""Group scores of the counting language model, streamed over blocks of rows.

Features v of an example hold the logarithms by which it alone raises the likelihood of each n-gram, and in the first
column its weight ℓ. A group's gain is L(Σ_z ℓ_z E(v_z) / Σ_z ℓ_z), where E(v) = exp(v) − 1 and L(e) = log(1 + e): for
a group of one, v. A pair of responses has v below 0 where its rejected response has more of an n-gram.
There E(−v) = −E(v) and L(−e) = −L(e), so that a rejected n-gram counts as much as a chosen one.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from airrep.arrays import SparseFeatures
from airrep.scoring.blocks import Block
from airrep.scoring.columns import Cells, columns_cells, select_columns
from airrep.scoring.groups import Groups
from airrep.sparse import EXPANDED, SparseRows, distinct, stretches

HELD, BITS = 2**20, 16
"""Most sums of parts in a dense array; most groups, one bit each, that are split into parts."""
CELLS = 2**24
"""Most sums, groups times n-grams, in memory at once: 200 MB if every group had every n-gram."""


def gain_scores(queries: SparseFeatures, blocks: Sequence[Block], groups: Groups) -> np.ndarray:
    """Compute Σ_g q_x(g) · L(Σ_z ℓ_z E(v_z(g)) / Σ_z ℓ_z), float64 ``(q, m)``; 0 for a group without n-grams.

    *queries* are ``(q, d)`` CSR, weights of the query's n-grams, with nothing in the first column; features of blocks
    are ``(b, d)`` CSR, columns ascending.
    """
    scores = np.empty((queries.shape[0], len(groups)))
    for some in _tiles(queries, len(groups)):
        part = queries[some]
        columns = distinct(part.indices)
        narrow = select_columns(part, columns).astype(np.float64)
        scores[some] = narrow @ _gains(blocks, columns, groups).T
    return scores


def _tiles(queries: SparseFeatures, groups: int) -> Iterator[slice]:
    """Yield slices of queries whose n-grams times groups are at most :data:`CELLS`; at least one query each."""
    most = max(1, CELLS // groups)
    start = 0
    for stop in range(1, queries.shape[0] + 1):
        full = stop == queries.shape[0] or queries.indptr[stop + 1] - queries.indptr[start] > most
        if full:
            yield slice(start, stop)
            start = stop


def _gains(blocks: Sequence[Block], columns: np.ndarray, groups: Groups) -> SparseFeatures:
    """Return the gain L of each group and column, ``(m, columns)``; most are 0."""
    used, membership = groups.membership()
    sums = _PartSums.of(membership, len(columns)) or _MemberSums(membership, len(columns))
    for span in _spans(blocks, columns, used):
        sums.add(span)
    total, lengths = sums.total()
    means = total.data / lengths[total.row_of]  # a group with n-grams has a weight above 0
    return total.with_data(np.copysign(np.log1p(np.abs(means)), means))


class _MemberSums:
    """Sums of ℓ E(v) over each group's members; each row is added to each of its groups."""

    def __init__(self, membership: SparseRows, columns: int) -> None:
        self._membership = membership
        self._total = np.zeros((membership.shape[1], columns))
        self._lengths = np.zeros(membership.shape[1])

    def add(self, span: "_Span") -> None:
        groups, flat = self._membership[span.rows], self._total.reshape(-1)
        count = groups.lengths[span.row]
        edges = np.flatnonzero(np.diff(np.cumsum(count) // EXPANDED, prepend=-1))
        for some in (slice(*pair) for pair in zip(edges, [*edges[1:], len(count)], strict=False)):
            own = groups.indices[stretches(groups.indptr[span.row[some]], count[some])].astype(np.int64)
            place = own * self._total.shape[1] + np.repeat(span.column[some], count[some])
            np.add.at(flat, place, np.repeat(span.rises[some], count[some]))
        weights = np.repeat(span.weights, groups.lengths)
        self._lengths += np.bincount(groups.indices, weights, len(self._lengths))

    def total(self) -> tuple[SparseFeatures, np.ndarray]:
        """Return sums of each group and column ``(m, columns)``, and sums of weights ``(m,)``."""
        return SparseRows.of(self._total), self._lengths


class _PartSums:
    """Sums for groups made of few disjoint parts: each row is added once, to its part."""

    def __init__(self, parts: np.ndarray | None, owner: np.ndarray, count: int, columns: int) -> None:
        """*parts* are 1 where a part belongs to a group, ``(m, count)``; None: each group is a part."""
        self._parts, self._owner = parts, owner
        self._total = np.zeros((count, columns))
        self._lengths = np.zeros(count)

    @classmethod
    def of(cls, membership: SparseRows, columns: int) -> "_PartSums | None":
        """Split groups into parts of rows in the same groups; None if parts times columns are many."""
        used, m = membership.shape
        if m * columns > HELD:
            return None
        if membership.nnz == used:  # no row is in two groups
            return cls(None, membership.indices, m, columns)
        if m > BITS:
            return None
        groups = np.bitwise_or.reduceat(np.left_shift(1, membership.indices, dtype=np.int64), membership.indptr[:-1])
        there = np.bincount(groups, minlength=2**m) > 0
        kinds = np.flatnonzero(there)
        if len(kinds) * columns > HELD:
            return None
        parts = (kinds >> np.arange(m)[:, None] & 1).astype(float)
        return cls(parts, (np.cumsum(there) - 1)[groups], len(kinds), columns)

    def add(self, span: "_Span") -> None:
        owner = self._owner[span.rows]
        place = (owner * self._total.shape[1])[span.row] + span.column
        self._total += np.bincount(place, span.rises, self._total.size).reshape(self._total.shape)
        self._lengths += np.bincount(owner, span.weights, len(self._lengths))

    def total(self) -> tuple[SparseFeatures, np.ndarray]:
        if self._parts is None:
            return SparseRows.of(self._total), self._lengths
        return SparseRows.of(self._parts @ self._total), self._parts @ self._lengths


class _Span(NamedTuple):
    """Rows of one block that are in some group."""

    rows: slice
    """Places among all rows that are in some group."""
    weights: np.ndarray
    """``(b,)`` float64: ℓ of each row."""
    row: np.ndarray
    """``(k,)``: for each feature that is not 0, the place of its row in the span."""
    column: np.ndarray
    """``(k,)``: for each feature, the place of its column."""
    rises: np.ndarray
    """``(k,)`` float64: ℓ E(v)."""


def _spans(blocks: Sequence[Block], columns: np.ndarray, used: np.ndarray) -> Iterator[_Span]:
    """Yield the rows that are in some group, block by block."""
    for block in blocks:
        first, last = np.searchsorted(used, [block.start, block.start + block.features.shape[0]]).tolist()
        if first == last:
            continue
        place = np.full(block.features.shape[0], -1, np.int32)
        place[used[first:last] - block.start] = np.arange(last - first)
        heads = _cells(block, place, np.zeros(1, columns.dtype))  # the weights stand in the first column
        weights = np.zeros(last - first)
        weights[heads.rows] = heads.values
        cells = _cells(block, place, columns)
        yield _Span(slice(first, last), weights, cells.rows, cells.places, _rises(cells.values) * weights[cells.rows])


def _cells(block: Block, place: np.ndarray, columns: np.ndarray) -> Cells:
    """Read features of some columns in a block; rows are renumbered by *place*, and dropped where it is negative."""
    assert not isinstance(block.features, np.ndarray)
    cells = columns_cells(block.features, columns)
    row = place[cells.rows]
    if row.min(initial=0) >= 0:
        return cells._replace(rows=row)
    inside = row >= 0
    return Cells(cells.places[inside], row[inside], cells.values[inside])


def _rises(values: np.ndarray) -> np.ndarray:
    """Compute E(v) in float64; for float16, by a table of all its values, which is ten times as fast."""
    if values.dtype == np.float16:
        return np.asarray(_table()[values.view(np.uint16)])
    numbers = values.astype(np.float64)
    return np.copysign(np.expm1(np.abs(numbers)), numbers)


@cache
def _table() -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        return _rises(np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float64))

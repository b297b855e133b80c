"""Group scores of the counting language model, streamed over blocks of rows.

Features v of an example hold the logarithms by which it alone raises the likelihood of each n-gram, and in the first
column its weight ℓ. A group's gain is L(Σ_z ℓ_z E(v_z) / Σ_z ℓ_z), where E(v) = exp(v) − 1 and L(e) = log(1 + e): for
a group of one, v. A pair of responses has v below 0 where its rejected response has more of an n-gram.
There E(−v) = −E(v) and L(−e) = −L(e), so that a rejected n-gram counts as much as a chosen one.
"""

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np

from airrep.arrays import SparseFeatures
from airrep.scoring.blocks import Block
from airrep.scoring.columns import Cells, columns_cells, select_columns
from airrep.scoring.groups import Groups
from airrep.sparse import EXPANDED, SparseRows, distinct, stretches, tiles

HELD, BITS = 2**20, 16
"""Most sums of parts in a dense array; most groups, one bit each, that are split into parts."""
SUMS = 16
"""Fewer parts have several sums each, since numbers are added to one and the same sum only one after another."""
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
    used, membership = groups.membership
    sums = _PartSums.of(membership, len(columns)) or _MemberSums(membership, len(columns))
    for block in blocks:
        features = block.features
        assert not isinstance(features, np.ndarray)
        first, last = np.searchsorted(used, [block.start, block.start + features.shape[0]]).tolist()
        if first == last:
            continue
        weights = np.zeros(features.shape[0])
        for heads in columns_cells(features, np.zeros(1, columns.dtype)):  # the weights stand in the first column
            weights[heads.rows] = heads.values
        sums.enter(slice(first, last), used[first:last] - block.start, weights)
        for cells in columns_cells(features, columns):
            rises = _rises(cells.values)
            rises *= weights.take(cells.rows)
            sums.add(cells, rises)
    total, lengths = sums.total()
    means = total.data / lengths[total.row_of]  # a group with n-grams has a weight above 0
    return total.with_data(np.copysign(np.log1p(np.abs(means)), means))


class _MemberSums:
    """Sums of ℓ E(v) over each group's members; each row is added to each of its groups."""

    def __init__(self, membership: SparseRows, columns: int) -> None:
        self._membership = membership
        self._total = np.zeros((columns, membership.shape[1]))
        self._lengths = np.zeros(membership.shape[1])

    def enter(self, rows: slice, place: np.ndarray, weights: np.ndarray) -> None:
        """Enter a block with *weights* ``(b,)`` of its rows.

        *rows* are its rows among all that are in some group, and *place* tells where in the block each of them is.
        """
        own = self._membership[rows]
        self._groups, (self._first, self._count) = own.indices.astype(np.intp), np.zeros((2, len(weights)), np.intp)
        self._first[place], self._count[place] = own.indptr[:-1], own.lengths
        self._lengths += np.bincount(own.indices, np.repeat(weights[place], own.lengths), len(self._lengths))

    def add(self, cells: Cells, rises: np.ndarray) -> None:
        """Add *rises*, ℓ E(v) of some features of the block."""
        count, flat = self._count.take(cells.rows), self._total[cells.columns].reshape(-1)
        column = np.repeat(np.arange(len(cells.counts)) * self._total.shape[1], cells.counts)
        for some in tiles(count, EXPANDED):
            own = self._groups.take(stretches(self._first.take(cells.rows[some]), count[some]))
            np.add.at(flat, own + np.repeat(column[some], count[some]), np.repeat(rises[some], count[some]))

    def total(self) -> tuple[SparseFeatures, np.ndarray]:
        """Return sums of each group and column ``(m, columns)``, and sums of weights ``(m,)``."""
        return SparseRows.of(self._total.T), self._lengths


class _PartSums:
    """Sums for groups made of few disjoint parts: each row is added once, to its part."""

    def __init__(self, parts: np.ndarray | None, owner: np.ndarray, count: int, columns: int) -> None:
        """*parts* are 1 where a part belongs to a group, ``(m, count)``; None: each group is a part."""
        self._parts, self._owner = parts, owner
        self._sums = max(1, SUMS // (count + 1))
        self._total = np.zeros((columns, (count + 1) * self._sums))  # the last part is of rows that are in no group
        self._lengths = np.zeros(self._total.shape[1])

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

    def enter(self, rows: slice, place: np.ndarray, weights: np.ndarray) -> None:
        """Do what :meth:`_MemberSums.enter` does."""
        part = np.full(len(weights), len(self._lengths) // self._sums - 1)
        part[place] = self._owner[rows]
        self._place = part * self._sums + np.arange(len(part)) % self._sums
        self._lengths += np.bincount(self._place, weights, len(self._lengths))

    def add(self, cells: Cells, rises: np.ndarray) -> None:
        """Do what :meth:`_MemberSums.add` does."""
        total, place = self._total[cells.columns], self._place.take(cells.rows)
        if len(total) > 1:
            place += np.repeat(np.arange(len(total)) * total.shape[1], cells.counts)
        total += np.bincount(place, rises, total.size).reshape(total.shape)

    def total(self) -> tuple[SparseFeatures, np.ndarray]:
        """Do what :meth:`_MemberSums.total` does."""
        total, lengths = (one.reshape(-1, self._sums).sum(axis=1) for one in (self._total, self._lengths))
        total, lengths = total.reshape(-1, len(lengths))[:, :-1].T, lengths[:-1]
        if self._parts is None:
            return SparseRows.of(total), lengths
        return SparseRows.of(self._parts @ total), self._parts @ lengths


def _rises(values: np.ndarray) -> np.ndarray:
    """Compute E(v) in float64; for float16, by a table of all its values, which is ten times as fast."""
    if values.dtype == np.float16:
        return np.asarray(_table().take(values.view(np.uint16)))
    numbers = values.astype(np.float64)
    return np.copysign(np.expm1(np.abs(numbers)), numbers)


@cache
def _table() -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        return _rises(np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float64))

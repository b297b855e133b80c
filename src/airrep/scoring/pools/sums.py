"""Sums, means and diminishing means of scores, by the sums of groups' features.

A score is an inner product, so that a sum of scores is the product with a sum of features: each group's features are
added up first, in float64, and multiplied with all queries once.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from airrep.arrays import unit_rows
from airrep.scoring.blocks import Block, Piece, Span, piece_rows, pieces_of, spans_of
from airrep.scoring.groups import Groups
from airrep.scoring.pooling import Pooling
from airrep.sparse import SparseRows

ROWS = 2048
"""Rows that are read at a time."""
SUMS = 2**23
"""At most so many numbers of summed features are held, 64 MiB, unless one group has more."""
QUERIES = 1024
"""Queries multiplied at a time."""
FULL = 16
"""Groups that have at least one in so many of the rows are added up by a dense product, which is quicker then."""


class MemberChunk(NamedTuple):
    """Rows that are in some group, and which are in which."""

    piece: Piece
    touched: np.ndarray
    """Groups with a member here."""
    members: np.ndarray
    """Positions in the piece, group after group."""
    offsets: np.ndarray
    """Place where each touched group's members begin, and the last one's end."""
    table: Any
    """Which rows of the piece are in which touched group, as ones, ``(touched, b)``: CSR, or dense."""

    def add(self, total: np.ndarray, values: np.ndarray, shares: np.ndarray | None = None) -> None:
        """Add to ``(m, w)`` totals the sums of values ``(b, w)`` over each group's members, each times its share."""
        sums = (self.table if shares is None else self._csr(shares)) @ values
        if len(sums) == len(total):  # indexing would copy all totals
            total += sums
        else:
            total[self.touched] += sums

    def _csr(self, shares: np.ndarray) -> SparseRows:
        shape = (len(self.touched), len(self.piece.rows))
        return SparseRows(shares, self.members, self.offsets, shape)


def member_chunks(spans: Sequence[Span], groups: Groups, size: int, dtype: type = np.float32) -> Iterator[MemberChunk]:
    """Cut the rows that are in some group into pieces of at most *size*, to add up values of a type."""
    used, membership = groups.membership()
    narrow = np.uint16 if len(groups) < 2**16 else np.int64  # sorted in the time of counting
    for place, piece in pieces_of(spans, size, used):
        ends = membership.indptr[place.start : place.stop + 1]
        group = membership.indices[ends[0] : ends[-1]].astype(narrow)
        order = np.argsort(group, kind="stable")
        counts = np.bincount(group, minlength=len(groups))
        touched = np.flatnonzero(counts)
        offsets = np.concatenate([[0], np.cumsum(counts[touched])])
        row = np.repeat(np.arange(len(ends) - 1), np.diff(ends))[order]
        chunk = MemberChunk(piece, touched, row, offsets, None)
        table = chunk._csr(np.ones(len(row), dtype))
        full = len(row) * FULL > len(touched) * len(piece.rows)
        yield chunk._replace(table=table.toarray() if full else table)


def linear_scores(queries: np.ndarray, blocks: Sequence[Block], groups: Groups, pooling: Pooling) -> np.ndarray:
    """Group scores by a pool that weighs members alike for all queries, ``(q, m)`` float64."""
    d, m = queries.shape[1], len(groups)
    scores = np.empty((len(queries), m))
    step = max(1, SUMS // max(d, 1))
    for first in range(0, m, step):
        pooled = pooled_features(blocks, groups.part(first, min(first + step, m)), pooling)
        for i in range(0, len(queries), QUERIES):
            scores[i : i + QUERIES, first : first + step] = queries[i : i + QUERIES].astype(np.float64) @ pooled.T
    return scores


def pooled_features(blocks: Sequence[Block], groups: Groups, pooling: Pooling) -> np.ndarray:
    """Features whose products with queries are the group scores by a linear pool, ``(m, d)`` float64."""
    size = piece_rows(blocks, ROWS)
    sums = np.zeros((len(groups), blocks[0].features.shape[1]))
    directions = _directions(blocks, groups, size) if pooling.kind == "diminishing" else None
    for chunk in member_chunks(spans_of(blocks), groups, size, np.float64):
        features = chunk.piece.dense(blocks, np.float64)
        chunk.add(sums, features, None if directions is None else _shares(chunk, features, directions))
    return sums if pooling.kind == "sum" else sums / groups.sizes[:, None]


def _directions(blocks: Sequence[Block], groups: Groups, size: int) -> np.ndarray:
    """Σ_i φ(z_i) / ‖φ(z_i)‖ over each group's members, ``(m, d)``."""
    sums = np.zeros((len(groups), blocks[0].features.shape[1]))
    for chunk in member_chunks(spans_of(blocks), groups, size, np.float64):
        chunk.add(sums, unit_rows(chunk.piece.dense(blocks, np.float64)))
    return sums


def _shares(chunk: MemberChunk, features: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """ln(1 + κ) / κ of each member, κ being the sum of its cosines with the others of its group, at least 0."""
    unit = unit_rows(features)
    own = np.einsum("bd,bd->b", unit, unit)  # 1, or 0 of a row of zeros
    likeness = np.empty(len(chunk.members))
    ends = chunk.offsets.tolist()
    for group, first, last in zip(chunk.touched.tolist(), ends[:-1], ends[1:], strict=True):
        members = chunk.members[first:last]
        likeness[first:last] = unit[members] @ directions[group] - own[members]
    np.maximum(likeness, 0, out=likeness)
    shares: np.ndarray = np.divide(np.log1p(likeness), likeness, out=np.ones_like(likeness), where=likeness > 0)
    return shares

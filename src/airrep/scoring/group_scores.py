"""Pooled group scores, streamed over blocks of rows.

Attention (Eq. 6) of query x over group S is Σ_{i∈S} w_i s_i / Σ_{i∈S} w_i with w_i = exp(|s_i| / T - M_x),
for any M_x; signed attention has s_i in place of |s_i|. Each example that is in some group is scored once: a
product of a few rows and queries, its exponentials while they lie in the cache, and sums over the rows of each
group. M_x, a running maximum, is raised only when a piece goes far above it. A group whose own scores are too far
below the final M_x is computed again in float64.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from airrep.arrays import GroupScores, unit_rows
from airrep.errors import ConfigError, DataError
from airrep.scoring.blocks import Block, Piece, Span, piece_rows, pieces_of, spans_of
from airrep.scoring.groups import Groups
from airrep.scoring.pooling import Pooling, PoolLike, exponents, undefined
from airrep.sparse import SparseRows

if TYPE_CHECKING:
    from airrep.scoring.asked import Asked


FULL = 64
"""If at least one in this many entries of a membership table is set, the table is dense, which is faster then."""


class MemberChunk(NamedTuple):
    """Rows of one piece that are in some group, with their groups."""

    piece: Piece
    touched: np.ndarray
    """Groups, among them all that have a member in the piece."""
    table: Any
    """Ones where a row of the piece is in a touched group, ``(touched, b)``: CSR, or dense."""

    def add(self, total: np.ndarray, values: np.ndarray, shares: np.ndarray | None = None) -> None:
        """Add to *total* ``(m, w)`` the sums of values ``(b, w)`` over group members, times *shares* if given."""
        sums = (self.table if shares is None else SparseRows.of(self.table).with_data(shares)) @ values
        if len(sums) == len(total):  # indexing would copy all totals
            total += sums
        else:
            total[self.touched] += sums


def member_chunks(spans: Sequence[Span], groups: Groups, size: int, dtype: type = np.float32) -> Iterator[MemberChunk]:
    """Cut the rows that are in some group into pieces of at most *size*; tables have the type *dtype*."""
    used, membership = groups.membership
    everyone = np.arange(len(groups))
    for place, piece in pieces_of(spans, size, used):
        own = membership[place].astype(dtype)
        if own.nnz * FULL >= len(groups) * own.shape[0]:
            yield MemberChunk(piece, everyone, own.toarray().T)
        else:
            table = own.T
            touched = np.flatnonzero(table.lengths)
            yield MemberChunk(piece, touched, table[touched])


def linear_scores(queries: np.ndarray, blocks: Sequence[Block], groups: Groups, pooling: Pooling) -> np.ndarray:
    """Compute group scores by a pool whose member weights do not depend on the query, ``(q, m)`` float64."""
    d, m = queries.shape[1], len(groups)
    scores = np.empty((len(queries), m))
    step = max(1, SUMS // max(d, 1))
    for first in range(0, m, step):
        pooled = pooled_features(blocks, groups.part(first, min(first + step, m)), pooling)
        for i in range(0, len(queries), QUERIES):
            scores[i : i + QUERIES, first : first + step] = queries[i : i + QUERIES].astype(np.float64) @ pooled.T
    return scores


def pooled_features(blocks: Sequence[Block], groups: Groups, pooling: Pooling) -> np.ndarray:
    """Pool members' features, so that products with queries are group scores by a linear pool, ``(m, d)`` float64."""
    size = piece_rows(blocks, ROWS)
    sums = np.zeros((len(groups), blocks[0].features.shape[1]))
    directions = np.zeros(sums.shape)  # Σ_i φ(z_i) / ‖φ(z_i)‖ over each group's members; untouched, it takes no memory
    if pooling.kind == "diminishing":
        for chunk in member_chunks(spans_of(blocks), groups, size, np.float64):
            chunk.add(directions, unit_rows(chunk.piece.dense(blocks, np.float64)))
    for chunk in member_chunks(spans_of(blocks), groups, size, np.float64):
        features = chunk.piece.dense(blocks, np.float64)
        chunk.add(sums, features, _shares(chunk, features, directions) if pooling.kind == "diminishing" else None)
    return sums if pooling.kind == "sum" else sums / groups.sizes[:, None]


def _shares(chunk: MemberChunk, features: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """Compute ln(1 + κ) / κ of each member; κ ≥ 0 is the sum of its cosines with the other members of its group."""
    unit = unit_rows(features)
    own = np.einsum("bd,bd->b", unit, unit)  # 1, or 0 for a row of zeros
    table = SparseRows.of(chunk.table)
    likeness, ends = np.empty(table.nnz), table.indptr.tolist()
    for group, first, last in zip(chunk.touched.tolist(), ends[:-1], ends[1:], strict=True):
        members = table.indices[first:last]
        likeness[first:last] = unit[members] @ directions[group] - own[members]
    np.maximum(likeness, 0, out=likeness)
    return np.divide(np.log1p(likeness), likeness, out=np.ones_like(likeness), where=likeness > 0)


ROWS, COLUMNS = 2048, 128
"""Rows and queries multiplied at a time, so that their scores stay in the cache."""
QUERIES = 1024
"""Queries for which rows are read at a time."""
SUMS = 2**23
"""Most running sums in memory, 64 MiB each for numerators and denominators."""
HEADROOM = 40.0
"""|s| / T may exceed the running maximum by this much: exp(40) is far from overflow in float32."""
TRUSTED = 512.0
"""Above this |s| / T, float32 rounding of scores shows in their exponentials."""
ROUGH = 2048.0
"""Above this product of norms over T, float32 rounding of products shows in them, however small the scores are."""
FADED = 2.0**-102
"""Least denominator per member that losses of float32 exponentials below 2^-126 do not affect."""
LOOKS = 2
"""Number of first pieces in whose scores a center is searched for."""
SPREAD = 2.0**-10
"""If the least size of scores is below this part of the greatest, scores have nothing in common: center 0."""
FAR = 16
"""A group score that is smaller than the center by this factor has lost digits."""


def group_scores(
    asked: "Asked",
    groups: Groups,
    pool: PoolLike | None = None,
    *,
    temperature: float = 1.0,
    examples: int | None = None,
) -> GroupScores:
    """Score groups of training examples for each query, ``(q, m)`` float32; higher = more helpful.

    Groups may overlap. Each channel has its own pool when *pool* is None; see :class:`airrep.scoring.pooling.Pooling`.
    *temperature* is the temperature of attention. *examples* is the number of training examples from which order-K
    removes the group; all rows when None. ConfigError: an unknown pool, a temperature not above 0, a row that no block
    has, or order-K for a group of all examples. DataError: a feature or score is not finite, or order-inf is undefined.
    """
    pooling = None if pool is None else Pooling.parse(pool, temperature)
    check_rows(groups, asked.rows)
    with np.errstate(over="ignore", invalid="ignore"):  # looked for below
        return _finite(asked.groups(groups, pooling, examples=examples).astype(np.float32))


def by_channel(
    asked: "Asked", groups: Groups, pool: Pooling, name: str, *, exact: bool = False, examples: int | None = None
) -> dict[str, np.ndarray]:
    """Compute each channel's group scores, ``(q, m)`` float64, which add up; without channels, all under *name*."""
    check_rows(groups, asked.rows)
    parts = asked.channels() if pool.kind == "channels" else {}
    with np.errstate(over="ignore", invalid="ignore"):  # looked for below
        return {
            title: _finite(part.groups(groups, pool, exact=exact, examples=examples))
            for title, part in (parts or {name: asked}).items()
        }


def _finite(scores: np.ndarray) -> np.ndarray:
    if not np.isfinite(scores).all():
        raise DataError(f"group scores: a score is not finite in {scores.dtype}. Check the model for overflow.")
    return scores


def check_rows(groups: Groups, rows: int) -> None:
    """Refuse an empty set of groups, and members beyond the last row."""
    if not len(groups):
        raise ConfigError("groups is empty. Pass at least one group that has members.")
    if groups.rows.max() >= rows:
        raise ConfigError(f"groups: row {groups.rows.max()} does not exist. The last row is {rows - 1}.")


def pooled(asked: "Asked", groups: Groups, pooling: Pooling, *, exact: bool) -> np.ndarray:
    """Pool members' scores by sum, mean or attention, ``(q, m)`` float64; *exact* uses only float64 scores."""
    if not pooling.attends and pooling.kind not in ("sum", "mean"):
        raise undefined(pooling, "scoring.group_scores.pooled")
    if exact:
        some = (asked.chosen(slice(i, i + COLUMNS)) for i in range(0, len(asked), COLUMNS))
        return np.concatenate([np.empty((0, len(groups))), *(_exact(one, groups, pooling) for one in some)])
    together = max(1, min(COLUMNS, SUMS // len(groups)))
    parts = [np.empty((0, len(groups)))]
    at_once = max(1, min(QUERIES, SUMS // len(groups)) // together) * together
    for first in range(0, len(asked), at_once):  # so that running sums stay few
        starts = range(first, min(first + at_once, len(asked)), together)
        tiles = [_SumTile(asked.chosen(slice(i, min(i + together, len(asked)))), groups, pooling) for i in starts]
        parts.append(_stream(tiles, groups, pooling))
    return np.concatenate(parts)


def _exact(asked: "Asked", groups: Groups, pooling: Pooling) -> np.ndarray:
    """Compute group scores for some queries from members' scores, both in float64, ``(q, m)``."""
    pools = [_Float64Pool(pooling) for _ in range(len(groups))]
    used, membership = groups.membership
    for place, piece in pieces_of(asked.spans, asked.rows_at_once(ROWS), used):
        scores, members = asked.scores(piece), membership[place].toarray().T
        for pool, mine in zip(pools, members.astype(bool), strict=True):
            pool.add(scores[mine])
    return np.stack([pool.score() for pool in pools], axis=1)


class _Float64Pool:
    """Score of one group, from its members' scores ``(b, q)`` part by part, by sum, mean or attention."""

    def __init__(self, pooling: Pooling) -> None:
        self.pooling, self.members = pooling, 0
        self.greatest, self.above, self.below = np.float64(-np.inf), np.float64(0), np.float64(0)

    def add(self, scores: np.ndarray) -> None:
        """Add some members."""
        if not len(scores):
            return
        self.members += len(scores)
        if self.pooling.attends:
            size = exponents(scores, self.pooling.kind) / self.pooling.temperature
            new = np.maximum(self.greatest, size.max(axis=0))
            weights, shrink = np.exp(size - new), np.exp(self.greatest - new)
            self.above = self.above * shrink + (weights * scores).sum(axis=0)
            self.below = self.below * shrink + weights.sum(axis=0)
            self.greatest = new
        else:
            self.above = self.above + scores.sum(axis=0)

    def score(self) -> np.ndarray:
        """Return the group's scores, ``(q,)``."""
        if self.pooling.attends:
            return np.asarray(self.above / self.below)
        return np.asarray(self.above / self.members if self.pooling.kind == "mean" else self.above)


class _SumTile:
    """Running sums for a few queries over all groups."""

    def __init__(self, asked: "Asked", groups: Groups, pooling: Pooling) -> None:
        self.asked, self.groups, self.pooling = asked, groups, pooling
        shape = (len(groups), len(asked))
        self.numerator, self.denominator = np.zeros(shape), np.zeros(shape)
        self.maximum, self.raised = np.zeros(len(asked)), False
        self.center = np.full(len(asked), np.inf, np.float32)
        """Center of each query's scores, ``(w,)``: distances from it are summed, so that equal scores stay exact."""
        self.looks, self.centered, self.bound = LOOKS, False, 0.0
        self.begun = pooling.kind == "attention"  # signed scores may lie far below 0: the first ones set the maximum

    def see(self, chunk: MemberChunk, scratch: np.ndarray) -> None:
        """Add the rows of a chunk."""
        shape = len(chunk.piece.rows), len(self.asked)
        scores, weights = (part[: shape[0] * shape[1]].reshape(shape) for part in scratch)
        most, rounded = self.asked.rough(chunk.piece, scores)
        if self.pooling.attends:
            np.abs(scores, out=weights)
            if self.looks:
                self._find_center(scores, weights)
            self.bound = max(self.bound, rounded / self.pooling.temperature)
            self._weigh(scores, weights, most / self.pooling.temperature)
            chunk.add(self.denominator, weights)
            if self.centered:
                scores -= self.center
            scores *= weights
        chunk.add(self.numerator, scores)

    def _find_center(self, scores: np.ndarray, sizes: np.ndarray) -> None:
        """Move the center to the score of least size so far, or to 0 if the sizes differ too much."""
        self.looks -= 1
        least = sizes.min(axis=0)
        nearer = least * 2 < np.abs(self.center)
        if nearer.any():
            nearest = np.take_along_axis(scores, sizes.argmin(axis=0)[None], axis=0)[0]
            common = np.where(least > sizes.max(axis=0) * np.float32(SPREAD), nearest, np.float32(0))
            new = np.where(nearer, common, self.center)
            if self.denominator.any():  # infinite at first
                self.numerator += self.denominator * (self.center.astype(np.float64) - new)
            self.center, self.centered = new, bool(new.any())

    def _weigh(self, scores: np.ndarray, weights: np.ndarray, bound: float) -> None:
        """Write exp(|s| / T - maximum) over |s|, or exp(s / T - maximum), none of them far above 1."""
        if self.pooling.kind == "signed-attention":
            np.copyto(weights, scores)
        if self.pooling.temperature != 1:
            weights /= np.float32(self.pooling.temperature)
        if bound > HEADROOM or self.raised:  # else no score of these rows can overflow
            self._raise(weights.max(axis=0).astype(np.float64))
        self.begun = True
        if self.raised:
            weights -= self.maximum.astype(np.float32)
        np.exp(weights, out=weights)

    def _raise(self, peaks: np.ndarray) -> None:
        """Raise the running maximum where *peaks* are far above it; the first peaks of signed attention set it."""
        new = peaks
        if self.begun:
            new = np.where(peaks > self.maximum + HEADROOM, peaks, self.maximum)
            shrink = np.exp(self.maximum - new)
            self.numerator *= shrink
            self.denominator *= shrink
        self.maximum, self.raised = new, True

    def attention(self) -> np.ndarray:
        """Return group scores, ``(m, w)``; inexact ones are computed again in float64."""
        below, center = self.denominator, self.center.astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            scores: np.ndarray = self.numerator / below + center
        doubtful = (below < self.groups.sizes[:, None] * FADED) | (np.abs(self.maximum) > TRUSTED)
        doubtful |= (np.abs(scores) * FAR < np.abs(center)) | (self.bound > ROUGH)
        for group in np.flatnonzero(doubtful.any(axis=1)):
            some = np.flatnonzero(doubtful[group])
            asked, pool = self.asked.chosen(some), _Float64Pool(self.pooling)
            for _, piece in pieces_of(asked.spans, asked.rows_at_once(ROWS), self.groups.members(int(group))):
                pool.add(asked.scores(piece))
            scores[group, some] = pool.score()
        return scores


def _stream(tiles: Sequence[_SumTile], groups: Groups, pooling: Pooling) -> np.ndarray:
    """Add all rows that are in some group to every tile; return group scores, ``(q, m)``."""
    spans, size = tiles[0].asked.spans, tiles[0].asked.rows_at_once(ROWS)
    scratch = np.empty((2, size * COLUMNS), np.float32)
    for chunk in member_chunks(spans, groups, size):
        for tile in tiles:
            tile.see(chunk, scratch)
    if pooling.attends:
        return np.concatenate([tile.attention() for tile in tiles], axis=1).T
    sums = np.concatenate([tile.numerator for tile in tiles], axis=1)
    return (sums / groups.sizes[:, None] if pooling.kind == "mean" else sums).T

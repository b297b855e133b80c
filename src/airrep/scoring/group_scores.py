"""Pooled group scores, streamed over blocks of rows.

Attention (Eq. 6) of query x over group S is Σ_{i∈S} w_i s_i / Σ_{i∈S} w_i with w_i = exp(|s_i| / T - M_x),
whatever M_x is; signed attention has s_i in place of |s_i|. Each example that is in some group is scored once: a
product of a few rows and queries, its exponentials while they lie in the cache, and sums over the rows of each
group. M_x, a running maximum, is raised only when a piece goes far above it. Where it ends too far above a
group's own scores, that one is worked out again in float64.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from airrep.arrays import Features, GroupScores, MixedFeatures, multiply_rows
from airrep.errors import ConfigError, DataError
from airrep.scoring.blocks import (
    Block,
    MappedBlocks,
    check_blocks,
    check_queries,
    narrow,
    piece_rows,
    pieces_of,
    room_for,
)
from airrep.scoring.columns import ColumnRange
from airrep.scoring.groups import Groups
from airrep.scoring.pooling import ChannelPool, ChannelPooling, Pooling, PoolLike, exponents
from airrep.scoring.pools.gains import gain_scores
from airrep.scoring.pools.orders import order_scores
from airrep.scoring.pools.sums import MemberChunk, linear_scores, member_chunks
from airrep.scoring.products import LoadedRows, Precision, ReadyQueries, check_precision, load, ready

ROWS, COLUMNS = 2048, 128
"""Rows and queries multiplied at a time, so that their scores stay in the cache."""
QUERIES = 1024
"""Queries for which rows are read at a time."""
SUMS = 2**23
"""At most so many running sums are held, 64 MiB each of numerators and denominators."""
HEADROOM = 40.0
"""|s| / T may exceed the running maximum by so much: exp(40) is far from overflow in float32."""
TRUSTED = 512.0
"""Above this |s| / T, float32 rounding of scores shows in their exponentials."""
ROUGH = 2048.0
"""Above this product of norms over T, float32 rounding of products shows in them, however small the scores are."""
FADED = 2.0**-102
"""Least denominator for each member that what float32 exponentials lose below 2^-126 cannot touch."""
LOOKS = 2
"""Pieces of rows among whose scores a center is looked for."""
SPREAD = 2.0**-10
"""Scores whose sizes differ by more than such a factor have nothing in common: their center is 0."""
FAR = 16
"""A group score that is smaller than the center by such a factor has lost digits."""
BFLOAT16_MOST = 8.0
"""Greatest |s| / T whose bfloat16 rounding (1/256 of it) an exponential forgives."""


def group_scores(
    queries: Features,
    blocks: Sequence[Block],
    groups: Groups,
    pool: PoolLike,
    *,
    temperature: float = 1.0,
    precision: Precision = "float32",
    device: str = "cpu",
    examples: int | None = None,
) -> GroupScores:
    """Score groups of training examples for each query.

    Args:
        queries: ``(q, d)`` float32, or CSR as the blocks.
        blocks: the features of all training examples, in order of rows.
        groups: which rows belong together; they may overlap.
        pool: ``"sum"``, ``"mean"``, ``"diminishing"``, ``"attention"``, ``"signed-attention"``, ``"ngram-lm"``,
            ``"order-K"`` or ``"order-inf"``; see :class:`airrep.scoring.pooling.Pooling`.
        temperature: the larger, the flatter the attention.
        precision: ``"bfloat16"`` multiplies in bfloat16 on a card, save where norms allow |s| / temperature above 8;
            products on the CPU are float32 all the same.
        device: device of the products; those of order-K, and of features that are added up first, are the CPU's.
        examples: training examples that order-K removes the group from; the rows of all blocks when None.

    Returns:
        ``(q, m)`` float32; higher = more helpful.

    Raises:
        ConfigError: an unknown pool or precision, a temperature not above 0, a row that no block has, or order-K of
            a group of all examples.
        DataError: queries and blocks do not fit together, a feature or score is not finite, or order-inf has no
            meaning for these features.
    """
    check_precision(precision)
    rows = check_blocks(blocks).rows
    _check_rows(groups, rows)
    queries = check_queries(queries, blocks)
    if isinstance(pool, ChannelPooling):
        parts = channel_scores(queries, blocks, groups, pool, precision=precision, device=device)
        return sum_channels(part for _, part in parts)
    pooling = Pooling.parse(pool, temperature)
    with np.errstate(over="ignore", invalid="ignore"):  # looked for below
        if pooling.kind == "order":
            if isinstance(queries, MixedFeatures):
                raise ConfigError(f"pool '{pooling}': needs the features of one method; these are of several channels.")
            scores = order_scores(queries, blocks, groups, pooling, rows if examples is None else examples)
        elif pooling.kind == "ngram-lm":
            scores = _gain_scores(queries, blocks, groups).astype(np.float32)
        else:
            scores = _pooled(queries, blocks, groups, pooling, precision, device)
    return _finite(scores)


def _finite(scores: np.ndarray) -> np.ndarray:
    if not np.isfinite(scores).all():
        raise DataError(
            f"group scores: one is not finite in {scores.dtype}; expected smaller features. "
            "Check the model for overflow."
        )
    return scores


def _pooled(
    queries: Features, blocks: Sequence[Block], groups: Groups, pooling: Pooling, precision: Precision, device: str
) -> np.ndarray:
    """Sums, means and attention, ``(q, m)``."""
    if pooling.kind == "diminishing":
        _check_dense(queries, pooling)
    if pooling.linear and isinstance(queries, np.ndarray):
        return linear_scores(queries, blocks, groups, pooling).astype(np.float32)
    queries, blocks = narrow(queries, blocks)
    most = BFLOAT16_MOST * pooling.temperature
    together = max(1, min(COLUMNS, SUMS // len(groups)))
    made = [ready(queries[i : i + together], precision, most, device) for i in range(0, queries.shape[0], together)]
    return _streamed(made, blocks, groups, pooling)


def channel_scores(
    queries: Features,
    blocks: Sequence[Block],
    groups: Groups,
    pooling: ChannelPooling,
    *,
    precision: Precision = "float32",
    device: str = "cpu",
) -> Iterator[tuple[str, GroupScores]]:
    """The name of each channel, and its own scores ``(q, m)``; :func:`sum_channels` has their sum.

    Raises:
        ConfigError, DataError: as for :func:`group_scores`.
    """

    def score(part: Features, own: Sequence[Block], pool: Pooling) -> np.ndarray:
        return group_scores(part, own, groups, pool, precision=precision, device=device)

    yield from _by_channel(queries, blocks, pooling, score)


def _by_channel(
    queries: Features,
    blocks: Sequence[Block],
    pooling: ChannelPooling,
    score: Callable[[Features, Sequence[Block], Pooling], np.ndarray],
) -> Iterator[tuple[str, np.ndarray]]:
    """The name of each channel, and what *score* makes of its own features and pool, times the queries' factors."""
    if not isinstance(queries, MixedFeatures):
        raise DataError("queries: are not of channels, as their pool is. Encode them with the index's method.")
    for channel in pooling.channels:
        part, own = channel_part(queries, blocks, channel)
        if queries.factors is None or channel.factor is None:
            yield channel.name, score(part, own, channel.pooling)
            continue
        # Pools such as attention take scores as they were, not those that a query's factor made larger or smaller.
        factors = queries.factors[:, channel.factor]
        assert not isinstance(part, MixedFeatures)
        plain = multiply_rows(part, np.divide(1.0, factors, out=np.zeros_like(factors), where=factors > 0))
        scores = score(plain, own, channel.pooling)
        yield channel.name, scores * factors[:, None].astype(scores.dtype)


def exact_group_scores(
    queries: Features, blocks: Sequence[Block], groups: Groups, pool: PoolLike
) -> dict[str, np.ndarray]:
    """Group scores by channel, ``(q, m)`` float64; a pool of no channels is one, named by itself.

    All is worked out in float64, so that differences of groups which share nearly all members are those of the
    members that they do not share. Meant for a few groups, and not for order-K.

    Raises:
        ConfigError, DataError: as for :func:`group_scores`.
    """
    _check_rows(groups, check_blocks(blocks).rows)
    if isinstance(pool, ChannelPooling):
        asked = check_queries(queries, blocks)
        return dict(_by_channel(asked, blocks, pool, lambda part, own, one: _exact_scores(part, own, groups, one)))
    pooling = Pooling.parse(pool)
    return {pooling.text: _exact_scores(queries, blocks, groups, pooling)}


def _exact_scores(queries: Features, blocks: Sequence[Block], groups: Groups, pooling: Pooling) -> np.ndarray:
    """Group scores, ``(q, m)`` float64."""
    queries = check_queries(queries, blocks)
    if pooling.kind == "ngram-lm":
        return _finite(_gain_scores(queries, blocks, groups))
    if pooling.kind == "diminishing":
        return _finite(linear_scores(_check_dense(queries, pooling), blocks, groups, pooling))
    queries, blocks = narrow(queries, blocks)
    most = BFLOAT16_MOST * pooling.temperature
    with np.errstate(over="ignore", invalid="ignore"):  # looked for below
        parts = (
            _exact(ready(queries[i : i + COLUMNS], "float32", most, "cpu"), blocks, groups, pooling)
            for i in range(0, queries.shape[0], COLUMNS)
        )
        return _finite(np.concatenate([np.empty((0, len(groups))), *parts]))


def _exact(queries: ReadyQueries, blocks: Sequence[Block], groups: Groups, pooling: Pooling) -> np.ndarray:
    """Group scores for some queries from their members' scores, both in float64, ``(q, m)``."""
    pools = [_Float64Pool(pooling) for _ in range(len(groups))]
    every, size = np.arange(queries.count), piece_rows(blocks, ROWS)
    used, membership = groups.membership()
    for place, piece in pieces_of(blocks, size, used):
        scores, members = queries.exact(piece, every), membership[place].toarray().T
        for pool, mine in zip(pools, members.astype(bool), strict=True):
            pool.add(scores[mine])
    return np.stack([pool.score() for pool in pools], axis=1)


class _Float64Pool:
    """Score of one group from its members' scores ``(b, q)`` part by part, by a pool that needs no more."""

    def __init__(self, pooling: Pooling) -> None:
        self.pooling, self.members = pooling, 0
        self.greatest, self.above, self.below = np.float64(-np.inf), np.float64(0), np.float64(0)

    def add(self, scores: np.ndarray) -> None:
        """Take some members into account."""
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
        """The group's scores, ``(q,)``."""
        if self.pooling.attends:
            return np.asarray(self.above / self.below)
        return np.asarray(self.above / self.members if self.pooling.kind == "mean" else self.above)


def sum_channels(parts: Iterable[GroupScores]) -> GroupScores:
    """Σ_c g_c(x, S), ``(q, m)`` float32, summed in float64; there is one channel at least."""
    total: np.ndarray = sum(part.astype(np.float64) for part in parts)  # type: ignore[assignment]
    return total.astype(np.float32)


def channel_part(
    queries: MixedFeatures, blocks: Sequence[Block], channel: ChannelPool
) -> tuple[Features, Sequence[Block]]:
    """The features of one channel alone, of queries and of blocks."""
    first, last = channel.start, channel.stop

    def dense(block: Block) -> Block:
        assert isinstance(block.features, np.ndarray)
        return Block(block.start, block.features[:, first:last], check=block.check)

    def sparse(block: Block) -> Block:
        assert block.sparse is not None
        assert not isinstance(block.sparse, ColumnRange)
        return Block(block.start, ColumnRange(block.sparse, first, last))

    if channel.dense:
        return queries.dense[:, first:last], MappedBlocks(blocks, dense)
    return queries.sparse.columns(first, last), MappedBlocks(blocks, sparse)


def _gain_scores(queries: Features, blocks: Sequence[Block], groups: Groups) -> np.ndarray:
    """Gains of the counting language model, ``(q, m)`` float64."""
    if isinstance(queries, np.ndarray | MixedFeatures):
        raise ConfigError("pool 'ngram-lm': needs counts of n-grams; these features are others. Take another pool.")
    return gain_scores(queries, blocks, groups)


def _check_dense(queries: Features, pooling: Pooling) -> np.ndarray:
    if not isinstance(queries, np.ndarray):
        raise ConfigError(
            f"pool '{pooling}': needs the dense features of one method; these are others. Take another pool."
        )
    return queries


def _check_rows(groups: Groups, rows: int) -> None:
    if not len(groups):
        raise ConfigError("groups: there are none; expected at least one. Give a group with members.")
    if groups.rows.max() >= rows:
        raise ConfigError(f"groups: hold row {groups.rows.max()}; expected at most {rows - 1}. Correct the row number.")


class _SumTile:
    """Running sums for a few queries over all groups."""

    def __init__(self, queries: ReadyQueries, groups: Groups, pooling: Pooling) -> None:
        self.queries, self.groups, self.pooling = queries, groups, pooling
        shape = (len(groups), queries.count)
        self.numerator, self.denominator = np.zeros(shape), np.zeros(shape)
        self.maximum, self.raised = np.zeros(queries.count), False
        self.center = np.full(queries.count, np.inf, np.float32)
        """Score of each query, ``(w,)``: distances from it are summed, so that equal scores stay as they are."""
        self.looks, self.centered, self.bound = LOOKS, False, 0.0
        self.begun = (
            pooling.kind == "attention"
        )  # signed scores may all lie far below 0: their first ones set the maximum

    def see(self, chunk: MemberChunk, rows: LoadedRows, scratch: np.ndarray) -> None:
        """Take some rows into account."""
        shape = len(chunk.piece.rows), self.queries.count
        scores, weights = (part[: shape[0] * shape[1]].reshape(shape) for part in scratch)
        self.queries.multiply(rows, scores)
        if self.pooling.attends:
            np.abs(scores, out=weights)
            if self.looks:
                self._find_center(scores, weights)
            self.bound = max(self.bound, rows.norm * self.queries.rounded_norm / self.pooling.temperature)
            self._weigh(scores, weights, rows.norm * self.queries.norm / self.pooling.temperature)
            chunk.add(self.denominator, weights)
            if self.centered:
                scores -= self.center
            scores *= weights
        chunk.add(self.numerator, scores)

    def _find_center(self, scores: np.ndarray, sizes: np.ndarray) -> None:
        """Bring the center near the score of least size so far: what all scores have in common, or about 0."""
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
        if bound > HEADROOM or self.raised:  # else no score of these rows can overflow, and none is looked at
            self._raise(weights.max(axis=0).astype(np.float64))
        self.begun = True
        if self.raised:
            weights -= self.maximum.astype(np.float32)
        np.exp(weights, out=weights)

    def _raise(self, peaks: np.ndarray) -> None:
        """Raise the running maximum of the queries that these peaks are far above; the first signed ones set it."""
        new = peaks
        if self.begun:
            new = np.where(peaks > self.maximum + HEADROOM, peaks, self.maximum)
            shrink = np.exp(self.maximum - new)
            self.numerator *= shrink
            self.denominator *= shrink
        self.maximum, self.raised = new, True

    def attention(self, blocks: Sequence[Block], size: int) -> np.ndarray:
        """Group scores, ``(m, w)``; the doubtful ones anew in float64."""
        below, center = self.denominator, self.center.astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            scores: np.ndarray = self.numerator / below + center
        doubtful = (below < self.groups.sizes[:, None] * FADED) | (np.abs(self.maximum) > TRUSTED)
        doubtful |= (np.abs(scores) * FAR < np.abs(center)) | (self.bound > ROUGH)
        for group in np.flatnonzero(doubtful.any(axis=1)):
            some = np.flatnonzero(doubtful[group])
            chosen = (piece for _, piece in pieces_of(blocks, size, self.groups.members(int(group))))
            pool = _Float64Pool(self.pooling)
            for piece in chosen:
                pool.add(self.queries.exact(piece, some))
            scores[group, some] = pool.score()
        return scores


def _streamed(queries: Sequence[ReadyQueries], blocks: Sequence[Block], groups: Groups, pooling: Pooling) -> np.ndarray:
    """Read the rows for some queries at a time, so that running sums stay few; ``(q, m)``."""
    together = max(1, min(QUERIES, SUMS // len(groups)) // max(1, queries[0].count)) if queries else 1
    parts = [np.empty((0, len(groups)), dtype=np.float32)]
    for i in range(0, len(queries), together):
        tiles = [_SumTile(some, groups, pooling) for some in queries[i : i + together]]
        parts.append(_stream(tiles, blocks, groups, pooling).astype(np.float32))
    return np.concatenate(parts)


def _stream(tiles: Sequence[_SumTile], blocks: Sequence[Block], groups: Groups, pooling: Pooling) -> np.ndarray:
    """Show every tile all rows that are in some group; group scores, ``(q, m)``."""
    size = piece_rows(blocks, ROWS)
    scratch = np.empty((2, size * COLUMNS), np.float32)
    room = room_for(blocks, size)
    for chunk in member_chunks(blocks, groups, size):
        rows = load(chunk.piece, room, tiles[0].queries.device)
        for tile in tiles:
            tile.see(chunk, rows, scratch)
    if pooling.attends:
        return np.concatenate([tile.attention(blocks, size) for tile in tiles], axis=1).T
    sums = np.concatenate([tile.numerator for tile in tiles], axis=1)
    return (sums / groups.sizes[:, None] if pooling.kind == "mean" else sums).T

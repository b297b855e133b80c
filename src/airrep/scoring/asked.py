"""Prepared queries that score the rows of an index: scores, bounds, group scores, sums.

A score of several channels is f(x, z) = Σ_c w_c(x) s_c(x, z), and that of a group f(x, S) = Σ_c w_c(x) g_c(x, S). The
weight w_c(x) is one number for each query and channel, which is applied last.
"""

import copy
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any, Protocol, Self

import numpy as np

from airrep.arrays import Mask, Rows, whole_number
from airrep.errors import ConfigError, DataError
from airrep.scoring.blocks import PIECE_ROWS, Block, Piece, Span, pieces
from airrep.scoring.group_scores import pooled
from airrep.scoring.groups import Groups
from airrep.scoring.pooling import Pooling

ROUNDING = 2.0**-21
"""Covers the float32 roundings of a scaled product, and of the final score."""
WIDE = 8192
"""Number of scores that are compared with their limits at a time."""
CELLS = 2**22
"""Most float64 scores in memory at a time, 32 MiB."""


@dataclass(frozen=True)
class BoundedScores:
    """Approximate scores of a piece: true ones are within ``bounds.T @ slack[:-1] + slack[-1]`` of ``values``."""

    values: np.ndarray
    """``(b, q)`` float32."""
    slack: np.ndarray
    """``(2c + 1, q)`` float64, for c channels of approximate scores."""
    bounds: np.ndarray
    """``(2c, b)`` float32: norm, and norm of the rounding error, for each of the c channels."""
    known: np.ndarray | None = None
    """``(b, q)`` float64: the part of the scores that is exact, which ``values`` include."""

    def negated(self) -> "BoundedScores":
        """Return bounds on the scores times -1."""
        return BoundedScores(-self.values, self.slack, self.bounds, None if self.known is None else -self.known)

    @cached_property
    def widest(self) -> np.ndarray:
        """The largest error for each query, ``(q,)``."""
        most = np.array([column.max() for column in self.bounds], np.float64)  # numpy is slow at both at once
        return most @ self.slack[:-1] + self.slack[-1]

    def least_of_best(self, k: int) -> np.ndarray:
        """Return a score that at least k rows of the piece are known to reach, ``(q,)``, by the first rows if many."""
        first = self.values[: max(WIDE, 32 * k)]
        place = len(first) - k
        kth: np.ndarray = np.partition(first, place, axis=0)[place]
        return kth - self.widest

    def above(self, floor: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None:
        """Return pairs that may exceed *floor* ``(q,)`` of their query: query, row, score, error bound, exact part."""
        with np.errstate(over="ignore"):
            limit = np.nextafter((floor - self.widest).astype(np.float32), np.float32(-np.inf))
        place = np.flatnonzero(_reached(self.values, limit))
        if not len(place):  # the usual case, once good rows were seen
            return None
        row, query = np.divmod(place, len(limit))
        score = self.values[row, query].astype(np.float64)
        error = self.slack[-1, query].copy()
        for bound, slack in zip(self.bounds, self.slack, strict=False):
            error += bound[row] * slack[query]
        chosen = score + error > floor[query]
        row, query = row[chosen], query[chosen]
        known = np.zeros(len(query)) if self.known is None else self.known[row, query]
        return query.astype(np.uint8), row, score[chosen], error[chosen], known


def _reached(values: np.ndarray, limit: np.ndarray) -> np.ndarray:
    """Return whether each value ``(b, q)`` reaches the limit ``(q,)`` of its column."""
    b, q = values.shape
    if q == 1:
        return values >= limit
    together = max(1, WIDE // q)  # rows: numpy compares few long rows twice as fast as many short ones
    whole = b - b % together
    found = np.empty((b, q), bool)
    wide = (values[:whole].reshape(-1, together * q), np.tile(limit, together))
    np.greater_equal(*wide, out=found[:whole].reshape(-1, together * q))
    np.greater_equal(values[whole:], limit, out=found[whole:])
    return found


class Kept(Protocol):
    """Stored features of some examples, channel by channel."""

    @property
    def spans(self) -> Sequence[Span]:
        """First row and number of rows of each block."""

    def blocks(self, channel: str) -> Sequence[Block]:
        """Return the features of a channel."""

    @property
    def live(self) -> Mask | None:
        """Examples that are not deleted, ``(n,)``; None for all."""

    def scores(self, channel: str, method: Any, queries: Sequence[Any], rows: Rows | None = None) -> np.ndarray:
        """Compute scores ``(q, n)`` of all examples, or of *rows*, by a channel whose *method* stores no features."""


class Asked(ABC):
    """Some queries, prepared to score all rows of an index; higher scores = more helpful.

    A subclass needs ``spans``, ``pooling``, :meth:`__len__`, :meth:`chosen`, :meth:`over` and :meth:`scores`. It may
    override the other methods to be faster, or to pool groups in another way.
    """

    spans: Sequence[Span]
    """First row and number of rows of each block."""
    pooling: Pooling
    """Default pool of group scores."""
    final: bool = True
    """True if :meth:`scores` are as cheap as bounds on them, so that top-k needs no bounds."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of queries."""

    @abstractmethod
    def chosen(self, queries: slice | np.ndarray) -> Self:
        """Return some of the queries."""

    @abstractmethod
    def over(self, kept: Kept, channel: str) -> "Asked":
        """Return the same queries for other examples; *channel* is the channel of *kept* to read."""

    @abstractmethod
    def scores(self, piece: Piece) -> np.ndarray:
        """Compute scores ``(b, q)`` float64; if :attr:`final`, digits do not depend on other rows of the piece."""

    def paired(self) -> "Asked":
        """Pair the queries, which are answers, then a better answer to each; see :func:`even_pairs`."""
        return self

    def joined(self, others: Sequence[Any]) -> "Asked | None":  # noqa: ARG002
        """Append the queries of *others*, of the same class and for the same rows.

        None if they cannot be joined.
        """
        return None

    def pooled_by(self, pooling: Pooling) -> Self:
        """Return the same queries with another default pool."""
        return self._like(pooling=pooling)

    def _like(self, **changes: Any) -> Self:
        """Return a copy with some attributes changed, and without cached properties."""
        other = copy.copy(self)
        for name in [name for name in vars(other) if isinstance(getattr(type(self), name, None), cached_property)]:
            del vars(other)[name]
        vars(other).update(changes)
        return other

    @property
    def rows(self) -> int:
        """Number of rows of all blocks."""
        return sum(span.rows for span in self.spans)

    def rows_at_once(self, most: int) -> int:
        """Return how many rows are read together, at most *most*."""
        return most

    def rows_scanned(self) -> int:
        """Return how many rows are read together for bounds."""
        return self.rows_at_once(PIECE_ROWS)

    def bounded(self, piece: Piece) -> BoundedScores:
        """Compute approximate scores of a piece, with bounds on their errors."""
        wide = self.scores(piece)
        check_size(np.abs(wide).max(initial=0), piece)
        values = wide.astype(np.float32, order="C")
        return BoundedScores(values, np.zeros((1, len(self))), np.empty((0, len(values)), np.float32))

    def rough(self, piece: Piece, out: np.ndarray) -> tuple[float, float]:
        """Write scores ``(b, q)`` in float32; return bounds on their size, and on that of rounded products."""
        out[...] = self.scores(piece)
        return float(np.abs(out).max(initial=0)), 0.0

    def exact(self, query: np.ndarray, row: np.ndarray) -> np.ndarray:
        """Compute each pair's score without its part :attr:`BoundedScores.known`: float64 sums in a fixed order."""
        raise NotImplementedError

    def refined(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Compute what :meth:`exact` does for all queries and some rows, ``(len(rows), q)``, with error bounds."""
        raise NotImplementedError

    def groups(
        self,
        groups: Groups,
        pool: Pooling | None = None,
        *,
        exact: bool = False,
        examples: int | None = None,  # noqa: ARG002
    ) -> np.ndarray:
        """Score groups, ``(q, m)`` float64; None: the default pool (ConfigError: the pool needs features).

        *exact* computes all in float64, so that small changes of large groups are right; meant for few groups.
        *examples* is the number of training examples from which order-K removes a group; all rows when None.
        """
        pooling = pool or self.pooling
        if pooling.reads_features or pooling.kind == "channels":
            raise ConfigError(
                f"pool '{pooling}' (a way to score a group): needs features that this method does not have. Use pool "
                "sum, mean or attention."
            )
        return pooled(self, groups, pooling, exact=exact)

    @property
    def filled(self) -> np.ndarray:
        """True for each query that has features other than 0, ``(q,)``."""
        return np.ones(len(self), bool)

    def of_row(self, row: int) -> np.ndarray:
        """Compute the scores of one row, ``(q,)`` float64."""
        number = bisect_right(self.spans, row, key=attrgetter("start")) - 1
        return self.scores(Piece(number, self.spans[number].start, np.array([row]), 1))[0]

    def channels(self) -> "Mapping[str, Asked]":
        """Return the channels of a sum, each with its weights; empty if this is not a sum."""
        return {}


class ScoresAsked(Asked):
    """Queries of a method that stores no features, and so computes the scores of all examples."""

    def __init__(self, method: Any, queries: Sequence[Any], kept: Kept, channel: str, pooling: Pooling) -> None:
        self.method, self.queries, self.spans, self.pooling = method, queries, kept.spans, pooling
        self.kept, self.channel = kept, channel
        self._found: list[np.ndarray] = []  # shared by copies: computed when first needed

    @property
    def values(self) -> np.ndarray:
        """Scores of all rows, ``(q, n)`` float32."""
        if not self._found:
            self._found.append(self._computed())
        return self._found[0]

    def _computed(self) -> np.ndarray:
        return self.kept.scores(self.channel, self.method, self.queries)

    def __len__(self) -> int:
        return len(self.queries)

    def chosen(self, queries: slice | np.ndarray) -> Self:
        some = np.arange(len(self))[queries].tolist()
        return self._like(queries=[self.queries[place] for place in some], _found=[self.values[queries]])

    def over(self, kept: Kept, channel: str) -> "ScoresAsked":
        return ScoresAsked(self.method, self.queries, kept, channel, self.pooling)

    def scores(self, piece: Piece) -> np.ndarray:
        return self.values[:, piece.rows].T.astype(np.float64)


class SumAsked(Asked):
    """The weighted sum of several channels' scores."""

    def __init__(self, parts: Mapping[str, Asked], weights: np.ndarray, pooling: Pooling) -> None:
        """*weights* are ``(q, c)``, in the order of *parts*; *pooling* has kind "channels", or pools summed scores."""
        self.parts, self.weights, self.pooling = parts, weights, pooling
        first = next(iter(parts.values()))
        self.spans, self.final = first.spans, all(part.final for part in parts.values())

    def __len__(self) -> int:
        return len(self.weights)

    def chosen(self, queries: slice | np.ndarray) -> "SumAsked":
        parts = {name: part.chosen(queries) for name, part in self.parts.items()}
        return SumAsked(parts, self.weights[queries], self.pooling)

    def over(self, kept: Kept, channel: str) -> "SumAsked":  # noqa: ARG002
        parts = {name: part.over(kept, name) for name, part in self.parts.items()}
        return SumAsked(parts, self.weights, self.pooling)

    @property
    def filled(self) -> np.ndarray:
        return np.asarray(np.any([part.filled for part in self.parts.values()], axis=0))

    def joined(self, others: Sequence["SumAsked"]) -> "SumAsked | None":
        if any(list(other.parts) != list(self.parts) for other in others):
            return None
        parts = {name: joined([self.parts[name], *(one.parts[name] for one in others)]) for name in self.parts}
        weights = np.concatenate([one.weights for one in (self, *others)])
        whole = {name: part for name, part in parts.items() if part is not None}
        return SumAsked(whole, weights, self.pooling) if len(whole) == len(parts) else None

    def of_row(self, row: int) -> np.ndarray:
        total = np.zeros(len(self))
        for part, weights in (*self._with_weights(final=False), *self._with_weights(final=True)):
            total += part.of_row(row) * weights
        return total

    def channels(self) -> Mapping[str, Asked]:
        return {
            name: SumAsked({name: part}, self.weights[:, [place]], self.pooling)
            for place, (name, part) in enumerate(self.parts.items())
        }

    def rows_at_once(self, most: int) -> int:
        return min(part.rows_at_once(most) for part in self.parts.values())

    def rows_scanned(self) -> int:
        return min(part.rows_scanned() for part in self.parts.values())

    def _with_weights(self, *, final: bool) -> list[tuple[Asked, np.ndarray]]:
        """Return the parts that are :attr:`final`, or those that are not, with their weights."""
        pairs = zip(self.parts.values(), self.weights.T, strict=True)
        return [(part, weights) for part, weights in pairs if part.final == final]

    def scores(self, piece: Piece) -> np.ndarray:
        total = np.zeros((len(piece.rows), len(self)))
        for part, weights in (*self._with_weights(final=False), *self._with_weights(final=True)):
            total += part.scores(piece) * weights
        return total

    def bounded(self, piece: Piece) -> BoundedScores:
        if self.final:
            return super().bounded(piece)
        parts = [(part.bounded(piece), weights) for part, weights in self._with_weights(final=False)]
        with np.errstate(over="ignore", invalid="ignore"):  # check_size finds overflow
            values = [one.values * weights.astype(np.float32) for one, weights in parts]
        greatest = np.sum([_largest(one) for one in values], axis=0)
        total, known = sum(values[1:], values[0]), None
        for part, weights in self._with_weights(final=True):
            own = part.scores(piece) * weights
            known = own if known is None else known + own
        if known is not None:
            greatest = greatest + _largest(known)
            total = (total + known).astype(np.float32, order="C")
        check_size(float(greatest.max(initial=0)), piece)
        slack = [one.slack[:-1] * weights for one, weights in parts]
        rest = sum(one.slack[-1] * weights for one, weights in parts) + greatest * ROUNDING * (1 + len(self.parts) / 4)
        return BoundedScores(
            total, np.concatenate([*slack, rest[None]]), np.concatenate([one.bounds for one, _ in parts]), known
        )

    def rough(self, piece: Piece, out: np.ndarray) -> tuple[float, float]:
        out[...], most, rounded = 0, 0.0, 0.0
        own = np.empty(out.shape, np.float32)
        for part, weights in zip(self.parts.values(), self.weights.T, strict=True):
            sizes = part.rough(piece, own)
            own *= weights.astype(np.float32)
            out += own
            heaviest = float(weights.max(initial=0))
            most, rounded = most + sizes[0] * heaviest, rounded + sizes[1] * heaviest
        return most, rounded

    def exact(self, query: np.ndarray, row: np.ndarray) -> np.ndarray:
        total = np.zeros(len(query))
        for part, weights in self._with_weights(final=False):
            total += part.exact(query, row) * weights[query]
        return total

    def refined(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        product, error = np.zeros((2, len(rows), len(self)))
        for part, weights in self._with_weights(final=False):
            own, off = part.refined(rows)
            product += own * weights
            error += off * weights
        return product, error

    def groups(
        self, groups: Groups, pool: Pooling | None = None, *, exact: bool = False, examples: int | None = None
    ) -> np.ndarray:
        pooling = pool or self.pooling
        if pooling.kind != "channels":
            return super().groups(groups, pooling, exact=exact)
        total = np.zeros((len(self), len(groups)))
        for part, weights in zip(self.parts.values(), self.weights.T, strict=True):
            total += part.groups(groups, exact=exact, examples=examples) * weights[:, None]
        return total


def joined(asked: Sequence[Asked]) -> Asked | None:
    """Join prepared queries for the same rows; None if there are none, or they cannot be joined."""
    if not asked or len({type(one) for one in asked}) > 1:
        return None
    return asked[0] if len(asked) == 1 else asked[0].joined(asked[1:])


def even_pairs(asked: Asked) -> Asked:
    """Give an answer and its better answer equal channel weights; *asked* has all answers, then all better answers.

    A relative channel has a weight of its own for each query. For two answers to one prompt the weights can differ by
    half or more, so that what the answers share does not cancel. Each pair gets the geometric mean of its two weights.
    A channel that scores only candidates scores the candidates of either answer for both.
    """
    if not isinstance(asked, SumAsked):
        return asked
    parts = {name: part.paired() for name, part in asked.parts.items()}
    weights = np.sqrt(asked.weights * np.roll(asked.weights, len(asked) // 2, axis=0))
    return SumAsked(parts, weights, asked.pooling)


def _largest(values: np.ndarray) -> np.ndarray:
    """Return the greatest absolute value in each column."""
    return np.maximum(values.max(axis=0, initial=0), -values.min(axis=0, initial=0)).astype(np.float64)


def check_size(greatest: float, piece: Piece) -> None:
    """Refuse scores that float32 cannot hold."""
    if not greatest <= float(np.finfo(np.float32).max):
        raise DataError(
            f"{piece}: a feature is not finite, or too large for scores in float32. Check the model that made the "
            "features."
        )


def score_blocks(asked: Asked, *, block_rows: int = PIECE_ROWS) -> Iterator[tuple[int, np.ndarray]]:
    """Stream all influence scores in order of rows: number of the first row, and scores ``(q, b)`` float32.

    ConfigError: *block_rows* is below 1, or not a whole number. DataError: a score is not finite.
    """
    if whole_number("block_rows", block_rows) < 1:
        raise ConfigError(f"block_rows is {block_rows}; it must be at least 1.")
    return _stream(asked, asked.rows_at_once(block_rows))  # checked here, not when the generator takes its first step


def _stream(asked: Asked, size: int) -> Iterator[tuple[int, np.ndarray]]:
    for piece in pieces(asked.spans, size):
        scores = np.empty((len(piece.rows), len(asked)), np.float32)
        asked.rough(piece, scores)
        if not np.isfinite(scores).all():
            raise DataError(f"{piece}: a score is not finite. Check the model for overflow.")
        yield int(piece.rows[0]), np.ascontiguousarray(scores.T)


def score_all(asked: Asked) -> np.ndarray:
    """Compute all influence scores, ``(q, n)`` float32."""
    return np.concatenate([scores for _, scores in score_blocks(asked)], axis=1)


def stream_scores(asked: Asked, keep: Mask | None = None) -> Iterator[tuple[Rows, np.ndarray]]:
    """Stream row numbers ``(b,)`` and float64 scores ``(q, b)`` of all kept rows in order; memory is that of a part."""
    size = asked.rows_at_once(min(PIECE_ROWS, max(1, CELLS // max(1, len(asked)))))
    for piece in pieces(asked.spans, size, keep):
        yield piece.rows, asked.scores(piece).T

"""Exact top-k by a bounded scan and re-ranking; best ranks over several queries.

Every row is first scored approximately, by products of int8 or float32, with a guaranteed bound on the error.
Rows that may still be among the k are kept, and scored again in one fixed way: products and sums in float64
in a fixed order, rounded to float32. So neither blocks, batches of queries, codes nor the device change a
score or a rank.
"""

from typing import NamedTuple

import numpy as np

from airrep.arrays import Mask, Rows
from airrep.errors import DataError
from airrep.scoring.asked import ROUNDING, Asked
from airrep.scoring.blocks import Piece, check_count, pieces
from airrep.scoring.devices import TINY

RANKED = 2**22
"""Most ranked (query, row) pairs in memory at a time."""
_UNRANKED = np.iinfo(np.int64).max


class Selection(NamedTuple):
    """Chosen rows, the best first, and why each was chosen."""

    rows: Rows
    """``(count,)`` row numbers."""
    ranks: np.ndarray
    """``(count,)`` int64, the best rank over the queries; 1 = most helpful."""
    queries: np.ndarray
    """``(count,)`` int64, the first query that gives the row this rank."""
    scores: np.ndarray
    """``(count,)`` float32, the score for that query; higher = more helpful."""


def min_rank(asked: Asked, count: int, keep: Mask | None = None) -> Selection:
    """Choose the *count* rows that some query ranks highest, within the mask *keep* ``(n,)``; None keeps all.

    A row's value is its best rank over the queries (in a query: greatest score first, ties by row). Rows are ordered by
    best rank, then by the first query that gives it; two rows never share both. ConfigError: *count* is not between 1
    and the number of rows to choose from. DataError: there are no queries.
    """
    kept = asked.rows if keep is None else int(np.count_nonzero(keep))
    if len(asked) == 0:
        raise DataError("queries is empty. Pass at least one query.")
    check_count("select: count", count, kept)
    # The first k of every query are exactly the rows of value k or better, so as soon as they are `count`
    # different rows, no row outside them can come before the last of the selection.
    depth = min(kept, -(-2 * count // len(asked)))
    ranks = _BestRanks(asked, keep, depth)
    while ranks.covered < count:
        depth = min(kept, 2 * depth)
        ranks = _BestRanks(asked, keep, depth)
    return ranks.first(count)


def gumbel_top_k(log_weights: np.ndarray, count: int, generator: "np.random.Generator") -> Rows:
    """Draw rows one after another without replacement, each with a chance in proportion to its weight, ``(count,)``.

    The greatest of log wᵢ + Gᵢ, with independent standard Gumbel Gᵢ, are such a draw (Gumbel top-k). *log_weights* are
    ``(n,)``, -inf for rows that are never drawn; a row's noise does not depend on the weights. ConfigError: *count* is
    not between 1 and the number of rows that may be drawn. DataError: a weight is not a number, or infinite.
    """
    if not (log_weights < np.inf).all():
        raise DataError(
            "select: an importance weight of an example is NaN or infinite. Check that all features are finite."
        )
    check_count("select: count", count, int(np.isfinite(log_weights).sum()))
    noisy = log_weights + generator.gumbel(size=log_weights.shape)
    return np.argsort(-noisy, kind="stable")[:count]


def first_of_each(keys: np.ndarray, keep: Mask) -> Mask:
    """Return True for the first row of each key ``(n,)`` among the rows of the mask *keep*."""
    kept, first = np.flatnonzero(keep), np.zeros_like(keep)
    first[kept[np.unique(keys[kept], return_index=True)[1]]] = True
    return first


class _BestRanks:
    """The best rank of each row among the first *depth* rows of every query."""

    def __init__(self, asked: Asked, keep: Mask | None, depth: int) -> None:
        self.q, rows = len(asked), asked.rows
        self.place = np.full(rows, _UNRANKED)  # rank * q + query, ranks from 0: the least of a row decides
        self.score = np.zeros(rows, dtype=np.float32)
        step = max(1, RANKED // depth)
        for start in range(0, self.q, step):
            found = top_k(asked.chosen(slice(start, start + step)), depth, keep=keep)
            number = np.arange(start, start + len(found.rows))
            ranked, place = found.rows.ravel(), (np.arange(depth) * self.q + number[:, None]).ravel()
            np.minimum.at(self.place, ranked, place)
            won = self.place[ranked] == place
            self.score[ranked[won]] = found.scores.ravel()[won]

    @property
    def covered(self) -> int:
        """Number of rows that are among the first *depth* of some query."""
        return int(np.count_nonzero(self.place < _UNRANKED))

    def first(self, count: int) -> Selection:
        """Return the *count* best rows, in order."""
        rows = np.argsort(self.place, kind="stable")[:count]
        rank, query = np.divmod(self.place[rows], self.q)
        return Selection(rows, rank + 1, query, self.score[rows])


PAIRS = 2048
"""Most (query, row) pairs that are scored exactly without refining their bounds first."""
TILE = 64
"""Queries scanned together: their scores of one piece stay in the cache, and their numbers fit into a uint8."""


class TopK(NamedTuple):
    """The k first rows for each query; ties by row."""

    rows: np.ndarray
    """``(q, k)`` int64."""
    scores: np.ndarray
    """``(q, k)`` float32; higher = more helpful."""


def top_k(asked: Asked, k: int, *, keep: Mask | None = None, least: bool = False) -> TopK:
    """Find the k training examples of greatest score for each query, by exact search; of least score if *least*.

    *keep* ``(n,)`` masks the rows to search; None keeps all. Best first, equal scores in order of rows. A score is
    computed in float64 and rounded to float32. ConfigError: k is not between 1 and the number of rows to choose from.
    DataError: a feature or score is not finite.
    """
    check_count("top_k: k", k, asked.rows if keep is None else int(np.count_nonzero(keep)))
    sign = -1.0 if least else 1.0
    tiles = [_CandidateTile(asked.chosen(slice(i, i + TILE)), k, sign) for i in range(0, len(asked), TILE)]
    for piece in pieces(asked.spans, asked.rows_scanned(), keep):
        for tile in tiles:
            tile.see(piece)
    parts = [tile.result() for tile in tiles]
    rows = [np.empty((0, k), np.int64), *(part.rows for part in parts)]
    scores = [np.empty((0, k), np.float32), *(part.scores for part in parts)]
    return TopK(np.concatenate(rows), np.concatenate(scores) * np.float32(sign) + np.float32(0))  # -0 becomes 0


class _Candidates(NamedTuple):
    """(query, row) pairs that may be in the result; the score is within ``error`` of ``score``."""

    query: np.ndarray
    row: np.ndarray
    score: np.ndarray
    error: np.ndarray
    known: np.ndarray
    """The part of the score that is exact already, from channels whose scores are final."""

    def where(self, chosen: np.ndarray) -> "_Candidates":
        return _Candidates(*(column[chosen] for column in self))


class _CandidateTile:
    """A few queries, and the candidates found for them so far.

    ``floor`` holds for each query a number that at least k rows seen so far are known to reach. All of these
    rows have lower numbers than those of pieces to come, so a later row that cannot exceed the floor cannot
    be among the k first: at best it ties, and ties go by row.
    """

    def __init__(self, asked: Asked, k: int, sign: float) -> None:
        self.asked, self.k, self.sign, self.count = asked, k, sign, len(asked)
        none = _Candidates(np.empty(0, np.uint8), np.empty(0, np.int64), *(np.empty(0) for _ in range(3)))
        self.found, self.seen = [none], 0
        self.tidy_at = 0
        self.floor = np.full(self.count, -np.inf)

    def see(self, piece: Piece) -> None:
        """Add the rows of a piece."""
        scores = self.asked.bounded(piece)
        if self.sign < 0:
            scores = scores.negated()
        if np.isneginf(self.floor).any() and len(scores.values) >= self.k:
            least = scores.least_of_best(self.k)
            self.floor = np.maximum(self.floor, np.nextafter(least, -np.inf))  # a row of this piece may tie with it
        above = scores.above(self.floor)
        if above is None:
            return
        query, row, score, error, known = above
        self.found.append(_Candidates(query, piece.rows[row], score, error, known))
        self.seen += len(query)
        if self.seen > self.tidy_at:
            self._tidy()

    def _tidy(self) -> None:
        """Raise the floor, and drop the candidates below it; if too many are left, refine or settle them."""
        whole = _Candidates(*(np.concatenate(columns) for columns in zip(*self.found, strict=True)))
        found, most = self._raised(whole), 32 * self.count * self.k + 2**16
        if len(found.query) > most:
            found = self._raised(self._refined(found))
        if len(found.query) > most:
            found = self._settle(found)
            self.floor = np.maximum(self.floor, _kth_greatest(found.query, found.score, self.count, self.k))
        self.found, self.seen = [found], len(found.query)
        self.tidy_at = 2 * self.seen + 2**12

    def _raised(self, found: _Candidates) -> _Candidates:
        """Raise the floor to what the candidates are known to reach, and drop those below it."""
        self.floor = np.maximum(self.floor, _kth_greatest(found.query, found.score - found.error, self.count, self.k))
        return found.where(found.score + found.error >= self.floor[found.query])

    def _probe(self) -> None:
        """Score the k likeliest of each query exactly, which rules out most others; refine the rest if still many."""
        (found,) = self.found  # one since :meth:`_tidy`
        best = _first(found, found.score, self.k)
        score, error = found.score.copy(), found.error.copy()
        score[best], error[best] = self._exact(found.where(best)), 0.0
        found = self._raised(found._replace(score=score, error=error))
        self.found = [self._raised(self._refined(found)) if len(found.query) > PAIRS else found]

    def _refined(self, found: _Candidates) -> _Candidates:
        """Return candidates with far smaller errors, by one product of all queries with their rows, if that is cheap.

        Bounds of int8 products are loose for features such as gradients, of which a few numbers are large.
        """
        rough = found.error > 0  # other scores are final: from sparse features, or rounded to float32
        if not rough.any():
            return found
        rows, place = np.unique(found.row, return_inverse=True)
        if len(rows) * (self.count + 8) > 32 * len(found.row):
            return found
        product, error = self.asked.refined(rows)
        score = self.sign * product[place, found.query] + found.known
        error = error[place, found.query] + np.abs(score) * ROUNDING + TINY
        return found._replace(score=np.where(rough, score, found.score), error=np.where(rough, error, 0.0))

    def _settle(self, found: _Candidates) -> _Candidates:
        """Return the first k candidates of each query, in order, with their final scores."""
        score = self._exact(found)
        first = _first(found, score, self.k)
        return found.where(first)._replace(score=score[first], error=np.zeros(len(first)))

    def _exact(self, found: _Candidates) -> np.ndarray:
        """Compute final scores, rounded to float32; scores with error 0 are final already."""
        score, rough = found.score.copy(), found.error > 0
        if rough.any():
            exact = self.sign * self.asked.exact(found.query[rough], found.row[rough]) + found.known[rough]
            with np.errstate(over="ignore"):  # checked in the result
                score[rough] = exact.astype(np.float32)
        return score

    def result(self) -> TopK:
        """Return the k first rows of each query."""
        self._tidy()
        if self.seen > PAIRS:
            self._probe()
        found = self._settle(*self.found)
        scores = found.score.astype(np.float32)
        if not np.isfinite(scores).all():
            raise DataError("top_k: a score is too large for float32. Check the model for overflow.")
        return TopK(found.row.reshape(self.count, self.k), scores.reshape(self.count, self.k))


def _first(found: _Candidates, score: np.ndarray, k: int) -> np.ndarray:
    """Return places of the first k candidates of each query, in order: greatest score first, ties by row."""
    order = np.lexsort((found.row, -score, found.query))
    query = found.query[order]
    return order[np.arange(len(order)) - np.searchsorted(query, query) < k]


def _kth_greatest(query: np.ndarray, score: np.ndarray, count: int, k: int) -> np.ndarray:
    """Return the k-th greatest score of each query, ``(count,)``; -inf for a query with fewer scores."""
    order = np.argsort(query, kind="stable")
    bounds = np.searchsorted(query[order], np.arange(count + 1))
    score, kth = score[order], np.full(count, -np.inf)
    for i in np.flatnonzero(np.diff(bounds) >= k):
        part = score[bounds[i] : bounds[i + 1]]
        kth[i] = np.partition(part, len(part) - k)[len(part) - k]
    return kth

"""Min-rank over blocks of scores, and draws by weight."""

from typing import NamedTuple

import numpy as np

from airrep.arrays import Mask, Rows
from airrep.errors import DataError
from airrep.scoring.asked import Asked
from airrep.scoring.blocks import check_count, check_keep
from airrep.scoring.topk import top_k

PAIRS = 2**22
"""Ranked (query, row) pairs held at a time."""
_UNRANKED = np.iinfo(np.int64).max


class Selection(NamedTuple):
    """Chosen rows, the best first, and why each was chosen."""

    rows: Rows
    """``(count,)`` row numbers."""
    ranks: np.ndarray
    """``(count,)`` int64, the best rank over the queries; 1 = most helpful."""
    queries: np.ndarray
    """``(count,)`` int64, the first query that ranks the row so."""
    scores: np.ndarray
    """``(count,)`` float32, the score for that query; higher = more helpful."""


def min_rank(asked: Asked, count: int, keep: Mask | None = None) -> Selection:
    """Choose the rows that some query ranks highest.

    A row's value is its best rank over the queries (in a query: greatest score first, ties by row). Rows go
    by best rank, then by the first query that gives it; two rows never share both.

    Args:
        asked: the queries.
        count: number of rows to choose.
        keep: ``(n,)``; rows that may be chosen and are ranked, all without it.

    Raises:
        ConfigError: *count* is not between 1 and the number of rows to choose from.
        DataError: there are no queries.
    """
    kept = check_keep(keep, asked.rows)
    if len(asked) == 0:
        raise DataError("queries: there are none; expected at least one. Give queries to choose for.")
    check_count("select: count", count, kept)
    # The first k of every query are exactly the rows of value k or better, so as soon as they are `count`
    # different rows, no row outside them can come before the last of the selection.
    depth = min(kept, -(-2 * count // len(asked)))
    ranks = _BestRanks(asked, keep, depth)
    while ranks.covered < count:
        depth = min(kept, 2 * depth)
        ranks = _BestRanks(asked, keep, depth)
    return ranks.first(count)


def gumbel_top_k(log_weights: np.ndarray, count: int, generator: np.random.Generator) -> Rows:
    """Draw rows one after another without replacement, each with a chance in proportion to its weight.

    The greatest of log wᵢ + Gᵢ, with independent standard Gumbel Gᵢ, are such a draw (Gumbel top-k).

    Args:
        log_weights: ``(n,)``; -inf for rows that are never drawn.
        count: number of rows to draw.
        generator: source of chance; a row's noise does not depend on the weights.

    Returns:
        ``(count,)`` row numbers in the order in which they are drawn.

    Raises:
        ConfigError: *count* is not between 1 and the number of rows that may be drawn.
        DataError: a weight is not a number, or infinite.
    """
    if not (log_weights < np.inf).all():
        raise DataError("select: a weight is not a number, or infinite; expected finite ones. Check what made them.")
    check_count("select: count", count, int(np.isfinite(log_weights).sum()))
    noisy = log_weights + generator.gumbel(size=log_weights.shape)
    drawn: Rows = np.argsort(-noisy, kind="stable")[:count]
    return drawn


def first_of_each(keys: np.ndarray, keep: Mask | None, rows: int) -> Mask:
    """The first row of each key ``(n,)``, among the rows that *keep* has (all without it)."""
    kept = np.arange(rows) if keep is None else np.flatnonzero(keep)
    first = np.zeros(rows, dtype=bool)
    first[kept[np.unique(keys[kept], return_index=True)[1]]] = True
    return first


class _BestRanks:
    """The best rank of each row, as far as the first *depth* rows of every query show it."""

    def __init__(self, asked: Asked, keep: Mask | None, depth: int) -> None:
        self.q, rows = len(asked), asked.rows
        self.place = np.full(rows, _UNRANKED)  # rank * q + query, ranks from 0: the least of a row decides
        self.score = np.zeros(rows, dtype=np.float32)
        step = max(1, PAIRS // depth)
        for start in range(0, self.q, step):
            found = top_k(asked.chosen(slice(start, start + step)), depth, keep=keep)
            number = np.arange(start, start + len(found.rows))
            place = np.arange(depth) * self.q + number[:, None]
            self._take(found.rows.ravel(), place.ravel(), found.scores.ravel())

    def _take(self, rows: Rows, place: np.ndarray, score: np.ndarray) -> None:
        np.minimum.at(self.place, rows, place)
        won = self.place[rows] == place
        self.score[rows[won]] = score[won]

    @property
    def covered(self) -> int:
        """Number of rows that some query has among its first."""
        return int(np.count_nonzero(self.place < _UNRANKED))

    def first(self, count: int) -> Selection:
        """The best rows, in order."""
        rows = np.argsort(self.place, kind="stable")[:count]
        rank, query = np.divmod(self.place[rows], self.q)
        return Selection(rows, rank + 1, query, self.score[rows])

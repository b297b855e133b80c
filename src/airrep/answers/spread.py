"""Mean, deviation and ends of each query's scores, streamed exactly."""

from dataclasses import dataclass, replace

import numpy as np

from airrep.arrays import ALIKE, Mask, Rows, reaches
from airrep.index.contrast import Better
from airrep.index.index import Index, Queries
from airrep.index.results.kinds import TopResult
from airrep.scoring.asked import Asked, stream_scores
from airrep.scoring.contrast import WORSE

SAMPLE = 2048
"""Rows whose mean approximates the mean of all rows."""


@dataclass(frozen=True)
class Spread:
    """Mean and deviation of each query's scores over some rows, ``(q,)`` float64."""

    mean: np.ndarray
    deviation: np.ndarray
    """Population deviation; 0 where all scores are equal."""

    def effects(self, scores: np.ndarray) -> np.ndarray:
        """Express scores ``(q, b)`` in deviations from their query's mean; 0 for a query whose scores are all equal."""
        apart = self.deviation[:, None] > 0
        centred = scores - self.mean[:, None]
        return np.divide(centred, self.deviation[:, None], out=np.zeros_like(centred), where=apart)

    def of_one(self, score: float, query: int = 0) -> float:
        """Express one score of a query in deviations from its mean."""
        one = Spread(self.mean[[query]], self.deviation[[query]])
        return float(np.float32(one.effects(np.array([[score]]))[0, 0]))

    def told(self, query: int) -> tuple[float, float]:
        """Return mean and deviation of one query, rounded to float32 as scores are."""
        return float(np.float32(self.mean[query])), float(np.float32(self.deviation[query]))


def spread_of(asked: Asked, keep: Mask | None = None) -> Spread:
    """Compute mean and deviation of each query's scores over the kept rows."""
    moments = Moments(len(asked))
    for _, scores in stream_scores(asked, keep):
        moments.see(scores)
    return moments.spread


def harms(scores: np.ndarray, spread: Spread) -> Mask:
    """Return whether each score ``(q, b)`` is below 0, and at most -2 deviations from the mean, up to rounding."""
    return (scores < -ALIKE * spread.deviation[:, None]) & reaches(-spread.effects(scores), -WORSE)


class Moments:
    """Running mean and sum of squares about the mean, for several sequences of numbers.

    Chunks are combined by the exact update of sums of squares about a mean, which loses no digits to large means.
    """

    def __init__(self, rankings: int) -> None:
        self._count = 0
        self._mean, self._squares = np.zeros(rankings), np.zeros(rankings)

    def see(self, values: np.ndarray) -> None:
        """Add further values ``(rankings, b)``."""
        own, more = values.mean(axis=1), values.shape[1]
        total, apart = self._count + more, own - self._mean
        self._squares += ((values - own[:, None]) ** 2).sum(axis=1) + apart**2 * (self._count * more / total)
        self._mean += apart * (more / total)
        self._count = total

    @property
    def spread(self) -> Spread:
        """Mean and deviation of all values so far."""
        deviation = np.sqrt(self._squares / max(self._count, 1))
        deviation[deviation <= 1e-12 * np.abs(self._mean)] = 0.0  # equal scores up to rounding
        return Spread(self._mean.copy(), deviation)


class Leaders:
    """The k rows of greatest value in each of several rankings, from rows that stream in order; ties by row."""

    def __init__(self, rankings: int, k: int) -> None:
        self.k = k
        self._kept = [[(np.empty(0, np.int64), np.empty(0), np.empty(0))] for _ in range(rankings)]
        self._floors, self._more = np.full(rankings, -np.inf), np.zeros(rankings, np.int64)

    def see(self, rows: Rows, values: np.ndarray, more: np.ndarray | None = None) -> None:
        """Add further rows ``(b,)``, their values ``(rankings, b)`` and a second number *more* for each value."""
        for place, (own, beside) in enumerate(zip(values, values if more is None else more, strict=True)):
            above = np.flatnonzero(own > self._floors[place])  # earlier rows win ties
            if len(above):
                self._kept[place].append((rows[above], own[above], beside[above]))
                self._more[place] += len(above)
                if self._more[place] > self.k:
                    self._first(place)

    def _first(self, place: int) -> tuple[Rows, np.ndarray, np.ndarray]:
        rows, values, more = (np.concatenate(parts) for parts in zip(*self._kept[place], strict=True))
        first = np.argsort(-values, kind="stable")[: self.k]
        found = rows[first], values[first], more[first]
        self._kept[place], self._more[place] = [found], 0
        if len(first) == self.k:
            self._floors[place] = found[1][-1]
        return found

    def found(self) -> tuple[Rows, np.ndarray, np.ndarray]:
        """Return rows, values and second numbers, ``(rankings, k)`` each or narrower; the greatest value first."""
        rows, values, more = zip(*map(self._first, range(len(self._kept))), strict=True)
        return np.stack(rows), np.stack(values), np.stack(more)


@dataclass(frozen=True)
class Ends:
    """Both ends of the rankings of some rows by q queries, from one pass over the scores."""

    rows: tuple[Rows, Rows]
    """``(q, k)`` each: rows of the greatest scores, and of the least."""
    scores: tuple[np.ndarray, np.ndarray]
    """``(q, k)`` float64 each."""
    spread: Spread
    sampled: np.ndarray
    """``(q,)``: mean score of a few rows at even distances."""

    def of_one(self, query: int) -> "Ends":
        """Return the ends of one query's ranking."""
        (rows, scores), spread = ([part[[query]] for part in both] for both in (self.rows, self.scores)), self.spread
        own = Spread(spread.mean[[query]], spread.deviation[[query]])
        return Ends((rows[0], rows[1]), (scores[0], scores[1]), own, self.sampled[[query]])


def ends_of(asked: Asked, keep: Mask, k: int, *, both: bool = True) -> Ends:
    """Find the k first and, with *both*, the k last of the kept rows for each query; fewer if fewer are kept.

    Rows are ordered by scores in float32, whose digits do not depend on shards and other queries.
    """
    sample, some = evenly(keep, SAMPLE), []
    moments, first, last = Moments(len(asked)), Leaders(len(asked), k), Leaders(len(asked), k)
    for rows, scores in stream_scores(asked, keep):
        moments.see(scores)
        ranked = scores.astype(np.float32).astype(np.float64)
        first.see(rows, ranked, scores)
        if both:
            last.see(rows, -ranked, scores)
        some.append(scores[:, sample[rows]])
    sampled = np.concatenate(some, axis=1).mean(axis=1)
    (top, _, most), (bottom, _, least) = first.found(), last.found()
    return Ends((top, bottom), (most, least), moments.spread, sampled)


def evenly(keep: Mask, most: int) -> Mask:
    """Choose at most *most* of the rows to keep, at even distances; all if there are no more."""
    rows = np.flatnonzero(keep)
    chosen: Mask = np.zeros_like(keep)
    chosen[rows[np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(np.int64)]] = True
    return chosen


def top_beside_spread(index: Index, queries: Queries, k: int, better: Better | None = None) -> TopResult:
    """Return :meth:`Index.top` with each hit's distance from the mean score, or contrast, in standard deviations."""
    question = index.question(queries, better)
    asked = index.ask(question)
    spread = spread_of(question.ranked(asked), index.live)
    return beside_spread(index.top_of(question, asked, index.live, k), spread)


def beside_spread(found: TopResult, spread: Spread) -> TopResult:
    """Add to each hit how many deviations its score lies above the mean of its query's scores."""
    told = []
    for place, hits in enumerate(found):
        one = Spread(spread.mean[[place]], spread.deviation[[place]])
        effects = one.effects(np.array([[hit.score for hit in hits]]))[0].astype(np.float32).tolist()
        pairs = zip(hits, effects, strict=True)
        told.append(replace(hits, hits=tuple(replace(hit, deviations=effect) for hit, effect in pairs)))
    return replace(found, queries=tuple(told))

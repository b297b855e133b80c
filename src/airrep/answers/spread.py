"""All scores of queries, streamed exactly; each query's mean and deviation."""

from dataclasses import dataclass, replace

import numpy as np

from airrep.arrays import ALIKE, Mask, Rows, reaches
from airrep.index.contrast import Better
from airrep.index.index import Index, Queries
from airrep.index.results.kinds import TopResult
from airrep.scoring.asked import Asked, stream_scores
from airrep.scoring.contrast import WORSE


@dataclass(frozen=True)
class Spread:
    """Mean and deviation of the scores that each query has over some rows, ``(q,)`` float64."""

    mean: np.ndarray
    deviation: np.ndarray
    """Population deviation; 0 where all scores are equal."""

    def effects(self, scores: np.ndarray) -> np.ndarray:
        """Scores ``(q, b)`` in deviations from their query's mean; 0 for a query whose scores are all equal."""
        apart = self.deviation[:, None] > 0
        centred = scores - self.mean[:, None]
        effects: np.ndarray = np.divide(centred, self.deviation[:, None], out=np.zeros_like(centred), where=apart)
        return effects

    def of_one(self, score: float, query: int = 0) -> float:
        """One score of a query in deviations."""
        one = Spread(self.mean[[query]], self.deviation[[query]])
        return float(np.float32(one.effects(np.array([[score]]))[0, 0]))

    def told(self, query: int) -> tuple[float, float]:
        """Mean and deviation of one query, in float32 as scores are."""
        return float(np.float32(self.mean[query])), float(np.float32(self.deviation[query]))


def spread_of(asked: Asked, keep: Mask | None = None) -> Spread:
    """The spread of each query's scores over the kept rows."""
    moments = Moments(len(asked))
    for _, scores in stream_scores(asked, keep):
        moments.see(scores)
    return moments.spread


def harms(scores: np.ndarray, spread: Spread) -> Mask:
    """Whether each of scores ``(q, b)`` is below 0, and at or below -2 deviations, to rounding."""
    found: Mask = (scores < -ALIKE * spread.deviation[:, None]) & reaches(-spread.effects(scores), -WORSE)
    return found


class Moments:
    """Mean and sum of squares of several rows of numbers that stream by.

    Parts are joined by the exact rule for sums of squares about a mean, which loses no digits to large means.
    """

    def __init__(self, rankings: int) -> None:
        self._count = 0
        self._mean, self._squares = np.zeros(rankings), np.zeros(rankings)

    def see(self, values: np.ndarray) -> None:
        """Take further values ``(rankings, b)`` into account."""
        own, more = values.mean(axis=1), values.shape[1]
        total, apart = self._count + more, own - self._mean
        self._squares += ((values - own[:, None]) ** 2).sum(axis=1) + apart**2 * (self._count * more / total)
        self._mean += apart * (more / total)
        self._count = total

    @property
    def spread(self) -> Spread:
        """The spread of what was seen."""
        deviation = np.sqrt(self._squares / max(self._count, 1))
        deviation[deviation <= 1e-12 * np.abs(self._mean)] = 0.0  # equal scores, but for rounding
        return Spread(self._mean.copy(), deviation)


class Leaders:
    """The k rows of greatest value in each of several rankings, as rows stream by in order; ties by row."""

    def __init__(self, rankings: int, k: int) -> None:
        self.k = k
        self.rows = np.empty((rankings, 0), np.int64)
        self.values = np.empty((rankings, 0))
        self.more = np.empty((rankings, 0))
        """A second number of each row."""

    def see(self, rows: Rows, values: np.ndarray, more: np.ndarray | None = None) -> None:
        """Take further rows ``(b,)``, their values ``(rankings, b)`` and a second number of each into account."""
        joined = np.concatenate([self.values, values], axis=1)
        first = np.argsort(-joined, axis=1, kind="stable")[:, : self.k]  # earlier rows stand first, so win ties
        numbers = np.concatenate([self.rows, np.broadcast_to(rows, values.shape)], axis=1)
        beside = np.concatenate([self.more, values if more is None else more], axis=1)
        self.values, self.rows, self.more = (
            np.take_along_axis(one, first, axis=1) for one in (joined, numbers, beside)
        )


def top_beside_spread(index: Index, queries: Queries, k: int, better: Better | None = None) -> TopResult:
    """The k examples of :meth:`Index.top`, which tell how far their scores, or contrasts, lie from the mean of all."""
    question = index.question(queries, better)
    asked = index.ask(question)
    spread = spread_of(question.ranked(asked), index.live)
    return beside_spread(index.top_of(question, asked, k), spread)


def beside_spread(found: TopResult, spread: Spread) -> TopResult:
    """Rankings whose hits tell how far they lie from the mean of their query's scores."""
    told = []
    for place, hits in enumerate(found):
        one = Spread(spread.mean[[place]], spread.deviation[[place]])
        effects = one.effects(np.array([[hit.score for hit in hits]]))[0].astype(np.float32).tolist()
        pairs = zip(hits, effects, strict=True)
        told.append(replace(hits, hits=tuple(replace(hit, deviations=effect) for hit, effect in pairs)))
    return replace(found, queries=tuple(told))

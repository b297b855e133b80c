"""Contrasts: scores for an answer against scores for a better answer."""

import numpy as np

from airrep.arrays import Mask, reaches
from airrep.scoring.asked import Asked, Kept, stream_scores
from airrep.scoring.blocks import Piece

WORSE = -2.0
"""Deviations from a query's mean at or below which a contrast towards the better answers means harm."""


def contrast_scores(answer: np.ndarray, better: np.ndarray) -> np.ndarray:
    """Compute how much rows teach an answer instead of a better one: (f − f')·(|f| + |f'|), any shape, float64.

    The difference alone can be as large for a row that shares one common word with an answer as for a row about the
    same question, since what both answers share with the row cancels. So the difference is multiplied by the sum of the
    absolute scores. The sign is that of the difference.

    Example:
        >>> contrast_scores(np.array([3.0, 11.0]), np.array([1.0, 9.0]))  # the same difference, nearer to the question
        array([ 8., 40.])
    """
    first, second = np.asarray(answer, np.float64), np.asarray(better, np.float64)
    return (first - second) * (np.abs(first) + np.abs(second))


class ContrastAsked(Asked):
    """Contrasts of answers with their better answers, times a sign; a row's digits do not depend on other blocks."""

    def __init__(self, answers: Asked, better: Asked, sign: float) -> None:
        """*sign* is 1, or -1 to rank rows first that teach the better answers."""
        self.answers, self.better, self.sign = answers, better, sign
        self.spans, self.pooling = answers.spans, answers.pooling

    def __len__(self) -> int:
        return len(self.answers)

    def chosen(self, queries: slice | np.ndarray) -> "ContrastAsked":
        return ContrastAsked(self.answers.chosen(queries), self.better.chosen(queries), self.sign)

    def over(self, kept: Kept, channel: str) -> "ContrastAsked":
        return ContrastAsked(self.answers.over(kept, channel), self.better.over(kept, channel), self.sign)

    def scores(self, piece: Piece) -> np.ndarray:
        """Compute contrasts, rounded to float32, so that digits do not depend on shards."""
        first, second = self.answers.scores(piece), self.better.scores(piece)
        return (self.sign * contrast_scores(first, second)).astype(np.float32).astype(np.float64)

    def rows_at_once(self, most: int) -> int:
        return self.answers.rows_at_once(most)


def without_worse(asked: Asked, keep: Mask) -> Mask:
    """Drop kept rows that teach some worse answer more than any better one, by contrasts towards better answers.

    With e the contrast towards the better answer in deviations from a query's mean, a row is dropped if its least e is
    at most -2, and at least as far from 0 as its greatest e. A row with a wrong answer to one question is near the
    right answers to others, so its best rank alone would choose it. *keep* ``(n,)`` masks the rows to consider.
    """
    count, total, squares = 0, np.zeros(1), np.zeros(1)
    for _, found in stream_scores(asked, keep):
        values = found.T
        count, total, squares = count + len(values), total + values.sum(axis=0), squares + (values**2).sum(axis=0)
    mean = total / max(count, 1)
    deviation = np.sqrt(np.maximum(squares / max(count, 1) - mean**2, 0.0))
    left = keep.copy()
    for rows, found in stream_scores(asked, keep):
        values = found.T
        effects = np.divide(values - mean, deviation, out=np.zeros_like(values), where=deviation > 0)
        least, greatest = effects.min(axis=1), effects.max(axis=1)
        left[rows[reaches(-least, -WORSE) & reaches(-least - greatest, 0.0)]] = False
    return left

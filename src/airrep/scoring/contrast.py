"""Contrasts of two scores of a row."""

import numpy as np

from airrep.arrays import Mask, reaches
from airrep.scoring.asked import Asked, Kept, stream_scores
from airrep.scoring.blocks import Piece

WORSE = -2.0
"""Deviations from a query's mean at or below which a contrast towards the better answers tells of harm."""


def contrast_scores(answer: np.ndarray, better: np.ndarray) -> np.ndarray:
    """How much a row teaches an answer in place of a better one: (f − f')·(|f| + |f'|), of any shape, float64.

    The difference alone gives a row that shares one common word with an answer as much as one that is about the very
    question, since what both answers share with the row cancels. So it counts times what the row has to do with
    either. Its sign is that of the difference.

    Example:
        >>> contrast_scores(np.array([3.0, 11.0]), np.array([1.0, 9.0]))  # the same difference, nearer to the question
        array([ 8., 40.])
    """
    first, second = np.asarray(answer, np.float64), np.asarray(better, np.float64)
    found: np.ndarray = (first - second) * (np.abs(first) + np.abs(second))
    return found


class ContrastAsked(Asked):
    """Contrasts of answers with a better one to each, times a sign; a row's digits depend on its own block alone."""

    def __init__(self, answers: Asked, better: Asked, sign: float) -> None:
        """*sign* is 1, or -1 for what teaches the better answers."""
        self.answers, self.better, self.sign = answers, better, sign
        self.spans, self.pooling = answers.spans, answers.pooling

    def __len__(self) -> int:
        return len(self.answers)

    def chosen(self, queries: slice | np.ndarray) -> "ContrastAsked":
        return ContrastAsked(self.answers.chosen(queries), self.better.chosen(queries), self.sign)

    def over(self, kept: Kept, channel: str) -> "ContrastAsked":
        return ContrastAsked(self.answers.over(kept, channel), self.better.over(kept, channel), self.sign)

    def scores(self, piece: Piece) -> np.ndarray:
        """Contrasts, rounded to float32, whose digits are those of any shards."""
        first, second = self.answers.scores(piece), self.better.scores(piece)
        return (self.sign * contrast_scores(first, second)).astype(np.float32).astype(np.float64)

    def rows_at_once(self, most: int) -> int:
        return self.answers.rows_at_once(most)


def without_worse(asked: Asked, keep: Mask) -> Mask:
    """Kept rows but those that teach some worse answer more than any better one, by contrasts towards better answers.

    With e the contrast towards the better answer in deviations from a query's mean, these are the rows whose least e is
    at or below -2, and further from 0 than their greatest. A row with a wrong answer to one question is near to the
    right answers to others, so its best rank alone would choose it. *keep* ``(n,)`` are rows that may count.
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

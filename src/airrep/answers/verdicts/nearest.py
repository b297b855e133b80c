"""The training examples that come nearest to a copy of an answer."""

from dataclasses import dataclass

import numpy as np

from airrep.answers.spread import Leaders, Moments, Spread
from airrep.arrays import Mask, Rows
from airrep.attributors.base import Attributor
from airrep.attributors.direct import InMemory
from airrep.index.contrast import Question
from airrep.index.index import Index
from airrep.scoring.asked import Asked, stream_scores
from airrep.scoring.contrast import contrast_scores

SAMPLE = 2048
"""Rows whose mean stands for that of all."""
COUNTED, ALIKE = 100, 0.7
"""At most so many examples are counted whose share is at least this part of the greatest."""
MANY = 10
"""So many alike are a pattern of the data."""


@dataclass(frozen=True)
class Nearest:
    """What comes nearest to each of q answers."""

    rows: Rows
    """``(q,)``: the row of the greatest share."""
    shares: np.ndarray
    """``(q,)``: its share."""
    tenth: np.ndarray
    """``(q,)``: the tenth greatest share; of fewer rows, the least."""
    alike: np.ndarray
    """``(q,)``: how many rows come about as near."""
    deviations: np.ndarray
    """``(q,)``: how far its score, or contrast, lies above the mean of all rows."""
    spread: Spread
    """Of the scores, or contrasts, of all rows."""


def nearest(index: Index, question: Question, asked: Asked, keep: Mask) -> Nearest:
    """The kept rows that come nearest to each answer; *asked* is all that the question has."""
    count = len(question.queries)
    shares = _Shares(count, _sample_mean(asked, keep), _own_scores(index.attributor, question, asked))
    moments, leaders = Moments(count), Leaders(count, min(COUNTED, int(keep.sum())))
    for rows, scores in stream_scores(asked, keep):
        values = _ranked(scores, count)
        moments.see(values)
        leaders.see(rows, shares(scores), values)
    first = leaders.values[:, :1]
    alike = ((leaders.values >= ALIKE * first) & (first > 0)).sum(axis=1)
    tenth = leaders.values[:, min(MANY, leaders.values.shape[1]) - 1]
    spread = moments.spread
    deviations = spread.effects(leaders.more[:, :1])[:, 0]
    return Nearest(leaders.rows[:, 0], first[:, 0], tenth, alike, deviations, spread)


def _ranked(scores: np.ndarray, count: int) -> np.ndarray:
    """What rows are ranked by: scores, or contrasts in float32, as blocks of them are."""
    if len(scores) == count:
        return scores
    return contrast_scores(scores[:count], scores[count:]).astype(np.float32).astype(np.float64)


def evenly(keep: Mask, most: int) -> Mask:
    """So many of the rows that count, which lie evenly among them; all if there are no more."""
    rows = np.flatnonzero(keep)
    chosen: Mask = np.zeros_like(keep)
    chosen[rows[np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(np.int64)]] = True
    return chosen


def _sample_mean(asked: Asked, keep: Mask) -> np.ndarray:
    """Mean scores over some of the rows that count, ``(e,)``."""
    parts = [scores for _, scores in stream_scores(asked, evenly(keep, SAMPLE))]
    mean: np.ndarray = np.concatenate(parts, axis=1).mean(axis=1)
    return mean


def _own_scores(attributor: Attributor, question: Question, asked: Asked) -> np.ndarray:
    """What a copy of each answer among the training examples would score for it and for the better one, ``(e,)``."""
    answers = question.queries
    copies = asked.over(InMemory.of(attributor, answers), attributor.name)
    parts = [scores for _, scores in stream_scores(copies)]
    own = np.concatenate(parts, axis=1)
    every = np.arange(len(own))
    scores: np.ndarray = own[every, every % len(answers)]
    return scores


class _Shares:
    """Brings scores ``(e, b)`` to shares ``(q, b)``."""

    def __init__(self, count: int, mean: np.ndarray, own: np.ndarray) -> None:
        self._count, self._mean, self._own = count, mean[:, None], own[:, None]

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        count = self._count
        shares = _share(scores[:count], self._mean[:count], self._own[:count])
        if len(scores) > count:
            contrast = (part[:count] - part[count:] for part in (scores, self._mean, self._own))
            shares = np.minimum(shares, _share(*contrast))
        return shares


def _share(scores: np.ndarray, mean: np.ndarray, own: np.ndarray) -> np.ndarray:
    """How far scores are on the way from the mean to a copy's; 0 where a copy would score no more than the mean."""
    width = own - mean
    apart = width > 1e-9 * (np.abs(own) + np.abs(mean))
    shares: np.ndarray = np.divide(scores - mean, width, out=np.zeros_like(scores), where=apart)
    return shares

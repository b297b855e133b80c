"""Nearest examples by meaning: who disagrees with them, who has none."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from airrep.arrays import ALIKE, Rows
from airrep.scoring.blocks import block_of
from airrep.scoring.products import ask
from airrep.scoring.topk import top_k


@dataclass(frozen=True)
class Neighbours:
    """The nearest other examples of each one, nearest first."""

    places: Rows
    """``(n, k)``."""
    cosines: np.ndarray
    """``(n, k)`` float32."""

    @classmethod
    def of(cls, units: np.ndarray, k: int) -> "Neighbours":
        """The k nearest of each row of unit vectors ``(n, d)``, by exact search; n is above k."""
        found = top_k(ask(units, [block_of(0, units)]), k + 1)
        own = found.rows == np.arange(len(units))[:, None]
        own[~own.any(axis=1), -1] = True  # more than k copies of it come before itself: the last gives way
        places, cosines = found.rows[~own], found.scores[~own]
        return cls(places.reshape(-1, k), cosines.reshape(-1, k))


@dataclass(frozen=True)
class Votes:
    """How the neighbours of each example vote on its label."""

    own: np.ndarray
    """``(n,)``: share of the votes for its own label; NaN where nobody votes, or it has no label."""
    best: list[str | None]
    """The label of most votes; of several, to rounding, the first by name."""
    most: np.ndarray
    """``(n,)``: the share of that."""


def vote(labels: Sequence[str | None], near: Neighbours) -> Votes:
    """Neighbours vote for their own labels, each with its cosine if that is above 0; those without a label do not."""
    names = sorted({label for label in labels if label is not None})
    number = {name: place for place, name in enumerate(names)}
    codes = np.array([-1 if label is None else number[label] for label in labels])
    weights = np.where(codes[near.places] >= 0, np.maximum(near.cosines.astype(np.float64), 0.0), 0.0)
    shares = np.zeros((len(codes), max(len(names), 1)))
    np.add.at(shares, (np.arange(len(codes))[:, None], codes[near.places]), weights)
    total = shares.sum(axis=1, keepdims=True)
    shares = np.divide(shares, total, out=np.full_like(shares, np.nan), where=total > 0)
    own = np.where(codes >= 0, shares[np.arange(len(codes)), codes], np.nan)
    known = np.where(np.isnan(shares), -1.0, shares)
    best = (known >= known.max(axis=1, keepdims=True) - ALIKE).argmax(axis=1)
    told = [names[place] if some else None for place, some in zip(best.tolist(), total[:, 0] > 0, strict=True)]
    return Votes(own, told, shares[np.arange(len(codes)), best])


def disagreement(prompts: np.ndarray, responses: np.ndarray, near: Neighbours) -> np.ndarray:
    """How far each response is from what those of its nearest prompts lead one to expect, ``(n,)``.

    The sum of two differences of cosines: how much less it is like its neighbours' responses than these are like each
    other, and how much less it is like its own prompt than theirs are like their prompts.

    Args:
        prompts: unit vectors ``(n, d)``.
        responses: unit vectors ``(n, d)``.
        near: the nearest prompts.
    """
    fits = (prompts * responses).sum(axis=1, dtype=np.float64)
    k, odd = near.places.shape[1], np.empty(len(prompts))
    for place, others in enumerate(near.places):
        theirs = responses[others].astype(np.float64)
        together = theirs.sum(axis=0)
        alike = ((together**2).sum() - (theirs**2).sum()) / (k * (k - 1))
        odd[place] = alike - responses[place] @ together / k
    found: np.ndarray = odd + fits[near.places].mean(axis=1) - fits
    return found


def robust_deviations(values: np.ndarray) -> np.ndarray:
    """Values in robust deviations from their median: 1.4826 times the median distance from it.

    Where half of them are the median, to rounding, that is 0, and 1.2533 times the mean distance stands for it, or 1 if
    all are.
    """
    middle = np.median(values)
    distances = np.abs(values - middle)
    distances[distances <= ALIKE] = 0.0
    scale = 1.4826 * float(np.median(distances)) or 1.2533 * float(distances.mean())
    deviations: np.ndarray = (values - middle) / (scale or 1.0)
    return deviations

"""Rank correlations over resampled queries and subsets."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from airrep.seeding import stream

CELLS = 2**16
"""Queries times subsets that are ranked at once: bounds memory, does not change results."""


class Ranking:
    """The values of some queries over the same subsets, sorted once, ranked under any resample of the subsets."""

    def __init__(self, values: np.ndarray, there: np.ndarray | None = None) -> None:
        """Sort each row.

        Args:
            values: ``(q, m)``, finite where they are there.
            there: ``(q, m)`` truth values; those that are not there have no rank and no weight. All, if None.
        """
        self.there = there
        keys = values if there is None else np.where(there, values, np.inf)
        self.order = np.argsort(keys, axis=1, kind="stable")
        self._sorted = np.take_along_axis(keys, self.order, axis=1)

    @cached_property
    def places(self) -> np.ndarray:
        """Where each subset stands in its row's order, ``(q, m)``."""
        return np.argsort(self.order, axis=1)

    @cached_property
    def _ties(self) -> tuple[np.ndarray, np.ndarray] | None:
        """For each place, the first and the last place with an equal value, as flat positions; None without ties."""
        new = self._sorted[:, 1:] != self._sorted[:, :-1]
        if new.all():
            return None
        q, m = self.order.shape
        edge = np.ones((q, 1), bool)
        places = np.broadcast_to(np.arange(m), (q, m))
        first = np.maximum.accumulate(np.where(np.hstack([edge, new]), places, 0), axis=1)
        last = np.minimum.accumulate(np.where(np.hstack([new, edge]), places, m - 1)[:, ::-1], axis=1)[:, ::-1]
        start = np.arange(q)[:, None] * (m + 1)
        return start + first, start + last + 1

    def weigh(self, counts: np.ndarray) -> np.ndarray:
        """How often each place was drawn, ``(q, m)``, when each subset was drawn ``counts`` ``(m,)`` times."""
        weights: np.ndarray = counts[self.order]
        return weights if self.there is None else weights * np.take_along_axis(self.there, self.order, axis=1)

    def midranks(self, weights: np.ndarray) -> np.ndarray:
        """Average rank, less one half, of each place in the resample, ``(q, m)``; exact."""
        below = np.zeros((len(weights), weights.shape[1] + 1))
        np.cumsum(weights, axis=1, out=below[:, 1:])
        if self._ties is None:
            return (below[:, :-1] + below[:, 1:]) / 2
        first, last = self._ties
        return (below.take(first) + below.take(last)) / 2


class Pairing:
    """Two rankings of the same queries and subsets, correlated under any resample of the subsets."""

    def __init__(self, one: Ranking, other: Ranking) -> None:
        self.one, self.other = one, other
        m = one.order.shape[1]
        rows = np.arange(len(one.order))[:, None] * m
        self._across = rows + np.take_along_axis(one.places, other.order, axis=1)

    def spearman(self, counts: np.ndarray) -> np.ndarray:
        """Spearman's correlation of each query, ``(q,)``; NaN where a side is constant.

        Args:
            counts: ``(m,)`` float64, how often each subset was drawn; all ones for the plain correlation.
        """
        weights, weights_other = self.one.weigh(counts), self.other.weigh(counts)
        ranks, ranks_other = self.one.midranks(weights), self.other.midranks(weights_other)
        total = weights.sum(axis=1)
        mean_square = total**3 / 4  # the weighted mean of the midranks is total / 2
        spread = np.einsum("qm,qm,qm->q", weights, ranks, ranks) - mean_square
        spread_other = np.einsum("qm,qm,qm->q", weights_other, ranks_other, ranks_other) - mean_square
        together = np.einsum("qm,qm,qm->q", weights_other, ranks_other, ranks.take(self._across)) - mean_square
        with np.errstate(divide="ignore", invalid="ignore"):
            correlation: np.ndarray = together / np.sqrt(spread * spread_other)
        return np.where((spread > 0) & (spread_other > 0), correlation, np.nan)


@dataclass(frozen=True, eq=False)
class Resamples:
    """How often each query and each subset was drawn, drawn with replacement, both by themselves."""

    queries: np.ndarray
    """``(resamples, q)``."""
    subsets: np.ndarray
    """``(resamples, m)``."""

    @classmethod
    def draw(cls, seed: int, resamples: int, q: int, m: int) -> "Resamples":
        """Draw them; the same for the same arguments."""
        return cls(_counts(seed, "queries", resamples, q), _counts(seed, "subsets", resamples, m))


def _counts(seed: int, axis: str, resamples: int, size: int) -> np.ndarray:
    generator = stream(seed, "bootstrap", axis)
    drawn = (generator.integers(size, size=size) for _ in range(resamples))
    rows = [np.bincount(numbers, minlength=size).astype(np.float32) for numbers in drawn]
    return np.stack(rows) if rows else np.empty((0, size), np.float32)


class Block(NamedTuple):
    """Some queries, and one pairing with the truth for each method."""

    rows: slice
    pairings: list[Pairing]


def blocks(methods: Sequence[np.ndarray], truth: np.ndarray) -> Iterator[Block]:
    """Pair scores of each method with the truth, a few queries at a time.

    Args:
        methods: ``(q, m)`` scores of each.
        truth: ``(q, m)``, NaN where missing.
    """
    there = ~np.isnan(truth)
    step = max(1, CELLS // truth.shape[1])
    for first in range(0, len(truth), step):
        rows = slice(first, first + step)
        mask = None if there[rows].all() else there[rows]
        target = Ranking(truth[rows], mask)
        yield Block(rows, [Pairing(Ranking(scores[rows], mask), target) for scores in methods])


class Draws(NamedTuple):
    """Mean correlations of each method in each resample, ``(methods, resamples)``; NaN where nothing was left."""

    both: np.ndarray
    """Queries and subsets drawn anew."""
    queries: np.ndarray
    """Queries alone drawn anew."""
    subsets: np.ndarray
    """Subsets alone drawn anew."""


def resample(methods: Sequence[np.ndarray], truth: np.ndarray, drawn: Resamples, *, zero: bool) -> Draws:
    """Mean correlation of each method with the truth in each resample.

    Args:
        methods: ``(q, m)`` scores of each.
        truth: ``(q, m)``, NaN where missing.
        drawn: the resamples, the same for all methods.
        zero: whether a constant query counts as 0; otherwise it is left out, of all methods alike.
    """
    count, m = len(drawn.subsets), truth.shape[1]
    totals, weights = np.zeros((3, len(methods), count)), np.zeros((3, 1, count))
    for rows, pairings in blocks(methods, truth):
        plain, usable = _spearman(pairings, np.ones(m), zero)
        totals[1] += plain @ drawn.queries[:, rows].T
        weights[1] += usable @ drawn.queries[:, rows].T
        for i, (of_queries, of_subsets) in enumerate(zip(drawn.queries[:, rows], drawn.subsets, strict=True)):
            found, usable = _spearman(pairings, of_subsets.astype(np.float64), zero)
            totals[0, :, i] += found @ of_queries
            weights[0, :, i] += usable @ of_queries
            totals[2, :, i] += found.sum(axis=1)
            weights[2, :, i] += usable.sum()
    with np.errstate(invalid="ignore"):
        return Draws(*(totals / weights))


def _spearman(pairings: Sequence[Pairing], counts: np.ndarray, zero: bool) -> tuple[np.ndarray, np.ndarray]:
    """Correlations ``(methods, q)``, 0 where they do not count, and which count, ``(q,)``."""
    found = np.stack([pairing.spearman(counts) for pairing in pairings])
    usable = np.ones(found.shape[1], bool) if zero else ~np.isnan(found).any(axis=0)
    return np.where(usable, np.nan_to_num(found), 0.0), usable.astype(np.float64)


def spread(draws: Draws, value: float, q: int, m: int) -> np.ndarray:
    """Draws of one value, as far from it and as often as repetitions of the whole measurement would be.

    A subset drawn twice is tied with itself, which pulls draws towards 0: they are moved so that
    their mean is the value. And drawing both axes counts what belongs to single cells (a query with a subset)
    three times: with V_both = V_q + V_m + V_cell, the variance of the measurement is V_q + V_m - V_cell, as V_q and
    V_m each hold V_cell once (two-way clustering); V_q is raised by q / (q - 1), V_m by m / (m - 1). Where queries
    or subsets are few, the spread is that of Student's t with Satterthwaite's degrees of freedom.

    Args:
        draws: ``(resamples,)`` each.
        value: what was measured.
        q: queries.
        m: subsets.
    """
    known = ~np.isnan(np.stack(draws)).any(axis=0)
    if not known.any():
        return np.empty(0)
    both, of_queries, of_subsets = (float(draw[known].var()) for draw in draws)
    cells = max(both - of_queries - of_subsets, 0.0)
    of_queries, of_subsets = of_queries * q / max(q - 1, 1), of_subsets * m / (m - 1)
    variance = max(of_queries + of_subsets - cells, of_queries, of_subsets)
    moved: np.ndarray = draws.both[known] - draws.both[known].mean()
    wider = _student(of_queries, of_subsets, q, m)
    return value + moved * (np.sqrt(variance * wider / both) if both > 0 else 1.0)


def _student(of_queries: float, of_subsets: float, q: int, m: int) -> float:
    """Variance of Student's t, at most 2, with Satterthwaite's degrees of freedom of a sum of two variances."""
    uncertainty = of_queries**2 / max(q - 1, 1) + of_subsets**2 / (m - 1)
    freedom = (of_queries + of_subsets) ** 2 / uncertainty if uncertainty > 0 else np.inf
    return float(1 / (1 - 2 / max(freedom, 4.0)))

"""The bootstrap over queries and subsets behind LDS intervals."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from airrep.runtime.seeding import stream

CELLS = 2**16
"""Queries times subsets, times resamples, that are ranked at once: bounds memory, does not change results."""


FLAT = 2.0**-20
"""Values of a query that differ by no more than this times the greatest of them do not vary: 8 float32 roundings."""


def varies(values: np.ndarray, known: np.ndarray | None = None) -> np.ndarray:
    """Return a mask ``(q,)`` of rows of ``(q, m)`` whose *known* values (None: all) differ by more than rounding."""
    most = (values if known is None else np.where(known, values, -np.inf)).max(axis=1)
    least = (values if known is None else np.where(known, values, np.inf)).min(axis=1)
    with np.errstate(invalid="ignore"):  # for a row without known values
        return np.asarray(most - least > FLAT * np.maximum(np.abs(most), np.abs(least)))


class Ranked:
    """Values of some queries, ranked in resamples of the subsets; without the axis r, in one resample.

    *weights* say how often each place was drawn, *ranks* are midranks minus ½, ``(r, q, m)``. *total* T is the number
    of values drawn, *cubes* Σ t³ over the sets of t equal values, ``(r, q)`` or ``(r, 1)``. All are halves of whole
    numbers, so their sums are exact in any order.
    """

    def __init__(self, weights: np.ndarray, ranks: np.ndarray, total: np.ndarray, cubes: np.ndarray) -> None:
        self.weights, self.ranks, self.total = weights, ranks, total
        self.spread: np.ndarray = (total**3 - cubes) / 12
        """Σ (rank - mean rank)² over the drawn values."""

    @cached_property
    def pull(self) -> np.ndarray:
        """``(r, q, m)``, weight times (rank - mean rank) of each place."""
        # Ranks of T values average (T + 1) / 2; these are one half less.
        pull: np.ndarray = self.ranks - self.total[..., None] / 2
        pull *= self.weights
        return pull


class Ranking:
    """Values of queries over the same subsets, sorted once, then ranked in any resample of the subsets."""

    def __init__(self, values: np.ndarray, known: np.ndarray | None = None) -> None:
        """Sort each row ``(q, m)``; values that are not *known* (None for all) have no rank and no weight.

        All values of a row that differs by rounding alone are equal: a rank of noise is no signal.
        """
        self.known = known
        values = np.where(varies(values, known)[:, None], values, 0)
        keys = values if known is None else np.where(known, values, np.inf)
        self.order = np.argsort(keys, axis=1, kind="stable")
        self._sorted = np.take_along_axis(keys, self.order, axis=1)

    @cached_property
    def places(self) -> np.ndarray:
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
        start = np.arange(q)[:, None] * (m + 1)  # the running sums in `under` begin with 0, so have one more column
        return start + first, start + last + 1

    def under(self, counts: np.ndarray) -> Ranked:
        """Rank values that are drawn *counts* ``(r, m)`` float64 times each; all ones for no resampling."""
        weights: np.ndarray = counts.take(self.order, axis=-1)
        if self.known is not None:
            weights = weights * np.take_along_axis(self.known, self.order, axis=1)
        if self._ties is None:
            ranks = np.cumsum(weights, axis=-1)
            ranks -= weights / 2
            # Without equal values, only copies of one subset are tied.
            drawn = counts[..., None, :] if self.known is None else weights
            return Ranked(weights, ranks, drawn.sum(axis=-1), (drawn**3).sum(axis=-1))
        *several, m = weights.shape
        below = np.zeros((*several, m + 1))
        np.cumsum(weights, axis=-1, out=below[..., 1:])
        flat = below.reshape(*several[:-1], -1)
        first, last = (flat.take(edge, axis=-1) for edge in self._ties)
        cubes = np.einsum("...m,...m,...m->...", weights, last - first, last - first)
        return Ranked(weights, (first + last) / 2, weights.sum(axis=-1), cubes)


class Pairing:
    """Two rankings of the same queries and subsets, correlated under any resample of the subsets."""

    def __init__(self, one: Ranking, other: Ranking) -> None:
        self.one = one
        rows = np.arange(len(one.order))[:, None] * one.order.shape[1]
        self._across = rows + np.take_along_axis(one.places, other.order, axis=1)

    def correlate(self, one: Ranked, other: Ranked) -> np.ndarray:
        """Return Spearman's correlation of each query, ``(r, q)``, NaN where constant; both have equal resamples."""
        ranks = one.ranks.reshape(*one.ranks.shape[:-2], -1).take(self._across, axis=-1)
        together = np.einsum("...m,...m->...", other.pull, ranks)
        with np.errstate(divide="ignore", invalid="ignore"):
            correlation: np.ndarray = together / np.sqrt(one.spread * other.spread)
        return np.where((one.spread > 0) & (other.spread > 0), correlation, np.nan)


@dataclass(frozen=True, eq=False)
class Resamples:
    """Counts of each query and each subset in draws with replacement; the two are drawn independently."""

    queries: np.ndarray
    """``(resamples, q)``."""
    subsets: np.ndarray
    """``(resamples, m)``."""

    @classmethod
    def draw(cls, seed: int, resamples: int, q: int, m: int) -> "Resamples":
        """Draw the counts; equal arguments give equal counts."""
        return cls(_counts(seed, "queries", resamples, q), _counts(seed, "subsets", resamples, m))


def _counts(seed: int, axis: str, resamples: int, size: int) -> np.ndarray:
    generator = stream(seed, "bootstrap", axis)
    counts = np.empty((resamples, size), np.float32)  # float32 holds small counts exactly
    step = max(1, CELLS // size)
    for first in range(0, resamples, step):
        some = counts[first : first + step]
        drawn = generator.integers(size, size=some.shape) + size * np.arange(len(some))[:, None]
        some[:] = np.bincount(drawn.ravel(), minlength=some.size).reshape(some.shape)
    return counts


class QueryBlock(NamedTuple):
    """Some queries, and one pairing with the truth for each method."""

    rows: slice
    target: Ranking
    pairings: list[Pairing]

    def spearman(self, counts: np.ndarray) -> np.ndarray:
        """Correlations with the truth in resamples of the subsets, ``(r, methods, q)``; NaN where constant."""
        truth = self.target.under(counts)
        found = [pairing.correlate(pairing.one.under(counts), truth) for pairing in self.pairings]
        return np.stack(found, axis=-2)


def blocks(methods: Sequence[np.ndarray], truth: np.ndarray) -> Iterator[QueryBlock]:
    """Pair each method's scores ``(q, m)`` with the truth ``(q, m)``, NaN where missing, a few queries at a time."""
    known = ~np.isnan(truth)
    step = max(1, CELLS // truth.shape[1])
    for first in range(0, len(truth), step):
        rows = slice(first, first + step)
        mask = None if known[rows].all() else known[rows]
        target = Ranking(truth[rows], mask)
        yield QueryBlock(rows, target, [Pairing(Ranking(scores[rows], mask), target) for scores in methods])


class Draws(NamedTuple):
    """Mean correlations of each method in each resample, ``(methods, resamples)``; NaN where nothing was left."""

    both: np.ndarray
    """Queries and subsets are resampled."""
    queries: np.ndarray
    """Only queries are resampled."""
    subsets: np.ndarray
    """Only subsets are resampled."""


def resample_sets(
    methods: Sequence[np.ndarray], truth: np.ndarray, drawn: Resamples, sets: Sequence[Sequence[int]], *, zero: bool
) -> list[Draws]:
    """Return mean correlations of each method's scores ``(q, m)`` with the truth, NaN where missing, in each resample.

    *sets* holds sets of method numbers; each method is ranked only once. A query that is constant in a resample counts
    as 0 if *zero*; otherwise this resample leaves it out for all methods of the set.
    """
    count, m = len(drawn.subsets), truth.shape[1]
    sums = [_Sums(numbers, count, zero) for numbers in sets]
    for block in blocks(methods, truth):
        of_queries = drawn.queries[:, block.rows]
        plain = block.spearman(np.ones(m))
        for one in sums:
            one.add_queries(plain, of_queries)
        step = max(1, CELLS // 4 // (m * len(plain[0])))  # larger steps exceed the processor's cache
        for first in range(0, count, step):
            some = slice(first, first + step)
            found = block.spearman(drawn.subsets[some].astype(np.float64))
            for one in sums:
                one.add_subsets(first, found, of_queries[some])
    return [one.draws() for one in sums]


class _Sums:
    """Running sums, in each resample, of the correlations of one set of methods and of their number."""

    def __init__(self, numbers: Sequence[int], count: int, zero: bool) -> None:
        self._numbers, self._zero = list(numbers), zero
        # The first axis is in the order of the fields of Draws.
        self._totals, self._weights = np.zeros((3, len(self._numbers), count)), np.zeros((3, 1, count))

    def _part(self, found: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        part = found.take(self._numbers, axis=-2)
        usable = np.ones_like(part[..., 0, :], bool) if self._zero else ~np.isnan(part).any(axis=-2)
        return np.where(usable[..., None, :], np.nan_to_num(part), 0.0), usable.astype(np.float64)

    def add_queries(self, found: np.ndarray, of_queries: np.ndarray) -> None:
        """Add correlations over all subsets, with queries resampled, ``(resamples, q)``."""
        part, usable = self._part(found)
        self._totals[1] += part @ of_queries.T
        self._weights[1] += usable @ of_queries.T

    def add_subsets(self, first: int, found: np.ndarray, of_queries: np.ndarray) -> None:
        """Add correlations in resamples from number *first* on, with all queries and with resampled queries."""
        parts, usable = self._part(found)
        for i, (part, counted, weights) in enumerate(zip(parts, usable, of_queries, strict=True), first):
            self._totals[0, :, i] += part @ weights
            self._weights[0, :, i] += counted @ weights
        some = slice(first, first + len(parts))
        self._totals[2, :, some] += parts.sum(axis=-1).T
        self._weights[2, :, some] += usable.sum(axis=-1)

    def draws(self) -> Draws:
        with np.errstate(invalid="ignore"):
            return Draws(*(self._totals / self._weights))


class Uncertainty(NamedTuple):
    """Spread of a measured value over repetitions of the whole measurement."""

    variance: float
    freedom: float
    """Degrees of freedom of that variance, after Satterthwaite: few where queries or subsets are few."""
    queries: float = 0.0
    """Part of the variance that comes from the queries; measurements on the same queries share it."""
    units: int = 1
    """Number of queries or of subsets, whichever is less: the sample size if nothing varies."""


def uncertainty(draws: Draws, q: int, m: int) -> Uncertainty:
    """Estimate the variance of a value whose queries and subsets are both samples; draws are ``(resamples,)``.

    Drawing both axes counts what belongs to single cells (a query with a subset) three times: with
    V_both = V_q + V_m + V_cell, the variance of the measurement is V_q + V_m - V_cell (two-way clustering). V_q and V_m
    are the variances when only queries, or only subsets, are drawn; V_q is raised by q / (q - 1), V_m by m / (m - 1).
    NaN where nothing could be drawn.
    """
    known = ~np.isnan(np.stack(draws)).any(axis=0)
    if not known.any():
        return Uncertainty(np.nan, np.nan, np.nan)
    both, of_queries, of_subsets = (float(draw[known].var()) for draw in draws)
    cells = max(both - of_queries - of_subsets, 0.0)
    of_queries, of_subsets = of_queries * q / max(q - 1, 1), of_subsets * m / (m - 1)
    # A difference of estimates may come out below its parts, which the truth cannot.
    variance = max(of_queries + of_subsets - cells, of_queries, of_subsets)
    unsure = of_queries**2 / max(q - 1, 1) + of_subsets**2 / (m - 1)
    freedom = (of_queries + of_subsets) ** 2 / unsure if unsure > 0 else np.inf
    return Uncertainty(variance, freedom, of_queries, min(q, m))


def bootstrap_spread(draws: Draws, value: float, q: int, m: int) -> np.ndarray:
    """Scale draws of one value, ``(resamples,)``, to the spread that repetitions of the measurement would have.

    A subset drawn twice is tied with itself, which pulls draws towards 0: their mean is moved to the value. Their
    variance is set to that of :func:`uncertainty`, widened to Student's t with its degrees of freedom.
    """
    known = ~np.isnan(np.stack(draws)).any(axis=0)
    if not known.any():
        return np.empty(0)
    moved: np.ndarray = draws.both[known] - draws.both[known].mean()
    unsure = uncertainty(draws, q, m)
    # Student's t has the variance ν / (ν − 2), without bound as ν falls to 2: below 4 degrees it is taken as 2.
    wider, both = 1 / (1 - 2 / max(unsure.freedom, 4.0)), float(draws.both[known].var())
    return value + moved * (np.sqrt(unsure.variance * wider / both) if both > 0 else 1.0)

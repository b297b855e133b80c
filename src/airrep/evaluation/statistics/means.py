"""Means over queries with bootstrap intervals, and intervals of ratios."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import fsum
from typing import NamedTuple, Self

import numpy as np

from airrep.errors import DataError
from airrep.runtime.seeding import stream

CONFIDENCE = 0.95
"""Confidence of the intervals of means."""
_END = (1 + CONFIDENCE) / 2
_NOTHING = 1e-24
"""A variance that is rounding alone."""


class Estimate(NamedTuple):
    """A mean and how sure it is."""

    value: float
    interval: tuple[float, float]
    """95 %; 0 to 1 where there are too few queries to know anything."""


class Gap(NamedTuple):
    """One mean minus another, on the same queries."""

    value: float
    interval: tuple[float, float]
    """95 %, paired; −1 to 1 where there are too few queries to know anything."""
    p_value: float
    """Two-sided, for a difference of 0; 1 where nothing can be known."""


@dataclass(frozen=True, eq=False)
class TaskResamples:
    """Bootstrap draws of queries that fall into tasks: a mean is the mean over the tasks of the mean of each.

    ``across`` false draws the queries of each task anew: other queries of the same tasks. ``across`` true draws the
    tasks as well, and then the queries of each drawn one: other tasks.

    Two levels of drawing count the queries' part of the variance twice, and few tasks vary too little when they are
    drawn anew. So draws are moved to the value and scaled: without ``across`` to the unbiased variance
    V_within = Σ_t s_t² / n_t / T²; with it to the wider of that and of V_tasks = Var(means of the tasks) / T, the
    latter times the squared ratio of Student's 97.5 % point at T - 1 degrees of freedom to the normal one.
    """

    tasks: tuple[str, ...]
    """The task of each query."""
    across: bool
    resamples: int
    seed: int

    @classmethod
    def plain(cls, queries: int, resamples: int, seed: int) -> Self:
        """All queries alike."""
        return cls(("",) * queries, False, resamples, seed)

    @cached_property
    def _codes(self) -> np.ndarray:
        """Number of each query's task, ``(q,)``."""
        return np.unique(np.array(self.tasks, dtype=object).astype(str), return_inverse=True)[1]

    @cached_property
    def _sizes(self) -> np.ndarray:
        """Queries of each task, ``(t,)``."""
        return np.bincount(self._codes)

    @cached_property
    def _base(self) -> np.ndarray:
        """Weight of each query in the mean, ``(q,)``; they sum to 1."""
        weights: np.ndarray = 1 / (len(self._sizes) * self._sizes[self._codes])
        return weights

    @cached_property
    def _weights(self) -> np.ndarray:
        """Weight of each query in each draw, ``(resamples, q)``."""
        chance, count = stream(self.seed, "means", "queries"), len(self._sizes)
        times = np.ones((self.resamples, count), np.int64)
        if self.across:
            even = np.full(count, 1 / count)
            times = stream(self.seed, "means", "tasks").multinomial(count, even, self.resamples)
        drawn = np.empty((self.resamples, len(self.tasks)))
        # A task that was drawn twice draws twice as many queries, one that was not drawn none.
        for task, size in enumerate(self._sizes.tolist()):
            drawn[:, self._codes == task] = chance.multinomial(times[:, task] * size, np.full(size, 1 / size))
        weights: np.ndarray = drawn * self._base
        return weights

    def only(self, known: np.ndarray) -> "TaskResamples":
        """Keep some of the queries, given as ``(q,)`` bool.

        Raises:
            DataError: there are none.
        """
        if known.all() and len(known):  # keeps the cached draws
            return self
        if not known.any():
            raise DataError("evaluation: no query has a value; expected some. Look at why each was left out.")
        left = (task for task, counts in zip(self.tasks, known.tolist(), strict=True) if counts)
        return TaskResamples(tuple(left), self.across, self.resamples, self.seed)

    def estimate(self, values: np.ndarray) -> Estimate:
        """The mean, with its interval, of values ``(q,)`` between 0 and 1; NaN where a query is left out.

        Of values that are all 0 or 1, without tasks, the interval is Clopper's and Pearson's, which takes no draws.
        """
        known = ~np.isnan(values)
        return self.only(known)._estimate(values[known])

    def _estimate(self, values: np.ndarray) -> Estimate:
        value = fsum((self._base * values).tolist())
        if len(self._sizes) == 1 and len(values) > 1 and np.isin(values, (0.0, 1.0)).all():
            return Estimate(value, _share_of_yes(int(values.sum()), len(values)))
        errors = self._errors(values)
        if not errors:
            return Estimate(value, (0.0, 1.0))
        if max(variance for variance, _ in errors) <= _NOTHING:
            return Estimate(value, _unvaried(value, self._units))
        ends = np.quantile(self._draws(values, value), [(1 - CONFIDENCE) / 2, _END])
        low, high = ends.clip(0.0, 1.0).tolist()
        return Estimate(value, (low, high))

    def difference(self, values: np.ndarray, first: np.ndarray) -> Gap:
        """Mean of *values* minus mean of *first*, over the queries that count for both.

        Values that are all 0 or 1, without tasks, are compared by McNemar's exact test. All others by Student's t,
        paired: p and the interval come from the standard error that draws are scaled to, √V_within with Σ_t (n_t − 1)
        degrees of freedom; with ``across`` and several tasks also from √V_tasks with T − 1, of both the less sure.
        Values are ``(q,)`` between 0 and 1; NaN where a query is left out.
        """
        gaps = values - first
        known = ~np.isnan(gaps)
        yes_or_no = bool(np.isin((values[known], first[known]), (0.0, 1.0)).all())
        return self.only(known)._difference(gaps[known], yes_or_no)

    def _difference(self, gaps: np.ndarray, yes_or_no: bool) -> Gap:
        from scipy import stats

        if yes_or_no and len(self._sizes) == 1:
            return _discordant(int((gaps > 0).sum()), int((gaps < 0).sum()), len(gaps))
        value = fsum((self._base * gaps).tolist())
        errors = self._errors(gaps)
        if not errors:
            return Gap(value, (-1.0, 1.0), 1.0)
        # Rows with the same values do not differ, for sure; other gaps that are all equal are only units that agree.
        if not gaps.any():
            return Gap(0.0, (0.0, 0.0), 1.0)
        if max(variance for variance, _ in errors) <= _NOTHING:
            return _alike(value, self._units)
        half = max(stats.t.ppf(_END, freedom) * np.sqrt(variance) for variance, freedom in errors)
        p_value = max(_two_sided(value, variance, freedom) for variance, freedom in errors)
        return Gap(value, (max(-1.0, value - float(half)), min(1.0, value + float(half))), p_value)

    @property
    def _units(self) -> int:
        return len(self._sizes) if self.across and len(self._sizes) > 1 else len(self.tasks)

    def _errors(self, values: np.ndarray) -> list[tuple[float, int]]:
        """Variances of a mean that can be estimated, over queries and over tasks, each with its degrees of freedom."""
        found, freedom, tasks = [], len(values) - len(self._sizes), len(self._sizes)
        if freedom:
            found.append((self._within(values), freedom))
        if self.across and tasks > 1:
            found.append((self._between(values), tasks - 1))
        return found

    def _draws(self, values: np.ndarray, value: float) -> np.ndarray:
        """Draws of a mean, ``(resamples,)``, as far from it as repetitions of the measurement would be."""
        drawn = self._weights @ values
        now = float(drawn.var())
        # Draws that vary by rounding alone cannot be scaled.
        if now <= np.finfo(np.float64).eps ** 2:
            return np.full(self.resamples, value)
        moved: np.ndarray = value + (drawn - drawn.mean()) * np.sqrt(self._variance(values) / now)
        return moved

    def _variance(self, values: np.ndarray) -> float:
        within, tasks = self._within(values), len(self._sizes)
        return max(within, self._between(values) * _student(tasks - 1)) if self.across and tasks > 1 else within

    def _groups(self, values: np.ndarray) -> list[np.ndarray]:
        return [values[self._codes == task] for task in range(len(self._sizes))]

    def _within(self, values: np.ndarray) -> float:
        """Unbiased variance of the mean over other queries of the same tasks."""
        groups = self._groups(values)
        spreads = [float(group.var(ddof=1)) for group in groups if len(group) > 1]
        usual = float(np.mean(spreads)) if spreads else 0.0  # a task with one query tells no variance of its own
        within = sum((float(group.var(ddof=1)) if len(group) > 1 else usual) / len(group) for group in groups)
        return within / len(groups) ** 2

    def _between(self, values: np.ndarray) -> float:
        """Unbiased variance of the mean over other tasks."""
        groups = self._groups(values)
        return float(np.var([group.mean() for group in groups], ddof=1)) / len(groups)


def task_means(values: np.ndarray, tasks: Sequence[str]) -> dict[str, float]:
    """Mean of each task over the queries whose value is not NaN, in order of names; tasks without any are left out."""
    found: dict[str, list[float]] = {}
    for task, value in zip(tasks, values.tolist(), strict=True):
        if not np.isnan(value):
            found.setdefault(task, []).append(value)
    return {task: float(np.mean(found[task])) for task in sorted(found)}


def paired_ratio(
    one: tuple[float, float], other: tuple[float, float], difference_half: float
) -> tuple[float, tuple[float, float]] | None:
    """The ratio of two values that share their errors, each with its half width, and its interval (:func:`fieller`).

    What they share follows from the half width h_d of the interval of their difference: 2 c = h_a² + h_b² − h_d².
    None where either is not above 0, or the interval of b holds 0.
    """
    if one[0] <= 0 or other[0] <= 0:
        return None
    shared = (one[1] ** 2 + other[1] ** 2 - difference_half**2) / 2
    ends = fieller(one[0], other[0], (one[1], other[1]), shared)
    return None if ends is None else (one[0] / other[0], ends)


def fieller(above: float, below: float, halves: tuple[float, float], shared: float = 0.0) -> tuple[float, float] | None:
    """The interval of a / b by Fieller's theorem: all ρ at which a − ρ b is not told apart from 0.

    With h_a and h_b the half widths (*halves*) of the intervals of a (*above*) and b (*below*), and c (*shared*) their
    covariance times the square of the same quantile, the ends are

        (a b − c ± √((a b − c)² − (a² − h_a²)(b² − h_b²))) / (b² − h_b²); None where the interval of b holds 0.
    """
    room = below**2 - halves[1] ** 2
    if room <= 0:
        return None
    middle = above * below - shared
    root = math.sqrt(max(0.0, middle**2 - (above**2 - halves[0] ** 2) * room))
    return (middle - root) / room, (middle + root) / room


def least_share(units: int, confidence: float = CONFIDENCE) -> float:
    """Low end of the exact interval (Clopper and Pearson) of a share that is 1 in so many units; no draw could tell."""
    share: float = ((1 - confidence) / 2) ** (1 / units)
    return share


def _student(freedom: int) -> float:
    """Factor on a variance that was measured with so few degrees of freedom."""
    from scipy import stats

    return float((stats.t.ppf(_END, freedom) / stats.norm.ppf(_END)) ** 2)


def _two_sided(value: float, variance: float, freedom: int) -> float:
    """Student's p-value of a difference of 0; 0 where nothing varies, so that another error decides."""
    from scipy import stats

    return float(2 * stats.t.sf(abs(value) / np.sqrt(variance), freedom)) if variance > _NOTHING else 0.0


def _alike(value: float, units: int) -> Gap:
    """Gap of equal units: the least share has this gap, the others any; p is of the exact sign test."""
    share = least_share(units)
    ends = (max(-1.0, share * value - (1 - share)), min(1.0, share * value + 1 - share))
    return Gap(value, ends, min(1.0, 2.0 ** (1 - units)))


def _discordant(more: int, fewer: int, queries: int) -> Gap:
    """The difference of two shares on the same queries, from those where one alone is right (McNemar's exact test).

    p is the two-sided sign test of *more* against *fewer*, b and c. The interval is, at each end, the wider of two:
    Bonett and Price's d ± z √((p + q − d²) / (n + 2)) with p = (b + 1) / (n + 2), q = (c + 1) / (n + 2), d = p − q; and
    (2 π − 1) (b + c) / n with π at the ends of Clopper and Pearson's interval of b / (b + c). The first covers the
    chance in how many are discordant; the second holds 0 exactly where p is at least 0.05.
    """
    from scipy import stats

    value, both = (more - fewer) / queries, more + fewer
    up, down = (more + 1) / (queries + 2), (fewer + 1) / (queries + 2)
    half = float(stats.norm.ppf(_END)) * np.sqrt((up + down - (up - down) ** 2) / (queries + 2))
    low, high = max(-1.0, up - down - half), min(1.0, up - down + half)
    if not both:
        return Gap(value, (float(low), float(high)), 1.0)
    exact = stats.binomtest(more, both)
    share = exact.proportion_ci(CONFIDENCE)
    ends = [(2 * float(end) - 1) * both / queries for end in (share.low, share.high)]
    return Gap(value, (float(min(low, ends[0])), float(max(high, ends[1]))), float(exact.pvalue))


def _share_of_yes(count: int, units: int) -> tuple[float, float]:
    """The exact interval of a share, of so many units that are 0 or 1."""
    from scipy import stats

    found = stats.binomtest(count, units).proportion_ci(CONFIDENCE, method="exact")
    return float(found.low), float(found.high)


def _unvaried(value: float, units: int) -> tuple[float, float]:
    """Ends of the mean of equal values: the least share has this value, the others 0, or 1."""
    share = least_share(units)
    return share * value, share * value + 1 - share

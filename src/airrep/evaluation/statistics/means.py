"""Means over queries with bootstrap intervals, and intervals of ratios."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import fsum
from typing import Any, NamedTuple, Self

import numpy as np

from airrep.errors import DataError
from airrep.runtime.seeding import stream

CONFIDENCE = 0.95
"""Confidence of the intervals of means."""
_END = (1 + CONFIDENCE) / 2
_NOTHING = 1e-24
"""Variance up to which values differ by rounding alone."""


class Interval(NamedTuple):
    """Two ends between which a value lies with the stated confidence."""

    low: float
    high: float


class Estimate(NamedTuple):
    """A mean with its 95 % interval, which is 0 to 1 if there are too few queries."""

    value: float
    interval: Interval

    def to_dict(self) -> dict[str, Any]:
        return {"value": self.value, "interval": list(self.interval)}


class Difference(NamedTuple):
    """One value minus another, on the same queries."""

    value: float
    interval: Interval
    """95 %, paired; −1 to 1 if there are too few queries."""
    p_value: float
    """Two-sided, for a difference of 0; 1 if there are too few queries."""

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON object, as results of training keep it."""
        return {"difference": self.value, "interval": list(self.interval), "p_value": self.p_value}


@dataclass(frozen=True, eq=False)
class TaskResamples:
    """Bootstrap draws of queries that fall into tasks; the mean is the mean over tasks of each task's mean.

    ``across=False`` resamples the queries of each task: the interval is for other queries of the same tasks.
    ``across=True`` resamples the tasks, then the queries of each drawn task: the interval is for other tasks.

    Two levels of drawing count the queries' part of the variance twice, and resampled tasks vary too little if they
    are few. So draws are moved to the value and scaled: without ``across`` to the unbiased variance
    V_within = Σ_t s_t² / n_t / T²; with it to V_within or V_tasks = Var(means of the tasks) / T if that is wider, the
    latter times the squared ratio of Student's 97.5 % point at T - 1 degrees of freedom to the normal one.
    """

    tasks: tuple[str, ...]
    """The task of each query."""
    across: bool
    resamples: int
    seed: int
    bounded: bool = True
    """True if values lie between 0 and 1; False for others, such as nats."""

    @classmethod
    def plain(cls, queries: int, resamples: int, seed: int, *, bounded: bool = True) -> Self:
        """Make draws of queries without tasks."""
        return cls(("",) * queries, False, resamples, seed, bounded)

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
        return 1 / (len(self._sizes) * self._sizes[self._codes])

    @property
    def _several(self) -> bool:
        """True if tasks are drawn, and there is more than one."""
        return self.across and len(self._sizes) > 1

    @property
    def _units(self) -> int:
        return len(self._sizes) if self._several else len(self.tasks)

    def only(self, known: np.ndarray) -> "TaskResamples":
        """Keep some of the queries, given as ``(q,)`` bool (DataError: there are none)."""
        if known.all() and len(known):
            return self
        if not known.any():
            raise DataError(
                "evaluation: the values of all queries are missing (NaN), so there is no mean. At least one query must "
                "have a value."
            )
        left = (task for task, counts in zip(self.tasks, known.tolist(), strict=True) if counts)
        return TaskResamples(tuple(left), self.across, self.resamples, self.seed, self.bounded)

    def estimate(self, values: np.ndarray) -> Estimate:
        """Return the mean, with its interval, of values ``(q,)``; NaN where a query is left out.

        For values that are all 0 or 1, without tasks, the interval is Clopper and Pearson's, which needs no draws.
        """
        known = ~np.isnan(values)
        return self.only(known)._estimate(values[known])

    def _estimate(self, values: np.ndarray) -> Estimate:
        value = fsum((self._base * values).tolist())
        if self.bounded and len(self._sizes) == 1 and len(values) > 1 and np.isin(values, (0.0, 1.0)).all():
            return Estimate(value, _share_of_yes(int(values.sum()), len(values)))
        errors = self._errors(values)
        if not errors:
            return Estimate(value, Interval(0.0, 1.0))
        if max(variance for variance, _ in errors) <= _NOTHING:
            if not self.bounded:
                return Estimate(value, Interval(value, value))
            share = least_share(self._units)  # this share of units has the value, the others 0 or 1
            return Estimate(value, Interval(share * value, share * value + 1 - share))
        ends = np.quantile(self._draws(values, value), [(1 - CONFIDENCE) / 2, _END])
        return Estimate(value, Interval(*(ends.clip(0.0, 1.0) if self.bounded else ends).tolist()))

    def difference(self, values: np.ndarray, first: np.ndarray) -> Difference:
        """Return the mean of *values* minus the mean of *first*, over the queries that count for both.

        Values that are all 0 or 1, without tasks, are compared by McNemar's exact test. All others by Student's t,
        paired: p and the interval come from the standard error that draws are scaled to, √V_within with Σ_t (n_t − 1)
        degrees of freedom; with ``across`` and several tasks also from √V_tasks with T − 1, whichever is less sure.
        Values are ``(q,)``; NaN where a query is left out.
        """
        gaps = values - first
        known = ~np.isnan(gaps)
        yes_or_no = self.bounded and bool(np.isin((values[known], first[known]), (0.0, 1.0)).all())
        return self.only(known)._difference(gaps[known], yes_or_no)

    def _difference(self, gaps: np.ndarray, yes_or_no: bool) -> Difference:
        from scipy import stats

        if yes_or_no and len(self._sizes) == 1:
            return _discordant(int((gaps > 0).sum()), int((gaps < 0).sum()), len(gaps))
        value = fsum((self._base * gaps).tolist())
        errors = self._errors(gaps)
        if not errors:
            return Difference(value, Interval(-1.0, 1.0), 1.0)
        # Rows with equal values surely do not differ; other gaps that are all equal only show that the units agree.
        if not gaps.any():
            return Difference(0.0, Interval(0.0, 0.0), 1.0)
        if max(variance for variance, _ in errors) <= _NOTHING:  # the least share has this gap; p is the sign test's
            share, p_value = least_share(self._units), min(1.0, 2.0 ** (1 - self._units))
            ends = _within_one(share * value, 1 - share) if self.bounded else Interval(value, value)
            return Difference(value, ends, p_value)
        # If one error is rounding alone, the other decides.
        half = max(stats.t.ppf(_END, freedom) * np.sqrt(variance) for variance, freedom in errors)
        sure = [(abs(value) / np.sqrt(variance), freedom) for variance, freedom in errors if variance > _NOTHING]
        p_value = max(float(2 * stats.t.sf(t, freedom)) for t, freedom in sure)
        ends = _within_one(value, float(half)) if self.bounded else Interval(value - float(half), value + float(half))
        return Difference(value, ends, p_value)

    def _errors(self, values: np.ndarray) -> list[tuple[float, int]]:
        """Return the variances of a mean that can be estimated, over queries and tasks, with degrees of freedom."""
        freedom, tasks = len(values) - len(self._sizes), len(self._sizes)
        found = [(self._within(values), freedom)] if freedom else []
        return [*found, (self._between(values), tasks - 1)] if self._several else found

    def _draws(self, values: np.ndarray, value: float) -> np.ndarray:
        """Return draws of a mean, ``(resamples,)``, with the spread that repetitions of the measurement would have."""
        drawn = self._weights() @ values
        now = float(drawn.var())
        # Draws that vary by rounding alone cannot be scaled.
        if now <= np.finfo(np.float64).eps ** 2:
            return np.full(self.resamples, value)
        return value + (drawn - drawn.mean()) * np.sqrt(self._variance(values) / now)

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
        drawn *= self._base
        return drawn

    def _variance(self, values: np.ndarray) -> float:
        """Return the wider of both variances; the variance between tasks is widened by Student's t."""
        from scipy import stats

        within = self._within(values)
        if not self._several:
            return within
        wider = float((stats.t.ppf(_END, len(self._sizes) - 1) / stats.norm.ppf(_END)) ** 2)
        return max(within, self._between(values) * wider)

    def _groups(self, values: np.ndarray) -> list[np.ndarray]:
        return [values[self._codes == task] for task in range(len(self._sizes))]

    def _within(self, values: np.ndarray) -> float:
        """Unbiased variance of the mean over other queries of the same tasks."""
        groups = self._groups(values)
        spreads = [float(group.var(ddof=1)) for group in groups if len(group) > 1]
        usual = float(np.mean(spreads)) if spreads else 0.0  # a task with one query has no variance of its own
        within = sum((float(group.var(ddof=1)) if len(group) > 1 else usual) / len(group) for group in groups)
        return within / len(groups) ** 2

    def _between(self, values: np.ndarray) -> float:
        """Unbiased variance of the mean over other tasks."""
        groups = self._groups(values)
        return float(np.var([group.mean() for group in groups], ddof=1)) / len(groups)


def task_means(values: np.ndarray, tasks: Sequence[str]) -> dict[str, float]:
    """Return the mean of each task over values that are not NaN, in order of names; tasks without any are left out."""
    found: dict[str, list[float]] = {}
    for task, value in zip(tasks, values.tolist(), strict=True):
        if not np.isnan(value):
            found.setdefault(task, []).append(value)
    return {task: float(np.mean(found[task])) for task in sorted(found)}


def paired_ratio(
    one: tuple[float, float], other: tuple[float, float], difference_half: float
) -> tuple[float, Interval] | None:
    """Return the ratio of two values with common errors, each given with its half width, and its interval.

    The common error c (:func:`fieller`) follows from the half width h_d of their difference's interval: 2 c = h_a² +
    h_b² − h_d². None if either value is not above 0, or the interval of b holds 0.
    """
    if one[0] <= 0 or other[0] <= 0:
        return None
    shared = (one[1] ** 2 + other[1] ** 2 - difference_half**2) / 2
    ends = fieller(one[0], other[0], (one[1], other[1]), shared)
    return None if ends is None else (one[0] / other[0], ends)


def fieller(above: float, below: float, halves: tuple[float, float], shared: float = 0.0) -> Interval | None:
    """Return the interval of a / b by Fieller's theorem: all ρ at which a − ρ b does not differ clearly from 0.

    With h_a and h_b the half widths (*halves*) of the intervals of a (*above*) and b (*below*), and c (*shared*) their
    covariance times the square of the same quantile, the ends are

        (a b − c ± √((a b − c)² − (a² − h_a²)(b² − h_b²))) / (b² − h_b²); None if the interval of b holds 0.
    """
    room = below**2 - halves[1] ** 2
    if room <= 0:
        return None
    middle = above * below - shared
    root = math.sqrt(max(0.0, middle**2 - (above**2 - halves[0] ** 2) * room))
    return Interval((middle - root) / room, (middle + root) / room)


def least_share(units: int, confidence: float = CONFIDENCE) -> float:
    """Return the low end of the exact interval (Clopper and Pearson) of a share that is 1 in all of *units* units."""
    return ((1 - confidence) / 2) ** (1 / units)


def _within_one(value: float, half: float) -> Interval:
    return Interval(max(-1.0, value - half), min(1.0, value + half))


def _discordant(more: int, fewer: int, queries: int) -> Difference:
    """Compare two shares on the same queries by the queries where only one is right (McNemar's exact test).

    p is the two-sided sign test of *more* against *fewer*, b and c. The interval is, at each end, the wider of two:
    Bonett and Price's d ± z √((p + q − d²) / (n + 2)) with p = (b + 1) / (n + 2), q = (c + 1) / (n + 2), d = p − q; and
    (2 π − 1) (b + c) / n with π at the ends of Clopper and Pearson's interval of b / (b + c). The first covers the
    chance in how many are discordant; the second holds 0 exactly where p is at least 0.05.
    """
    from scipy import stats

    value, both = (more - fewer) / queries, more + fewer
    up, down = (more + 1) / (queries + 2), (fewer + 1) / (queries + 2)
    half = float(stats.norm.ppf(_END)) * np.sqrt((up + down - (up - down) ** 2) / (queries + 2))
    low, high = _within_one(up - down, float(half))
    if not both:
        return Difference(value, Interval(low, high), 1.0)
    share = _share_of_yes(more, both)
    ends = [(2 * end - 1) * both / queries for end in share]
    p_value = float(stats.binomtest(more, both).pvalue)
    return Difference(value, Interval(min(low, ends[0]), max(high, ends[1])), p_value)


def _share_of_yes(count: int, units: int) -> Interval:
    """Return the exact interval of a share, of which *count* of *units* are 1."""
    from scipy import stats

    found = stats.binomtest(count, units).proportion_ci(CONFIDENCE, method="exact")
    return Interval(float(found.low), float(found.high))

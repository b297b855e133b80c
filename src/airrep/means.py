"""Means over queries, bootstrapped over queries and over tasks."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import fsum
from typing import NamedTuple, Self

import numpy as np
from scipy import stats

from airrep.errors import DataError
from airrep.seeding import stream

CONFIDENCE = 0.95


class Estimate(NamedTuple):
    """A mean and how sure it is."""

    value: float
    interval: tuple[float, float]
    """95 %."""


class Gap(NamedTuple):
    """How much one mean exceeds another on the same queries."""

    value: float
    interval: tuple[float, float]
    """95 %, paired."""
    p_value: float
    """Two-sided, for a difference of 0."""


@dataclass(frozen=True, eq=False)
class Resamples:
    """Bootstrap draws of queries that fall into tasks: a mean is the mean over the tasks of the mean of each.

    ``across`` false draws the queries of each task anew, so tells how the mean would vary with other queries of the
    same tasks. ``across`` true draws the tasks as well, and then the queries of each drawn one (two levels), so tells
    how it would vary with other tasks; what chance there is in fine-tuning once for each task is then part of it.

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
        for task, size in enumerate(self._sizes.tolist()):
            drawn[:, self._codes == task] = chance.multinomial(times[:, task] * size, np.full(size, 1 / size))
        weights: np.ndarray = drawn * self._base
        return weights

    def only(self, known: np.ndarray) -> "Resamples":
        """The same over some of the queries, ``(q,)`` truth values.

        Raises:
            DataError: there are none.
        """
        if known.all() and len(known):
            return self
        if not known.any():
            raise DataError("evaluation: no query has a value; expected some. Look at why each was left out.")
        left = (task for task, there in zip(self.tasks, known.tolist(), strict=True) if there)
        return Resamples(tuple(left), self.across, self.resamples, self.seed)

    def estimate(self, values: np.ndarray) -> Estimate:
        """The mean with its interval.

        Args:
            values: ``(q,)`` between 0 and 1; NaN where a query is left out.
        """
        known = ~np.isnan(values)
        return self.only(known)._estimate(values[known])

    def _estimate(self, values: np.ndarray) -> Estimate:
        if not self.across and len(self._sizes) == 1 and values[0] in (0.0, 1.0) and (values == values[0]).all():
            return Estimate(float(values[0]), _unanimous(float(values[0]), len(values)))
        value = fsum((self._base * values).tolist())
        low, high = _ends(self._draws(values, value), 0.0, 1.0)
        return Estimate(value, (low, high))

    def difference(self, values: np.ndarray, first: np.ndarray) -> Gap:
        """How much one mean exceeds another, over the queries that count for both.

        Args:
            values: ``(q,)`` between 0 and 1; NaN where a query is left out.
            first: the same for the other.
        """
        gaps = values - first
        known = ~np.isnan(gaps)
        return self.only(known)._difference(gaps[known])

    def _difference(self, gaps: np.ndarray) -> Gap:
        value = fsum((self._base * gaps).tolist())
        draws = self._draws(gaps, value)
        beyond = min(int((draws <= 0).sum()), int((draws >= 0).sum()))
        p_value = min(1.0, 2 * (1 + beyond) / (1 + len(draws)))
        low, high = _ends(draws, -1.0, 1.0)
        return Gap(value, (low, high), p_value)

    def _draws(self, values: np.ndarray, value: float) -> np.ndarray:
        """Draws of a mean, ``(resamples,)``, as far from it as repetitions of the measurement would be."""
        drawn = self._weights @ values
        now = float(drawn.var())
        if now <= np.finfo(np.float64).eps ** 2:
            return np.full(self.resamples, value)
        moved: np.ndarray = value + (drawn - drawn.mean()) * np.sqrt(self._variance(values) / now)
        return moved

    def _variance(self, values: np.ndarray) -> float:
        """The variance that draws are scaled to."""
        groups = [values[self._codes == task] for task in range(len(self._sizes))]
        spreads = [float(group.var(ddof=1)) for group in groups if len(group) > 1]
        usual = float(np.mean(spreads)) if spreads else 0.0  # of tasks with one query nothing else is known
        within = sum((float(group.var(ddof=1)) if len(group) > 1 else usual) / len(group) for group in groups)
        within /= len(groups) ** 2
        if not self.across or len(groups) == 1:
            return within
        between = float(np.var([group.mean() for group in groups], ddof=1)) / len(groups)
        return max(within, between * _student(len(groups) - 1))


def task_means(values: np.ndarray, tasks: Sequence[str]) -> dict[str, float]:
    """Mean of each task over the queries that count, in order of names; tasks without any are left out.

    Args:
        values: ``(q,)``, NaN where a query is left out.
        tasks: of each query.
    """
    found: dict[str, list[float]] = {}
    for task, value in zip(tasks, values.tolist(), strict=True):
        if not np.isnan(value):
            found.setdefault(task, []).append(value)
    return {task: float(np.mean(found[task])) for task in sorted(found)}


def _student(freedom: int) -> float:
    """How much larger a variance must be taken that was measured with so few degrees of freedom."""
    end = (1 + CONFIDENCE) / 2
    return float((stats.t.ppf(end, freedom) / stats.norm.ppf(end)) ** 2)


def _unanimous(value: float, queries: int) -> tuple[float, float]:
    """The exact interval of a share of 0 or 1 (Clopper and Pearson), which no draw could tell."""
    reach = ((1 - CONFIDENCE) / 2) ** (1 / queries)
    return (reach, 1.0) if value else (0.0, 1 - reach)


def _ends(draws: np.ndarray, least: float, most: float) -> tuple[float, float]:
    low, high = np.clip(np.quantile(draws, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]), least, most)
    return float(low), float(high)

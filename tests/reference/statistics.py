"""Ranks, LDS, variance tests and worlds, written plainly in float64."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float64]


def average_ranks(values: Rows) -> Rows:
    """Rank of each value, 1 the least; equal values share the mean of their places."""
    ranks = np.empty(len(values))
    for place, value in enumerate(values):
        below = sum(1 for other in values if other < value)
        equal = sum(1 for other in values if other == value)
        ranks[place] = below + (equal + 1) / 2
    return ranks


def pearson(left: Rows, right: Rows) -> float:
    """Product-moment correlation; NaN where one side is constant."""
    a = [float(value) - math.fsum(left) / len(left) for value in left]
    b = [float(value) - math.fsum(right) / len(right) for value in right]
    scale = math.sqrt(math.fsum(x * x for x in a) * math.fsum(y * y for y in b))
    return math.fsum(x * y for x, y in zip(a, b, strict=True)) / scale if scale > 0 else math.nan


def spearman(left: Rows, right: Rows) -> float:
    """Correlation of average ranks over the places where both are finite."""
    both = np.isfinite(left) & np.isfinite(right)
    return pearson(average_ranks(left[both]), average_ranks(right[both])) if both.sum() > 1 else math.nan


def lds(group_scores: Rows, losses: Rows) -> tuple[float, Rows]:
    """LDS of higher-is-better scores against losses, and the value of each query (NaN: no signal)."""
    values = np.array([spearman(row, -loss) for row, loss in zip(group_scores, losses, strict=True)])
    return float(np.nanmean(values)), values


def linear_world(q: int, n: int, m: int, k: int, seed: int) -> tuple[Rows, Rows, Rows, NDArray[np.int64]]:
    """Influence (q, n), its sums over members (q, m), losses = constant − sums, and members (m, k)."""
    random = np.random.default_rng(seed)
    influence = random.normal(size=(q, n))
    members = np.stack([random.permutation(n)[:k] for _ in range(m)]).astype(np.int64)
    sums = np.stack([[math.fsum(row[subset]) for subset in members] for row in influence])
    return influence, sums, random.normal(5.0, 1.0, size=(q, 1)) - sums, members


def between_within(losses: Rows) -> tuple[float, int, int]:
    """One-way analysis of variance of one query's losses (seeds, subsets): F and its degrees of freedom.

    Subsets are the groups, seeds the repeats inside a group; the textbook's sums of squares.
    """
    seeds, subsets = losses.shape
    grand = math.fsum(losses.ravel()) / losses.size
    means = [math.fsum(losses[:, j]) / seeds for j in range(subsets)]
    between = seeds * math.fsum((mean - grand) ** 2 for mean in means)
    within = math.fsum((losses[r, j] - means[j]) ** 2 for r in range(seeds) for j in range(subsets))
    left, right = subsets - 1, subsets * (seeds - 1)
    return (between / left) / (within / right) if within > 0 else math.inf, left, right


def step_up(p_values: Rows, level: float) -> NDArray[np.bool_]:
    """Benjamini–Hochberg: reject the i least where p_(i) <= i/count · level for the greatest such i."""
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    last = 0
    for i, place in enumerate(order, start=1):
        if p_values[place] <= i * level / len(order):
            last = i
    rejected = np.zeros(len(p_values), dtype=bool)
    rejected[order[:last]] = True
    return rejected


def gaussian_spearman(correlation: Rows) -> Rows:
    """The population's rank correlation of a bivariate Gaussian: 6/π · asin(ρ/2)."""
    return 6 / math.pi * np.arcsin(correlation / 2)


@dataclass(frozen=True)
class TwoWayWorld:
    """Queries with tastes, subsets with causes, and noise of each cell, all Gaussian and all drawn afresh.

    Labels are taste · cause + noise; a method sees causes of which a part is wrong, and noise of its own. Queries
    share the subsets' causes, and the subsets share the queries' tastes, so that neither axis is independent.
    """

    q: int
    m: int
    skill: float
    """Correlation of the causes that a method sees with the real ones."""
    noise: float = 0.7
    """Deviation of a cell of the labels, and of a cell of the scores."""
    common: float = 0.0
    """Mean of every taste: the larger, the more alike the queries are."""
    causes: int = 3

    def draw(self, random: np.random.Generator, methods: int = 1) -> tuple[list[Rows], Rows]:
        """Scores ``(q, m)`` of some equally good methods, independent given the truth, and losses ``(q, m)``."""
        taste = self.common + random.normal(size=(self.q, self.causes))
        causes = random.normal(size=(self.causes, self.m))
        losses = -(taste @ causes + self.noise * random.normal(size=(self.q, self.m)))
        return [self._seen(random, taste, causes, self.skill) for _ in range(methods)], losses

    def draw_unequal(self, random: np.random.Generator, other: float) -> tuple[list[Rows], Rows]:
        """As :meth:`draw`, for two methods, the second of another skill."""
        taste = self.common + random.normal(size=(self.q, self.causes))
        causes = random.normal(size=(self.causes, self.m))
        losses = -(taste @ causes + self.noise * random.normal(size=(self.q, self.m)))
        return [self._seen(random, taste, causes, skill) for skill in (self.skill, other)], losses

    def _seen(self, random: np.random.Generator, taste: Rows, causes: Rows, skill: float) -> Rows:
        seen = skill * causes + math.sqrt(1 - skill**2) * random.normal(size=causes.shape)
        return taste @ seen + self.noise * random.normal(size=(self.q, self.m))

    def population(self, draws: int = 10**6) -> float:
        """LDS of infinitely many queries over infinitely many subsets.

        Given its taste a, a query's scores and labels are Gaussian of correlation skill·|a|² / (|a|² + noise²).
        """
        taste = self.common + np.random.default_rng(12345).normal(size=(draws, self.causes))
        signal = (taste**2).sum(axis=1)
        return float(gaussian_spearman(self.skill * signal / (signal + self.noise**2)).mean())


@dataclass(frozen=True)
class SubsetWorld:
    """Subsets of one pool whose losses add up what members do; a method knows each influence with an error.

    The pool, and how the method errs on its examples, are the same in every world; queries and subsets are fresh.
    """

    q: int
    m: int
    n: int = 400
    k: int = 60
    error: float = 1.0
    """Size of the method's errors, beside that of the true influences."""
    noise: float = 4.0
    """Deviation of the noise of a single loss."""

    def draw(self, random: np.random.Generator, methods: int = 1) -> tuple[list[Rows], Rows]:
        """As :meth:`TwoWayWorld.draw`; methods err in the same directions, each in its own way."""
        pool, missed = np.random.default_rng(54321).normal(size=(2, 4, self.n))
        taste = random.normal(size=(self.q, 4))
        members = random.random((self.m, self.n)).argsort(axis=1) < self.k
        influence = self._influence(random, taste, pool)
        losses = -influence @ members.T + self.noise * random.normal(size=(self.q, self.m))
        errors = (self._influence(random, random.normal(size=taste.shape), missed) for _ in range(methods))
        return [(influence + self.error * wrong) @ members.T for wrong in errors], losses

    def _influence(self, random: np.random.Generator, taste: Rows, pool: Rows) -> Rows:
        return (taste @ pool / 2 + random.normal(size=(self.q, self.n))) / math.sqrt(2)

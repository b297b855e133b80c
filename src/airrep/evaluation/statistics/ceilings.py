"""The noise ceiling: the LDS that a perfect predictor would reach."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from airrep.arrays import NumbersLike, as_numbers
from airrep.errors import ConfigError, DataError
from airrep.evaluation.statistics.labels import lengthened, seeds_behind, split_halves

QUERIES_TOGETHER = 20
"""Queries of like reliability that are taken together: one by itself tells too little."""
LEAST_SUBSETS = 8
"""Subsets below which all queries are taken together."""


class Ceiling(NamedTuple):
    """The noise ceiling of labels, and their reliability."""

    lds: float
    """The LDS that a perfect predictor of the true mean losses would reach, 0 to 1."""
    reliability: float
    """Mean over queries of the reliability of their losses, 0 to 1: its root is their part of the ceiling."""


def noise_ceiling(by_seed: NumbersLike, averaged: float = 1) -> float:
    """Estimate the LDS that a perfect predictor of the true mean losses would reach against real, noisy losses.

    The mean over queries of √r, with r the reliability of a query's mean losses over k seeds: what is perfectly
    reliable correlates with them at its root. With ρ the mean Spearman correlation of two halves of the seeds, s in
    each, r = fρ / (1 + (f − 1)ρ) with f = k / s (Spearman and Brown). Exact for Pearson's correlation, close for ranks.

    A query's own ρ is too uncertain for a root, and queries differ, so that the root of a mean is too large. So every
    second subset tells which queries are alike, and the others give the mean ρ of some 20 such, moved together as far
    as chance sets them apart; then the other way round. With fewer than 20 queries or 8 subsets it is the root of the
    mean of all.

    Args:
        by_seed: ``(s, q, m)`` losses of each seed; NaN where missing.
        averaged: k, the seeds whose mean the LDS was computed against; :func:`seeds_averaged` where some are missing.

    Returns:
        Between 0 and 1; 0 where seeds do not agree at all.

    Raises:
        ConfigError: *averaged* below 1, or no number.
        DataError: fewer than two seeds, or no query whose losses two seeds have and that varies.

    Example:
        >>> seed = np.array([[2.1, 2.0, 1.9, 2.3], [1.1, 1.2, 0.9, 1.0]])
        >>> print(airrep.metrics.noise_ceiling(np.stack([seed, seed])))
        1.0
    """
    if not isinstance(averaged, int | float | np.number) or not averaged >= 1:
        raise ConfigError(f"averaged={averaged}: expected 1 or more. Give the number of seeds behind each loss.")
    by_seed = as_numbers(by_seed, "noise ceiling")
    if by_seed.ndim != 3 or len(by_seed) < 2:
        raise DataError(
            f"noise ceiling: losses are {by_seed.shape}; expected (s, q, m) with two seeds at least. "
            "Run the fine-tunes with more seeds."
        )
    found = _ceiling(by_seed, averaged)
    if found is None:
        raise DataError("noise ceiling: no query's losses vary in two seeds; expected some. Run more fine-tunes.")
    return found.lds


def seeds_averaged(by_seed: np.ndarray) -> float:
    """Number of seeds behind a mean loss: their harmonic mean over queries and subsets that have any.

    A mean of k losses has 1/k of the noise of one. Losses are ``(s, q, m)``, NaN where missing.
    """
    count = (~np.isnan(by_seed)).sum(axis=0)
    return seeds_behind(count[count > 0])


def mean_ceiling(by_seed: Iterable[np.ndarray | None]) -> Ceiling | None:
    """Mean :func:`noise_ceiling` and reliability of instances; None if none has two seeds in which losses vary.

    Each instance gives losses ``(s, q, m)``, or None for one seed; its ceiling is that of :func:`seeds_averaged`.
    """
    several = [losses for losses in by_seed if losses is not None and len(losses) > 1 and not np.isnan(losses).all()]
    found = [one for losses in several if (one := _ceiling(losses, seeds_averaged(losses))) is not None]
    return Ceiling(*np.mean(found, axis=0).tolist()) if found else None


def _ceiling(by_seed: np.ndarray, averaged: float) -> Ceiling | None:
    found = np.array(_reliabilities(by_seed, averaged))
    if not len(found):
        return None
    queries, values = found.T
    # Roots keep the sign: cut at 0 before the mean, chance alone would give a ceiling above 0.
    roots = np.sign(values) * np.sqrt(np.abs(values))
    return Ceiling(*(max(0.0, float(np.average(each, weights=queries))) for each in (roots, values)))


def _reliabilities(by_seed: np.ndarray, averaged: float) -> list[tuple[int, float]]:
    """For each set of like queries, how many vary and their losses' reliability; below 0 where seeds disagree."""
    q = by_seed.shape[1]
    whole, count = split_halves(by_seed), max(2, q // QUERIES_TOGETHER)
    subsets = np.flatnonzero((~np.isnan(by_seed)).any(axis=1).sum(axis=0) > 1)  # those that two seeds have
    means = _means(whole.spearman, [np.arange(q)])
    if q >= QUERIES_TOGETHER and len(subsets) >= LEAST_SUBSETS:
        even, odd = (split_halves(by_seed[:, :, subsets[start::2]]).spearman for start in (0, 1))
        turns = ((even, odd), (odd, even))
        # Sorted and judged by the same subsets, the best queries would be the luckiest.
        sorted_by = [np.array_split(np.argsort(sorting, kind="stable"), count) for sorting, _ in turns]
        parts = [_moved(judged, whole.spearman) for _, judged in turns]
        means = [one for part, alike in zip(parts, sorted_by, strict=True) for one in _means(part, alike)]
    factor = averaged / whole.seeds
    return [(n, float(np.sign(rho)) * lengthened(abs(rho), factor)) for n, rho in means]


def _moved(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Correlations over part of the subsets, moved to the mean of those over all: fewer ranks agree less."""
    both = ~(np.isnan(part) | np.isnan(whole))
    return part + (whole[both].mean() - part[both].mean()) if both.any() else part


def _means(rho: np.ndarray, together: Sequence[np.ndarray]) -> list[tuple[int, float]]:
    """Number of queries of each set that vary, and their mean, shrunk towards that of all by what chance explains."""
    known = [values[~np.isnan(values)] for values in (rho[queries] for queries in together)]
    sets = [values for values in known if len(values)]
    if len(sets) < 2:
        return [(len(values), float(values.mean())) for values in sets]
    means = np.array([values.mean() for values in sets])
    chance = float(np.mean([values.var(ddof=1) / len(values) for values in sets if len(values) > 1] or [0.0]))
    apart, middle = float(means.var(ddof=1)), float(np.concatenate(sets).mean())
    kept = max(0.0, 1 - chance / apart) if apart > 0 else 0.0
    return [(len(values), middle + kept * (float(values.mean()) - middle)) for values in sets]

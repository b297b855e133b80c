"""The noise ceiling: what noisy labels leave to be reached."""

from collections.abc import Iterable
from itertools import combinations

import numpy as np

from airrep.bootstrap import Pairing, Ranking
from airrep.errors import ConfigError, DataError


def noise_ceiling(by_seed: np.ndarray, averaged: float = 1) -> float:
    """The LDS that a perfect predictor of the true mean losses would reach against real, noisy losses.

    With ρ the mean Spearman correlation of the losses of two seeds, over queries and pairs of seeds, the mean of
    k seeds has reliability kρ / (1 + (k - 1)ρ) (Spearman and Brown), and what is perfectly reliable correlates
    with it at the root of that: √ρ against one seed. Exact for Pearson's correlation, close for ranks.

    Args:
        by_seed: ``(s, q, m)`` losses of each seed; NaN where missing.
        averaged: k, the seeds whose mean the LDS was computed against; :func:`seeds_averaged` where some are missing.

    Returns:
        Between 0 and 1; 0 where seeds do not agree at all.

    Raises:
        ConfigError: *averaged* below 1.
        DataError: fewer than two seeds, or no query whose losses two seeds have and that varies.
    """
    if averaged < 1:
        raise ConfigError(f"averaged={averaged}: expected 1 or more. Give the number of seeds behind each loss.")
    if by_seed.ndim != 3 or len(by_seed) < 2:
        raise DataError(
            f"noise ceiling: losses are {by_seed.shape}; expected (s, q, m) with two seeds at least. "
            "Run the fine-tunes with more seeds."
        )
    found = _seed_agreement(by_seed)
    if found is None:
        raise DataError("noise ceiling: no query's losses vary in two seeds; expected some. Run more fine-tunes.")
    agreement = max(found, 0.0)
    return float(np.sqrt(averaged * agreement / (1 + (averaged - 1) * agreement)))


def seeds_averaged(by_seed: np.ndarray) -> float:
    """How many seeds are behind a mean loss: the harmonic mean, over queries and subsets, of the seeds that are there.

    A mean of k losses has 1/k of the noise of one; so noise over all is that of this many, wherever some are missing.

    Args:
        by_seed: ``(s, q, m)`` losses of each seed, some of them there; NaN where missing.
    """
    count = (~np.isnan(by_seed)).sum(axis=0)
    return float(1 / np.mean(1 / count[count > 0]))


def mean_ceiling(by_seed: Iterable[np.ndarray | None]) -> float | None:
    """Mean :func:`noise_ceiling` of the instances that have one; None if none has.

    Args:
        by_seed: of each instance, ``(s, q, m)`` losses; None where there is one seed. Seeds agree over the subsets that
            two of them have, and the ceiling is that of :func:`seeds_averaged`. An instance where no query's losses
            vary in two seeds, such as one whose second seed is not finished, has none.
    """
    several = [losses for losses in by_seed if losses is not None and len(losses) > 1]
    varying = [losses for losses in several if _seed_agreement(losses) is not None]
    found = [noise_ceiling(losses, seeds_averaged(losses)) for losses in varying]
    return float(np.mean(found)) if found else None


def _seed_agreement(by_seed: np.ndarray) -> float | None:
    """Mean Spearman correlation of two seeds, over queries and pairs; None where no query's losses vary in two."""
    found = np.concatenate([_agreement(one, other) for one, other in combinations(by_seed.astype(np.float64), 2)])
    return None if np.isnan(found).all() else float(np.nanmean(found))


def _agreement(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Spearman of each query between two seeds, over the subsets that both have."""
    there = ~(np.isnan(one) | np.isnan(other))
    return Pairing(Ranking(one, there), Ranking(other, there)).spearman(np.ones(one.shape[1]))

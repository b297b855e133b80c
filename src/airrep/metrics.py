"""Spearman, LDS and its intervals, and the noise ceiling."""

from dataclasses import dataclass
from itertools import combinations
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from airrep.bootstrap import Draws, Pairing, Ranking, Resamples, blocks, resample, spread
from airrep.errors import ConfigError, DataError

Constant: TypeAlias = Literal["drop", "zero", "raise"]
"""What becomes of a query whose scores or losses are constant: left out, counted as 0, or an error."""

RESAMPLES = 1000


class Interval(NamedTuple):
    """Two ends between which a value lies with the stated confidence."""

    low: float
    high: float


@dataclass(frozen=True, eq=False)
class LdsResult:
    """A linear datamodelling score and how sure it is; multiply by 100 when printing alone."""

    value: float
    """Mean over the counted queries, between -1 and 1."""
    interval: Interval
    """Percentiles of a two-way bootstrap over queries and subsets, centred on the value; NaN without draws."""
    per_query: np.ndarray
    """``(q,)`` float64; NaN where a query was left out."""
    queries: int
    """Queries that count."""
    dropped: int
    """Queries with constant scores or losses: left out, or counted as 0, as was asked for."""
    subsets: int
    """Subsets that count."""
    missing: int
    """Subsets left out, as they have no losses."""
    confidence: float
    """How often such an interval holds the value."""


@dataclass(frozen=True, eq=False)
class PairedResult:
    """How much one method's LDS exceeds another's on the same queries and subsets."""

    difference: float
    """LDS of the first less that of the second."""
    interval: Interval
    """Percentiles of the difference over the same two-way resamples."""
    p_value: float
    """Two-sided: twice the share of resamples on the other side of 0, at most 1."""
    first: float
    """LDS of the first, over the queries that count for both."""
    second: float
    """LDS of the second, over the same queries."""
    queries: int
    """Queries that count."""
    dropped: int
    """Queries with constant losses, or constant scores of either: left out, or counted as 0."""
    confidence: float
    """How often such an interval holds the difference."""


def spearman(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Spearman's rank correlation of each row, with average ranks for ties.

    Args:
        one: ``(q, m)`` finite.
        other: ``(q, m)`` finite.

    Returns:
        ``(q,)`` float64; NaN where a row is constant.

    Raises:
        DataError: shapes that do not fit, fewer than two columns, or a value that is not finite.
    """
    if one.ndim != 2 or one.shape != other.shape or one.shape[1] < 2:
        raise DataError(
            f"spearman: got {one.shape} and {other.shape}; expected two matrices (q, m) with m ≥ 2. Give such."
        )
    if not (np.isfinite(one).all() and np.isfinite(other).all()):
        raise DataError("spearman: a value is not finite; expected numbers. Leave missing ones out.")
    return _correlate(one.astype(np.float64), other.astype(np.float64))


def lds(
    group_scores: np.ndarray,
    losses: np.ndarray,
    nan: Constant = "drop",
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    confidence: float = 0.95,
) -> LdsResult:
    """Linear datamodelling score: the mean over queries of Spearman(f(x, S_j), -ℓ_j(x)) over the subsets j.

    Subsets without any loss are left out; where single losses are missing, that query is correlated over the
    subsets that it has. The interval draws queries and subsets anew with replacement, both at once, since all
    queries share the subsets; :func:`airrep.bootstrap.spread` says how its draws are corrected.

    Args:
        group_scores: ``(q, m)``, higher = more helpful.
        losses: ``(q, m)`` nats per response token, lower = better; NaN where missing.
        nan: what becomes of queries with constant scores or losses.
        resamples: bootstrap draws; 0 for no interval (NaN).
        seed: of the draws.
        confidence: share of intervals that should hold the value.

    Raises:
        ConfigError: an unknown policy, resamples below 0, or a confidence not between 0 and 1.
        DataError: shapes that do not fit, scores that are not finite, an infinite loss, fewer than two subsets,
            no query that counts, or a constant one under ``"raise"``.
    """
    _check_settings(nan, resamples, confidence)
    truth = check_losses(losses)
    scores, truth = _usable(group_scores, truth)
    per_query, constant = _per_query([scores], truth, nan)
    draws = resample([scores], truth, Resamples.draw(seed, resamples, *truth.shape), zero=nan == "zero")
    value, queries = float(np.nanmean(per_query[0])), int((~np.isnan(per_query[0])).sum())
    values = spread(Draws(*(draw[0] for draw in draws)), value, queries, truth.shape[1])
    return LdsResult(
        value=value,
        interval=_interval(values, confidence, most=1),
        per_query=per_query[0],
        queries=queries,
        dropped=int(constant.sum()),
        subsets=truth.shape[1],
        missing=losses.shape[1] - truth.shape[1],
        confidence=confidence,
    )


def paired(
    a_scores: np.ndarray,
    b_scores: np.ndarray,
    losses: np.ndarray,
    nan: Constant = "drop",
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    confidence: float = 0.95,
) -> PairedResult:
    """Compare two methods by LDS on the same queries, subsets and bootstrap draws; arguments as for :func:`lds`.

    Under ``"drop"`` a query with constant scores of either method is left out of both. The p-value is
    2 (1 + b) / (1 + B), with b the draws, of B, whose difference is 0 or on the other side of it.

    Raises:
        ConfigError: as for :func:`lds`, or resamples below 1.
        DataError: as for :func:`lds`.
    """
    _check_settings(nan, resamples, confidence, least=1)
    known = check_losses(losses)
    (a, truth), (b, _) = _usable(a_scores, known), _usable(b_scores, known)
    per_query, constant = _per_query([a, b], truth, nan)
    draws = resample([a, b], truth, Resamples.draw(seed, resamples, *truth.shape), zero=nan == "zero")
    first, second = (float(np.nanmean(of_method)) for of_method in per_query)
    queries = int((~np.isnan(per_query[0])).sum())
    differences = spread(Draws(*(draw[0] - draw[1] for draw in draws)), first - second, queries, truth.shape[1])
    return PairedResult(
        difference=first - second,
        interval=_interval(differences, confidence, most=2),
        p_value=_p_value(differences),
        first=first,
        second=second,
        queries=queries,
        dropped=int(constant.sum()),
        confidence=confidence,
    )


def noise_ceiling(by_seed: np.ndarray, averaged: int = 1) -> float:
    """The LDS that a perfect predictor of the true mean losses would reach against real, noisy losses.

    With ρ the mean Spearman correlation of the losses of two seeds, over queries and pairs of seeds, the mean of
    k seeds has reliability kρ / (1 + (k - 1)ρ) (Spearman and Brown), and what is perfectly reliable correlates
    with it at the root of that: √ρ against one seed. Exact for Pearson's correlation, close for ranks.

    Args:
        by_seed: ``(s, q, m)`` losses of each seed; NaN where missing.
        averaged: k, the seeds whose mean the LDS was computed against.

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
    found = np.concatenate([_agreement(one, other) for one, other in combinations(by_seed.astype(np.float64), 2)])
    if np.isnan(found).all():
        raise DataError("noise ceiling: no query's losses vary in two seeds; expected some. Run more fine-tunes.")
    agreement = max(float(np.nanmean(found)), 0.0)
    return float(np.sqrt(averaged * agreement / (1 + (averaged - 1) * agreement)))


def check_losses(losses: np.ndarray) -> np.ndarray:
    """Losses in float64, after a check.

    Raises:
        DataError: not ``(q, m)``, an infinite loss, all of them missing, or fewer than two subsets with any.
    """
    if losses.ndim != 2 or losses.shape[0] < 1:
        raise DataError(f"losses: are {losses.shape}; expected (q, m), queries by subsets. Give such a matrix.")
    wide = losses.astype(np.float64)
    if np.isinf(wide).any():
        raise DataError("losses: one is infinite; expected numbers, or NaN where missing. Run that fine-tune again.")
    if wide.size and np.isnan(wide).all():
        raise DataError("losses: all are missing (NaN); expected some. Look for what the label run quarantined.")
    if (~np.isnan(wide)).any(axis=0).sum() < 2:
        raise DataError("losses: fewer than two subsets have any; expected two or more. Run more fine-tunes.")
    return wide


def _check_settings(nan: str, resamples: int, confidence: float, least: int = 0) -> None:
    if nan not in get_args(Constant):
        raise ConfigError(f"nan '{nan}': does not exist; expected drop, zero or raise. Choose one of them.")
    if resamples < least:
        raise ConfigError(f"resamples={resamples}: expected {least} or more. Correct the value.")
    if not 0 < confidence < 1:
        raise ConfigError(f"confidence={confidence}: expected a number between 0 and 1, such as 0.95. Correct it.")


def _usable(scores: np.ndarray, losses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scores and minus the losses of the subsets that have losses, float64."""
    if scores.shape != losses.shape:
        raise DataError(
            f"group scores: are {scores.shape}, but losses {losses.shape}; expected the same queries and subsets."
            " Score the subsets that the losses belong to."
        )
    some = ~np.isnan(losses).all(axis=0)
    wide = scores[:, some].astype(np.float64)
    if not np.isfinite(wide).all():
        raise DataError("group scores: one is not finite; expected numbers. Check the model for overflow.")
    return wide, -losses[:, some]


def _per_query(methods: list[np.ndarray], truth: np.ndarray, nan: Constant) -> tuple[np.ndarray, np.ndarray]:
    """Correlations ``(methods, q)`` by the policy for constants, and which queries are constant."""
    found = np.stack([_correlate(scores, truth) for scores in methods])
    constant = np.isnan(found).any(axis=0)
    if constant.any() and nan == "raise":
        raise DataError(
            f"query {int(np.argmax(constant))}: its scores or losses are constant; expected them to vary. "
            "Choose nan='drop' or 'zero', or find out why."
        )
    if constant.all() and nan == "drop":
        raise DataError("LDS: scores or losses of every query are constant; expected some that vary. Check both.")
    return (np.nan_to_num(found) if nan == "zero" else np.where(constant, np.nan, found)), constant


def _correlate(scores: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Spearman of each row over what is there in *truth*, ``(q,)``."""
    once = np.ones(truth.shape[1])
    parts = [block.pairings[0].spearman(once) for block in blocks([scores], truth)]
    return np.concatenate([np.empty(0), *parts])


def _agreement(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Spearman of each query between two seeds, over the subsets that both have."""
    there = ~(np.isnan(one) | np.isnan(other))
    return Pairing(Ranking(one, there), Ranking(other, there)).spearman(np.ones(one.shape[1]))


def _interval(draws: np.ndarray, confidence: float, most: float) -> Interval:
    """Percentiles of the draws, within what is possible."""
    if not len(draws):
        return Interval(np.nan, np.nan)
    low, high = np.clip(np.quantile(draws, [(1 - confidence) / 2, (1 + confidence) / 2]), -most, most)
    return Interval(float(low), float(high))


def _p_value(differences: np.ndarray) -> float:
    other_side = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    return min(1.0, 2 * (1 + other_side) / (1 + len(differences)))

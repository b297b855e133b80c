"""Spearman correlation and LDS, alone and in pairs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from airrep.arrays import NumbersLike, as_numbers, whole_number
from airrep.errors import ConfigError, DataError
from airrep.evaluation.statistics.bootstrap import (
    Draws,
    Resamples,
    Uncertainty,
    blocks,
    bootstrap_spread,
    resample_sets,
    uncertainty,
)
from airrep.evaluation.statistics.means import Interval, least_share

Constant: TypeAlias = Literal["drop", "zero", "raise"]
"""Treatment of a query whose scores or losses are constant: left out, counted as 0, or an error."""

RESAMPLES = 1000
"""Bootstrap draws behind an interval."""


@dataclass(frozen=True, eq=False)
class LdsResult:
    """A linear datamodelling score with its uncertainty; it is multiplied by 100 only when shown."""

    value: float
    """Mean over the counted queries, between -1 and 1."""
    interval: Interval
    """Percentiles of a two-way bootstrap over queries and subsets, centred on the value; NaN without draws."""
    per_query: np.ndarray
    """``(q,)`` float64; NaN where a query was left out."""
    queries: int
    """Number of queries that count."""
    dropped: int
    """Queries with constant scores or losses: left out, or counted as 0, by the policy."""
    subsets: int
    """Number of subsets that count."""
    missing: int
    """Number of subsets left out, since they have no losses."""
    confidence: float
    """Probability that an interval made this way holds the true value."""
    uncertainty: Uncertainty
    """Variance of the value over repetitions, with its degrees of freedom."""


@dataclass(frozen=True, eq=False)
class PairedResult:
    """One method's LDS minus another's, on the same queries and subsets; fields are as in :class:`LdsResult`."""

    difference: float
    """LDS of the first method minus that of the second."""
    interval: Interval
    """Percentiles of the difference over the same two-way resamples."""
    p_value: float
    """Two-sided, of Student's t (:func:`p_value`)."""
    uncertainty: Uncertainty
    """NaN without draws."""
    first: float
    """LDS of the first method, over the queries that count for both."""
    second: float
    queries: int
    dropped: int
    """Queries with constant losses, or constant scores of either method."""
    confidence: float


def spearman(one: NumbersLike, other: NumbersLike) -> np.ndarray:
    """Compute Spearman's rank correlation of each row, with average ranks for ties.

    Args:
        one: ``(q, m)`` finite.
        other: ``(q, m)`` finite.

    Returns:
        ``(q,)`` float64; NaN where a row is constant, or differs by no more than 2⁻²⁰ of its greatest value.

    Raises:
        DataError: shapes that do not fit, fewer than two columns, or a value that is not finite.

    Example:
        >>> scores = np.array([[0.1, 0.2, 0.4]])
        >>> airrep.metrics.spearman(scores, scores**2)
        array([1.])
    """
    one, other = as_numbers(one, "spearman"), as_numbers(other, "spearman")
    if one.ndim != 2 or one.shape != other.shape or one.shape[1] < 2:
        raise DataError(
            f"spearman: got {one.shape} and {other.shape}; both must have the same shape (q, m) with m ≥ 2."
        )
    if not (np.isfinite(one).all() and np.isfinite(other).all()):
        raise DataError("spearman: a value is not finite. Leave missing values out.")
    return correlate(one.astype(np.float64), other.astype(np.float64))


def lds(
    group_scores: NumbersLike,
    losses: NumbersLike,
    nan: Constant = "drop",
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    confidence: float = 0.95,
) -> LdsResult:
    """Compute the linear datamodelling score: the mean over queries of Spearman(f(x, S_j), -ℓ_j(x)) over the subsets j.

    Subsets without any loss are left out; a query that lacks some losses is correlated over the subsets for which it
    has losses. The interval draws queries and subsets anew with replacement, both at once, since all queries share the
    subsets; :func:`airrep.evaluation.statistics.bootstrap.bootstrap_spread` says how its draws are corrected.

    Args:
        group_scores: ``(q, m)``, higher = more helpful.
        losses: ``(q, m)`` nats per response token, lower = better; NaN where missing.
        nan: treatment of queries with constant scores or losses.
        resamples: bootstrap draws; 0 for no interval (NaN).
        seed: random seed.
        confidence: share of intervals that should hold the value.

    Raises:
        ConfigError: an unknown policy, resamples below 0, or a confidence not between 0 and 1.
        DataError: shapes that do not fit, scores that are not finite, an infinite loss, fewer than two subsets,
            no query that counts, or a constant query under ``"raise"``.

    Example:
        >>> losses = np.array([[2.1, 2.0, 1.9, 2.3], [1.1, 1.2, 0.9, 1.0]])
        >>> print(airrep.metrics.lds(-losses, losses).value)
        1.0
    """
    scores, known = as_numbers(group_scores, "group scores"), as_numbers(losses, "losses")
    return judge([scores], known, nan=nan, resamples=resamples, seed=seed, confidence=confidence).alone[0]


def paired(
    a_scores: NumbersLike,
    b_scores: NumbersLike,
    losses: NumbersLike,
    nan: Constant = "drop",
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    confidence: float = 0.95,
) -> PairedResult:
    """Compare two methods by LDS on the same queries, subsets and bootstrap draws; arguments as for :func:`lds`.

    Under ``"drop"`` a query with constant scores of either method is left out of both.

    Raises:
        ConfigError: as for :func:`lds`, or resamples below 1.
        DataError: as for :func:`lds`.

    Example:
        >>> losses = np.array([[2.1, 2.0, 1.9, 2.3], [1.1, 1.2, 0.9, 1.0]])
        >>> print(airrep.metrics.paired(-losses, losses, losses).difference)
        2.0
    """
    both = [as_numbers(scores, "group scores") for scores in (a_scores, b_scores)]
    return judge(
        both, as_numbers(losses, "losses"), [(0, 1)], nan, resamples=resamples, seed=seed, confidence=confidence
    ).pairs[0]


class MethodsLds(NamedTuple):
    """Several methods on the same queries and subsets: the LDS of each, the difference of each requested pair."""

    alone: list[LdsResult]
    pairs: list[PairedResult]


def judge(
    methods: Sequence[np.ndarray],
    losses: np.ndarray,
    pairs: Sequence[tuple[int, int]] = (),
    nan: Constant = "drop",
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    confidence: float = 0.95,
    names: Sequence[str] = (),
) -> MethodsLds:
    """Compute :func:`lds` of several methods and :func:`paired` of some pairs at once: each is ranked only once.

    *methods* are group scores ``(q, m)``; *pairs* are numbers of two methods, the first minus the second; *names* are
    for errors. Other arguments, and errors, are as for :func:`lds`. Each value and each comparison leaves out its own
    constant queries.
    """
    _check_settings(nan, resamples, confidence, least=1 if pairs else 0)
    known = check_losses(losses)
    truth = -known[:, ~np.isnan(known).all(axis=0)]
    scores = [_usable(one, known) for one in methods]
    found = [correlate(one, truth) for one in scores]
    sets: list[tuple[int, ...]] = [*((number,) for number in range(len(methods))), *pairs]
    drawn = Resamples.draw(seed, resamples, *truth.shape)
    draws = resample_sets(scores, truth, drawn, sets, zero=nan == "zero") if resamples else []
    result = MethodsLds([], [])
    for place, numbers in enumerate(sets):
        name = " and ".join(names[number] for number in numbers) if names else "LDS"
        per_query, constant = _counted([found[n] for n in numbers], nan, name)
        first, *other = (float(np.nanmean(of_method)) for of_method in per_query)
        value, m, queries = first - sum(other), truth.shape[1], int((~np.isnan(per_query[0])).sum())
        several = draws[place] if draws else Draws(*(np.empty((len(numbers), 0)) for _ in range(3)))
        draw = Draws(*(part[0] - part[1] if other else part[0] for part in several))
        unsure, spread = uncertainty(draw, queries, m), bootstrap_spread(draw, value, queries, m)
        common: dict[str, Any] = {
            "interval": _interval(spread, value, unsure, confidence, most=len(numbers)),
            "queries": queries,
            "dropped": int(constant.sum()),
            "confidence": confidence,
            "uncertainty": unsure,
        }
        if other:
            p = p_value(value, unsure, resamples)
            result.pairs.append(PairedResult(difference=value, p_value=p, first=first, second=other[0], **common))
        else:
            missing = losses.shape[1] - m
            result.alone.append(LdsResult(value, per_query=per_query[0], subsets=m, missing=missing, **common))
    return result


def p_value(difference: float, unsure: Uncertainty, resamples: int = RESAMPLES) -> float:
    """Return the two-sided p-value for a true difference of 0: Student's t over the bootstrap standard error.

    If all draws agree on a difference, it is 2 / (1 + resamples), the least that draws can show, or the p-value of the
    sign test over all queries or all subsets, whichever are fewer, if that is larger.
    """
    if np.isnan(unsure.variance):
        return 1.0
    if unsure.variance == 0:
        return 1.0 if difference == 0 else max(2 / (1 + resamples), 2.0 ** (1 - unsure.units))
    from scipy.special import stdtr

    return float(2 * stdtr(min(unsure.freedom, 1e9), -abs(difference) / np.sqrt(unsure.variance)))


def check_losses(losses: np.ndarray) -> np.ndarray:
    """Return losses in float64 (DataError: not ``(q, m)``, an infinite loss, or fewer than two subsets with losses)."""
    if losses.ndim != 2 or losses.shape[0] < 1:
        raise DataError(f"losses: have shape {losses.shape}; must be a matrix (queries, subsets).")
    wide = losses.astype(np.float64)
    if np.isinf(wide).any():
        raise DataError(
            "losses: a loss is infinite. Run the fine-tune that gave this loss again, or replace the loss by NaN."
        )
    if wide.size and np.isnan(wide).all():
        raise DataError("losses: all are missing (NaN). `airrep show LABELS` says which fine-tunes failed.")
    if (~np.isnan(wide)).any(axis=0).sum() < 2:
        raise DataError("losses: fewer than two subsets have losses. Run more fine-tunes.")
    return wide


def _check_settings(nan: str, resamples: int, confidence: float, least: int = 0) -> None:
    if nan not in get_args(Constant):
        raise ConfigError(
            f"nan='{nan}': must be drop, zero or raise, which say what to do with queries whose scores or losses are "
            "constant."
        )
    whole_number("resamples", resamples)
    if resamples < least:
        raise ConfigError(f"resamples={resamples}: must be at least {least}.")
    if not isinstance(confidence, int | float | np.number) or not 0 < confidence < 1:
        raise ConfigError(f"confidence={confidence}: must be a number between 0 and 1, such as 0.95.")


def _usable(scores: np.ndarray, losses: np.ndarray) -> np.ndarray:
    """Return the scores of the subsets that have losses, float64."""
    if scores.shape != losses.shape:
        raise DataError(
            f"group scores: have shape {scores.shape}, but losses have shape {losses.shape}. "
            "Score the queries and subsets that the losses belong to."
        )
    wide = scores[:, ~np.isnan(losses).all(axis=0)].astype(np.float64)
    if not np.isfinite(wide).all():
        raise DataError("group scores: a score is not finite. Check the model for overflow.")
    return wide


def _counted(methods: Sequence[np.ndarray], nan: Constant, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Apply the policy *nan* to correlations ``(methods, q)``; also return a mask of constant queries, ``(q,)``."""
    found = np.stack(methods)
    constant = np.isnan(found).any(axis=0)
    if constant.any() and nan == "raise":
        raise DataError(
            f"query {int(np.argmax(constant))}: its scores or losses are constant, so they have no correlation. "
            "Pass nan='drop' or nan='zero', or find out why."
        )
    if constant.all() and nan == "drop":
        raise DataError(f"{name}: for every query, the scores or the losses are constant. Check both.")
    return (np.nan_to_num(found) if nan == "zero" else np.where(constant, np.nan, found)), constant


def correlate(scores: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return Spearman of each row over the columns that *truth* has, ``(q,)``."""
    parts = [block.spearman(np.ones(truth.shape[1]))[0] for block in blocks([scores], truth)]
    return np.concatenate([np.empty(0), *parts])  # float64 even without any rows


def _interval(draws: np.ndarray, value: float, unsure: Uncertainty, confidence: float, most: float) -> Interval:
    """Return percentiles of the draws, between −most and most.

    If all draws agree on a value other than 0, only the least share of the units (:func:`least_share`) is taken to have
    it, and the others anything from −most to most. Two equal methods surely differ by 0.
    """
    if not len(draws):
        return Interval(np.nan, np.nan)
    if unsure.variance == 0 and value != 0:
        share = least_share(unsure.units, confidence)
        ends = share * value + np.array([-1.0, 1.0]) * (1 - share) * most
    else:
        ends = np.quantile(draws, [(1 - confidence) / 2, (1 + confidence) / 2])
    low, high = np.clip(ends, -most, most)
    return Interval(float(low), float(high))

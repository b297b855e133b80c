"""Labels from losses (Eq. 7); signal, noise, overlap, common factors of losses."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from airrep.arrays import GroupScores, Mask, NumbersLike, as_numbers
from airrep.errors import ConfigError, DataError
from airrep.evaluation.statistics.bootstrap import varies
from airrep.evaluation.statistics.metrics import check_losses, correlate
from airrep.labels.labels import LabelledInstance
from airrep.runtime.seeding import stream
from airrep.scoring.groups import Groups
from airrep.sparse import SparseRows

MOST_SPLITS = 50
"""Number of ways to halve the seeds that are tried, if there are more than 8 seeds."""
MOST_SUBSETS = 2000
"""Most subsets, the first ones, whose overlaps are counted: bounds a matrix of all pairs."""
SAME_SEEDS = 1e-3
"""Deviation between seeds, as a share of that over subsets, below which all seeds give the same fine-tune."""


class Variance(NamedTuple):
    """One-way analysis of variance of each query's losses: subsets are the groups, seeds the repeats within one.

    F = (Σ_j s_j (ℓ_j − ℓ)² / (m − 1)) / (Σ_j Σ_r (ℓ_rj − ℓ_j)² / (N − m)), with N losses of m subsets.
    """

    p_values: np.ndarray
    """``(q,)`` of the F test; 1 for a query whose losses do not vary, NaN where no subset has two seeds."""
    signal: np.ndarray
    """``(q,)`` variance of the subsets' true means, 0 if the estimate is negative; NaN as for ``p_values``."""
    noise: np.ndarray
    """``(q,)`` variance of one seed about its subset's mean; NaN as for ``p_values``."""


def variance_parts(by_seed: np.ndarray) -> Variance:
    """Split each query's variance into parts of subsets and of seeds, from losses ``(s, q, m)``, NaN where missing."""
    from scipy import stats

    wide = by_seed.astype(np.float64)
    there = ~np.isnan(wide)
    repeats = there.sum(axis=0)
    total, groups = repeats.sum(axis=1), (repeats > 0).sum(axis=1)
    grand = np.divide(np.nansum(wide, axis=(0, 2)), np.maximum(total, 1))
    means = np.nansum(wide, axis=0) / np.maximum(repeats, 1)
    between = (repeats * (means - grand[:, None]) ** 2).sum(axis=1)
    within = np.nansum((wide - means) ** 2, axis=(0, 2))
    left, right = np.maximum(groups - 1, 0), total - groups
    known = (left > 0) & (right > 0)
    with np.errstate(divide="ignore", invalid="ignore"):  # unknown values become NaN below
        noise, spread = within / right, between / left
        per_group = (total - (repeats**2).sum(axis=1) / total) / left
        signal = np.maximum(spread - noise, 0) / per_group
        p_values = np.where(between > 0, stats.f.sf(spread / noise, left, right), 1.0)
    return Variance(*(np.where(known, values, np.nan) for values in (p_values, signal, noise)))


def seeds_alike(by_seed: np.ndarray) -> bool:
    """Return True if seeds change nothing beyond rounding, so that they show no noise.

    A seed changes only the order of the data, which has no effect in subsets no larger than a batch. The median query's
    deviation between seeds is then below SAME_SEEDS times that of its mean losses over subsets, or most losses are
    equal to the last bit. Losses are ``(s, q, m)``, NaN where missing; False if no two seeds can be compared.
    """
    noise = variance_parts(by_seed).noise
    known = ~np.isnan(noise)
    if not known.any():
        return False
    wide = by_seed[:, known].astype(np.float64)
    repeats = (~np.isnan(wide)).sum(axis=0)
    deviation = np.nanstd(_mean(wide), axis=1, ddof=1)
    least, most = (np.where(np.isnan(wide), end, wide) for end in (np.inf, -np.inf))
    equal = (least.min(axis=0) == most.max(axis=0))[repeats > 1]
    small = np.median(np.sqrt(noise[known])) < SAME_SEEDS * np.median(deviation)
    return bool(small or (np.median(deviation) > 0 and np.median(equal) == 1))


def shown(p_values: np.ndarray, level: float) -> np.ndarray:
    """Return a mask ``(q,)`` of significant effects, at a false discovery rate of *level* (Benjamini and Hochberg).

    NaN is never significant and does not count as a test.
    """
    from scipy import stats

    tested = ~np.isnan(p_values)
    found = np.zeros(len(p_values), bool)
    if tested.any():
        found[tested] = stats.false_discovery_control(p_values[tested]) <= level
    return found


class Agreement(NamedTuple):
    """Agreement of two halves of the seeds, per query ``(q,)``; NaN where a half does not vary."""

    spearman: np.ndarray
    pearson: np.ndarray
    seeds: float
    """Seeds in one half: the harmonic mean over all that were compared."""


def split_halves(by_seed: np.ndarray) -> Agreement:
    """Correlate the means of two halves of the seeds over the subsets, for each query.

    All ways to halve them are tried; for more than 8 seeds, :data:`MOST_SPLITS` random ways. If their number is odd,
    one seed stays out. Subsets that a half has no loss of are left out. Losses are ``(s, q, m)``, NaN where missing.
    """
    found, shares = [], []
    for split in _splits(len(by_seed)):
        one, other = (by_seed[list(part)].astype(np.float64) for part in split)
        found.append(_correlations(_mean(one), _mean(other)))
        counts = np.array([(~np.isnan(half)).sum(axis=0) for half in (one, other)])
        both = counts[:, (counts > 0).all(axis=0)]
        shares.append((float((1 / both).sum()), both.size))
    ranked, plain = np.moveaxis(np.array(found), 1, 0)
    total, count = np.sum(shares, axis=0)
    return Agreement(_mean(ranked), _mean(plain), float(count / total) if count else len(by_seed) // 2)


def lengthened(reliability: float, factor: float) -> float:
    """Return a mean's reliability with f (*factor*) times as many repeats: fρ / (1 + (f − 1)ρ) (Spearman and Brown)."""
    at_least = max(reliability, 0.0)
    return factor * at_least / (1 + (factor - 1) * at_least)


class Overlap(NamedTuple):
    """Overlap of the subsets of one pool."""

    expected: float
    """Share of a subset's members that are in another subset too, for independent random draws: k / n."""
    observed: float
    """The share that was observed: mean over pairs of |A ∩ B| / √(|A|·|B|)."""
    uses: tuple[int, float, int]
    """Least, mean and most subsets that a used example is in."""
    used: float
    """Share of the pool that is in some subset."""
    coverage: float
    """Members of all subsets, per example of the pool: k·m / n."""
    directions: float
    """Number of subsets with nothing in common that would say as much about the pool: (Σλ)² / Σλ², with λ the
    eigenvalues of |A ∩ B| − |A|·|B| / n over all pairs."""
    subsets: int
    """Subsets whose overlaps were counted."""


def overlap_of(subsets: Groups, pool: int) -> Overlap:
    """Measure how much the subsets of a pool of *pool* examples overlap."""
    part = subsets.part(0, min(len(subsets), MOST_SUBSETS))
    sizes, m = part.sizes.astype(np.float64), len(part)
    members = SparseRows(np.ones(len(part.rows)), part.rows, part.offsets, (m, pool))
    common, product = members.gram(), np.outer(sizes, sizes)
    shares, expected = common / np.sqrt(product), np.sqrt(product) / pool
    pairs = ~np.eye(m, dtype=bool)
    centred = common - product / pool
    uses = np.bincount(subsets.rows, minlength=pool)
    some, square = uses[uses > 0], float((centred**2).sum())
    return Overlap(
        expected=float(expected[pairs].mean()) if m > 1 else float("nan"),
        observed=float(shares[pairs].mean()) if m > 1 else float("nan"),
        uses=(int(some.min()), float(some.mean()), int(some.max())),
        used=len(some) / pool,
        coverage=float(subsets.sizes.sum()) / pool,
        directions=float(np.trace(centred)) ** 2 / square if square > 0 else 0.0,
        subsets=m,
    )


class Common(NamedTuple):
    """The common factor of one instance's queries: the first principal component of their losses."""

    explained: float
    """Share of the standardised losses' variance that the first principal component has."""
    floor: float
    """The share it would have if nothing were common: (1/√q + 1/√(m − 1))²."""
    alike: float
    """Share of the queries on the larger side of that component: 1 if all move together, ½ for a contrast."""
    error: float
    """Standard error of the mean LDS if scores had nothing to do with the losses (:func:`chance_errors`)."""
    error_alike: float
    """Standard error of the mean LDS by chance, if scores are equal for all queries."""
    subsets: int
    """Subsets that have the losses of all queries."""


def common_factor(losses: np.ndarray) -> Common | None:
    """Find the factor that moves the losses ``(q, m)``, NaN where missing, of all queries at once.

    None with fewer than two queries whose losses vary, or fewer than three subsets with all losses.
    """
    whole = ~np.isnan(losses).any(axis=0)
    if whole.sum() < 3:
        return None
    z = _standardised(losses[:, whole].astype(np.float64))
    q, m = z.shape
    if q < 2:
        return None
    left, size, right = np.linalg.svd(z, full_matrices=False)
    positive = float((left[:, 0] * np.sign(right[0] @ z.mean(axis=0) or 1.0) > 0).mean())
    floor = min(1.0, (q**-0.5 + (m - 1) ** -0.5) ** 2)
    explained = float(size[0] ** 2 / (size**2).sum())
    return Common(explained, floor, max(positive, 1 - positive), *chance_errors(losses[:, whole]), m)


def chance_errors(losses: np.ndarray) -> tuple[float, float]:
    """Return two standard errors of the mean LDS of scores that have nothing to do with the losses ``(q, m)``.

    One query's Spearman has the error 1/√(m − 1). First, for scores that correlate between queries as the losses do:
    the mean over queries has variance (1/q + (1 − 1/q)·r²) / (m − 1), with r² the mean squared rank correlation of two
    queries' losses, corrected for its chance value 1/(m − 1). Second, for scores that are equal for all queries:
    r̄ / (m − 1), with r̄ the mean rank correlation over all pairs of queries, a query with itself included.
    """
    from scipy import stats

    z = _standardised(stats.rankdata(losses.astype(np.float64), axis=1))
    q, m = z.shape
    gram = z @ z.T if q < m else z.T @ z  # both have the same sum of squares
    squares = (float((gram**2).sum()) / m**2 - q) / (q * (q - 1)) if q > 1 else 0.0
    chance = 1 / (m - 1)
    alike = max((squares - chance) / (1 - chance), 0.0)
    together = max(float((z.mean(axis=0) ** 2).mean()), 1 / q)
    return float(np.sqrt((1 / q + (1 - 1 / q) * alike) / (m - 1))), float(np.sqrt(together / (m - 1)))


def one_number(judged: np.ndarray, source: np.ndarray) -> float:
    """Return the LDS of one number for each subset: mean Spearman of each query with the mean of all other queries.

    Both are losses ``(q, m)``, none missing, of the same fine-tunes or of other seeds.
    """
    varies = (np.ptp(judged, axis=1) > 0) & (np.ptp(source, axis=1) > 0)
    z = _standardised(source[varies].astype(np.float64))
    if len(z) < 2:
        return float("nan")
    return _mean_spearman(judged[varies], z.sum(axis=0) - z)  # a query is not judged by its own losses


def lds_of(number: np.ndarray, losses: np.ndarray) -> float:
    """Return the LDS of one number ``(m,)`` for each subset, the same for all queries; NaN if nothing varies."""
    return _mean_spearman(np.broadcast_to(number, losses.shape), -losses)


def pearson(one: np.ndarray, other: np.ndarray, known: np.ndarray | None = None) -> np.ndarray:
    """Pearson's correlation of each row ``(q, m)``, over what is *known* of both (None for all), ``(q,)`` float64.

    NaN where a side does not vary at all. Ranks turn rounding into a signal: check :func:`.bootstrap.varies` first.
    """
    there = np.ones(one.shape, bool) if known is None else known
    count = np.maximum(there.sum(axis=1, keepdims=True), 1)
    a, b = (np.where(there, side.astype(np.float64), 0) for side in (one, other))
    a, b = (np.where(there, side - side.sum(axis=1, keepdims=True) / count, 0) for side in (a, b))
    least, most = (np.stack([np.where(there, side, end) for side in (one, other)]) for end in (np.inf, -np.inf))
    varies = (least.min(axis=2) < most.max(axis=2)).all(axis=0)
    scale = np.where(varies, np.sqrt((a**2).sum(axis=1) * (b**2).sum(axis=1)), 1.0)
    return np.where(varies, (a * b).sum(axis=1) / scale, np.nan)


def _splits(seeds: int) -> Sequence[tuple[Sequence[int], Sequence[int]]]:
    half = seeds // 2
    if seeds <= 8:
        pairs = ((one, other) for one in combinations(range(seeds), half) for other in combinations(range(seeds), half))
        return [(one, other) for one, other in pairs if one < other and not set(one) & set(other)]
    generator = stream(0, "halves", str(seeds))
    orders = (generator.permutation(seeds).tolist() for _ in range(MOST_SPLITS))
    return [(order[:half], order[half : 2 * half]) for order in orders]


def _mean_spearman(one: np.ndarray, other: np.ndarray) -> float:
    found = _correlations(one, other)[0]
    return float(np.nanmean(found)) if not np.isnan(found).all() else float("nan")


def _correlations(one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return Spearman and Pearson of each row, over columns that both sides have; NaN where a side does not vary."""
    both = ~(np.isnan(one) | np.isnan(other))
    ranked = correlate(np.where(both, one, 0.0), np.where(both, other, np.nan))
    vary = varies(one, both) & varies(other, both)  # as in LDS: values that differ by rounding alone do not vary
    return ranked, np.where(vary, pearson(one, other, both), np.nan)


def _mean(values: np.ndarray) -> np.ndarray:
    """Return the mean over the first axis without NaN; NaN where nothing is left."""
    count = (~np.isnan(values)).sum(axis=0)  # np.nanmean would warn where nothing is left
    return np.where(count > 0, np.nansum(values, axis=0) / np.maximum(count, 1), np.nan)


def _standardised(values: np.ndarray) -> np.ndarray:
    moved = values[np.ptp(values, axis=1) > 0]
    moved = moved - moved.mean(axis=1, keepdims=True)
    return moved / moved.std(axis=1, keepdims=True)


LEAST_SHARE = 0.01
"""Mean change of the losses, as a share of the loss before, below which fine-tunes hardly moved the model.

Measured (docs/learning.md): two to four steps at 2e-5 move losses by 0.5 to 0.6 %, trainings that are worth labelling
by 2 to 9 %."""
REMEDY = (
    "Use the settings of your own training (--training FOLDER, or --set learning_rate=... and --set epochs=...). If "
    "you use these already, take larger subsets."
)
"""Remedy for losses that hardly moved."""


def signal_to_noise(by_seed: Sequence[np.ndarray]) -> float | None:
    """Return the variance between removals over the variance that chance in fine-tuning gives them.

    With L_sj(x) a query's loss after removal j with seed s, of S seeds and K removals, D_sj = L_sj − mean_j L_sj is
    free of what all removals of a seed share, which no correlation over removals sees. Then

    - V_all(x) = Σ_j (mean_s D_sj)² / (K − 1) is the variance of the mean effects between removals;
    - V_seed(x) = Σ_sj (D_sj − mean_s D_sj)² / ((S − 1)(K − 1) S) is what chance contributes to it;

    and the ratio is Σ_x (V_all − V_seed) / Σ_x V_seed over the queries x: 0 on average for effects that are nothing but
    chance, so it may come out below 0. Losses are ``(s, q, K)`` of each instance, NaN where missing; removals that lack
    one are left out. None where seeds agree exactly, or fewer than two removals have all losses.
    """
    signal = chance = 0.0
    for losses in by_seed:
        whole = losses[:, :, ~np.isnan(losses).any(axis=(0, 1))].astype(np.float64)
        seeds, _, k = whole.shape
        if seeds < 2 or k < 2:
            continue
        plain = whole - whole.mean(axis=2, keepdims=True)
        mean = plain.mean(axis=0)
        seed = float(((plain - mean) ** 2).sum()) / ((seeds - 1) * (k - 1) * seeds)
        signal += float((mean**2).sum()) / (k - 1) - seed
        chance += seed
    return signal / chance if chance > 0 else None


class Moved(NamedTuple):
    """Changes of queries' losses by fine-tunes on subsets, in nats per response token."""

    before: float
    """Mean loss before any fine-tune."""
    after: float
    """Mean loss after the fine-tunes."""
    change: float
    """Mean over queries and subsets of how far a loss moved, up or down."""
    noise: float = float("nan")
    """Deviation of a loss between seeds, for the median query; NaN with one seed."""

    @property
    def hardly(self) -> bool:
        """True if the losses moved by less than ``LEAST_SHARE`` of the loss before, or by less than seeds move them."""
        return self.change < LEAST_SHARE * self.before or self.change < self.noise

    @property
    def sentence(self) -> str:
        """The changes as a clause, without a full stop."""
        noise = "" if np.isnan(self.noise) else f"; seeds move them by {self.noise:.3f}"
        return (
            f"the fine-tunes moved the queries' losses by {self.change:.3f} nats, {self.change / self.before:.1%} "
            f"({self.before:.3f} to {self.after:.3f}{noise})"
        )

    def to_dict(self) -> dict[str, Any]:
        return self._asdict() | {"noise": None if np.isnan(self.noise) else self.noise, "hardly": self.hardly}


def moved(instances: Sequence[LabelledInstance]) -> Moved | None:
    """Measure how far fine-tunes moved losses; None if an instance lacks base losses, or all of them are 0."""
    pairs = [(one.base_losses, one.losses) for one in instances if one.base_losses is not None]
    known = [np.broadcast_arrays(base[:, None], losses) for base, losses in pairs]
    if not known or len(known) < len(instances):
        return None
    before, after = (np.concatenate([pair[place].ravel() for pair in known]) for place in (0, 1))
    there = ~np.isnan(before + after)
    before, after = before[there].astype(np.float64), after[there].astype(np.float64)
    if not before.sum() > 0:
        return None
    parts = [np.sqrt(variance_parts(one.by_seed).noise) for one in instances if one.by_seed is not None]
    noise = np.concatenate([np.empty(0), *parts])
    noise = noise[~np.isnan(noise)]
    change = float(np.abs(after - before).mean())
    spread = float(np.median(noise)) if len(noise) else float("nan")
    return Moved(float(before.mean()), float(after.mean()), change, spread)


Scale: TypeAlias = Literal["std", "var"]
"""Divisor of centred losses."""


@dataclass(frozen=True, eq=False)
class RankLabels:
    """Labels r̂ of one cross-validation instance."""

    labels: GroupScores
    """``(q, m)`` float32, higher = better; NaN where a loss is missing and in the rows of queries left out."""
    kept: Mask
    """``(q,)`` mask of queries whose loss varies over the subsets."""

    @property
    def dropped(self) -> int:
        """Number of queries left out, since their loss does not vary."""
        return int((~self.kept).sum())


def normalise_losses(losses: NumbersLike, scale: Scale = "std") -> RankLabels:
    """Turn losses into labels: r̂(x, S_i) = −(ℓ_i − mean_j ℓ_j) / deviation_j ℓ_j (Eq. 7), per query over subsets.

    The deviation divides by m, not m − 1. A query whose losses differ by at most 2⁻²⁰ of the greatest is left out.

    Args:
        losses: ``(q, m)`` mean nats per response token, lower = better; NaN where missing.
        scale: ``"std"`` for labels of deviation 1, which the thresholds 0.1 and 5 suit; ``"var"`` as in the paper.

    Raises:
        ConfigError: an unknown scale.
        DataError: not a matrix, fewer than two subsets, an infinite loss, or no query whose loss varies.

    Example:
        >>> airrep.metrics.normalise_losses(np.array([[2.0, 1.0, 3.5]])).labels.round(2)
        array([[ 0.16,  1.14, -1.3 ]], dtype=float32)
    """
    if scale not in ("std", "var"):
        raise ConfigError(f"scale '{scale}': does not exist. Choose std or var.")
    wide = check_losses(as_numbers(losses, "losses"))
    there = ~np.isnan(wide)
    counts = there.sum(axis=1, keepdims=True)
    known = np.where(there, wide, 0.0)
    centred = np.where(there, wide - known.sum(axis=1, keepdims=True) / np.maximum(counts, 1), 0.0)
    variance = (centred**2).sum(axis=1, keepdims=True) / np.maximum(counts, 1)
    kept = (counts[:, 0] > 1) & varies(wide, there)
    if not kept.any():
        raise DataError(
            "labels (measured losses): no query's loss varies over the subsets. Check that the fine-tunes learn, and "
            "that the subsets differ."
        )
    divisor = np.sqrt(variance) if scale == "std" else variance
    with np.errstate(divide="ignore", invalid="ignore"):
        labels = np.where(there & kept[:, None], -centred / divisor, np.nan)
    return RankLabels(labels.astype(np.float32), kept)


QUERIES_TOGETHER = 20
"""Queries of similar reliability that are averaged together, since one query alone is too uncertain."""
LEAST_SUBSETS = 8
"""Subsets below which all queries are averaged together."""


class Ceiling(NamedTuple):
    """The noise ceiling of labels, and their reliability."""

    lds: float
    """The LDS that a perfect predictor of the true mean losses would reach, 0 to 1."""
    reliability: float
    """Mean over queries of the reliability of their losses, 0 to 1: its root is their part of the ceiling."""


def noise_ceiling(by_seed: NumbersLike, averaged: float = 1) -> float:
    """Estimate the LDS that a perfect predictor of the true mean losses would reach against real, noisy losses.

    It is the mean over queries of √r, with r the reliability of a query's mean losses over k seeds: the true losses
    correlate with these means at √r. With ρ the mean Spearman correlation of two halves of the seeds, s in
    each, r = fρ / (1 + (f − 1)ρ) with f = k / s (Spearman and Brown). Exact for Pearson's correlation, close for ranks.

    One query's ρ is too uncertain for a root, and the root of the mean of all ρ is too large, since queries differ. So
    half of the subsets sort the queries into sets of about 20 with similar ρ. The other half give the mean ρ of each
    set, shrunk towards the mean of all by what chance explains. Then the halves change places. With fewer than 20
    queries or 8 subsets, the ceiling is the root of the mean of all.

    Args:
        by_seed: ``(s, q, m)`` losses of each seed; NaN where missing.
        averaged: k, the number of seeds behind the mean losses of the LDS; :func:`seeds_averaged` if some are missing.

    Returns:
        A number between 0 and 1; 0 if seeds do not agree at all.

    Raises:
        ConfigError: *averaged* is below 1, or not a number.
        DataError: fewer than two seeds, or no query whose losses two seeds have and that varies.

    Example:
        >>> seed = np.array([[2.1, 2.0, 1.9, 2.3], [1.1, 1.2, 0.9, 1.0]])
        >>> print(airrep.metrics.noise_ceiling(np.stack([seed, seed])))
        1.0
    """
    if not isinstance(averaged, int | float | np.number) or not averaged >= 1:
        raise ConfigError(
            f"averaged={averaged}: must be at least 1. Give the number of seeds that each mean loss was averaged over."
        )
    by_seed = as_numbers(by_seed, "noise ceiling")
    if by_seed.ndim != 3 or len(by_seed) < 2:
        raise DataError(
            f"noise ceiling (the value that a perfect predictor would reach): losses have shape {by_seed.shape}, but "
            "must have shape (seeds, queries, subsets) with at least two seeds. Run the fine-tunes with more seeds."
        )
    found = _ceiling(by_seed, averaged)
    if found is None:
        raise DataError(
            "noise ceiling (the value that a perfect predictor would reach): no query has two seeds whose losses both "
            "vary over the subsets. Run more fine-tunes."
        )
    return found.lds


def seeds_averaged(by_seed: np.ndarray) -> float:
    """Return the number of seeds behind a mean loss: the harmonic mean over queries and subsets with any loss.

    A mean of k losses has 1/k of the noise of one. Losses are ``(s, q, m)``, NaN where missing.
    """
    count = (~np.isnan(by_seed)).sum(axis=0)
    return float(1 / np.mean(1 / count[count > 0]))


def mean_ceiling(by_seed: Iterable[np.ndarray | None]) -> Ceiling | None:
    """Average :func:`noise_ceiling` and reliability over instances; None if none has two seeds in which losses vary.

    Each instance gives losses ``(s, q, m)``, or None for one seed; its ``averaged`` is :func:`seeds_averaged`.
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
    """Return, for each set of similar queries, how many vary and their reliability, below 0 if seeds disagree."""
    q = by_seed.shape[1]
    whole, count = split_halves(by_seed), max(2, q // QUERIES_TOGETHER)
    subsets = np.flatnonzero((~np.isnan(by_seed)).any(axis=1).sum(axis=0) > 1)  # subsets that two seeds have
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
    """Shift correlations over part of the subsets to the mean of those over all subsets: fewer ranks agree less."""
    both = ~(np.isnan(part) | np.isnan(whole))
    return part + (whole[both].mean() - part[both].mean()) if both.any() else part


def _means(rho: np.ndarray, together: Sequence[np.ndarray]) -> list[tuple[int, float]]:
    """Return each set's number of varying queries and their mean, shrunk to the mean of all by what chance explains."""
    known = [values[~np.isnan(values)] for values in (rho[queries] for queries in together)]
    sets = [values for values in known if len(values)]
    if len(sets) < 2:
        return [(len(values), float(values.mean())) for values in sets]
    means = np.array([values.mean() for values in sets])
    chance = float(np.mean([values.var(ddof=1) / len(values) for values in sets if len(values) > 1] or [0.0]))
    apart, middle = float(means.var(ddof=1)), float(np.concatenate(sets).mean())
    kept = max(0.0, 1 - chance / apart) if apart > 0 else 0.0
    return [(len(values), middle + kept * (float(values.mean()) - middle)) for values in sets]

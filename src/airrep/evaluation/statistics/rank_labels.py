"""Labels from losses, by which subsets are ranked (Eq. 7)."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from airrep.arrays import GroupScores, Mask, NumbersLike, as_numbers
from airrep.errors import ConfigError, DataError
from airrep.evaluation.statistics.bootstrap import varies
from airrep.evaluation.statistics.metrics import check_losses

Scale: TypeAlias = Literal["std", "var"]
"""Divisor of centred losses."""


@dataclass(frozen=True, eq=False)
class RankLabels:
    """Labels r̂ of one cross-validation instance."""

    labels: GroupScores
    """``(q, m)`` float32, higher = better; NaN where a loss is missing and in the rows of queries left out."""
    kept: Mask
    """``(q,)``; queries whose loss varies over the subsets."""

    @property
    def dropped(self) -> int:
        """Queries left out, as their loss does not vary."""
        return int((~self.kept).sum())


def normalise_losses(losses: NumbersLike, scale: Scale = "std") -> RankLabels:
    """Labels from losses: r̂(x, S_i) = −(ℓ_i − mean_j ℓ_j) / deviation_j ℓ_j (Eq. 7).

    Mean and deviation (or variance, as the formula is printed) are those of one query over the subsets of one
    instance whose loss is there; the deviation is that of a population, divided by m. A query whose losses differ
    by no more than 2⁻²⁰ of the greatest carries no signal and is left out.

    Args:
        losses: ``(q, m)`` mean nats per response token, lower = better; NaN where missing.
        scale: ``"std"`` for labels of deviation 1, which the thresholds 0.1 and 5 suit; ``"var"`` as printed.

    Raises:
        ConfigError: an unknown scale.
        DataError: not a matrix, fewer than two subsets, an infinite loss, or no query whose loss varies.

    Example:
        >>> airrep.metrics.normalise_losses(np.array([[2.0, 1.0, 3.5]])).labels.round(2)
        array([[ 0.16,  1.14, -1.3 ]], dtype=float32)
    """
    if scale not in ("std", "var"):
        raise ConfigError(f"scale '{scale}': does not exist; expected std or var. Choose one of them.")
    wide = check_losses(as_numbers(losses, "losses"))
    there = ~np.isnan(wide)
    counts = there.sum(axis=1, keepdims=True)
    known = np.where(there, wide, 0.0)
    centred = np.where(there, wide - known.sum(axis=1, keepdims=True) / np.maximum(counts, 1), 0.0)
    variance = (centred**2).sum(axis=1, keepdims=True) / np.maximum(counts, 1)
    kept = (counts[:, 0] > 1) & varies(wide, there)
    if not kept.any():
        raise DataError(
            "labels: no query's loss varies over the subsets; expected at least one that does. "
            "Check that the fine-tunes learn, and that the subsets differ."
        )
    divisor = np.sqrt(variance) if scale == "std" else variance
    with np.errstate(divide="ignore", invalid="ignore"):
        labels = np.where(there & kept[:, None], -centred / divisor, np.nan)
    return RankLabels(labels.astype(np.float32), kept)

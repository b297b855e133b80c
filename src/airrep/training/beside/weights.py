"""Weights to begin with, of given channels and of the encoder."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from airrep.arrays import GroupScores
from airrep.training.linear.ranking_fit import fit_ranking

LEAST, MOST = 1e-3, 30.0
"""Bounds of a weight on scores of deviation 1: labels have deviation 1 too, so 30 is a world without noise."""
QUERIES, SUBSETS, INSTANCES = 200, 200, 4
"""Most of each whose labels are fitted."""


def fit_weights(
    columns: Sequence[Float[np.ndarray, "c q m"]],
    labels: Sequence[GroupScores],
    t_min: float,
    t_max: float,
    least: Sequence[float] | None = None,
) -> list[float]:
    """The weights w of the least ranking loss (Eq. 8) of f = Σ_c w_c G_c; the loss is convex in them.

    Args:
        columns: for each instance, group scores ``(c, q, m)`` of deviation about 1 over a query's subsets.
        labels: for each instance ``(q, m)``, higher = better; NaN where missing.
        t_min: the least gap of labels that counts.
        t_max: the greatest weight of a pair.
        least: ``(c,)`` least weights; :data:`LEAST` each if None.

    Returns:
        ``(c,)`` weights, from *least* to :data:`MOST`.

    Raises:
        NoPairsError: no two labels of a query differ enough to be counted.
    """
    bounds = [(low, MOST) for low in least or [LEAST] * len(columns[0])]
    weights: list[float] = fit_ranking(columns, labels, bounds, t_min=t_min, t_max=t_max).tolist()
    return weights


def spread_out(rows: np.ndarray, most: int) -> np.ndarray:
    """At most so many of some rows, evenly spread."""
    return rows[np.unique(np.linspace(0, len(rows) - 1, most).astype(int))] if len(rows) > most else rows

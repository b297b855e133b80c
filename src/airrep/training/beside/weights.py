"""Weights of given channels, and the encoder's share among them."""

from collections.abc import Iterator, Sequence

import numpy as np

from airrep.arrays import GroupScores
from airrep.evaluation.judging import best_of
from airrep.shapes import Float
from airrep.training.linear.ranking_fit import fit_ranking

LEAST, MOST = 1e-3, 30.0
"""Bounds of a weight on scores of deviation 1: labels have deviation 1 too, so 30 is a world without noise."""
QUERIES, SUBSETS, INSTANCES = 200, 200, 4
"""Most of each whose labels are fitted."""
SHARES: tuple[float, ...] = (1.0, *(2.0 ** (half / 2) for half in (-1, -2, -3, -4, -5, -6, 1, 2)))
"""Factors on the encoder's weight that are tried on held-out labels, 1 first."""


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


def best_share(given: Sequence[GroupScores], encoder: Sequence[GroupScores], losses: Sequence[GroupScores]) -> float:
    """The factor on the encoder's group scores, of :data:`SHARES`, with which the sum ranks held-out losses best.

    What the encoder has learnt by heart makes its weight too large for examples that it did not learn from, and the
    ranking loss likes larger weights than the LDS does.

    Args:
        given: for each instance the weighed sum of the given channels, ``(q, m)``.
        encoder: the encoder's part of the same sum.
        losses: ``(q, m)``, lower = better; NaN where missing.
    """

    def score(share: float) -> Iterator[GroupScores]:
        return (one + np.float32(share) * other for one, other in zip(given, encoder, strict=True))

    return best_of(SHARES, score, losses)


def spread_out(rows: np.ndarray, most: int) -> np.ndarray:
    """At most so many of some rows, evenly spread."""
    return rows[np.unique(np.linspace(0, len(rows) - 1, most).astype(int))] if len(rows) > most else rows

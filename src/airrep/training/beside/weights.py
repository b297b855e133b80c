"""Weights of given scores that rank labels best: a convex fit of Eq. 8."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import minimize

from airrep.arrays import GroupScores
from airrep.errors import TrainingError
from airrep.training.ranking_loss import count_pairs, ranking_loss

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
        TrainingError: no two labels of a query differ enough to be counted.
    """
    wanted = [torch.from_numpy(np.ascontiguousarray(one)) for one in labels]
    pairs = sum(count_pairs(one, t_min) for one in wanted)
    if not pairs:
        raise TrainingError(
            f"labels: no two of a query differ by t_min={t_min}; expected some. Give more subsets, or lower t_min."
        )
    parts = [np.ascontiguousarray(one, dtype=np.float64) for one in columns]

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        total, gradient = 0.0, np.zeros(len(weights))
        for part, one in zip(parts, wanted, strict=True):
            f = torch.from_numpy(np.tensordot(weights, part, axes=1)).requires_grad_()
            value = ranking_loss(f, one, t_min, t_max, "sum")
            (g,) = torch.autograd.grad(value, f)
            total += float(value.detach())
            gradient += np.tensordot(part, g.numpy(), axes=2)
        return total / pairs, gradient / pairs

    bounds = [(low, MOST) for low in least or [LEAST] * len(parts[0])]
    found = minimize(loss, [low + 0.5 for low, _ in bounds], jac=True, method="L-BFGS-B", bounds=bounds)
    weights: list[float] = np.clip(found.x, *np.array(bounds).T).tolist()
    return weights


def spread_out(rows: np.ndarray, most: int) -> np.ndarray:
    """At most so many of some rows, evenly spread."""
    return rows[np.unique(np.linspace(0, len(rows) - 1, most).astype(int))] if len(rows) > most else rows

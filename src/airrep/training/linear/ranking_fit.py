"""Weights of group scores that rank labels best, by Eq. 8."""

from collections.abc import Sequence

import numpy as np
import torch
from scipy.optimize import minimize

from airrep.arrays import GroupScores
from airrep.shapes import Float
from airrep.training.ranking_loss import NoPairsError, count_pairs, ranking_loss


@torch.inference_mode(False)  # gradients are wanted wherever the caller has switched them off
def fit_ranking(
    columns: Sequence[Float[np.ndarray, "c q m"]],
    labels: Sequence[GroupScores],
    bounds: Sequence[tuple[float, float | None]],
    *,
    t_min: float = 0.1,
    t_max: float = 5.0,
    ridge: float = 0.0,
    toward: float = 0.0,
) -> np.ndarray:
    """The weights w of the least ranking loss (Eq. 8) of f = Σ_c w_c G_c, mean over all counted pairs.

    The loss is convex in w, so there is one best.

    Args:
        columns: for each instance, group scores ``(c, q, m)`` of deviation about 1 over a query's subsets.
        labels: for each instance ``(q, m)``, higher = better; NaN where missing.
        bounds: least and greatest weight of each channel; None: no bound.
        t_min: the least gap of labels that counts.
        t_max: the greatest weight of a pair.
        ridge: factor on Σ (w − toward)², added to the loss: a bound where labels set none.
        toward: the weight that all have where labels tell nothing.

    Returns:
        ``(c,)`` float64.

    Raises:
        NoPairsError: no two labels of a query differ enough to be counted.
    """
    wanted = [torch.from_numpy(np.ascontiguousarray(one)).double() for one in labels]
    pairs = sum(count_pairs(one, t_min) for one in wanted)
    if not pairs:
        raise NoPairsError(
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
        away = weights - toward
        return total / pairs + ridge * float(away @ away), gradient / pairs + 2 * ridge * away

    begin = [toward or low + 0.5 for low, _ in bounds]
    lows, highs = zip(*((low, np.inf if high is None else high) for low, high in bounds), strict=True)
    found = minimize(loss, begin, jac=True, method="L-BFGS-B", bounds=list(bounds)).x
    weights: np.ndarray = np.clip(found, lows, highs)
    return weights

"""The weighted pairwise ranking loss."""

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

import numpy as np
import torch

from airrep.arrays import NumbersLike, as_numbers
from airrep.errors import ConfigError, DataError

Reduction: TypeAlias = Literal["mean", "sum"]
"""Mean or sum of the terms of counted pairs."""

PAIRS = {"cpu": 2**16, "cuda": 2**24}
"""Pairs held at once by each kind of device: bounds memory."""

STRIPS = 4
"""Parts that the subsets are cut into, to leave out most pairs below the diagonal."""


class NoPairsError(DataError):
    """No two labels of a query differ enough to be counted."""


def ranking_loss(
    scores: NumbersLike, labels: NumbersLike, t_min: float = 0.1, t_max: float = 5.0, reduction: Reduction = "mean"
) -> torch.Tensor:
    """Compute the weighted pairwise ranking loss, −Σ w_ij log σ(f_i − f_j) over pairs with r_i > r_j (Eq. 8).

    A pair of subsets of one query counts if r_i − r_j ≥ t_min and r_i > r_j; its weight is min(r_i − r_j, t_max).
    The gradient goes to the scores alone and is computed with the loss, block by block of pairs, so that memory
    beyond a matrix ``(q, m)`` is that of one block.

    Args:
        scores: ``(q, m)`` group scores f, a tensor if a gradient is wanted; higher = more helpful.
        labels: ``(q, m)`` labels r̂, higher = better; pairs with a NaN are not counted.
        t_min: the least gap that counts.
        t_max: the greatest weight.
        reduction: ``"mean"`` over the counted pairs of all queries; ``"sum"``, 0 if there is none.

    Returns:
        A scalar of the scores' type, in nats; 0 is perfect.

    Raises:
        ConfigError: thresholds that are not 0 ≤ t_min ≤ t_max, or an unknown reduction.
        DataError: shapes that do not fit, an infinite label, or no counted pair under ``"mean"``.

    Example:
        >>> labels = torch.tensor([[1.0, 0.0, -1.0]])
        >>> print(f"{airrep.metrics.ranking_loss(labels, labels):.3f}")
        0.293
    """
    _check_thresholds(t_min, t_max)
    if reduction not in ("mean", "sum"):
        raise ConfigError(f"reduction '{reduction}': does not exist. Choose mean or sum.")
    scores, labels = _tensor(scores), _tensor(labels)
    if scores.ndim != 2 or scores.shape != labels.shape:
        raise DataError(
            f"ranking loss: scores have shape {tuple(scores.shape)} and labels {tuple(labels.shape)}; both must be "
            "(queries, subsets). Pass the labels of the queries and subsets that were scored."
        )
    if torch.isinf(labels).any():
        raise DataError("ranking loss: a label is infinite. Pass finite labels, and NaN where a label is missing.")
    apply: Any = _RankingLoss.apply  # torch declares no types for it
    return apply(scores, labels.detach(), t_min, t_max, reduction)


def _tensor(values: NumbersLike) -> torch.Tensor:
    """Return a tensor unchanged; turn other numbers into a tensor of at least float32."""
    if isinstance(values, torch.Tensor):
        return values
    found = as_numbers(values, "ranking loss")
    return torch.tensor(found.astype(np.result_type(found.dtype, np.float32)))


def count_pairs(labels: torch.Tensor, t_min: float = 0.1) -> int:
    """Count the pairs over which the ranking loss of labels ``(q, m)`` is averaged."""
    _check_thresholds(t_min, t_min)
    chunks = (ordered for _, _, ordered in _chunks(_wide(labels)))
    return sum(int(_counted(_differences(one, *strip), t_min).sum()) for one in chunks for strip in _strips(one))


def _check_thresholds(t_min: float, t_max: float) -> None:
    numbers = all(isinstance(one, int | float | np.number) for one in (t_min, t_max))
    if not numbers or not (0 <= t_min <= t_max and t_min < np.inf) or t_max != t_max:
        raise ConfigError(
            f"thresholds: t_min={t_min} and t_max={t_max} must satisfy 0 ≤ t_min ≤ t_max. The AirRep paper uses "
            "t_min=0.1, t_max=5."
        )


def _wide(values: torch.Tensor) -> torch.Tensor:
    """Return values as at least float32, without a graph."""
    return values.detach() if values.dtype == torch.float64 else values.detach().float()


def _counted(gaps: torch.Tensor, t_min: float) -> torch.Tensor:
    """Return a mask of the gaps that count; NaN and 0 never count."""
    return gaps >= t_min if t_min > 0 else gaps > 0


class _RankingLoss(torch.autograd.Function):
    """The loss with its gradient in closed form: dL/df_i = −Σ_j w_ij σ(f_j − f_i) + Σ_j w_ji σ(f_i − f_j)."""

    @staticmethod
    def forward(
        ctx: Any, scores: torch.Tensor, labels: torch.Tensor, t_min: float, t_max: float, reduction: Reduction
    ) -> torch.Tensor:
        """Loss and gradient in one pass over the pairs."""
        total, count = torch.zeros(2, dtype=torch.float64, device=scores.device)
        gradient = torch.zeros_like(_wide(scores)) if ctx.needs_input_grad[0] else None
        for rows, order, ordered in _chunks(_wide(labels).to(scores.device)):
            f = _wide(scores)[rows].gather(1, order).masked_fill(ordered.isnan(), 0)  # subsets without a label score 0
            of_scores = torch.zeros_like(f)
            for start, stop in _strips(ordered):
                weights = _differences(ordered, start, stop)
                counted = _counted(weights, t_min)
                weights.clamp_(max=t_max).masked_fill_(~counted, 0)
                differences = _differences(f, start, stop)
                total -= torch.nn.functional.logsigmoid(differences).mul_(weights).sum(dtype=torch.float64)
                count += counted.sum()
                if gradient is not None:
                    slopes = differences.neg_().sigmoid_().mul_(weights)
                    of_scores[:, start:stop] -= slopes.sum(dim=2)
                    of_scores[:, start:] += slopes.sum(dim=1)
            if gradient is not None:
                gradient[rows].scatter_(1, order, of_scores)
        if reduction == "mean" and count == 0:
            raise NoPairsError(
                "ranking loss: no query has two subsets whose labels (higher = better) differ by "
                f"t_min={t_min} or more. Pass more queries or subsets, or lower t_min."
            )
        divisor = count if reduction == "mean" else torch.ones_like(count)
        if gradient is not None:
            ctx.save_for_backward((gradient / divisor).to(scores.dtype))
        return (total / divisor).to(scores.dtype)

    @staticmethod
    def backward(ctx: Any, *of_loss: torch.Tensor) -> tuple[torch.Tensor, None, None, None, None]:
        """Multiply the stored gradient by the gradient on the loss."""
        (gradient,) = ctx.saved_tensors
        return gradient * of_loss[0], None, None, None, None


def _pairs(values: torch.Tensor) -> int:
    return PAIRS.get(values.device.type, PAIRS["cpu"])


def _chunks(labels: torch.Tensor) -> Iterator[tuple[slice, torch.Tensor, torch.Tensor]]:
    """Yield a few queries at a time, to keep a block of pairs small: rows, order of subsets, labels in that order.

    Labels fall along the order, so that pairs that count lie above the diagonal; missing labels go last.
    """
    q, m = labels.shape
    step = max(1, _pairs(labels) // max(m * -(-m // STRIPS), 1))
    for first in range(0, q, step):
        rows = slice(first, min(first + step, q))
        order = labels[rows].nan_to_num(nan=-torch.inf).argsort(dim=1, descending=True, stable=True)
        yield rows, order, labels[rows].gather(1, order)


def _strips(labels: torch.Tensor) -> Iterator[tuple[int, int]]:
    """Cut all pairs (i, j) with j ≥ i into blocks of rows; yield start and stop of i for each block."""
    queries, m = labels.shape
    step = max(1, min(_pairs(labels) // max(queries * m, 1), -(-m // STRIPS)))
    yield from ((start, min(start + step, m)) for start in range(0, m, step))


def _differences(values: torch.Tensor, start: int, stop: int) -> torch.Tensor:
    """Return values of subsets *start* to *stop* minus values from *start* on, ``(queries, rows, m − start)``."""
    return values[:, start:stop, None] - values[:, None, start:]

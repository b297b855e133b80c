"""Group scores from the scores of members."""

from typing import Literal, TypeAlias, get_args

import numpy as np

from airrep.errors import ConfigError, DataError

Pool: TypeAlias = Literal["sum", "mean", "attention"]
"""How the scores of a group's members become one group score."""


def check_pool(pool: str, temperature: float = 1.0) -> None:
    """Refuse what is no pool.

    Raises:
        ConfigError: an unknown pool, or a temperature that is not positive.
    """
    if pool not in get_args(Pool):
        raise ConfigError(f"pool '{pool}': does not exist; expected sum, mean or attention. Choose one of them.")
    if not 0 < temperature < np.inf:
        raise ConfigError(f"temperature {temperature}: is not above 0 and finite. Give a positive number.")


def pool_scores(scores: np.ndarray, pool: Pool, temperature: float = 1.0) -> np.ndarray:
    """The plain definition of a group score, for one group.

    ``sum`` is Σ_i s_i, ``mean`` is Σ_i s_i / k, and ``attention`` (Eq. 6) is Σ_i softmax_i(|s_i| / T) · s_i
    with temperature T, which lies between the least and the greatest s_i.

    Args:
        scores: ``(q, k)`` scores of the k members; higher = more helpful.
        pool: ``"sum"``, ``"mean"`` or ``"attention"``.
        temperature: the larger, the flatter the attention.

    Returns:
        ``(q,)`` float32; higher = more helpful.

    Raises:
        ConfigError: an unknown pool, or a temperature that is not positive.
        DataError: no members, or a score that is not finite.
    """
    check_pool(pool, temperature)
    if scores.ndim != 2 or scores.shape[1] == 0:
        raise DataError(f"group: scores are {scores.shape}; expected (q, k) with k > 0. Give it at least one member.")
    wide = scores.astype(np.float64)
    if not np.isfinite(wide).all():
        raise DataError("group: a score is not finite; expected numbers. Check the model for overflow.")
    if pool == "attention":
        return _attention(wide, temperature).astype(np.float32)
    pooled: np.ndarray = (wide.sum(axis=1) if pool == "sum" else wide.mean(axis=1)).astype(np.float32)
    return pooled


def _attention(scores: np.ndarray, temperature: float) -> np.ndarray:
    size = np.abs(scores) / temperature
    weights = np.exp(size - size.max(axis=1, keepdims=True))
    pooled: np.ndarray = (weights * scores).sum(axis=1) / weights.sum(axis=1)
    return pooled

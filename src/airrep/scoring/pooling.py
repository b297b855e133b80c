"""Pools of members' scores, and their plain definitions: sum, mean, attention."""

import re
from dataclasses import dataclass, replace
from typing import Any, Literal, SupportsAbs, TypeAlias, TypeVar, get_args

import numpy as np

from airrep import dropped
from airrep.arrays import NumbersLike, as_numbers
from airrep.errors import ConfigError, DataError, near

Pool: TypeAlias = Literal["sum", "mean", "diminishing", "attention", "signed-attention", "ngram-lm"]
"""Pool by which a method turns the scores of a group's members into one group score."""
TrainedPool: TypeAlias = Literal["attention", "signed-attention", "mean"]
"""A pool that an encoder can be trained with."""
Constants: TypeAlias = Literal["exact", "paper"]
"""Coefficients of order-k group influence: those that follow from its definition, or those that the paper prints."""

_POOLS = f"{', '.join(get_args(Pool))}, order-inf or order-K (such as order-1)"
_EXAMPLES = (*get_args(Pool), "order-1", "order-inf")
Scores = TypeVar("Scores", bound=SupportsAbs[Any])
Kind: TypeAlias = Literal[Pool, "order", "channels"]
"""A method's pool; ``order``: influence of a group to some order; ``channels``: each channel by its own pool."""
ATTENTIONS = ("attention", "signed-attention")
"""Pools with a temperature: weighted by the absolute scores (Eq. 6), or by the scores."""
_PLAIN: dict[str, Kind] = {**{pool: pool for pool in get_args(Pool)}, "order-inf": "order"}
_GONE = re.compile(r"(top|power)-.*")
_ORDER = re.compile(r"order-([1-9][0-9]{0,8})(-paper)?", re.ASCII)


@dataclass(frozen=True)
class Pooling:
    """A way to compute the score of a group from its members; :meth:`parse` reads the names of pools.

    :func:`pool_scores` defines ``sum``, ``mean`` and both attentions. Three pools need features, not scores alone.
    ``diminishing`` is the mean of s_i ln(1 + κ_i) / κ_i, where κ_i, at least 0, is the sum of the cosines of member i
    with the other members: similar members add less each (:mod:`airrep.scoring.group_scores`). ``order-K`` is the
    increase of the query's loss if the group were removed, by K terms of a series; ``order-inf`` takes all terms
    (:mod:`airrep.scoring.orders`). ``ngram-lm`` is the gain in likelihood by a language model that counts the group's
    n-grams (:mod:`airrep.scoring.gains`).
    """

    kind: Kind
    k: int | None = None
    """Terms of the series of ``order-K``; None for all."""
    temperature: float = 1.0
    """Temperature of attention: the larger, the flatter."""
    constants: Constants = "exact"
    """Coefficients of ``order-K``; the paper prints coefficients only for K of 1 and 2."""

    def __post_init__(self) -> None:
        """Check that the parts fit together."""
        if self.kind not in get_args(Kind) or (self.k is not None and self.kind != "order"):
            raise ConfigError(f"pool '{self.text}' (a way to score a group): does not exist. Choose {_POOLS}.")
        if self.k is not None and self.k < 1:
            raise ConfigError(
                f"pool '{self.text}' (a way to score a group): the number after 'order-' must be at least 1."
            )
        printed = self.constants == "paper" and self.kind == "order" and self.k in (1, 2)
        if self.constants != "exact" and not printed:
            raise ConfigError(
                f"pool '{self.text}' (a way to score a group): the ending -paper is possible only in order-1-paper "
                "and order-2-paper. Remove -paper."
            )
        _require_positive(self.temperature)
        if self.temperature != 1 and not self.attends:
            raise ConfigError(
                f"temperature {self.temperature}: pool {self.text} (a way to score a group) has no temperature. "
                "Remove the temperature, or use pool attention."
            )

    @property
    def attends(self) -> bool:
        """True if members are weighted by their scores, at a temperature."""
        return self.kind in ATTENTIONS

    @property
    def linear(self) -> bool:
        """True if members' weights do not depend on the query, so that features can be pooled first."""
        return self.kind in ("sum", "mean", "diminishing")

    @property
    def reads_features(self) -> bool:
        """True if the group score cannot be computed from the members' scores alone."""
        return self.kind in ("diminishing", "order", "ngram-lm")

    @property
    def text(self) -> str:
        """Text that :meth:`parse` reads, without the temperature."""
        if self.kind != "order":
            return self.kind
        suffix = "" if self.constants == "exact" else f"-{self.constants}"
        return f"order-{'inf' if self.k is None else self.k}{suffix}"

    def __str__(self) -> str:
        return pooling_text(self.text, self.temperature)

    @classmethod
    def parse(cls, pool: "PoolLike", temperature: float = 1.0, where: str | None = None) -> "Pooling":
        """Read a pool, which errors call *where* (None: by its text); a temperature of 1 leaves a pool as it is.

        ``"order-1-paper"`` and ``"order-2-paper"`` take the constants that the paper prints. ConfigError: the pool does
        not exist, the temperature is not positive, or the pool has no temperature.
        """
        if isinstance(pool, Pooling):
            return pool if temperature == 1 else replace(pool, temperature=temperature)
        _require_positive(temperature)
        if isinstance(pool, str) and pool in _PLAIN:
            return cls(_PLAIN[pool], temperature=temperature)
        found = _ORDER.fullmatch(pool) if isinstance(pool, str) else None
        if found is None:
            named = where or f"pool {pool!r}"
            if isinstance(pool, str) and (gone := _GONE.fullmatch(pool)):
                raise ConfigError(f"{named}: was removed. Use {dropped.POOLS[gone[1]]}")
            raise ConfigError(
                f"{named}: this way to score a group does not exist; expected one of {_POOLS}. {near(pool, _EXAMPLES)}"
            )
        return cls("order", int(found[1]), temperature, "paper" if found[2] else "exact")


PoolLike: TypeAlias = str | Pooling
"""A pool, or its text."""


def pooling_text(pool: str | None, temperature: float | None) -> str:
    """Return a pool's text, with its temperature if that is not 1; empty without a pool."""
    return f"{pool or ''}{'' if temperature is None or temperature == 1 else f' at temperature {temperature:g}'}"


def exponents(scores: Scores, kind: str) -> Scores:
    """Return exponents of attention before the temperature: |s|, or s for signed attention."""
    return scores if kind == "signed-attention" else abs(scores)


def undefined(pooling: Pooling, where: str) -> NotImplementedError:
    """Return the error for code that lacks a pool, so that no pool is silently taken for another."""
    return NotImplementedError(
        f"{where}: pool '{pooling}' (a way to score a group) is not implemented. Use another pool."
    )


def _require_positive(temperature: float) -> None:
    try:
        good = bool(0 < temperature < np.inf)
    except (TypeError, ValueError):  # not a number, or several
        good = False
    if not good:
        raise ConfigError(f"temperature is {temperature}; it must be a finite number above 0.")


SUM, CHANNELS = Pooling("sum"), Pooling("channels")
"""The sum of members' scores; and each channel by its own pool, for methods with channels."""


def pool_scores(scores: NumbersLike, pool: PoolLike, temperature: float = 1.0) -> np.ndarray:
    """Compute the scores of one group by the plain definition of a pool.

    ``sum`` is Σ_i s_i, ``mean`` is Σ_i s_i / k, and ``attention`` (Eq. 6) is Σ_i softmax_i(|s_i| / T) · s_i
    with temperature T, which lies between the least and the greatest s_i. ``signed-attention`` is
    Σ_i softmax_i(s_i / T) · s_i: members that score far below 0 count little instead of much.

    Args:
        scores: ``(q, k)`` scores of the k members; higher = more helpful.
        pool: ``"sum"``, ``"mean"``, ``"attention"`` or ``"signed-attention"``.
        temperature: the larger, the flatter the attention.

    Returns:
        ``(q,)`` float32; higher = more helpful.

    Raises:
        ConfigError: an unknown pool, a pool that needs features, or a temperature that is not positive or for another
            pool than attention.
        DataError: there are no members, or a member's score or the group's score is not finite.

    Example:
        >>> scores = np.array([[0.1, 0.2, 0.9]])
        >>> airrep.metrics.pool_scores(scores, "mean")
        array([0.4], dtype=float32)
    """
    pooling = Pooling.parse(pool, temperature)
    if pooling.reads_features:
        raise ConfigError(
            f"pool '{pooling}': this way to score a group needs the features of the examples, but pool_scores gets "
            "only scores. Call airrep.scoring.group_scores.group_scores instead of pool_scores."
        )
    scores = as_numbers(scores, "group")
    if scores.ndim != 2 or scores.shape[1] == 0:
        raise DataError(f"group: shape is {scores.shape}; it must be (queries, members), with at least one member.")
    wide = scores.astype(np.float64)
    if not np.isfinite(wide).all():
        raise DataError("group: a score is not finite. Check the model for overflow.")
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # checked in the result
        pooled: np.ndarray = _pooled(wide, pooling).astype(np.float32)
    if not np.isfinite(pooled).all():
        raise DataError("group: its score is too large for float32. Check the model for overflow.")
    return pooled


def _pooled(scores: np.ndarray, pooling: Pooling) -> np.ndarray:
    if pooling.attends:
        size = exponents(scores, pooling.kind) / pooling.temperature
        weights = np.exp(size - size.max(axis=1, keepdims=True))
        return (weights * scores).sum(axis=1) / weights.sum(axis=1)
    if pooling.kind == "sum":
        return np.asarray(scores.sum(axis=1))
    if pooling.kind == "mean":
        return np.asarray(scores.mean(axis=1))
    raise undefined(pooling, "pool_scores")

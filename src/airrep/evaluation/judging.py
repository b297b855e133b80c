"""Group scores, best scale and LDS of any method on labelled instances."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from airrep.arrays import Features, GroupScores
from airrep.attributors.base import Attributor, fit_method
from airrep.attributors.direct import InMemory
from airrep.encoder.base import Encoder
from airrep.evaluation.statistics.bootstrap import Uncertainty
from airrep.evaluation.statistics.means import Difference, Interval
from airrep.evaluation.statistics.metrics import RESAMPLES, LdsResult, PairedResult, lds, p_value, paired
from airrep.labels.labels import LabelledInstance
from airrep.scoring.asked import Asked
from airrep.scoring.blocks import Block
from airrep.scoring.group_scores import group_scores
from airrep.scoring.groups import Groups
from airrep.scoring.pooling import Pooling, PoolLike
from airrep.scoring.products import ask
from airrep.shapes import Float

T = TypeVar("T")
SPREADS = tuple(2.0 ** (half / 2) for half in range(-6, 7))
"""Deviations of member scores to try, 1/8 to 8; with wider ones attention is only a maximum."""


def score_instance(
    method: Encoder | Attributor, instance: LabelledInstance, pool: PoolLike | None = None, temperature: float = 1.0
) -> GroupScores:
    """Score an instance's subsets for its queries, ``(q, m)`` float32; higher = more helpful.

    An attributor is fitted on the instance's train pool. Without *pool*, an attributor uses its own pool, an encoder
    the pool that it was trained with, or attention. The higher the temperature, the flatter attention is.

    ConfigError: an unknown pool, a temperature not above 0, or a pool that needs a symmetric method. DataError:
    features or scores are not finite.
    """
    asked = ask_instance(method, instance)
    if isinstance(method, Encoder):
        pooling = Pooling.parse(pool or method.trained_pool or "attention", temperature)
    else:
        pooling = method.pooling(pool, temperature)
    return group_scores(asked, compact_subsets(instance.subsets)[1], pooling, examples=len(instance.train))


def ask_instance(method: Encoder | Attributor, instance: LabelledInstance) -> Asked:
    """Prepare to score the examples in some subset, ascending by row, for the queries; fits an attributor first."""
    members = instance.train.take(compact_subsets(instance.subsets)[0])
    if isinstance(method, Encoder):
        return ask(method.encode(instance.queries, queries=True), [Block(0, method.encode(members))])
    fit_method(method, instance.train)
    return method.ask(instance.queries, InMemory.of(method, members))


def score_features(
    train: Features, queries: Features, subsets: Groups, pool: PoolLike, temperature: float = 1.0, device: str = "cpu"
) -> GroupScores:
    """Score groups ``(q, m)`` by features; *subsets* are rows of *train*; errors as in :func:`score_instance`."""
    asked = ask(queries, [Block(0, train)], device=device)
    return group_scores(asked, subsets, pool, temperature=temperature)


def scales(scores: np.ndarray) -> list[float]:
    """Return inverse temperatures to try: 1, and those that bring the deviation of scores to :data:`SPREADS`."""
    spread = float(np.std(scores))
    return [1.0, *(wanted / max(spread, 1e-12) for wanted in SPREADS)]


def best_of(tried: Sequence[T], score: Callable[[T], Iterable[GroupScores]], losses: Sequence[GroupScores]) -> T:
    """Return the way of scoring with the highest mean LDS over instances; the first if several tie."""

    def value(one: T) -> float:
        found = zip(score(one), losses, strict=True)
        return float(np.mean([lds(scores, wanted, resamples=0).value for scores, wanted in found]))

    return max(tried, key=value) if len(tried) > 1 else tried[0]


def compact_subsets(subsets: Groups) -> tuple[np.ndarray, Groups]:
    """Return the rows in some subset, ascending, and the subsets as places among these rows."""
    used, places = np.unique(subsets.rows, return_inverse=True)
    return used, Groups(subsets.names, places, subsets.offsets)


@dataclass(frozen=True)
class HeldOutLds:
    """Mean LDS over instances; *queries* and *subsets* are the numbers that count."""

    value: float
    """Between −1 and 1."""
    interval: Interval
    """95 %, from a two-way bootstrap in each instance; instances are independent but for queries that they share."""
    by_instance: Mapping[str, float]
    queries: int
    subsets: int

    def to_dict(self) -> dict[str, Any]:
        told = {name: value for name, value in vars(self).items() if name != "value"}
        return {"lds": self.value, **told, "interval": list(self.interval), "by_instance": dict(self.by_instance)}


class Losses(Protocol):
    """An instance with losses, such as a :class:`LabelledInstance`."""

    @property
    def name(self) -> str: ...

    @property
    def query_texts(self) -> Sequence[str] | Sequence[int]:
        """Key of each query, equal for equal texts."""

    @property
    def losses(self) -> GroupScores:
        """``(q, m)``, lower = better; NaN where missing."""


def shared_queries(instances: Sequence[Losses]) -> Float[np.ndarray, "i i"] | None:
    """Return the share of queries that two instances have in common, |A ∩ B| / √(|A| |B|); None if no two share any."""
    texts = [set(instance.query_texts) for instance in instances]
    # The root of a square is exact, so the diagonal is 1 and the sum tells whether anything else is above 0.
    found = np.array([[len(one & other) / math.sqrt(len(one) * len(other)) for other in texts] for one in texts])
    return None if found.sum() == len(texts) else found


def held_out_lds(scores: Sequence[GroupScores], instances: Sequence[Losses], resamples: int = RESAMPLES) -> HeldOutLds:
    """Compute the LDS of group scores, one matrix ``(q, m)`` for each instance, with *resamples* bootstrap draws.

    DataError: scores that are not finite or all constant, or losses that are all missing.
    """
    results = [lds(f, instance.losses, resamples=resamples) for f, instance in zip(scores, instances, strict=True)]
    return lds_over([instance.name for instance in instances], results, shared_queries(instances))


def lds_over(names: Sequence[str], results: Sequence[LdsResult], shared: np.ndarray | None = None) -> HeldOutLds:
    """Combine the LDS of several instances; *shared* comes from :func:`shared_queries`."""
    value = float(np.mean([result.value for result in results]))
    wider = _widening([result.uncertainty for result in results], shared)
    return HeldOutLds(
        value=value,
        interval=_combined(value, [(result.value, result.interval) for result in results], wider),
        by_instance={name: result.value for name, result in zip(names, results, strict=True)},
        queries=sum(result.queries for result in results),
        subsets=sum(result.subsets for result in results),
    )


def compare_held_out(
    first: Sequence[GroupScores], second: Sequence[GroupScores], instances: Sequence[Losses], resamples: int = RESAMPLES
) -> Difference:
    """Return the paired difference of two methods' LDS; arguments and errors as for :func:`held_out_lds`."""
    both = zip(first, second, instances, strict=True)
    results = [paired(a, b, instance.losses, resamples=resamples) for a, b, instance in both]
    return difference_over(results, resamples, shared_queries(instances))


def difference_over(
    results: Sequence[PairedResult], resamples: int = RESAMPLES, shared: np.ndarray | None = None
) -> Difference:
    """Combine the differences of several instances; *shared* comes from :func:`shared_queries`.

    The variance of a mean of n values is the sum of their covariances over n²: their variances, and for two instances
    with a share s of queries in common s √(V_q V_q'), with V_q the part of a variance that comes from the queries. Its
    degrees of freedom are Satterthwaite's for independent instances; with shared queries, at most the least of all.
    """
    value = float(np.mean([result.difference for result in results]))
    parts = [result.uncertainty for result in results]
    wider = _widening(parts, shared)
    interval = _combined(value, [(result.difference, result.interval) for result in results], wider)
    total = sum(part.variance for part in parts)
    unsure = sum(part.variance**2 / part.freedom for part in parts)
    freedom = total**2 / unsure if unsure > 0 else np.inf
    units = sum(part.units for part in parts)
    if shared is not None:
        freedom, units = min(freedom, *(part.freedom for part in parts)), min(part.units for part in parts)
    over_all = Uncertainty(wider**2 * total / len(parts) ** 2, freedom, units=units)
    return Difference(value, interval, p_value(value, over_all, resamples))


def _widening(parts: Sequence[Uncertainty], shared: np.ndarray | None) -> float:
    """Return the factor by which shared queries raise the error of a mean over instances."""
    alone = sum(part.variance for part in parts)
    if shared is None or not alone > 0:
        return 1.0
    common = np.sqrt([part.queries for part in parts])
    together = alone + float(common @ (shared - np.eye(len(parts))) @ common)
    return math.sqrt(together / alone)


def _combined(value: float, parts: Sequence[tuple[float, Interval]], wider: float) -> Interval:
    """Return the interval of a mean of n values: each side is the root of the summed squares, over n, times *wider*."""
    below = wider * math.hypot(*(mean - interval.low for mean, interval in parts)) / len(parts)
    above = wider * math.hypot(*(interval.high - mean for mean, interval in parts)) / len(parts)
    return Interval(value - below, value + above)

"""Scores of one index on labelled instances, each computed once."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from airrep.arrays import Features, GroupScores
from airrep.evaluation.matching import RowFinder
from airrep.evaluation.statistics.metrics import lds
from airrep.index.index import Index
from airrep.labels.instance import LabelledInstance
from airrep.scoring.pooling import Pooling, PoolLike, exponents
from airrep.scoring.scores import score_blocks

QUERIES, SUBSETS = 50, 20
"""Of the first instance, whose members' scores are looked at one by one."""
FLAT = 1e-5
"""Deviation of a query's group scores, as a share of their size, that float32 hardly resolves."""


@dataclass(frozen=True)
class Weights:
    """How attention shares its weight among the members of a subset."""

    deviation: float
    """Of member scores, divided by the temperature."""
    members: float
    """Mean over queries and subsets of exp(entropy of the weights): how many members count."""
    size: float
    """Mean members of a subset."""


class Scored:
    """Scores of one index on some labelled instances."""

    def __init__(self, index: Index, instances: Sequence[LabelledInstance], pool: PoolLike | None, t: float) -> None:
        """Score all subsets.

        Args:
            index: of any data that contains the train pools.
            instances: queries and subsets.
            pool: the method's own when None.
            t: temperature of attention.

        Raises:
            ConfigError: a pool that does not fit.
            DataError: the index lacks an example, or a score is not finite.
        """
        self.index, self.instances = index, tuple(instances)
        self.pooling: Pooling = index.attributor.pooling(pool, t)
        self._finder = RowFinder(index, instances)
        self.queries: list[Features] = [index.encode_queries(one.queries) for one in instances]
        pairs = zip(instances, self.queries, strict=True)
        self.scores: list[GroupScores] = [self._finder.score(one, self.pooling, asked) for one, asked in pairs]

    @cached_property
    def flat(self) -> np.ndarray:
        """Whether a query's group scores are the same for all subsets, as far as float32 can tell, ``(q,)``."""
        wide = [scores.astype(np.float64) for scores in self.scores]
        return np.concatenate([part.std(axis=1) <= FLAT * np.abs(part).mean(axis=1) for part in wide])

    @cached_property
    def constant(self) -> bool:
        """Whether some instance has not one query whose scores and losses vary."""
        pairs = zip(self.scores, self.instances, strict=True)
        return any(not (np.ptp(f, axis=1) > 0)[np.nanstd(one.losses, axis=1) > 0].any() for f, one in pairs)

    @cached_property
    def per_query(self) -> np.ndarray:
        """Spearman of each query, ``(q,)``; NaN where scores or losses are constant."""
        pairs = zip(self.scores, self.instances, strict=True)
        return np.concatenate([lds(f, one.losses, resamples=0).per_query for f, one in pairs])

    @cached_property
    def empty_queries(self) -> int:
        """Queries whose features are all 0."""
        return sum(_empty(features) for features in self.queries)

    @cached_property
    def weights(self) -> Weights:
        """Of attention, over some queries and subsets of the first instance."""
        subsets = self._finder.subsets(self.instances[0])
        part = subsets.part(0, min(len(subsets), SUBSETS))
        chosen = np.linspace(0, len(self.instances[0].queries) - 1, QUERIES).astype(int)
        rows, places = np.unique(part.rows, return_inverse=True)
        scores = self._members(self.queries[0][np.unique(chosen)], rows)
        groups = [scores[:, places[part.offsets[j] : part.offsets[j + 1]]] for j in range(len(part))]
        sizes = [exponents(group, self.pooling.kind) / self.pooling.temperature for group in groups]
        counted = np.mean([_effective(size) for size in sizes])
        deviation = float(np.std(scores)) / self.pooling.temperature
        return Weights(deviation, float(counted), float(part.sizes.mean()))

    def _members(self, queries: Features, rows: np.ndarray) -> np.ndarray:
        """Scores of some rows of the index, ``(q, b)`` float64."""
        parts = []
        for start, scores in score_blocks(queries, self.index.blocks):
            here = rows[(rows >= start) & (rows < start + scores.shape[1])] - start
            parts.append(scores[:, here].astype(np.float64))
        return np.concatenate(parts, axis=1)


def _empty(features: Features) -> int:
    """Rows that are all 0."""
    return int(features.shape[0]) - len(np.unique(features.nonzero()[0]))


def _effective(size: np.ndarray) -> float:
    """exp(−Σ w log w) with w = softmax(size), mean over queries; *size* ``(q, k)``."""
    weights = np.exp(size - size.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    logs = np.log(np.where(weights > 0, weights, 1.0))
    return float(np.exp(-(weights * logs).sum(axis=1)).mean())

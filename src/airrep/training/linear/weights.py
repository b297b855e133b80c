"""Group scores of channels on labelled instances; weights of channels by Eq. 8."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from airrep.arrays import Features, GroupScores
from airrep.attributors.base import Attributor
from airrep.attributors.sums.reference import REFERENCE, Reference
from airrep.errors import DataError
from airrep.evaluation.judging import compact_subsets, encode_instance, score_features
from airrep.evaluation.statistics.rank_labels import normalise_losses
from airrep.labels.instance import LabelledInstance
from airrep.runtime.seeding import stream
from airrep.scoring.groups import Groups
from airrep.scoring.pooling import Pooling, PoolLike
from airrep.scoring.scores import score_all
from airrep.training.linear.ranking_fit import fit_ranking

RIDGE = 1e-4
"""Factor on the squared weights, in deviations: a bound where labels set none."""
LEAST = 0.01
"""Least share of the weights that a channel must have to stay."""


class NothingRisesError(DataError):
    """No channel's group scores rise with the labels."""


@dataclass(frozen=True, eq=False)
class MemberFeatures:
    """Features of one method for one instance."""

    instance: LabelledInstance
    groups: Groups
    """The subsets as rows of the training features."""
    train: Features
    queries: Features

    @classmethod
    def of(cls, method: Attributor, instance: LabelledInstance) -> "MemberFeatures":
        """Fit the method on the train pool; encode the queries and the examples that are in some subset."""
        train, queries = encode_instance(method, instance)
        return cls(instance, compact_subsets(instance.subsets)[1], train, queries)

    @cached_property
    def _reference(self) -> Reference:
        """Random groups of the examples in some subset; the same rows for every method."""
        rows = stream(0, "stack", "reference").permutation(self.train.shape[0])[:REFERENCE]
        return Reference((self.train[np.sort(rows)],), "")

    def reference_scores(self, pooling: Pooling) -> np.ndarray:
        """Scores of random groups, ``(q, groups)``, by which a relative weight is told."""
        found: np.ndarray = self._reference.scores([self.queries], [pooling])[0]
        return found

    @cached_property
    def scores(self) -> np.ndarray:
        """``(n, q)`` float32: the scores of all training examples."""
        return np.ascontiguousarray(score_all(self.queries, self.train).T)

    def pooled(self, pooling: PoolLike) -> GroupScores:
        """Group scores of the subsets, ``(q, m)``."""
        if isinstance(pooling, Pooling) and pooling.reads_features:
            return score_features(self.train, self.queries, self.groups, pooling)
        # Scores as features, with unit vectors as queries: many pools are tried, and none multiplies features again.
        return score_features(self.scores, np.eye(self.scores.shape[1], dtype=np.float32), self.groups, pooling)


def fit_weights(scores: Sequence[Sequence[GroupScores]], losses: Sequence[np.ndarray]) -> tuple[float, ...]:
    """Weights w_c ≥ 0 of channels that make Σ_c w_c g_c least wrong by Eq. 8, and its deviation over subsets about 1.

    The loss is convex in w, so there is one best. Channels of less than a hundredth of all weights, in deviations,
    get 0.

    Args:
        scores: for each channel its group scores on each instance, ``(q, m)``.
        losses: of each instance, ``(q, m)``; NaN where missing.

    Raises:
        NothingRisesError: no channel rises with the labels.
        DataError: the labels cannot be ranked.
    """
    deviations = [_deviation(one) for one in scores]
    columns = [
        np.stack([_centred(one[place]) / deviation for one, deviation in zip(scores, deviations, strict=True)])
        for place in range(len(losses))
    ]
    labels = [normalise_losses(one).labels for one in losses]
    found = fit_ranking(columns, labels, [(0.0, None)] * len(scores), ridge=RIDGE)
    if not found.sum() > 0:
        raise NothingRisesError(
            "stack: no member's scores rise with the labels; expected one at least. Take other members, or more labels."
        )
    shares = np.where(found < LEAST * found.sum(), 0.0, found)
    return tuple((shares / shares.sum() / deviations).tolist())


def _centred(scores: GroupScores) -> np.ndarray:
    """Scores less their mean over subsets: alike for the loss, and small numbers."""
    wide: np.ndarray = scores.astype(np.float64)
    centred: np.ndarray = wide - wide.mean(axis=1, keepdims=True)
    return centred


def _deviation(scores: Sequence[GroupScores]) -> float:
    """Root of the mean variance over a query's subsets; 1 where nothing varies."""
    return float(np.sqrt(np.mean([np.mean(_centred(one) ** 2) for one in scores]))) or 1.0

"""Deviations and weights of a stack's members, from labels."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls

from airrep.arrays import Features, numbers_of
from airrep.attributors.base import Attributor
from airrep.attributors.methods import make_attributor
from airrep.attributors.stack import Member
from airrep.errors import ConfigError, DataError
from airrep.evaluation.judging import compact_subsets, encode_instance, score_features
from airrep.labels.instance import LabelledInstance
from airrep.runtime.settings import read_settings
from airrep.scoring.groups import Groups
from airrep.scoring.scores import score_all
from airrep.training.ranking_loss import normalise_losses

ROWS = 4096
"""Training examples whose scores are held at once."""
_COMMA = re.compile(r",(?![^\[{]*[\]}])")
"""A comma that is not inside a YAML list or mapping."""


class MemberChoice(NamedTuple):
    """A method of a stack, with the user's settings."""

    method: str
    settings: Mapping[str, Any]

    @classmethod
    def parse(cls, text: str) -> "MemberChoice":
        """Read ``METHOD``, or ``METHOD:`` with settings after it: ``key=value`` or YAML files, with commas between.

        Raises:
            ConfigError: no method is named, a file cannot be read, or a value is not YAML.
        """
        method, _, rest = text.partition(":")
        parts = [part for part in _COMMA.split(rest) if part.strip()]
        files = [Path(part) for part in parts if "=" not in part]
        if len(files) > 1 or not method:
            raise ConfigError(
                f"--member {text}: expected METHOD, METHOD:key=value,key=value or METHOD:settings.yaml. Write it so."
            )
        return cls(method, read_settings(files[0] if files else None, [part for part in parts if "=" in part]))

    def make(self) -> Attributor:
        """A new attributor."""
        return make_attributor(self.method, self.settings)


@dataclass(frozen=True, eq=False)
class MemberFeatures:
    """Features of all members for one instance."""

    instance: LabelledInstance
    groups: Groups
    """The subsets as rows of the training features."""
    train: Sequence[Features]
    queries: Sequence[Features]

    @cached_property
    def scores(self) -> list[np.ndarray]:
        """``(q, n)`` float32 of each member: the scores of all training examples."""
        return [score_all(queries, train) for queries, train in zip(self.queries, self.train, strict=True)]


def encode_members(methods: Sequence[Attributor], instance: LabelledInstance) -> MemberFeatures:
    """Fit every member on the train pool, and encode the queries and the examples that are in some subset."""
    train, queries = zip(*(encode_instance(method, instance) for method in methods), strict=True)
    return MemberFeatures(instance, compact_subsets(instance.subsets)[1], train, queries)


def weigh(members: Sequence[Member], encoded: Sequence[MemberFeatures]) -> tuple[Member, ...]:
    """Members with their deviations, norms and weights.

    Raises:
        DataError: a member scores all examples alike, or none helps.
    """
    measured = [_measured(member, number, encoded) for number, member in enumerate(members)]
    columns, wanted = zip(*(_regression(measured, one) for one in encoded), strict=True)
    weights, _ = nnls(np.concatenate(columns), np.concatenate(wanted))
    if not weights.sum() > 0:
        raise DataError(
            "stack: no member's scores rise with the labels; expected one at least. Take other members, or more labels."
        )
    shares = (weights / weights.sum()).tolist()
    return tuple(replace(member, weight=share) for member, share in zip(measured, shares, strict=True))


def _measured(member: Member, number: int, encoded: Sequence[MemberFeatures]) -> Member:
    """A member with the deviation of its scores and the norm of its training features."""
    variances = [_variance(one.train[number], one.queries[number]) for one in encoded]
    squares = [_mean_square(one.train[number]) for one in encoded]
    deviation, norm = float(np.sqrt(np.mean(variances))), float(np.sqrt(np.mean(squares)))
    if not 0 < deviation < np.inf or not 0 < norm < np.inf:
        raise DataError(
            f"member '{member.method}': scores all training examples alike; expected scores that vary. Leave it out."
        )
    return replace(member, deviation=deviation, norm=norm)


def _variance(train: Features, queries: Features) -> float:
    """Variance of a query's scores over the training examples, mean over queries."""
    total, squares = np.zeros(queries.shape[0]), np.zeros(queries.shape[0])
    for first in range(0, train.shape[0], ROWS):
        scores = score_all(queries, train[first : first + ROWS]).astype(np.float64)
        total += scores.sum(axis=1)
        squares += (scores**2).sum(axis=1)
    n = train.shape[0]
    return float(np.mean(squares / n - (total / n) ** 2))


def _mean_square(features: Features) -> float:
    return float(np.square(numbers_of(features).astype(np.float64)).sum() / features.shape[0])


def _regression(members: Sequence[Member], encoded: MemberFeatures) -> tuple[np.ndarray, np.ndarray]:
    """Standardised group scores ``(cells, members)`` and labels ``(cells,)``, both less their means over subsets."""
    labels = normalise_losses(encoded.instance.losses).labels
    there = ~np.isnan(labels)
    columns = []
    for number, member in enumerate(members):
        # The mean over a query's subsets is left out of scores as out of labels, over the same cells.
        sums = score_features(encoded.train[number], encoded.queries[number], encoded.groups, "sum") / member.deviation
        known = np.where(there, sums, 0.0)
        centred = sums - known.sum(axis=1, keepdims=True) / np.maximum(there.sum(axis=1, keepdims=True), 1)
        columns.append(centred[there].astype(np.float64))
    return np.stack(columns, axis=1), labels[there].astype(np.float64)

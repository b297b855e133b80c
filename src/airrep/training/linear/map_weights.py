"""Weights of groups of linear maps in a gradient method's scores, learnt from labels."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from scipy import sparse

from airrep.arrays import GroupScores
from airrep.attributors.gradient.map_weights import MapGroups, WeighsMaps
from airrep.evaluation.judging import compact_subsets
from airrep.evaluation.statistics.rank_labels import normalise_losses
from airrep.labels.instance import LabelledInstance
from airrep.scoring.groups import Groups
from airrep.shapes import Float64
from airrep.training.linear.ranking_fit import fit_ranking
from airrep.training.ranking_loss import NoPairsError, count_pairs, ranking_loss

RIDGES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
"""How strongly weights are held near each other: factors on their mean squared distance from equal ones."""
FOLDS = 5
"""Parts of the subsets, each of which is predicted from the others."""
T_MIN, T_MAX = 0.1, 5.0
"""The least gap of labels that counts, and the greatest weight of a pair."""


def learn_map_weights(method: WeighsMaps[Any], learn: Sequence[LabelledInstance]) -> dict[str, float] | None:
    """The weights of groups of linear maps that rank labels best by Eq. 8, by pattern; their mean is 1.

    The score of a group of examples is the sum over its members. No weight is below 0; a ridge draws all towards equal
    ones, and how strongly is chosen by the loss on subsets that were not fitted.

    Args:
        method: its settings name the groups; it is fitted on each instance's train pool.
        learn: instances to learn from.

    Returns:
        None where no other weights predict such subsets better than equal ones, by a standard error over five parts,
        or there are fewer than ten subsets.

    Raises:
        ConfigError: a pattern that no linear map has.
    """
    found = [_of_instance(method, one) for one in learn]
    weights = fit_map_weights(found, [one.losses for one in learn])
    return None if weights is None else dict(zip(method.map_groups, weights.round(4).tolist(), strict=True))


def fit_map_weights(
    sums: Sequence[Float64[np.ndarray, "g q m"]], losses: Sequence[np.ndarray]
) -> Float64[np.ndarray, " g"] | None:
    """The same from summed scores of each instance's subsets by group of linear maps, and its losses ``(q, m)``."""
    centred = [one - one.mean(axis=2, keepdims=True) for one in sums]
    size = float(np.sqrt(np.mean([np.mean(one.sum(axis=0) ** 2) for one in centred])))
    if len(centred[0]) == 1 or not size > 0 or min(one.shape[2] for one in centred) < 2 * FOLDS:
        return None
    columns, labels = [one / size for one in centred], [normalise_losses(one).labels for one in losses]
    ridge = _ridge(columns, labels)
    if ridge is None:
        return None
    weights = _fitted(columns, labels, ridge)
    found: np.ndarray = weights / weights.mean()
    return found


def _of_instance(method: WeighsMaps[Any], instance: LabelledInstance) -> Float64[np.ndarray, "g q m"]:
    """Summed scores of the subsets by group of linear maps."""
    rows, subsets = compact_subsets(instance.subsets)
    method.fit(instance.train)
    groups: MapGroups = method.map_groups
    member = _membership(subsets, len(rows))
    found = np.empty((len(groups), len(instance.queries), len(subsets)))
    for part, scores in method.scores_by_group(instance.train.take(rows), instance.queries, groups):
        for group, own in enumerate(scores):
            found[group, part] = (member @ own.astype(np.float64)).T
    return found


def _membership(subsets: Groups, rows: int) -> sparse.csr_array:
    return sparse.csr_array((np.ones(len(subsets.rows)), subsets.rows, subsets.offsets), shape=(len(subsets), rows))


def _ridge(columns: Sequence[np.ndarray], labels: Sequence[GroupScores]) -> float | None:
    """The ridge whose weights predict held-out subsets best; None where none is clearly better than equal weights."""
    try:
        equal, *losses = (
            np.array([_loss(*fold, ridge) for fold in _folds(columns, labels)]) for ridge in (None, *RIDGES)
        )
    except NoPairsError:  # too few labels to learn from
        return None
    best = int(np.argmin([found.mean() for found in losses]))
    gains = equal - losses[best]
    clear = gains.mean() > gains.std(ddof=1) / np.sqrt(FOLDS)
    return RIDGES[best] if clear else None


Fold = tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray], list[np.ndarray]]
"""Columns and labels of the subsets that are fitted, and of those that are predicted."""


def _folds(columns: Sequence[np.ndarray], labels: Sequence[GroupScores]) -> Iterator[Fold]:
    for first in range(FOLDS):
        out = [np.arange(one.shape[1]) % FOLDS == first for one in labels]
        kept = [own[:, :, ~some] for own, some in zip(columns, out, strict=True)]
        yield (
            kept,
            [own[:, ~some] for own, some in zip(labels, out, strict=True)],
            [own[:, :, some] for own, some in zip(columns, out, strict=True)],
            [own[:, some] for own, some in zip(labels, out, strict=True)],
        )


def _loss(
    columns: list[np.ndarray],
    labels: list[np.ndarray],
    others: list[np.ndarray],
    their_labels: list[np.ndarray],
    ridge: float | None,
) -> float:
    """Eq. 8, mean over pairs of subsets that were not fitted; 0 if there are none."""
    weights = _fitted(columns, labels, ridge)
    total, pairs = 0.0, 0
    for own, wanted in zip(others, their_labels, strict=True):
        label = torch.from_numpy(np.ascontiguousarray(wanted)).double()
        counted = count_pairs(label, T_MIN)
        if counted:
            scores = torch.from_numpy(np.tensordot(weights, own, axes=1))
            total += float(ranking_loss(scores, label, T_MIN, T_MAX, "sum"))
            pairs += counted
    return total / pairs if pairs else 0.0


def _fitted(columns: Sequence[np.ndarray], labels: Sequence[GroupScores], ridge: float | None) -> np.ndarray:
    """Weights of the least loss, drawn towards equal ones of the best size; without a ridge equal ones."""
    groups = columns[0].shape[0]
    (equal,) = fit_ranking(
        [one.sum(axis=0)[None] for one in columns], labels, [(LEAST, None)], t_min=T_MIN, t_max=T_MAX
    )
    if ridge is None:
        return np.full(groups, equal)
    bounds = [(0.0, None)] * groups
    held = ridge / equal**2
    return fit_ranking(columns, labels, bounds, t_min=T_MIN, t_max=T_MAX, ridge=held, toward=float(equal))


LEAST = 1e-3
"""Least size of equal weights, on scores of deviation 1."""

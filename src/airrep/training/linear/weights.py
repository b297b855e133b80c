"""Group scores of channels on labelled instances; their weights by Eq. 8."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor, nn

from airrep.arrays import GroupScores
from airrep.attributors.base import Attributor, fit_method
from airrep.attributors.direct import InMemory
from airrep.attributors.recipes import Channel, ChannelsSettings
from airrep.attributors.sums.channels import ChannelsAttributor
from airrep.attributors.sums.relative import REFERENCE, Reference
from airrep.errors import DataError
from airrep.evaluation.judging import compact_subsets, score_features, score_instance
from airrep.evaluation.statistics.bootstrap import FLAT
from airrep.evaluation.statistics.labels import normalise_losses
from airrep.labels.labels import LabelledInstance
from airrep.runtime.seeding import stream
from airrep.scoring.asked import Asked, score_all
from airrep.scoring.group_scores import group_scores
from airrep.scoring.groups import Groups
from airrep.scoring.pooling import Pooling, PoolLike
from airrep.shapes import Float, Float32
from airrep.training.ranking_loss import NoPairsError, count_pairs, ranking_loss

GivenScores: TypeAlias = Float32[np.ndarray, "c q m"]
"""Group scores of each channel, of queries and subsets; higher = more helpful."""
NAME = "beside."
"""Prefix of the names of channel weights among all weights that learn."""
LOG_WEIGHTS = f"{NAME}log_weights"
"""Name of the parameter with the logarithms of channel weights."""


@dataclass(frozen=True, eq=False)
class GivenChannels:
    """Channels with fixed group scores, each in units of its standard deviation."""

    methods: ChannelsAttributor
    deviations: np.ndarray
    """``(c, 1, 1)``: root of the mean variance over a query's subsets, on the instances to learn from."""
    learnt: Sequence[GivenScores]
    """Scores on each instance to learn from, divided by the deviations."""

    @classmethod
    def of(cls, channels: Sequence[Channel], instances: Sequence[LabelledInstance]) -> "GivenChannels":
        """Score the instances to learn from (DataError: a channel scores all subsets alike)."""
        methods = _attributor(channels)
        scores = [_scores(methods, instance) for instance in instances]
        found = []
        for c, channel in enumerate(methods.channels):
            wide = [one[c].astype(np.float64) for one in scores]
            found.append(float(np.sqrt(np.concatenate([one.var(axis=1) for one in wide]).mean())))
            if not found[-1] > FLAT * max(float(np.abs(one).max()) for one in wide):
                raise DataError(
                    f"channel (method) '{channel.title}': gives all subsets the same score. Remove this method from "
                    "the recipe."
                )
        deviations = np.array(found, np.float32)[:, None, None]
        return cls(methods, deviations, [one / deviations for one in scores])

    def score(self, instance: LabelledInstance) -> GivenScores:
        """Return group scores of an instance, divided by the deviations; each channel is fitted on its train pool."""
        return _scores(self.methods, instance) / self.deviations


def describe_channels(channels: Sequence[Channel]) -> list[dict[str, Any]]:
    """Describe all that decides the group scores of channels, for requests."""
    methods, described = _attributor(channels), []
    for one, method in zip(methods.channels, methods.parts, strict=True):
        whole = method.settings.model_dump(mode="json")  # with paths as the method resolves them
        settings = {name: whole.get(name, value) for name, value in one.settings.items()}
        described.append(one.model_dump(mode="json", exclude={"weight", "settings"}) | {"settings": settings})
    return described


def _attributor(channels: Sequence[Channel]) -> ChannelsAttributor:
    values = [channel.model_dump() for channel in channels]
    return ChannelsAttributor(ChannelsSettings.of({"channels": values}, "beside"))


def _scores(methods: ChannelsAttributor, instance: LabelledInstance) -> GivenScores:
    parts = zip(methods.channels, methods.parts, strict=True)
    return np.stack([score_instance(method, instance, one.pool, one.temperature) for one, method in parts])


class Mixture(nn.Module):
    """Weighted sum of given group scores and the encoder's; the ``(c + 1,)`` weights, the encoder's last, learn."""

    def __init__(self, weights: Sequence[float]) -> None:
        super().__init__()
        # Logarithms, so that steps are relative and no weight falls to 0 or below.
        self.log_weights = nn.Parameter(torch.tensor(weights, dtype=torch.float64).log().float())

    def forward(self, encoder: Float[Tensor, "q m"], given: Float[Tensor, "c q m"]) -> Float[Tensor, "q m"]:
        """Return group scores of the sum, from the encoder's and the given ones."""
        weights = self.log_weights.to(encoder).exp()
        return torch.tensordot(weights[:-1], given.to(encoder), dims=1) + weights[-1] * encoder

    @torch.no_grad()
    def scores(self, encoder: GroupScores, given: GivenScores) -> GroupScores:
        """Sum the weighted scores of arrays, on the CPU."""
        *weights, last = self.log_weights.double().exp().tolist()
        summed: GroupScores = np.tensordot(np.array(weights), given, axes=1).astype(np.float32)
        return summed + np.float32(last) * encoder


RIDGE = 1e-4
"""Ridge penalty on weights of scores of deviation 1; it bounds weights that the labels do not."""
LEAST = 0.01
"""Least share of the summed weights that a channel needs to stay."""


class NothingRisesError(DataError):
    """No channel's group scores rise with the labels."""


@dataclass(frozen=True, eq=False)
class MemberFeatures:
    """Features of one method for one instance."""

    instance: LabelledInstance
    groups: Groups
    """The subsets as rows of the training features."""
    asked: Asked
    kept: InMemory

    @classmethod
    def of(cls, method: Attributor, instance: LabelledInstance) -> "MemberFeatures":
        """Fit the method on the train pool; encode the queries and the examples that are in some subset."""
        rows, groups = compact_subsets(instance.subsets)
        fit_method(method, instance.train)
        kept = InMemory.of(method, instance.train.take(rows))
        return cls(instance, groups, method.ask(instance.queries, kept), kept)

    @cached_property
    def _reference(self) -> Reference:
        """Random groups of examples that are in some subset; every method gets the same rows."""
        rows = stream(0, "stack", "reference").permutation(self.asked.rows)[:REFERENCE]
        some = self.kept.taken(np.sort(rows))
        return Reference(some.encoded, "", some.examples)

    def reference_scores(self, pooling: Pooling) -> np.ndarray:
        """Score random groups, ``(q, groups)``, from which relative weights are computed."""
        (channel,) = self.kept.encoded
        return self._reference.scores({channel: self.asked.pooled_by(pooling)})[0]

    @cached_property
    def scores(self) -> np.ndarray:
        """``(n, q)`` float32: the scores of all training examples."""
        return np.ascontiguousarray(score_all(self.asked).T)

    def pooled(self, pooling: PoolLike) -> GroupScores:
        """Return group scores of the subsets, ``(q, m)``."""
        if isinstance(pooling, Pooling) and pooling.reads_features:
            return group_scores(self.asked, self.groups, pooling)
        # Scores as features, with unit vectors as queries: many pools are tried, and none multiplies features again.
        return score_features(self.scores, np.eye(self.scores.shape[1], dtype=np.float32), self.groups, pooling)


def fit_weights(scores: Sequence[Sequence[GroupScores]], losses: Sequence[np.ndarray]) -> tuple[float, ...]:
    """Fit weights w_c ≥ 0 of channels so that Σ_c w_c g_c has the least ranking loss (Eq. 8) and a deviation about 1.

    The loss is convex in w, so its minimum is global. *scores* are group scores ``(q, m)`` for each channel and each
    instance; *losses* have the same shape, with NaN where missing. On scores of deviation 1, channels with less than a
    hundredth of all weight get 0. NothingRisesError: no channel rises with the labels.
    """
    # Roots of the mean variance over a query's subsets; 1 if nothing varies.
    deviations = [float(np.sqrt(np.mean([np.mean(_centred(one) ** 2) for one in own]))) or 1.0 for own in scores]
    columns = [
        np.stack([_centred(one[place]) / deviation for one, deviation in zip(scores, deviations, strict=True)])
        for place in range(len(losses))
    ]
    labels = [normalise_losses(one).labels for one in losses]
    found = fit_ranking(columns, labels, [(0.0, None)] * len(scores), ridge=RIDGE)
    if not found.sum() > 0:
        raise NothingRisesError(
            "adapt: no method predicts the losses that were measured after fine-tunes on subsets of the examples. "
            "Choose other methods, or measure losses for more subsets."
        )
    shares = np.where(found < LEAST * found.sum(), 0.0, found)
    return tuple((shares / shares.sum() / deviations).tolist())


@torch.inference_mode(False)  # gradients are needed even where the caller has switched them off
def fit_ranking(
    columns: Sequence[Float[np.ndarray, "c q m"]],
    labels: Sequence[GroupScores],
    bounds: Sequence[tuple[float, float | None]],
    *,
    t_min: float = 0.1,
    t_max: float = 5.0,
    ridge: float = 0.0,
) -> np.ndarray:
    """Fit weights w, ``(c,)`` float64, to the least ranking loss (Eq. 8) of f = Σ_c w_c G_c, mean over counted pairs.

    The loss is convex in w, so its minimum is global. *columns* are group scores ``(c, q, m)`` of each instance, of
    deviation about 1 over a query's subsets; *bounds* the least and greatest weight of each channel, None for no
    greatest. The loss includes *ridge* · Σ w², which bounds weights that labels do not. NoPairsError: no pair counts.
    """
    wanted = [torch.from_numpy(np.ascontiguousarray(one)).double() for one in labels]
    pairs = sum(count_pairs(one, t_min) for one in wanted)
    if not pairs:
        raise NoPairsError(
            f"labels: no query has two labels (scaled losses) that differ by t_min={t_min} or more. Measure losses of "
            "more subsets, or lower t_min."
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
        return total / pairs + ridge * float(weights @ weights), gradient / pairs + 2 * ridge * weights

    begin = [low + 0.5 for low, _ in bounds]
    lows, highs = zip(*((low, np.inf if high is None else high) for low, high in bounds), strict=True)
    found = minimize(loss, begin, jac=True, method="L-BFGS-B", bounds=list(bounds)).x
    return np.clip(found, lows, highs)


def _centred(scores: GroupScores) -> np.ndarray:
    """Subtract the mean over subsets: the loss stays equal, and the numbers are small."""
    wide: np.ndarray = scores.astype(np.float64)
    return wide - wide.mean(axis=1, keepdims=True)

"""Channels beside an encoder in training: their group scores and weights.

It is f(x, S) = Σ_c w_c G_c(x, S) + w g(x, S) that ranks the subsets, where g pools the encoder's scores. So the encoder
learns what the channels cannot know.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from airrep.arrays import GroupScores
from airrep.attributors.recipes import Channel, ChannelsSettings
from airrep.attributors.sums.channels import ChannelsAttributor
from airrep.errors import DataError
from airrep.evaluation.judging import score_instance
from airrep.evaluation.statistics.bootstrap import FLAT
from airrep.labels.instance import LabelledInstance
from airrep.shapes import Float, Float32

GivenScores: TypeAlias = Float32[np.ndarray, "c q m"]
"""Group scores of each channel, of queries and subsets; higher = more helpful."""
NAME = "beside."
"""Begins the names of weights of channels among all weights that learn."""
LOG_WEIGHTS = f"{NAME}log_weights"
"""Name of the one such parameter."""


@dataclass(frozen=True, eq=False)
class GivenChannels:
    """Channels whose group scores are given, each in units of its deviation."""

    methods: ChannelsAttributor
    deviations: np.ndarray
    """``(c,)``: root of the mean variance over a query's subsets, of the instances that are learnt from."""
    learnt: Sequence[GivenScores]
    """Scores on each of these instances, divided by the deviations."""

    @classmethod
    def of(cls, channels: Sequence[Channel], instances: Sequence[LabelledInstance]) -> "GivenChannels":
        """Score the instances that are learnt from (DataError: a channel scores all subsets alike)."""
        methods = _attributor(channels)
        scores = [_scores(methods, instance) for instance in instances]
        found = []
        for c, channel in enumerate(methods.channels):
            wide = [one[c].astype(np.float64) for one in scores]
            found.append(float(np.sqrt(np.concatenate([one.var(axis=1) for one in wide]).mean())))
            if not found[-1] > FLAT * max(float(np.abs(one).max()) for one in wide):
                raise DataError(
                    f"channel '{channel.title}': scores all subsets alike; expected scores that vary. "
                    "Leave the channel out."
                )
        deviations = np.array(found, np.float32)[:, None, None]
        return cls(methods, deviations, [one / deviations for one in scores])

    def score(self, instance: LabelledInstance) -> GivenScores:
        """Group scores of an instance, divided by the deviations; each channel is fitted on its train pool."""
        found: GivenScores = _scores(self.methods, instance) / self.deviations
        return found


def describe_channels(channels: Sequence[Channel]) -> list[dict[str, Any]]:
    """Facts that decide the group scores of channels, for requests."""
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
    """The sum of given group scores and the encoder's; ``(c + 1,)`` weights above 0, the encoder's last, learn."""

    def __init__(self, weights: Sequence[float]) -> None:
        super().__init__()
        # Logarithms, so that steps are relative and no weight falls to 0 or below.
        self.log_weights = nn.Parameter(torch.tensor(weights, dtype=torch.float64).log().float())

    def forward(self, encoder: Float[Tensor, "q m"], given: Float[Tensor, "c q m"]) -> Float[Tensor, "q m"]:
        """Group scores of the sum, from the encoder's and the given ones."""
        weights = self.log_weights.to(encoder).exp()
        mixed: Tensor = torch.tensordot(weights[:-1], given.to(encoder), dims=1) + weights[-1] * encoder
        return mixed

    @torch.no_grad()
    def scores(self, encoder: GroupScores, given: GivenScores) -> GroupScores:
        """Sum the weighted scores of arrays, on the CPU."""
        *weights, last = self.log_weights.double().exp().tolist()
        summed: GroupScores = np.tensordot(np.array(weights), given, axes=1).astype(np.float32)
        return summed + np.float32(last) * encoder

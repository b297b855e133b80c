"""Group scores of the given channels, each in units of its deviation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from airrep.attributors.base import Attributor
from airrep.attributors.recipes import MOST_CHANNELS, Channel, ChannelsSettings
from airrep.attributors.sums.channels import ChannelsAttributor, channel_pooling
from airrep.errors import ConfigError, DataError
from airrep.evaluation.judging import score_instance
from airrep.evaluation.statistics.bootstrap import FLAT
from airrep.labels.instance import LabelledInstance
from airrep.shapes import Float32

GivenScores: TypeAlias = Float32[np.ndarray, "c q m"]
"""Group scores of each channel, of queries and subsets; higher = more helpful."""


@dataclass(frozen=True, eq=False)
class GivenChannels:
    """Channels whose group scores the encoder is trained beside."""

    channels: tuple[Channel, ...]
    deviations: tuple[float, ...]
    """Deviation of each channel's group scores over the subsets of a query: root of the mean variance over the queries
    of the instances that are learnt from."""
    learnt: Sequence[GivenScores]
    """Scores on each instance that is learnt from, divided by the deviations."""
    _methods: ChannelsAttributor

    @classmethod
    def of(cls, channels: Sequence[Channel], instances: Sequence[LabelledInstance]) -> "GivenChannels":
        """Score the instances that are learnt from.

        Raises:
            DataError: a channel scores all subsets alike, or its scores are not finite.
        """
        methods = _attributor(channels)
        scores = [_score(methods, instance) for instance in instances]
        found = [_deviation(channel, [one[c] for one in scores]) for c, channel in enumerate(methods.channels)]
        return cls(methods.channels, tuple(found), [_divided(one, found) for one in scores], methods)

    def score(self, instance: LabelledInstance) -> GivenScores:
        """Group scores of an instance, divided by the deviations; each channel is fitted on its train pool."""
        return _divided(_score(self._methods, instance), self.deviations)

    def describe(self, weights: Sequence[float], start: Sequence[float], alone: Sequence[float]) -> dict[str, Any]:
        """JSON values for a card: weights of the channels, in units of their deviations, and of the encoder.

        Args:
            weights: learnt ones, the encoder's last.
            start: the same before the first step.
            alone: those of the channels without the encoder.
        """
        rows = zip(self.channels, weights, start, alone, strict=False)
        channels = [
            {
                "name": channel.title,
                "method": channel.method,
                "view": channel.settings.get("view"),
                "weight": weight,
                "start_weight": before,
                "alone_weight": without,
            }
            for channel, weight, before, without in rows
        ]
        return {"channels": channels, "encoder_weight": weights[-1], "encoder_start_weight": start[-1]}


def check_channels(channels: Sequence[Channel]) -> None:
    """Refuse channels that nothing can be trained beside.

    Raises:
        ConfigError: too many, two of one name, a method or setting that does not exist, or a pool that is not for
            channels.
    """
    if len(channels) >= MOST_CHANNELS:
        raise ConfigError(
            f"beside: has {len(channels)} channels; expected at most {MOST_CHANNELS - 1}, as the encoder is one more. "
            "Take fewer."
        )
    methods = _attributor(channels)
    for channel, method in zip(methods.channels, methods.parts, strict=True):
        if channel.method != "airrep":  # whose own pool needs its weights
            channel_pooling(channel, method)


def describe_channels(channels: Sequence[Channel]) -> list[dict[str, Any]]:
    """What decides the group scores of channels, for requests."""
    methods = _attributor(channels)
    return [
        {**one.model_dump(mode="json", exclude={"weight", "settings"}), "settings": resolved_settings(one, method)}
        for one, method in zip(methods.channels, methods.parts, strict=True)
    ]


def resolved_settings(channel: Channel, method: Attributor) -> dict[str, Any]:
    """The channel's own settings, with paths as the method resolves them."""
    values = method.settings.model_dump(mode="json")
    return {name: values.get(name, value) for name, value in channel.settings.items()}


def _attributor(channels: Sequence[Channel]) -> ChannelsAttributor:
    values = [channel.model_dump() for channel in channels]
    return ChannelsAttributor(ChannelsSettings.of({"channels": values}, "beside"))


def _score(methods: ChannelsAttributor, instance: LabelledInstance) -> GivenScores:
    parts = zip(methods.channels, methods.parts, strict=True)
    return np.stack([score_instance(method, instance, one.pool, one.temperature) for one, method in parts])


def _deviation(channel: Channel, scores: Sequence[np.ndarray]) -> float:
    wide = [one.astype(np.float64) for one in scores]
    variances = np.concatenate([one.var(axis=1) for one in wide])
    found = float(np.sqrt(variances.mean()))
    if not found > FLAT * max(float(np.abs(one).max()) for one in wide):
        raise DataError(
            f"channel '{channel.title}': scores all subsets alike; expected scores that vary. Leave it out of --beside."
        )
    return found


def _divided(scores: GivenScores, deviations: Sequence[float]) -> GivenScores:
    divided: GivenScores = scores / np.array(deviations, np.float32)[:, None, None]
    return divided

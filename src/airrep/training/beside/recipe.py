"""Channels to train beside, read; the recipe of the sum, written."""

from collections.abc import Sequence
from typing import Any

import yaml

from airrep.attributors.methods import make_attributor
from airrep.attributors.recipes import Channel, ChannelsSettings
from airrep.errors import ConfigError
from airrep.training.beside.given import GivenChannels, resolved_settings
from airrep.training.settings import TrainingSettings

_ENCODER = "airrep"
_NAMES = ("encoder", "trained encoder")


def read_beside(name: str) -> tuple[Channel, ...]:
    """The channels of a recipe that an encoder can be trained beside: all but encoders of method airrep, whose place
    the trained one takes.

    Args:
        name: ``default``, a YAML file with a list of channels, or a folder with such a ``channels.yaml``.

    Raises:
        ConfigError: there is no such recipe, it cannot hold, or no channel is left.
    """
    channels = ChannelsSettings.of({"channels": name}, f"--beside {name}").channels
    # Weights are learnt for the scores as they are, so none stays relative.
    left = tuple(one.model_copy(update={"relative": False}) for one in channels if one.method != _ENCODER)
    if not left:
        raise ConfigError(
            f"--beside {name}: has no channel but encoders, whose place the trained one takes; expected others, such "
            "as method ngram. Add one, or leave --beside out."
        )
    return left


def recipe_text(given: GivenChannels, weights: Sequence[float], settings: TrainingSettings) -> str:
    """A YAML list of the given channels and the encoder, whose sum is what was trained.

    *weights* are those of the given channels in units of their deviations, and the encoder's. The encoder's folder is
    named relative to the recipe's.
    """
    *own, last = weights
    parts = zip(given.channels, own, given.deviations, strict=True)
    listed = [_listed(channel, weight / deviation) for channel, weight, deviation in parts]
    titles = {channel.title for channel in given.channels}
    encoder = {
        "method": _ENCODER,
        "settings": {"encoder": ".", **({} if settings.view == "whole" else {"view": settings.view})},
        "pool": settings.pool,
        "weight": last,
        "name": next((name for name in _NAMES if name not in titles), None),
    }
    content = [*listed, {name: value for name, value in encoder.items() if value is not None}]
    head = "# Channels that were trained together: airrep index DATA --method channels --set channels=THIS_FILE\n"
    return head + yaml.safe_dump(content, sort_keys=False, allow_unicode=True)


def _listed(channel: Channel, weight: float) -> dict[str, Any]:
    settings = resolved_settings(channel, make_attributor(channel.method, channel.settings))
    values = channel.model_dump(mode="json", exclude_defaults=True, exclude={"weight", "settings", "name"})
    return {**values, **({"settings": settings} if settings else {}), "weight": weight, "name": channel.title}

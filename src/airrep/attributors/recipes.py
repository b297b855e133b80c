"""Recipes of channels: read, checked; the default one."""

from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from airrep.errors import ConfigError
from airrep.runtime.settings import Settings, read_yaml

MOST_CHANNELS = 16
"""More would only cost: what one knows, the others know."""
DEFAULT = "default"
ENCODER_WEIGHT = 0.1
LARGEST = 2**20
"""Bytes of a recipe that are read at most."""


class Channel(Settings):
    """One channel: a method with its settings, the view among them, a pool and a weight."""

    method: str
    """Its method, any but channels and stack."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Settings of the method."""
    pool: str | None = None
    """How the scores of a group's members are pooled; None takes the method's own pool."""
    temperature: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Of attention: the larger, the flatter."""
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Factor on its group scores."""
    name: str | None = None
    """Name in results; None takes method and view."""

    @property
    def title(self) -> str:
        """The name in results."""
        view = self.settings.get("view")
        return self.name or (f"{self.method} {view}" if view else self.method)


class ChannelsSettings(Settings):
    """Settings of a sum of channels."""

    channels: tuple[Channel, ...] = Field(
        default_factory=lambda: default_channels(), min_length=1, max_length=MOST_CHANNELS
    )
    """The channels: 'default', a YAML file with a list of them, or the list itself. They are kept with the index."""

    @field_validator("channels", mode="before")
    @classmethod
    def _read(cls, channels: object) -> object:
        return read_channels(channels) if isinstance(channels, str) else channels

    @field_validator("channels")
    @classmethod
    def _told_apart(cls, channels: tuple[Channel, ...]) -> tuple[Channel, ...]:
        titles = [channel.title for channel in channels]
        twice = next((title for title in titles if titles.count(title) > 1), None)
        if twice is not None:
            raise ValueError(f"expected channels of different names; two are called '{twice}'")
        return channels


def default_channels() -> tuple[Channel, ...]:
    """The channels that airrep ships: two counting language models of the response, and its encoder."""
    return (
        Channel(method="ngram", settings={"tokenizer": "subwords"}, name="n-grams of subwords"),
        Channel(method="ngram", settings={"tokenizer": "words"}, name="n-grams of words"),
        Channel(method="airrep", settings={"encoder": "default"}, weight=ENCODER_WEIGHT, name="encoder"),
    )


def read_channels(name: str) -> object:
    """The content of a recipe: the default one, or a YAML file with a list of channels.

    Raises:
        ConfigError: the file cannot be read, is too large, or is no list.
    """
    if name == DEFAULT:
        return default_channels()
    path = Path(name)
    if path.is_file() and path.stat().st_size > LARGEST:
        raise ConfigError(
            f"{path}: has {path.stat().st_size:,} bytes; expected a list of at most {MOST_CHANNELS} channels."
        )
    content = read_yaml(path)
    channels = content.get("channels") if isinstance(content, dict) else content
    if not isinstance(channels, list):
        raise ConfigError(f"{path}: is no list of channels; expected lines such as '- method: ngram'. Correct it.")
    return tuple(channels)

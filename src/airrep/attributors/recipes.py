"""Recipes of channels: read, checked; the default one."""

from pathlib import Path
from typing import Any

from pydantic import Field, field_validator, model_validator

from airrep.errors import ConfigError
from airrep.runtime.settings import Settings, read_yaml

MOST_CHANNELS = 16
"""More would only cost: what one knows, the others know."""
DEFAULT = "default"
SUMS = ("channels", "stack")
ENCODER_WEIGHT = 0.3
"""Of attention over scores of the default encoder, whose spread says by itself where it knows little."""
RECIPE = "channels.yaml"
"""Name of a recipe in a folder."""
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

    @field_validator("method")
    @classmethod
    def _no_sum(cls, method: str) -> str:
        if method in SUMS:
            raise ValueError(f"expected a method that is no sum of others, unlike {' and '.join(SUMS)}")
        return method

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
    """The channels: 'default', a YAML file with a list of them (or its folder), or the list itself. They are kept with
    the index."""
    tokenizer: str | None = None
    """Of the default channels: folder or Hub id of a model, best the target LM, whose tokens count; None takes the
    pieces of the LM that comes with airrep."""

    @model_validator(mode="before")
    @classmethod
    def _read(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Read a recipe that is named, and put the tokenizer where it belongs."""
        channels, tokenizer = values.get("channels", DEFAULT), values.get("tokenizer")
        if tokenizer is not None and channels != DEFAULT:
            raise ValueError("expected one of channels and tokenizer: a recipe of your own names its tokenizers")
        if channels == DEFAULT:
            channels = default_channels() if tokenizer is None else default_channels(str(tokenizer))
        elif isinstance(channels, str):
            channels = read_channels(channels)
        return {**values, "channels": channels, "tokenizer": None}

    @field_validator("channels")
    @classmethod
    def _told_apart(cls, channels: tuple[Channel, ...]) -> tuple[Channel, ...]:
        titles = [channel.title for channel in channels]
        twice = next((title for title in titles if titles.count(title) > 1), None)
        if twice is not None:
            raise ValueError(f"expected channels of different names; two are called '{twice}'")
        return channels


def default_channels(tokenizer: str = "subwords") -> tuple[Channel, ...]:
    """The channels that airrep ships: two counting language models of the response, and its encoder.

    One counts a tokenizer's pieces, best those of the target LM, the other words.
    """
    return (
        Channel(method="ngram", settings={"tokenizer": tokenizer}, name="n-grams of tokens"),
        Channel(method="ngram", settings={"tokenizer": "words"}, name="n-grams of words"),
        Channel(method="airrep", settings={"encoder": "default"}, weight=ENCODER_WEIGHT, name="encoder"),
    )


def read_channels(name: str) -> object:
    """The content of a YAML file with a list of channels, or of ``channels.yaml`` in a folder.

    An encoder's folder that begins with a dot, such as ``.`` or ``./encoder``, is found from the file's own folder.

    Raises:
        ConfigError: the file cannot be read, is too large, or is no list.
    """
    path = Path(name) / RECIPE if Path(name).is_dir() else Path(name)
    if path.is_file() and path.stat().st_size > LARGEST:
        raise ConfigError(
            f"{path}: has {path.stat().st_size:,} bytes; expected a list of at most {MOST_CHANNELS} channels."
        )
    content = read_yaml(path)
    channels = content.get("channels") if isinstance(content, dict) else content
    if not isinstance(channels, list):
        raise ConfigError(f"{path}: is no list of channels; expected lines such as '- method: ngram'. Correct it.")
    return tuple(_placed(channel, path.parent) for channel in channels)


def _placed(channel: object, folder: Path) -> object:
    """A channel whose encoder's folder, if it begins with a dot, is found from the recipe's folder."""
    settings = channel.get("settings") if isinstance(channel, dict) else None
    encoder = settings.get("encoder") if isinstance(settings, dict) else None
    if not isinstance(channel, dict) or not isinstance(settings, dict) or not isinstance(encoder, str):
        return channel
    if not encoder.startswith("."):
        return channel
    return {**channel, "settings": {**settings, "encoder": str((folder / encoder).resolve())}}

"""The methods of training data attribution, by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from airrep.attributors.base import Attributor
from airrep.config import EncoderSettings, Settings, TfidfSettings
from airrep.errors import ConfigError


@dataclass(frozen=True)
class Method:
    """What `airrep methods` tells of a method, and where its class is."""

    name: str
    summary: str
    pool: str
    needs: str
    bytes_per_example: str
    cost: str
    paper: str
    settings: type[Settings]
    defaults: Mapping[str, Any]
    location: tuple[str, str]

    def to_dict(self) -> dict[str, Any]:
        """What `airrep methods --json` prints."""
        shown = ("name", "summary", "pool", "needs", "bytes_per_example", "cost", "paper")
        return {name: getattr(self, name) for name in shown}


METHODS: Mapping[str, Method] = {
    method.name: method
    for method in (
        Method(
            name="airrep",
            summary="sentence encoder with attention pooling, trained to rank subsets by what fine-tuning on them does",
            pool="attention",
            needs="nothing (the encoder is shipped), or --encoder MODEL",
            bytes_per_example="2 per dimension, and 1 and 12 for the search codes: 1,164 at 384 dimensions",
            cost="1 forward pass of the encoder",
            paper="AirRep, arXiv 2505.18513",
            settings=EncoderSettings,
            defaults={"encoder": "default"},
            location=("airrep.attributors.encoder", "AirRepAttributor"),
        ),
        Method(
            name="gte",
            summary="any sentence encoder as it is, scores summed over a group",
            pool="sum",
            needs="an encoder from the Hub (thenlper/gte-small), or --encoder MODEL",
            bytes_per_example="2 per dimension, and 1 and 12 for the search codes: 1,164 at 384 dimensions",
            cost="1 forward pass of the encoder",
            paper="GTE, arXiv 2308.03281",
            settings=EncoderSettings,
            defaults={"encoder": "thenlper/gte-small"},
            location=("airrep.attributors.encoder", "EmbeddingAttributor"),
        ),
        Method(
            name="tfidf",
            summary="unit TF-IDF rows, scores summed over a group",
            pool="sum",
            needs="nothing",
            bytes_per_example="8 for each distinct term of the text",
            cost="no model",
            paper="Spärck Jones 1972",
            settings=TfidfSettings,
            defaults={},
            location=("airrep.attributors.lexical", "TfidfAttributor"),
        ),
    )
}
"""Every method by the name that users type."""


def method_named(name: str) -> Method:
    """Look a method up.

    Raises:
        ConfigError: there is none of that name.
    """
    if name not in METHODS:
        raise ConfigError(f"method '{name}': does not exist; expected one of {', '.join(METHODS)}. See: airrep methods")
    return METHODS[name]


def make_attributor(name: str, values: Mapping[str, Any] | None = None) -> Attributor:
    """Make an attributor from its method's name and settings; what is not set takes the method's default.

    Raises:
        ConfigError: no such method, no such setting, or a value that cannot hold.
    """
    method = method_named(name)
    settings = method.settings.of({**method.defaults, **(values or {})}, where=f"method '{name}'")
    module, attribute = method.location
    attributor: Attributor = getattr(import_module(module), attribute)(settings)
    return attributor

"""The data and models that an index was made of, from its manifest."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

_MODELS = ("lm", "base", "encoder")
"""Settings that name a model."""


def left_out(id_: str) -> str:
    """The response of an example whose texts were left out of an index."""
    return f"(text left out: {id_})"


@dataclass(frozen=True)
class CorpusPart:
    """Data that an index was built from, or that came to it later."""

    fingerprint: str
    """SHA-256 over all rows (:attr:`airrep.Corpus.fingerprint`); of several appends a digest of theirs."""
    rows: int


@dataclass(frozen=True)
class Made:
    """What an index was made of, and by what."""

    corpora: tuple[CorpusPart, ...]
    """The corpus that it was built from, then all that was appended."""
    attributor: str
    """Fingerprint of all that features depend on: settings, and the files of models."""
    airrep: str
    """Version that wrote it."""
    hub: tuple[str, ...] = ()
    """Data sets of the Hub among the data, as ``owner/name@commit``; empty where none was recorded."""
    models: dict[str, str] = field(default_factory=dict)
    """Models as they were named: by the setting, or by the setting and the channel."""
    channels: tuple[str, ...] = ()
    """Channels with their weights."""

    def corpus_of(self, row: int) -> str | None:
        """Fingerprint of the corpus that has a row; None where several appends may have it."""
        ends = list(accumulate(part.rows for part in self.corpora))
        if row < ends[0]:
            return self.corpora[0].fingerprint
        return self.corpora[1].fingerprint if len(self.corpora) == 2 and row < ends[1] else None


def made_of(manifest: Mapping[str, Any], asked: Iterable[Any] | None = None) -> Made:
    """What the manifest of an index tells; *asked* are the channels by which it is asked, where these are others."""
    settings = manifest["settings"]
    channels = settings.get("channels") or []
    weighed = ((one["name"] or one["method"], one["weight"]) for one in channels)
    if asked is not None:
        weighed = ((one.title, one.weight) for one in asked)
    return Made(
        corpora=tuple(CorpusPart(one["fingerprint"], one["rows"]) for one in manifest["corpora"]),
        attributor=manifest["attributor"],
        airrep=str(manifest["packages"].get("airrep", "")),
        hub=tuple(map(str, manifest.get("reading", {}).get("hub", ()))),
        models=dict(_models(settings)),
        channels=tuple(f"{name} × {weight:g}" for name, weight in weighed),
    )


def _models(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield from ((name, one) for name in _MODELS if isinstance(one := settings.get(name), str))
    for channel in settings.get("channels") or []:
        of = channel["name"] or channel["method"]
        named = ((name, channel["settings"].get(name)) for name in _MODELS)
        yield from ((f"{name} of {of}", one) for name, one in named if isinstance(one, str))

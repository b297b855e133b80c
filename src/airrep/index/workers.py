"""Encoding of shards: in this process, or in the workers of an engine."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from airrep.arrays import Encoded
from airrep.attributors.base import Attributor, OnRows, SeveralMethods, bad_method
from airrep.attributors.methods import make_attributor, method_named
from airrep.corpus.corpus import Corpus
from airrep.errors import ArtifactError, ConfigError, TrainingError
from airrep.index.shards import KeptChannel, channels_of
from airrep.runtime.engine import Engine, InProcess
from airrep.runtime.metering import MeasuredCost, device_in_use, measuring

RETRIES = 2
"""Further attempts at a shard whose worker failed."""


class Made(NamedTuple):
    """What was made of a shard."""

    encoded: Encoded
    spent: MeasuredCost


def check_alike(attributor: Attributor, encoded: Encoded, like: Mapping[str, Any] | None = None) -> list[KeptChannel]:
    """How features are stored, in the order of channels.

    Raises:
        ConfigError: they are of another kind or width than those of the shard whose record is *like*.
    """
    found = channels_of(encoded, several=isinstance(attributor, SeveralMethods))
    if like is None:
        return found
    for one, other in zip(found, (KeptChannel(**entry) for entry in like["channels"]), strict=False):
        if one != other:
            words = [f"{each.kind} features of width {each.dimension:,}" for each in (one, other)]
            raise bad_method(attributor.name, "encode_train", words[0], f"{words[1]}, as for the shard before")
    return found


@dataclass(frozen=True)
class NewShard:
    """A shard that is to be encoded."""

    start: int
    """Row number of its first example."""
    name: str
    """Name of its directory."""
    examples: Corpus
    """A slice of the whole corpus."""

    def __reduce__(self) -> tuple[type["NewShard"], tuple[int, str, Corpus]]:
        """A copy of its own rows, since a slice would take the whole table along to each worker."""
        return NewShard, (self.start, self.name, self.examples.take(range(len(self.examples))))


@dataclass(frozen=True)
class Recipe:
    """Settings and state from which an attributor of a known method is made anew."""

    method: str
    settings: Mapping[str, object]
    state: Mapping[str, bytes]

    @classmethod
    def of(cls, attributor: Attributor) -> "Recipe":
        """The recipe of an attributor."""
        with tempfile.TemporaryDirectory() as folder:
            attributor.save_state(Path(folder))
            state = {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}
        return cls(attributor.name, attributor.settings.model_dump(mode="json"), state)

    def make(self) -> Attributor:
        """The attributor."""
        attributor = make_attributor(self.method, self.settings)
        if self.state:
            with tempfile.TemporaryDirectory() as folder:
                for name, content in self.state.items():
                    (Path(folder) / name).write_bytes(content)
                attributor.load_state(Path(folder))
        return attributor


@dataclass(frozen=True)
class EncodeSetup:
    """Makes the function that encodes shards, in the worker that calls it."""

    source: Recipe | Attributor
    fingerprint: str
    execution: Mapping[str, str]

    @classmethod
    def of(cls, attributor: Attributor, engine: Engine) -> "EncodeSetup":
        """A known method is made anew in other processes, so that its model is not sent to them."""
        sent = not isinstance(engine, InProcess) and _is_of_known_method(attributor)
        source = Recipe.of(attributor) if sent else attributor
        return cls(source, attributor.fingerprint, dict(attributor.execution))

    def __call__(self) -> Callable[[NewShard], Made]:
        """The function that encodes a shard.

        Raises:
            ArtifactError: the model is another one here, or runs in another precision.
        """
        attributor = self.source.make() if isinstance(self.source, Recipe) else self.source
        if attributor.fingerprint != self.fingerprint or dict(attributor.execution) != dict(self.execution):
            raise ArtifactError(
                f"method '{attributor.name}': a worker has another model, or runs it in another precision; expected "
                f"{self.fingerprint[:12]} {dict(self.execution)}. Put the same files everywhere, and set precision."
            )
        return lambda shard: _encode(attributor, shard)


def _is_of_known_method(attributor: Attributor) -> bool:
    try:
        place = method_named(attributor.name).place
    except ConfigError:  # no method of that name, or one that cannot be loaded
        return False
    return place == f"{type(attributor).__module__}:{type(attributor).__qualname__}"


def encode_shards(
    attributor: Attributor, shards: Sequence[NewShard], engine: Engine | None, on_rows: OnRows
) -> Iterator[tuple[NewShard, Made]]:
    """Encode shards, in the order of completion: in this process, on all threads, if the engine is None.

    Raises:
        TrainingError: a shard failed again and again.
        ArtifactError: a worker has another model.
    """
    if engine is None:
        yield from ((shard, _encode(attributor, shard, on_rows)) for shard in shards)
        return
    with closing(engine.run(EncodeSetup.of(attributor, engine), shards, RETRIES)) as outcomes:
        for outcome in outcomes:
            if outcome.value is None:
                raise TrainingError(
                    f"examples from row {outcome.task.start}: cannot be encoded: {outcome.error}. Run the same command "
                    "again: it goes on with the shards that are missing."
                )
            yield outcome.task, outcome.value
            on_rows(len(outcome.task.examples))  # only here, when the caller has written its features


def _encode(attributor: Attributor, shard: NewShard, on_rows: OnRows | None = None) -> Made:
    with measuring(device_in_use(attributor.settings)) as meter:
        encoded = attributor.encode(shard.examples, on_rows)
    return Made(encoded, meter.spent)

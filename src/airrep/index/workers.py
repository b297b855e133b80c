"""Encode the shards of an index on an engine."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, overload

from airrep.arrays import Features
from airrep.attributors.base import Attributor, OnRows
from airrep.attributors.methods import METHODS, make_attributor
from airrep.corpus.corpus import Corpus
from airrep.errors import ArtifactError, TrainingError
from airrep.runtime.engine import Engine, InProcess
from airrep.runtime.metering import MeasuredCost, device_of, measuring

RETRIES = 2

Encoded: TypeAlias = tuple[Features, MeasuredCost]
"""Features of a piece, and what they cost."""


class Parts(Sequence[tuple[int, Corpus]]):
    """Pieces of a corpus with their numbers, copied out when they are asked for."""

    def __init__(self, corpus: Corpus, shard_rows: int, numbers: Sequence[int]) -> None:
        self._corpus = corpus
        self._shard_rows = shard_rows
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, place: int) -> tuple[int, Corpus]: ...
    @overload
    def __getitem__(self, place: slice) -> "Parts": ...
    def __getitem__(self, place: int | slice) -> "tuple[int, Corpus] | Parts":
        if isinstance(place, slice):
            return Parts(self._corpus, self._shard_rows, self._numbers[place])
        number = self._numbers[place]
        first = number * self._shard_rows
        return number, self._corpus.take(range(first, min(first + self._shard_rows, len(self._corpus))))


@dataclass(frozen=True)
class Recipe:
    """How an attributor of a known method is made anew, with what it learnt."""

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
    """Makes, in a worker, what encodes."""

    source: Recipe | Attributor
    fingerprint: str
    execution: Mapping[str, str]

    def __call__(self) -> Callable[[tuple[int, Corpus]], Encoded]:
        """The work.

        Raises:
            ArtifactError: the model is another one here, or runs in another precision.
        """
        attributor = self.source.make() if isinstance(self.source, Recipe) else self.source
        if attributor.fingerprint != self.fingerprint or dict(attributor.execution) != dict(self.execution):
            raise ArtifactError(
                f"method '{attributor.name}': a worker has another model, or runs it in another precision; expected "
                f"{self.fingerprint[:12]} {dict(self.execution)}. Put the same files everywhere, and set precision."
            )
        return lambda part: encode_measured(attributor, part[1])


def encode_measured(attributor: Attributor, part: Corpus, on_rows: OnRows | None = None) -> Encoded:
    """Features of a piece of a corpus, ``(rows, d)``, and what they cost."""
    with measuring(device_of(attributor.settings)) as meter:
        features = attributor.encode_train(part, on_rows)
    return features, meter.spent


def encode_parts(
    attributor: Attributor, corpus: Corpus, shard_rows: int, numbers: Sequence[int], engine: Engine
) -> Iterator[tuple[int, Encoded]]:
    """Encode pieces of a corpus, in the order of completion.

    Args:
        attributor: what encodes; of a known method, or else something that can be pickled.
        corpus: the examples.
        shard_rows: examples in one piece.
        numbers: the pieces to encode.
        engine: where.

    Yields:
        The number of a piece, its features, ``(rows, d)``, and what they cost the worker.

    Raises:
        TrainingError: a piece failed again and again.
        ArtifactError: a worker has another model.
    """
    with closing(engine.run(_setup(attributor, engine), Parts(corpus, shard_rows, numbers), RETRIES)) as outcomes:
        for outcome in outcomes:
            if outcome.value is None:
                first = outcome.task[0] * shard_rows
                raise TrainingError(
                    f"examples from row {first}: cannot be encoded: {outcome.error}. Run the same command again: it "
                    "goes on with the shards that are missing."
                )
            yield outcome.task[0], outcome.value


def _setup(attributor: Attributor, engine: Engine) -> Callable[[], Callable[[tuple[int, Corpus]], Encoded]]:
    if isinstance(engine, InProcess):
        return lambda: lambda part: encode_measured(attributor, part[1])
    source = Recipe.of(attributor) if _is_of_known_method(attributor) else attributor
    return EncodeSetup(source, attributor.fingerprint, dict(attributor.execution))


def _is_of_known_method(attributor: Attributor) -> bool:
    method = METHODS.get(attributor.name)
    return method is not None and method.location == (type(attributor).__module__, type(attributor).__name__)

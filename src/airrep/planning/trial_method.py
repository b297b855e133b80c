"""Try a method on a sample: fits, features, bytes."""

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from airrep.arrays import Features, MixedFeatures
from airrep.attributors.base import Attributor
from airrep.attributors.direct import DirectAttributor, keep_all
from airrep.attributors.language import LanguageAttributor
from airrep.attributors.methods import attributor_of_new_index
from airrep.attributors.sums.channels import ChannelsAttributor
from airrep.corpus.corpus import Corpus
from airrep.index.shards import write_shard
from airrep.planning.trials import FIRST, MethodTrial, Pace, Repeats, Slices, memory_now, own_seconds, repeat
from airrep.runtime.costs import encoding_cost, is_of_features
from airrep.runtime.metering import ENCODE, Measured, MeasuredCost, device_of, measuring

LARGEST_FIT, LARGEST_SLICE = 128, 512
FIT_SHARE, ENCODE_SHARE = 0.35, 0.6
"""Shares of the time."""


@dataclass(frozen=True)
class MethodTask:
    """A method to be tried on examples in random order, for about so many seconds."""

    method: str
    settings: Mapping[str, Any]
    examples: Corpus
    seconds: float


def try_method(task: MethodTask) -> MethodTrial:
    """Fit a method to two sizes of sample, and encode slices.

    Raises:
        ConfigError: too few examples, or settings that do not fit.
    """
    with tempfile.TemporaryDirectory() as folder:
        return _Try(task, Path(folder)).run()


@dataclass(frozen=True)
class _Made:
    """What an index holds of some examples."""

    features: Features
    kept: Mapping[str, np.ndarray]
    """What direct methods keep, by name."""

    def first(self, count: int) -> "_Made":
        """That of the first examples."""
        return _Made(self.features[:count], {name: rows[:count] for name, rows in self.kept.items()})

    @property
    def row_bytes(self) -> float:
        """Bytes in memory of one example's numbers."""
        features = self.features.dense if isinstance(self.features, MixedFeatures) else self.features
        dense = 4.0 * features.shape[1] if isinstance(features, np.ndarray) else 0.0
        return dense + 2.0 * sum(int(rows.shape[1]) for rows in self.kept.values())


class _Try:
    """One method with an empty store of its own."""

    def __init__(self, task: MethodTask, folder: Path) -> None:
        self._store, self._shard, self._seconds = folder / "store", folder / "shard", task.seconds
        self._method = _make(task, self._store)
        self._method.load()
        self._device = device_of(self._method.settings)
        refused = self._method.unusable(task.examples)
        self._examples = task.examples.without(refused)
        self._refused, self._slices = len(refused), Slices(self._examples)
        self._found: list[tuple[float, float, int]] = []
        self._fresh = 0  # examples whose rows were not in the store
        self._last: tuple[Corpus, _Made] | None = None

    def run(self) -> MethodTrial:
        """Try it."""
        fits = list(self._fits())
        pace = Pace(self._device)
        for _ in range(2):  # the first warms up
            pace.time(self._features, self._slices.take(FIRST))
        kept = _size(self._store)
        repeat(self._slices, ENCODE_SHARE * self._seconds, self._encode, pace, LARGEST_SLICE)
        assert self._last is not None
        part, made = self._last
        return MethodTrial(
            Repeats.of(self._found),
            tuple(lengths_of(self._method, self._examples).tolist()),
            memory_now(),
            self._device,
            refused=self._refused,
            fits=(fits[-2], fits[-1]),
            check_seconds=self._check_seconds(part),
            sample=sample_size(self._method),
            bytes_per_example=_stored(self._shard, part, made),
            store_bytes_per_example=(_size(self._store) - kept) / max(1, self._fresh),
            row_bytes=made.row_bytes,
            parameters=parameters_of(self._method),
        )

    def _fits(self) -> Iterator[tuple[float, float]]:
        """Tokens and seconds of a small fit, which warms up, of another where that was quick, and of a large one."""
        room, pace = FIT_SHARE * self._seconds, Pace(self._device)
        yield self._fit(self._slices.take(FIRST), pace)
        if pace.seconds_per_example * FIRST < room / 4:
            yield self._fit(self._slices.take(FIRST), pace)
        count = min(LARGEST_FIT, room / 2 / pace.seconds_per_example, self._slices.left / 4)
        yield self._fit(self._slices.take(int(max(3 * FIRST, count))), pace)

    def _fit(self, part: Corpus, pace: Pace) -> tuple[float, float]:
        with measuring(self._device) as meter:
            pace.time(self._method.fit, part)
        return float(lengths_of(self._method, part).sum()), own_seconds(meter.spent)

    def _encode(self, part: Corpus) -> None:
        with measuring(self._device) as meter:
            made = self._features(part)
        seconds = _fresh_seconds(meter.spent, len(part)) * len(part)
        self._found.append((seconds, float(lengths_of(self._method, part).sum()), len(part)))
        self._fresh += max((rows.fresh for rows in meter.spent.rows.values()), default=len(part))
        self._last = part, made

    def _features(self, part: Corpus) -> _Made:
        if (
            isinstance(self._method, DirectAttributor) and not self._method.kept
        ):  # each query costs a pass, where others encode an example once
            self._method.score(part, part[:1])
        return _Made(self._method.encode_train(part), keep_all(self._method, part))

    def _check_seconds(self, part: Corpus) -> float:
        if (reader := reader_of(self._method)) is None:
            return 0.0
        with measuring() as meter:
            reader.lm.unusable(list(part))  # of a corpus it would remember what was read before
        return meter.spent.cpu / len(part)


def _make(task: MethodTask, store: Path) -> Attributor:
    """The method, whose gradients and those of its channels are kept in a store that is empty."""
    made, own = attributor_of_new_index(task.method, task.settings), {"store": str(store)}
    if isinstance(made, ChannelsAttributor):
        told = made.settings.model_dump(mode="json", exclude_none=True)
        for channel, part in zip(told["channels"], made.parts, strict=True):
            if "store" in type(part.settings).model_fields:
                channel["settings"] |= own
        return attributor_of_new_index(task.method, told)
    if "store" not in type(made.settings).model_fields:
        return made
    return attributor_of_new_index(task.method, {**task.settings, **own})


def sample_size(method: Attributor) -> int | None:
    """Examples that a method learns from at most; None where it learns from all.

    Of channels it is the largest sample of any: what takes long in them learns from one.
    """
    parts = method.parts if isinstance(method, ChannelsAttributor) else (method,)
    found = [size for part in parts if isinstance(size := getattr(part.settings, "sample", None), int)]
    return max(found, default=None)


def reader_of(method: Attributor) -> LanguageAttributor[Any] | None:
    """The method, or the first of its channels, that reads a language model; None if there is none."""
    parts = method.parts if isinstance(method, ChannelsAttributor) else (method,)
    return next((part for part in parts if isinstance(part, LanguageAttributor)), None)


def _fresh_seconds(spent: MeasuredCost, examples: int) -> float:
    """Of one example whose rows are not kept yet."""
    cost = encoding_cost([], [Measured(ENCODE, examples, spent, {})])
    return (cost.cpu_seconds_per_example if spent.device == "cpu" else cost.wall_seconds_per_example) or 0.0


def lengths_of(method: Attributor, examples: Corpus) -> np.ndarray:
    """Tokens of each example as the method's model reads them, ``(n,)``; characters where it has none."""
    if (reader := reader_of(method)) is not None:
        return reader.lm.tokenise(examples).lengths
    encoder = getattr(method, "encoder", None)
    if encoder is not None and hasattr(encoder, "token_ids"):
        return encoder_lengths(encoder, examples)
    return np.array([len(example.prompt) + len(example.response) for example in examples], np.int64)


def encoder_lengths(encoder: Any, examples: Corpus) -> np.ndarray:
    """Tokens of each example as an encoder reads them that airrep itself runs, ``(n,)``."""
    return np.array(
        [len(ids) for ids in encoder.token_ids([encoder.render(example) for example in examples])], np.int64
    )


def _stored(folder: Path, part: Corpus, made: _Made) -> float:
    """Bytes of one example's features as an index stores them.

    That is what a shard grows by from half of the part to all of it: its header is a file's, not an example's.
    """
    half = len(part) // 2
    whole, less = (_shard_bytes(folder.with_name(f"shard-{n}"), part[:n], made.first(n)) for n in (len(part), half))
    return (whole - less) / (len(part) - half)


def _shard_bytes(folder: Path, part: Corpus, made: _Made) -> int:
    write_shard(folder, part, made.features, "0" * 64, made.kept)
    return sum(path.stat().st_size for path in folder.iterdir() if is_of_features(path.name))


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.safetensors")) if folder.is_dir() else 0


def parameters_of(method: Attributor) -> int | None:
    """Of a method's language model; None without one."""
    reader = reader_of(method)
    return None if reader is None else int(sum(weight.numel() for weight in reader.lm.model.parameters()))

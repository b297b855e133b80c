"""Slices, repeats and results of a plan's micro-benchmarks."""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from airrep.arrays import Rows
from airrep.corpus.corpus import Corpus
from airrep.errors import ConfigError
from airrep.runtime.metering import MeasuredCost, peak_memory

FIRST, LEAST_SLICE = 4, 4
"""Examples that warm something up, unmeasured, and the fewest in a slice that is measured."""
LEAST_REPEATS, REPEATS, MOST_REPEATS = 4, 5, 10
"""Repeats that are made however long they take, those that the time is shared among, and the most that are made."""
PATIENCE = 3
"""How many times the seconds may pass by the clock where others use the processor as well."""
LEAST = 64
"""Examples that there must be."""


@dataclass(frozen=True)
class Repeats:
    """What each of some repeats took and read."""

    seconds: tuple[float, ...]
    """Process CPU seconds; by the clock on an accelerator."""
    tokens: tuple[float, ...]
    examples: tuple[int, ...]

    @classmethod
    def of(cls, found: Sequence[tuple[float, float, int]]) -> "Repeats":
        """Of (seconds, tokens, examples) of each."""
        seconds, tokens, examples = zip(*found, strict=True)
        return cls(tuple(seconds), tuple(tokens), tuple(examples))


@dataclass(frozen=True)
class Trial:
    """What came of a micro-benchmark of any kind."""

    repeats: Repeats
    """The work, slice by slice."""
    lengths: tuple[int, ...]
    """Tokens of each example of the sample, as the model reads them."""
    memory: float
    """Most bytes held at once."""
    device: str


@dataclass(frozen=True)
class MethodTrial(Trial):
    """Of a method; its repeats encode."""

    fits: tuple[tuple[float, float], tuple[float, float]]
    """Tokens and seconds of two fits."""
    refused: int = 0
    """Examples of the sample that the LM cannot read, which were left out."""
    check_seconds: float = 0.0
    """Of looking whether the LM can read one example, part of a fit."""
    sample: int | None = None
    """Examples that a fit reads at most, but for that look."""
    bytes_per_example: float = 0.0
    store_bytes_per_example: float = 0.0
    row_bytes: float = 0.0
    """Of one example's features while they are computed."""
    parameters: int | None = None
    """Of the LM; None where the method reads none."""


@dataclass(frozen=True)
class LabelTrial(Trial):
    """Of labels; its repeats fine-tune with all epochs."""

    losses: Repeats
    """Evaluations of queries."""
    parameters: int
    """Of the LM."""
    fingerprint: str | None = None
    """Of the LM."""


@dataclass(frozen=True)
class TrainingTrial(Trial):
    """Of training; its repeats are steps."""

    layers: int
    """Of the encoder."""


class Slices:
    """Examples in their order, no text twice: stores would find it."""

    def __init__(self, examples: Corpus) -> None:
        """Begin with the first.

        Raises:
            ConfigError: there are too few.
        """
        self._examples, self.taken = examples.take(distinct_rows(examples)), 0

    @property
    def left(self) -> int:
        """How many were not taken yet."""
        return len(self._examples) - self.taken

    def take(self, count: int) -> Corpus:
        """The next ones, at most so many."""
        first = self.taken
        self.taken = min(first + count, len(self._examples))
        return self._examples[first : self.taken]


def distinct_rows(examples: Corpus) -> Rows:
    """The first row of each text.

    Raises:
        ConfigError: there are too few to measure on.
    """
    first: Rows = np.sort(np.unique(examples.content_hashes, return_index=True)[1])
    if len(first) < LEAST:
        raise ConfigError(
            f"plan: {len(first)} examples are too few to measure on; expected {LEAST} or more. Give more data."
        )
    return first


def repeat(slices: Slices, seconds: float, work: Callable[[Corpus], None], pace: "Pace", largest: int) -> None:
    """Do work on slice after slice until the time is over or nothing is left; each fills a fifth of the time.

    Args:
        slices: what is left of the examples.
        seconds: of the processor, or by the clock on an accelerator; by the clock never more than thrice that, but for
            the repeats that are made in any case.
        work: done on each slice.
        pace: how fast it goes, as far as is known.
        largest: most examples in a slice.
    """
    begun, spent = time.perf_counter(), 0.0
    for done in range(MOST_REPEATS):
        wanted = min(seconds / REPEATS / pace.seconds_per_example, slices.left / max(1, LEAST_REPEATS - done))
        part = slices.take(int(max(LEAST_SLICE, min(largest, wanted))))
        spent += pace.time(work, part)
        over = spent * (done + 2) / (done + 1) > seconds or time.perf_counter() - begun > PATIENCE * seconds
        if slices.left < LEAST_SLICE or (over and done + 1 >= LEAST_REPEATS):
            return


class Pace:
    """How long some work takes: of the processor, or by the clock on an accelerator."""

    def __init__(self, device: str) -> None:
        self._now = time.process_time if device == "cpu" else time.perf_counter
        self.seconds_per_example = 1.0
        """Of the last slice."""

    def time(self, work: Callable[[Corpus], object], part: Corpus) -> float:
        """Do it; returns its seconds."""
        begun = self._now()
        work(part)
        took = max(self._now() - begun, 1e-6)
        self.seconds_per_example = took / len(part)
        return took


def memory_now() -> float:
    """Most bytes held so far: by this process, and on its GPU where it used one."""
    torch = sys.modules.get("torch")
    on_gpu = 0 if torch is None or not torch.cuda.is_initialized() else torch.cuda.max_memory_allocated()
    return float((peak_memory() or 0) + on_gpu)


def own_seconds(spent: MeasuredCost) -> float:
    """Of a piece of work, without computing rows that a store keeps."""
    return max(0.0, spent.seconds - spent.computing[0 if spent.device == "cpu" else 1])

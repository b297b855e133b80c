"""A plan of costs: rates, intervals, crossovers; written and read."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from airrep.errors import DataError
from airrep.evaluation.statistics.means import fieller
from airrep.runtime.artifacts import canonical_json, new_artifact, write_file

KIND = "plan"


RESULT = "result.json"


LEVEL = 0.95


@dataclass(frozen=True)
class Predicted:
    """A number with half the width of its 95 % interval."""

    value: float
    half: float = 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """95 %; costs are never below 0."""
        return max(0.0, self.value - self.half), self.value + self.half

    def times(self, factor: float) -> "Predicted":
        """So many of it."""
        return Predicted(self.value * factor, self.half * abs(factor))

    def plus(self, *others: "Predicted") -> "Predicted":
        """The sum with others, whose errors are independent: halves add up as squares."""
        values = (self, *others)
        return Predicted(sum(each.value for each in values), math.hypot(*(each.half for each in values)))

    def by(self, other: "Predicted") -> "Predicted":
        """The product with another, whose error is independent, to first order."""
        half = math.hypot(self.half * other.value, self.value * other.half)
        return Predicted(self.value * other.value, half)


def rate(seconds: Sequence[float], amounts: Sequence[float]) -> Predicted:
    """Seconds for one unit, from repeats s_i over amounts a_i.

    r = Σ s_i / Σ a_i. With residuals e_i = s_i − r a_i and ā the mean amount, the interval is r ± t √(Σ e_i² / (k (k −
    1))) / ā, t being Student's 97.5 % point with k − 1 degrees of freedom.

    Raises:
        DataError: fewer than two repeats, or nothing was done.
    """
    taken, done = np.asarray(seconds, np.float64), np.asarray(amounts, np.float64)
    k = len(taken)
    if k < 2 or len(done) != k or done.sum() <= 0:
        raise DataError(f"plan: {k} repeats over {done.sum():g} units; expected two or more of some. Give more data.")
    value = taken.sum() / done.sum()
    error = np.sqrt(np.square(taken - value * done).sum() / (k * (k - 1))) / done.mean()
    return Predicted(float(value), float(stats.t.ppf((1 + LEVEL) / 2, k - 1) * error))


def mean_of(sample: Sequence[float], population: int) -> Predicted:
    """Mean over a corpus of so many examples, from those drawn without repeats.

    The interval is m ± 1.96 √(s² / k · (1 − k / n)), 0 wide when all were drawn.
    """
    values = np.asarray(sample, np.float64)
    k = len(values)
    if k < 2:
        return Predicted(float(values.mean()))
    left = max(0.0, 1 - k / max(population, k))
    error = math.sqrt(values.var(ddof=1) / k * left)
    return Predicted(float(values.mean()), float(stats.norm.ppf((1 + LEVEL) / 2)) * error)


def line(first: tuple[float, float], second: tuple[float, float]) -> tuple[float, float]:
    """Cost a + b n through two measured points (n, cost), neither part below 0."""
    (n, low), (m, high) = sorted((first, second))
    slope = max(0.0, (high - low) / (m - n)) if m > n else 0.0
    return max(0.0, low - slope * n), slope


@dataclass(frozen=True)
class Crossover:
    """From how many examples on the encoder is the cheaper of two."""

    examples: float | None
    """None: never, as the encoder is not cheaper for one example."""
    interval: tuple[float, float] | None
    """95 %; None where it has no upper end."""
    why: str = ""
    """What stands against a number, or an interval; empty if nothing."""


def crossover(fixed: Predicted, gradient: Predicted, encoder: Predicted) -> Crossover:
    """n* = F / D with D = gradient − encoder, the examples at which F + n · encoder = n · gradient.

    The interval is Fieller's (:func:`airrep.evaluation.statistics.means.fieller`), which has two ends where D is clear
    of 0. Below 0 n* and the ends are taken as 0: the encoder is ahead from the first example.

    Args:
        fixed: what the encoder costs before the first example, less what the gradient method does.
        gradient: seconds for one example.
        encoder: likewise.
    """
    gap = gradient.plus(encoder.times(-1.0))
    if gap.value <= 0:
        return Crossover(
            None,
            None,
            f"the encoder is not cheaper: {encoder.value:.2g} s for an example, gradients {gradient.value:.2g} s, as "
            "the language model is small beside the encoder",
        )
    found = max(0.0, fixed.value / gap.value)
    ahead = "" if found else "the encoder costs no more even before the first example"
    ends = fieller(fixed.value, gap.value, (fixed.half, gap.half))
    if ends is None:
        return Crossover(found, None, "the repeats do not show that the encoder is cheaper for an example")
    return Crossover(found, (max(0.0, ends[0]), max(0.0, ends[1])), ahead)


@dataclass(frozen=True)
class MethodPlan:
    """What a method is predicted to need."""

    name: str
    fixed: Predicted
    """Seconds before the first example: labels and training, or learning from a sample."""
    per_example: Predicted
    """Seconds of one core, or of the accelerator, for one example."""
    bytes_per_example: float
    """Features in the index."""
    store_bytes_per_example: float
    """Gradients that are kept beside the index."""
    memory_bytes: float
    """Most memory of one process."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Seconds of each part of what is fixed."""
    reads_lm: bool = False
    """Whether it reads the LM for each example, so that the encoder's crossover with it is asked for."""

    def seconds(self, examples: int) -> Predicted:
        """For a corpus of so many examples."""
        return self.fixed.plus(self.per_example.times(examples))

    def to_dict(self, corpus: int, workers: int) -> dict[str, Any]:
        """A JSON object."""
        total, shared = self.seconds(corpus), self.per_example.times(corpus / workers)
        return {
            "name": self.name,
            "fixed_seconds": self.fixed.value,
            "fixed_interval": list(self.fixed.interval),
            "fixed_parts": dict(self.parts),
            "seconds_per_example": self.per_example.value,
            "interval": list(self.per_example.interval),
            "seconds": total.value,
            "seconds_interval": list(total.interval),
            "encoding_wall_seconds": shared.value,
            "bytes_per_example": self.bytes_per_example,
            "disk_bytes": self.bytes_per_example * corpus,
            "store_bytes_per_example": self.store_bytes_per_example,
            "store_bytes": self.store_bytes_per_example * corpus,
            "memory_bytes": self.memory_bytes,
        }


@dataclass(frozen=True)
class PredictionCheck:
    """A prediction beside what a real run took."""

    what: str
    predicted: Predicted
    measured: float
    conditions: tuple[str, ...] = ()
    """What was different there."""
    memory: tuple[float, float] | None = None
    """Peak bytes of a process, predicted and measured; None where either is not known."""

    def to_dict(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "what": self.what,
            "predicted_seconds": self.predicted.value,
            "predicted_interval": list(self.predicted.interval),
            "measured_seconds": self.measured,
            "ratio": self.predicted.value / self.measured if self.measured > 0 else None,
            "conditions": list(self.conditions),
            "memory_bytes": None if self.memory is None else list(self.memory),
        }


@dataclass(frozen=True)
class Plan:
    """What a corpus will take on this machine."""

    command: str
    machine: str
    corpus: int
    lm: str
    lm_parameters: int
    workers: int
    methods: tuple[MethodPlan, ...]
    """The encoder first."""
    crossovers: Mapping[str, Crossover]
    """By gradient method."""
    last_real: tuple[PredictionCheck, ...]
    facts: Mapping[str, Any]
    """JSON values: what was measured, on which texts, under which assumptions."""

    def to_dict(self) -> dict[str, Any]:
        """A JSON object."""
        crossings = [
            {"method": name, **asdict(found), "interval": None if found.interval is None else list(found.interval)}
            for name, found in self.crossovers.items()
        ]
        own = ("command", "machine", "corpus", "lm", "lm_parameters", "workers")
        return {
            "measure": "plan",
            **{name: getattr(self, name) for name in own},
            "methods": [method.to_dict(self.corpus, self.workers) for method in self.methods],
            "crossovers": crossings,
            "last_real": [compared.to_dict() for compared in self.last_real],
            "facts": dict(self.facts),
        }

    def write(self, path: str | Path, *, replace: bool = False) -> None:
        """Write it as an artifact.

        Raises:
            ArtifactError: something is there already, or it cannot be written.
        """
        shown = {name: "never" if c.examples is None else f"{c.examples:,.0f}" for name, c in self.crossovers.items()}
        provenance = {
            "command": self.command,
            "machine": self.machine,
            **{f"crossover with {name}, examples": text for name, text in shown.items()},
        }
        with new_artifact(Path(path), KIND, {"measure": "plan", "provenance": provenance}, replace=replace) as folder:
            write_file(folder / RESULT, canonical_json(self.to_dict()))

"""A plan of costs: rates, intervals, crossovers; written and read."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from airrep.errors import DataError
from airrep.evaluation.statistics.means import fieller
from airrep.index.frames import Shown
from airrep.index.results.result import first_problem
from airrep.runtime.artifacts.checks import read_json
from airrep.runtime.artifacts.digests import canonical_json
from airrep.runtime.artifacts.making import new_artifact
from airrep.runtime.artifacts.manifests import read_manifest
from airrep.runtime.artifacts.urls import fetched
from airrep.runtime.publishing.files import write_file

KIND: Final = "plan"
RESULT = "result.json"
LEVEL = 0.95
Interval: TypeAlias = tuple[float, float]
"""Of 95 %."""


@dataclass(frozen=True)
class Predicted:
    """A number with half the width of its 95 % interval."""

    value: float
    half: float = 0.0

    @property
    def interval(self) -> Interval:
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
    from scipy import stats

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
    from scipy import stats

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


class PlanPart(BaseModel):
    """Base of a plan's parts; other keys are passed over when it is read, NaN and infinity refused."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)


class Crossover(PlanPart):
    """From how many examples on the encoder takes less than a method, its training included."""

    method: str
    examples: float | None = None
    """None: never, as the encoder is not cheaper for one example."""
    interval: Interval | None = None
    """None where it has no upper end."""
    why: str = ""
    """What stands against a number, or an interval; empty if nothing."""


def crossover(method: str, fixed: Predicted, gradient: Predicted, encoder: Predicted) -> Crossover:
    """n* = F / D with D = gradient − encoder, the examples at which F + n · encoder = n · gradient.

    The interval is Fieller's (:func:`airrep.evaluation.statistics.means.fieller`), which has two ends where D is clear
    of 0. Below 0 n* and the ends are taken as 0: the encoder is ahead from the first example.

    Args:
        method: the gradient method.
        fixed: what the encoder costs before the first example, less what the gradient method does.
        gradient: seconds for one example.
        encoder: likewise.
    """
    gap = gradient.plus(encoder.times(-1.0))
    if gap.value <= 0:
        why = (
            f"the encoder is not cheaper: {encoder.value:.2g} s for an example, gradients {gradient.value:.2g} s, as "
            "the language model is small beside the encoder"
        )
        return Crossover(method=method, why=why)
    found = max(0.0, fixed.value / gap.value)
    ends = fieller(fixed.value, gap.value, (fixed.half, gap.half))
    if ends is None:
        why = "the repeats do not show that the encoder is cheaper for an example"
        return Crossover(method=method, examples=found, why=why)
    ahead = "" if found else "the encoder costs no more even before the first example"
    interval = max(0.0, ends[0]), max(0.0, ends[1])
    return Crossover(method=method, examples=found, interval=interval, why=ahead)


class MethodPlan(PlanPart):
    """What a method is predicted to need; seconds are those of one core, or of the accelerator."""

    name: str
    fixed_seconds: float
    """Before the first example: labels and training, or learning from a sample."""
    fixed_interval: Interval | None = None
    fixed_parts: Mapping[str, float] = {}
    seconds_per_example: float
    interval: Interval
    """Of the seconds for one example."""
    corpus_seconds: float | None = Field(None, alias="seconds")
    """For the whole corpus."""
    corpus_interval: Interval | None = Field(None, alias="seconds_interval")
    encoding_wall_seconds: float | None = None
    """By the clock, as workers share the examples."""
    bytes_per_example: float | None = None
    """Features in the index."""
    disk_bytes: float | None = None
    store_bytes_per_example: float | None = None
    """Gradients that are kept beside the index."""
    store_bytes: float | None = None
    memory_bytes: float | None = None
    """Most memory of one process."""

    def seconds(self, examples: float | np.ndarray) -> Any:
        """For a corpus of so many examples."""
        return self.fixed_seconds + self.seconds_per_example * examples

    def ends(self, examples: float | np.ndarray) -> tuple[Any, Any]:
        """Its 95 % interval: errors before the first example and per example are independent, so add as squares."""
        fixed = self.fixed_interval or (self.fixed_seconds, self.fixed_seconds)
        down, up = (
            np.hypot(fixed[end] - self.fixed_seconds, (self.interval[end] - self.seconds_per_example) * examples)
            for end in (0, 1)
        )
        return np.maximum(self.seconds(examples) - down, 0.0), self.seconds(examples) + up


class PredictionCheck(PlanPart):
    """A prediction beside what a real run took."""

    what: str
    predicted_seconds: float
    predicted_interval: Interval | None = None
    measured_seconds: float
    ratio: float | None = None
    """Of the first to the second; None where nothing was measured."""
    conditions: tuple[str, ...] = ()
    """What was different there."""
    memory_bytes: tuple[float, float] | None = None
    """Peak of a process, predicted and measured; None where either is not known."""


class Plan(Shown, PlanPart):
    """What a corpus will take on this machine."""

    measure: Literal["plan"]
    command: str = ""
    machine: str = ""
    corpus: int | None = None
    lm: str | None = None
    lm_parameters: int | None = None
    workers: int | None = None
    methods: tuple[MethodPlan, ...]
    """The encoder first."""
    crossovers: tuple[Crossover, ...] = ()
    last_real: tuple[PredictionCheck, ...] = ()
    facts: Mapping[str, Any] = {}
    """JSON values: what was measured, on which texts, under which assumptions."""

    def _records(self) -> Iterator[dict[str, Any]]:
        for method in self.methods:
            numbers = method.model_dump(by_alias=True, exclude={"fixed_interval", "fixed_parts", "interval"})
            yield {name: value for name, value in numbers.items() if name != "seconds_interval"}

    def summary(self) -> str:
        extent = "" if self.corpus is None else f", {self.corpus:,} examples"
        return f"{len(self.methods)} methods{extent}; seconds of one core, or of the accelerator"

    def to_dict(self) -> dict[str, Any]:
        """A JSON object."""
        return self.model_dump(mode="json", by_alias=True)

    def save(self, path: str | Path, *, replace: bool = False) -> Path:
        """Write it as an artifact.

        Raises:
            ArtifactError: something is there already, or it cannot be written.
        """
        shown = {
            f"crossover with {found.method}, examples": "never" if found.examples is None else f"{found.examples:,.0f}"
            for found in self.crossovers
        }
        provenance = {"command": self.command, "machine": self.machine, **shown}
        with new_artifact(Path(path), KIND, {"measure": KIND, "provenance": provenance}, replace=replace) as folder:
            write_file(folder / RESULT, canonical_json(self.to_dict()))
        return Path(path)


def read_plan(path: Path) -> Plan:
    """Read what `airrep plan` wrote.

    Raises:
        ArtifactError: nothing there, unfinished, altered, or not a plan.
        DataError: it lacks something.
    """
    folder = fetched(path)
    return plan_of(folder, read_manifest(folder, KIND))


def plan_of(path: Path, manifest: Mapping[str, Any]) -> Plan:
    """The plan whose manifest was read already; errors as of :func:`read_plan`."""
    value = read_json(path, manifest, RESULT)
    try:
        return Plan.model_validate(value)
    except ValidationError as error:
        raise DataError(f"{path}: is not a plan as expected: {first_problem(error)}. Run airrep plan again.") from error

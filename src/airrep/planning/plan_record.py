"""Plans as `airrep plan` wrote them, checked."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from airrep.errors import DataError
from airrep.runtime.artifacts import check_digests, read_manifest

PLAN, RESULT = "plan", "result.json"


class _Part(BaseModel):
    """Base of the parts of a plan; other keys are passed over, NaN and infinity refused."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)


class PlannedMethod(_Part):
    """What one method is predicted to take."""

    name: str
    fixed_seconds: float
    """Before the first example: labels and training, or the fit."""
    seconds_per_example: float
    interval: tuple[float, float]
    """95 %, of the seconds per example."""
    fixed_interval: tuple[float, float] | None = None
    bytes_per_example: float | None = None
    memory_bytes: float | None = None

    def seconds(self, examples: float | np.ndarray) -> Any:
        """Process CPU time for a corpus of that many examples."""
        return self.fixed_seconds + self.seconds_per_example * examples

    def ends(self, examples: float | np.ndarray) -> tuple[Any, Any]:
        """Its 95 % interval: errors before the first example and per example are independent, so add as squares."""
        fixed = self.fixed_interval or (self.fixed_seconds, self.fixed_seconds)
        down, up = (
            np.hypot(fixed[end] - self.fixed_seconds, (self.interval[end] - self.seconds_per_example) * examples)
            for end in (0, 1)
        )
        return np.maximum(self.seconds(examples) - down, 0.0), self.seconds(examples) + up


class Crossover(_Part):
    """From how many examples on AirRep takes less than a method, its training included."""

    method: str
    examples: float | None = None
    """None where it never does."""
    interval: tuple[float, float] | None = None
    why: str = ""
    """What stands against a number, or an interval."""


class LastReal(_Part):
    """A prediction beside what was measured."""

    what: str
    predicted_seconds: float
    measured_seconds: float
    conditions: tuple[str, ...] = ()
    """What was different there."""


class Plan(_Part):
    """Predicted costs on one machine."""

    measure: Literal["plan"]
    methods: tuple[PlannedMethod, ...]
    command: str = ""
    machine: str = ""
    corpus: int | None = None
    lm: str | None = None
    lm_parameters: int | None = None
    crossovers: tuple[Crossover, ...] = ()
    last_real: tuple[LastReal, ...] = ()


def read_plan(path: Path) -> Plan:
    """Read what `airrep plan` wrote.

    Raises:
        ArtifactError: nothing there, unfinished, altered, or not a plan.
        DataError: it lacks something.
    """
    try:
        return Plan.model_validate(read_result_of(path, PLAN))
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"]) or "the whole"
        raise DataError(
            f"{path}: is not a plan as expected: {where}: {problem['msg'].lower()}. Run airrep plan again."
        ) from error


def read_result_of(path: Path, kind: str) -> Mapping[str, Any]:
    """The result of an artifact that is of a kind; every byte is checked.

    Raises:
        ArtifactError: nothing there, unfinished, altered, or of another kind.
    """
    manifest = read_manifest(path, kind)
    check_digests(path, manifest["files"])
    value: Mapping[str, Any] = json.loads((path / RESULT).read_bytes())
    return value

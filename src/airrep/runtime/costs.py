"""Costs of real runs, read from files beside their artifacts."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airrep.errors import ArtifactError
from airrep.runtime.artifacts.manifests import read_manifest
from airrep.runtime.metering import COSTS, ENCODE, FIT, JUDGE, SETUP, Measured, MeasuredCost, StoreRows

_DENSE = ("features.npy", "codes.npy", "scales.npy", "bounds.npy")
_SPARSE = ("data.npy", "indices.npy", "indptr.npy", "columns.npy", "rows.npy", "values.npy")


def is_of_features(name: str) -> bool:
    """Whether a file of a shard holds its features, or what direct methods keep."""
    return name in (*_DENSE, *_SPARSE) or (name.startswith("kept-") and name.endswith(".npy"))


_CPU, _WALL = 0, 1
"""Places of the two kinds of seconds in a pair."""


def read_costs(folder: Path) -> list[Measured]:
    """Read the costs of an artifact, in the order of measurement; cut or altered lines are left out."""
    return [found for line in _json_lines(folder / COSTS) if (found := _measured(line)) is not None]


def read_label_times(folder: Path) -> list[dict[str, Any]]:
    """Read the times of finished label tasks, of all parts."""
    lines = [line for path in sorted(folder.glob("times*.jsonl")) for line in _json_lines(path)]
    return [line for line in lines if line.get("error") is None and {"task", "seconds"} <= line.keys()]


def _measured(line: dict[str, Any]) -> Measured | None:
    try:
        own = {name: line.pop(name) for name in MeasuredCost.__dataclass_fields__}
        own["rows"] = {name: StoreRows(*numbers) for name, numbers in own["rows"].items()}
        return Measured(line.pop("stage"), int(line.pop("examples", 0)), MeasuredCost(**own), line)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _json_lines(path: Path) -> list[dict[str, Any]]:
    """Objects of a file of JSON lines; none of a missing file."""
    found = []
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    for line in lines:
        with suppress(ValueError):  # an interruption may have cut any line that was the last one then
            found.append(json.loads(line))
    return [value for value in found if isinstance(value, dict)]


@dataclass(frozen=True)
class EncodingCost:
    """Cost of encoding examples without anything kept from earlier runs."""

    examples: int
    """Number of examples whose encoding was measured."""
    cpu_seconds_per_example: float | None
    """None if all rows were read from a store and none was computed."""
    wall_seconds_per_example: float | None
    fit_seconds: float | None
    """CPU seconds of learning from the corpus, without rows that encoding needs as well; None if it was recalled."""
    fit_wall_seconds: float | None


def encoding_cost(fits: Sequence[Measured], encodings: Sequence[Measured]) -> EncodingCost:
    """Estimate the cost of an undisturbed run with an empty store.

    With c_k / f_k the seconds of each freshly computed row of store k, a_k the rows that encodings asked it for, and m
    examples, the seconds of one example are (Σ seconds − Σ_k c_k) / m over encodings, plus Σ_k (c_k / f_k) a_k / m.

    Args:
        fits: costs of learning from the corpus; several after interruptions, of which the mean is taken.
        encodings: costs of encoding parts of the corpus, each part once.
    """
    examples = sum(each.examples for each in encodings)
    learnt = [each.spent for each in fits if not each.spent.recalled]
    each = [_per_example(fits, encodings, examples, kind) for kind in (_CPU, _WALL)]
    fit = [_mean([(s.cpu, s.wall)[kind] - s.computing[kind] for s in learnt]) for kind in (_CPU, _WALL)]
    return EncodingCost(examples, *each, *fit)


def _per_example(fits: Sequence[Measured], encodings: Sequence[Measured], examples: int, kind: int) -> float | None:
    if not examples:
        return None
    total = sum((e.spent.cpu, e.spent.wall)[kind] - e.spent.computing[kind] for e in encodings)
    stores = {name for each in encodings for name in each.spent.rows}
    for name in sorted(stores):
        asked = sum(e.spent.rows[name].asked for e in encodings if name in e.spent.rows)
        computed = [e.spent.rows[name] for e in (*fits, *encodings) if name in e.spent.rows]
        fresh = sum(rows.fresh for rows in computed)
        if not fresh:
            return None
        total += asked * sum((rows.cpu, rows.wall)[kind] for rows in computed) / fresh
    return max(0.0, total) / examples


def _mean(values: Sequence[float]) -> float | None:
    return max(0.0, sum(values) / len(values)) if values else None


@dataclass(frozen=True)
class Conditions:
    """Devices, threads and machines of a measurement; several values where they changed."""

    devices: tuple[str, ...]
    threads: tuple[int, ...]
    machines: tuple[str, ...]

    @classmethod
    def of(cls, lines: Sequence[Measured]) -> "Conditions":
        """Those of some lines, each value once."""
        spent = [line.spent for line in lines]
        devices, machines = sorted({each.device for each in spent}), sorted({each.machine for each in spent})
        return cls(tuple(devices), tuple(sorted({each.threads for each in spent})), tuple(machines))


@dataclass(frozen=True)
class IndexCost:
    """Cost of building an index."""

    encoding: EncodingCost
    bytes_per_example: float
    """Bytes of the stored features."""
    conditions: Conditions
    memory: int | None
    """Peak memory of a process in bytes; None where the system does not report it."""

    @property
    def seconds_per_example(self) -> float | None:
        """Process CPU seconds of encoding one example; on accelerators wall seconds. None if unknown."""
        return self.encoding.wall_seconds_per_example if self.by_clock else self.encoding.cpu_seconds_per_example

    @property
    def by_clock(self) -> bool:
        """Whether seconds are wall seconds, as for an accelerator."""
        return self.conditions.devices != ("cpu",)


def index_cost(path: str | Path, manifest: Mapping[str, Any] | None = None) -> IndexCost | None:
    """Read the cost of building an index; None if it was not recorded.

    Args:
        path: the index.
        manifest: its manifest, if that was read already.

    Raises:
        ArtifactError: *path* is no index, or was altered.
    """
    folder = Path(path)
    stored = stored_bytes_per_example(read_manifest(folder, "index") if manifest is None else manifest)
    lines = read_costs(folder)
    # A shard that was encoded again after an interruption counts once, as it was the last time.
    shards = {line.more.get("shard"): line for line in lines if line.stage == ENCODE}
    if not shards:
        return None
    fits, encodings = [line for line in lines if line.stage == FIT], list(shards.values())
    peaks = [line.spent.memory for line in lines if line.spent.memory is not None]
    conditions = Conditions.of(encodings)
    return IndexCost(encoding_cost(fits, encodings), stored, conditions, max(peaks, default=None))


def stored_bytes_per_example(manifest: Mapping[str, Any]) -> float:
    """Bytes of the features of one example in an index, from its manifest."""
    files = manifest["files"].items()
    total = sum(entry["bytes"] for name, entry in files if is_of_features(name.rpartition("/")[2]))
    return float(total / manifest["rows"])


@dataclass(frozen=True)
class LabelCost:
    """Cost of labels: each finished fine-tune once."""

    fine_tunes: int
    seconds: float
    """Wall seconds in the workers, summed over fine-tunes."""
    cpu_seconds: float | None
    """CPU seconds; None if some fine-tune's were not measured."""
    evaluations: int
    """Number of evaluations of the LM before any fine-tune."""
    evaluation_seconds: float
    evaluation_cpu_seconds: float | None


def label_cost(path: str | Path) -> LabelCost | None:
    """Read the cost of labels, finished or not, made at once or in parts; None if no times are there."""
    found = {str(line["key"]): line for line in read_label_times(Path(path)) if "key" in line}
    tuned = [line for line in found.values() if "subset" in str(line["task"])]
    plain = [line for line in found.values() if "subset" not in str(line["task"])]
    if not tuned:
        return None
    return LabelCost(len(tuned), *_sums(tuned), len(plain), *_sums(plain))


def _sums(lines: Sequence[Mapping[str, Any]]) -> tuple[float, float | None]:
    """Wall and CPU seconds."""
    known = all("cpu" in line for line in lines)
    return sum(line["seconds"] for line in lines), sum(line["cpu"] for line in lines) if known else None


@dataclass(frozen=True)
class TrainingCost:
    """Cost of training an encoder in an undisturbed run."""

    steps: int
    texts: int
    """Number of texts encoded, summed over steps."""
    step_seconds: float
    """Wall seconds, summed over steps."""
    step_cpu_seconds: float | None
    """CPU seconds, summed over steps; None if not measured."""
    other_cpu_seconds: float | None
    """CPU seconds of activations, evaluations and the final judging; None if not measured."""
    conditions: Conditions

    @property
    def cpu_seconds(self) -> float | None:
        """CPU seconds of steps and everything else; None if not measured."""
        if self.step_cpu_seconds is None or self.other_cpu_seconds is None:
            return None
        return self.step_cpu_seconds + self.other_cpu_seconds


def training_cost(path: str | Path) -> TrainingCost | None:
    """Read the cost of a trained encoder; None if no times are there.

    Raises:
        ArtifactError: its log and its times do not belong together.
    """
    folder = Path(path)
    if not (folder / "steps.jsonl").is_file() or not (folder / "times.jsonl").is_file():
        return None
    records, times = _json_lines(folder / "steps.jsonl"), _json_lines(folder / "times.jsonl")
    if [line.get("step") for line in records] != [line.get("step") for line in times]:
        raise ArtifactError(f"{folder / 'times.jsonl'}: does not belong to steps.jsonl. Delete it.")
    pairs = list(zip(records, times, strict=True))
    steps = [(record, time) for record, time in pairs if "texts" in record]  # the other lines are evaluations
    if not steps:
        return None
    others = [time for record, time in pairs if "texts" not in record]
    lines = read_costs(folder)
    return TrainingCost(
        len(steps),
        sum(record["texts"] for record, _ in steps),
        *_sums([time for _, time in steps]),
        _other_seconds(lines, _sums(others)[1]),
        Conditions.of(lines),
    )


def _other_seconds(lines: Sequence[Measured], evaluations: float | None) -> float | None:
    """CPU seconds of evaluations, of the setup and of the final judging."""
    found = [[line.spent.cpu for line in lines if line.stage == stage] for stage in (SETUP, JUDGE)]
    if evaluations is None or not all(found):
        return None
    # An interrupted run measures a stage several times; only the longest did all of it.
    return evaluations + sum(max(values) for values in found)

"""Recorded costs of real runs, read from beside their artifacts."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airrep.errors import ArtifactError
from airrep.runtime.artifacts import read_manifest
from airrep.runtime.metering import COSTS, ENCODE, FIT, JUDGE, SETUP, TEACH, Measured, MeasuredCost, StoreRows

FEATURES = ("features.npy", "codes.npy", "scales.npy", "bounds.npy", "data.npy", "indices.npy", "indptr.npy")
"""Files of a shard that hold its features."""


def _json_lines(path: Path) -> list[dict[str, Any]]:
    """Objects of a file of JSON lines; lines that are cut or altered are left out, as is a file that is not there."""
    found = []
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return [value for value in found if isinstance(value, dict)]


def read_costs(folder: Path) -> list[Measured]:
    """The costs of an artifact in the order they arose; lines that are cut or altered are left out."""
    return [found for line in _json_lines(folder / COSTS) if (found := _measured(line)) is not None]


def _measured(line: dict[str, Any]) -> Measured | None:
    try:
        own = {name: line.pop(name) for name in MeasuredCost.__dataclass_fields__}
        own["rows"] = {name: StoreRows(*numbers) for name, numbers in own["rows"].items()}
        return Measured(line.pop("stage"), int(line.pop("examples", 0)), MeasuredCost(**own), line)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def read_label_times(folder: Path) -> list[dict[str, Any]]:
    """Times of the tasks of labels that came to an end, made at once or in parts."""
    lines = [line for path in sorted(folder.glob("times*.jsonl")) for line in _json_lines(path)]
    return [line for line in lines if line.get("error") is None and {"task", "seconds"} <= line.keys()]


@dataclass(frozen=True)
class EncodingCost:
    """What features cost, had nothing been kept from earlier runs."""

    examples: int
    """Whose encoding was measured."""
    cpu_seconds_per_example: float | None
    """None where stored rows were read and none computed, so that nobody knows."""
    wall_seconds_per_example: float | None
    fit_seconds: float | None
    """CPU seconds of learning from the corpus, without rows that encoding needs as well; None where it was recalled."""
    fit_wall_seconds: float | None


def encoding_cost(fits: Sequence[Measured], encodings: Sequence[Measured]) -> EncodingCost:
    """Costs of an undisturbed run in an empty store, from what was measured.

    With c_k / f_k the seconds of each freshly computed row of store k, a_k the rows that encodings asked it for, and m
    examples, the seconds of one example are (Σ seconds − Σ_k c_k) / m over encodings, plus Σ_k (c_k / f_k) a_k / m.

    Args:
        fits: how often the method learnt from the corpus; several after interruptions, of which the mean is taken.
        encodings: of parts of it, each part once.
    """
    examples = sum(each.examples for each in encodings)
    learnt = [each.spent for each in fits if not each.spent.recalled]
    fit = [_mean([(s.cpu, s.wall)[kind] - s.computing[kind] for s in learnt]) for kind in (0, 1)]
    each = [_per_example(fits, encodings, examples, kind) for kind in (0, 1)]
    return EncodingCost(examples, each[0], each[1], fit[0], fit[1])


def _per_example(fits: Sequence[Measured], encodings: Sequence[Measured], examples: int, kind: int) -> float | None:
    """Seconds by the processor (0) or the clock (1)."""
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
    """Under which something was measured; several values where they changed."""

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
    """What an index cost."""

    encoding: EncodingCost
    bytes_per_example: float
    """Features as they are stored."""
    conditions: Conditions
    memory: int | None
    """Most bytes that a process held at once; None where the system does not say."""

    @property
    def seconds_per_example(self) -> float | None:
        """Process CPU seconds of encoding one example; on accelerators seconds by the clock. None: not known."""
        return self.encoding.wall_seconds_per_example if self.by_clock else self.encoding.cpu_seconds_per_example

    @property
    def by_clock(self) -> bool:
        """Whether seconds are those by the clock, as some of it was encoded on an accelerator."""
        return self.conditions.devices != ("cpu",)


def index_cost(path: str | Path) -> IndexCost | None:
    """What an index cost to build; None where it was not recorded.

    Args:
        path: the index.

    Raises:
        ArtifactError: it is none, or was altered.
    """
    folder = Path(path)
    stored = stored_bytes_per_example(folder)
    lines = read_costs(folder)
    shards = {line.more.get("shard"): line for line in lines if line.stage == ENCODE}
    if not shards:
        return None
    fits, encodings = [line for line in lines if line.stage == FIT], list(shards.values())
    peaks = [line.spent.memory for line in lines if line.spent.memory is not None]
    conditions = Conditions.of(encodings)
    return IndexCost(encoding_cost(fits, encodings), stored, conditions, max(peaks, default=None))


def stored_bytes_per_example(path: str | Path) -> float:
    """Bytes of features in an index, for one example.

    Raises:
        ArtifactError: it is no index, or was altered.
    """
    manifest = read_manifest(Path(path), "index")
    total = sum(entry["bytes"] for name, entry in manifest["files"].items() if name.rpartition("/")[2] in FEATURES)
    return float(total / manifest["rows"])


@dataclass(frozen=True)
class LabelCost:
    """What labels cost; of fine-tunes that came to an end, each once."""

    fine_tunes: int
    seconds: float
    """By the clock, of all fine-tunes together, each in its own worker."""
    cpu_seconds: float | None
    """Of the processor; None where some were not measured so."""
    evaluations: int
    """Of the LM before any fine-tune."""
    evaluation_seconds: float
    evaluation_cpu_seconds: float | None


def label_cost(path: str | Path) -> LabelCost | None:
    """What labels cost, finished or not, made at once or in parts; None where no times are there."""
    found = {str(line["key"]): line for line in read_label_times(Path(path)) if "key" in line}
    tuned = [line for line in found.values() if "subset" in str(line["task"])]
    plain = [line for line in found.values() if "subset" not in str(line["task"])]
    if not tuned:
        return None
    return LabelCost(len(tuned), *_sums(tuned), len(plain), *_sums(plain))


def _sums(lines: Sequence[Mapping[str, Any]]) -> tuple[float, float | None]:
    """Seconds by the clock and of the processor."""
    known = all("cpu" in line for line in lines)
    return sum(line["seconds"] for line in lines), sum(line["cpu"] for line in lines) if known else None


@dataclass(frozen=True)
class TrainingCost:
    """What training an encoder cost, as an undisturbed run."""

    steps: int
    texts: int
    """Texts encoded in all steps together."""
    step_seconds: float
    """By the clock, of all steps together."""
    step_cpu_seconds: float | None
    """Of the processor; None where it was not measured."""
    other_cpu_seconds: float | None
    """Everything else: a teacher's labels, activations, looking at held-out instances, judging; None where it was not
    measured."""
    conditions: Conditions

    @property
    def cpu_seconds(self) -> float | None:
        """All of it."""
        known = self.step_cpu_seconds is not None and self.other_cpu_seconds is not None
        return (self.step_cpu_seconds or 0.0) + (self.other_cpu_seconds or 0.0) if known else None


def training_cost(path: str | Path) -> TrainingCost | None:
    """What a trained encoder cost; None where no times are there.

    Raises:
        ArtifactError: its log and its times do not belong together.
    """
    folder = Path(path)
    if not (folder / "steps.jsonl").is_file() or not (folder / "times.jsonl").is_file():
        return None
    records, times = _json_lines(folder / "steps.jsonl"), _json_lines(folder / "times.jsonl")
    if [line.get("step") for line in records] != [line.get("step") for line in times]:
        raise ArtifactError(f"{folder / 'times.jsonl'}: does not belong to steps.jsonl. Delete it.")
    steps = [(record, time) for record, time in zip(records, times, strict=True) if "texts" in record]
    if not steps:
        return None
    others = [time for record, time in zip(records, times, strict=True) if "texts" not in record]
    lines = read_costs(folder)
    return TrainingCost(
        len(steps),
        sum(record["texts"] for record, _ in steps),
        *_sums([time for _, time in steps]),
        _others(lines, _sums(others)[1]),
        Conditions.of(lines),
    )


def _others(lines: Sequence[Measured], evaluations: float | None) -> float | None:
    """Seconds of evaluations, of a teacher if there was one, of getting ready and of judging.

    Of several beginnings the longest was the whole one.
    """
    taught, *found = ([line.spent.cpu for line in lines if line.stage == stage] for stage in (TEACH, SETUP, JUDGE))
    if evaluations is None or not all(found):
        return None
    return evaluations + max(taught, default=0.0) + sum(max(values) for values in found)

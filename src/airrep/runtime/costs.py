"""Costs of building an index, read from its folder."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airrep.runtime.artifacts.manifests import read_manifest
from airrep.runtime.metering import COSTS, ENCODE, FIT, Measured, MeasuredCost, StoreRows

_DENSE = ("features.npy", "codes.npy", "scales.npy", "bounds.npy")
_SPARSE = ("data.npy", "indices.npy", "indptr.npy", "columns.npy", "rows.npy", "values.npy")


def is_of_features(name: str) -> bool:
    """True if a file of a shard holds its features, or the data that a direct method keeps."""
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
class IndexCost:
    """Cost of building an index."""

    encoding: EncodingCost
    bytes_per_example: float
    """Bytes of the stored features."""
    by_clock: bool
    """True if seconds are wall seconds, as for an accelerator."""
    memory: int | None
    """Peak memory of a process in bytes; None where the system does not report it."""

    @property
    def seconds_per_example(self) -> float | None:
        """Process CPU seconds of encoding one example; on accelerators wall seconds. None if unknown."""
        return self.encoding.wall_seconds_per_example if self.by_clock else self.encoding.cpu_seconds_per_example

    @property
    def fit_seconds(self) -> float | None:
        """Seconds of learning from the corpus, by the same clock."""
        return self.encoding.fit_wall_seconds if self.by_clock else self.encoding.fit_seconds


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
    by_clock = any(line.spent.device != "cpu" for line in encodings)
    return IndexCost(encoding_cost(fits, encodings), stored, by_clock, max(peaks, default=None))


def stored_bytes_per_example(manifest: Mapping[str, Any]) -> float:
    """Bytes of the features of one example in an index, from its manifest."""
    files = manifest["files"].items()
    total = sum(entry["bytes"] for name, entry in files if is_of_features(name.rpartition("/")[2]))
    return float(total / manifest["rows"])

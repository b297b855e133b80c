"""Checkpoints of a training run, and its log of steps."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor

from airrep.errors import ArtifactError
from airrep.runtime.publishing import append_line, write_file

STATE = "checkpoint.safetensors"
STEPS, TIMES = "steps.jsonl", "times.jsonl"
_WAY_OUT = "Delete the folder of the unfinished run and start anew."


@dataclass(frozen=True)
class TrainingCheckpoint:
    """Progress of a training run, all but its tensors."""

    step: int = 0
    """Number of steps taken."""
    scale: float = 1.0
    """Factor on the scores of the start."""
    best_step: int = 0
    """Step after which the held-out LDS was greatest."""
    best: float | None = None
    """That LDS; None without held-out instances."""
    since_best: int = 0
    """Number of evaluations after that one."""
    stopped: bool = False
    """True if training stopped early."""
    weights: Sequence[float] | None = None
    """Weights at the start of the given channels and of the encoder; None where it is not trained beside others."""

    def evaluated(self, value: float, patience: int | None) -> "TrainingCheckpoint":
        """Take an evaluation at the present step into account; among equal ones the first is best."""
        if self.best is None or value > self.best:
            return replace(self, best=value, best_step=self.step, since_best=0)
        since = self.since_best + 1
        return replace(self, since_best=since, stopped=patience is not None and since >= patience)


def save_best(folder: Path, step: int, weights: Mapping[str, Tensor]) -> None:
    """Write the best weights so far; older ones stay until a checkpoint names these."""
    write_file(_best_path(folder, step), _bytes(weights, {}))


def save_state(folder: Path, checkpoint: TrainingCheckpoint, tensors: Mapping[str, Tensor]) -> None:
    """Write a checkpoint; it replaces the last one at once."""
    write_file(folder / STATE, _bytes(tensors, asdict(checkpoint)))
    # Only now does no checkpoint name the best weights of before.
    for path in folder.glob("best-*.safetensors"):
        if path != _best_path(folder, checkpoint.best_step):
            path.unlink(missing_ok=True)


def load_state(folder: Path) -> tuple[TrainingCheckpoint, dict[str, Tensor]] | None:
    """Read the last checkpoint; None if there is none yet."""
    path = folder / STATE
    if not path.exists():
        return None
    try:
        with safe_open(path, "pt") as stored:
            checkpoint = TrainingCheckpoint(**json.loads(stored.metadata()["standing"]))
        return checkpoint, load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise ArtifactError(f"{path}: is damaged ({error}). {_WAY_OUT}") from error


def load_best(folder: Path, checkpoint: TrainingCheckpoint) -> dict[str, Tensor]:
    """Read the best weights."""
    path = _best_path(folder, checkpoint.best_step)
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise ArtifactError(f"{path}: is damaged ({error}). {_WAY_OUT}") from error


def _best_path(folder: Path, step: int) -> Path:
    return folder / f"best-{step:08d}.safetensors"


def _bytes(tensors: Mapping[str, Tensor], progress: Mapping[str, Any]) -> bytes:
    stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return save(stored, metadata={"standing": json.dumps(progress)})


class StepLog:
    """``steps.jsonl``: one JSON object a line for each step and each evaluation, and ``times.jsonl`` beside it.

    Lines after *step*, the last checkpoint's, are cut off when an interrupted run is resumed. Times are kept apart, so
    that an interrupted and an undisturbed run have the same ``steps.jsonl``.
    """

    def __init__(self, folder: Path, step: int) -> None:
        self._paths = {name: folder / name for name in (STEPS, TIMES)}
        for path in self._paths.values():
            lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
            write_file(path, b"".join(line for line in lines if _step_of(line) <= step))

    def add(self, record: Mapping[str, Any], seconds: float, cpu: float) -> None:
        """Append a line; *record* has the ``step``, *cpu* is processor time."""
        self._append(STEPS, record)
        self._append(TIMES, {"step": record["step"], "seconds": round(seconds, 4), "cpu": round(cpu, 4)})

    def _append(self, name: str, record: Mapping[str, Any]) -> None:
        append_line(self._paths[name], json.dumps(record))


def _step_of(line: bytes) -> float:
    """Step of a line; an unfinished line is from after every checkpoint."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")

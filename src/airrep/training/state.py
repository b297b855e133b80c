"""State of a training run: AdamW and its schedule, checkpoints, the log of steps."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor, nn

from airrep.errors import ArtifactError
from airrep.runtime.publishing import append_line, write_file
from airrep.training.linear.weights import NAME
from airrep.training.settings import TrainingSettings
from airrep.training.trunk import Trunk

STATE = "checkpoint.safetensors"
STEPS, TIMES = "steps.jsonl", "times.jsonl"
MOMENTS = ("step", "exp_avg", "exp_avg_sq")


def _part_of(name: str) -> str:
    """Return the part of the model, with its own learning rate, that a weight belongs to."""
    return "heads" if name.startswith("heads.") else "channels" if name.startswith(NAME) else "layers"


def rate_factor(step: int, settings: TrainingSettings) -> float:
    """Return the factor on all learning rates at *step*, counted from 0: warm-up, then the schedule."""
    rising = min(settings.warmup_steps, settings.steps // 2)  # the full rate is reached, however short the run
    if step < rising:
        return (step + 1) / (rising + 1)
    if settings.schedule == "constant":
        return 1.0
    done = (step - rising) / max(1, settings.steps - rising)
    return 1 - done if settings.schedule == "linear" else (1 + math.cos(math.pi * done)) / 2


class Optimiser:
    """AdamW over the weights that learn; weight decay can pull them to *start* in place of 0."""

    def __init__(self, trunk: Trunk, settings: TrainingSettings, start: Mapping[str, Tensor]) -> None:
        self._settings = settings
        self._learning = dict(trunk.learning())
        self._start = start if settings.pull_to_start else {}
        rates = {
            "layers": settings.learning_rate,
            "heads": settings.head_learning_rate or settings.learning_rate,
            "channels": settings.channel_learning_rate,
        }
        groups = []
        for part, rate in rates.items():
            for matrix in (False, True):  # biases and layer norms are not matrices: they do not decay
                names = [n for n, p in self._learning.items() if _part_of(n) == part and (p.ndim > 1) == matrix]
                decay = settings.weight_decay if matrix and not settings.pull_to_start else 0.0
                params = [self._learning[name] for name in names]
                groups.append({"params": params, "names": names, "full_rate": rate, "weight_decay": decay})
        self._adam = torch.optim.AdamW(
            [group for group in groups if group["params"]], lr=0.0, betas=settings.betas, fused=True
        )

    def update(self, step: int) -> tuple[float, float]:
        """Take one step; return the gradient's norm before clipping, and the layers' learning rate."""
        longest = math.inf if self._settings.clip is None else self._settings.clip
        length = nn.utils.clip_grad_norm_(list(self._learning.values()), longest)
        factor = rate_factor(step, self._settings)
        for group in self._adam.param_groups:
            group["lr"] = group["full_rate"] * factor
        if math.isfinite(float(length)):  # else the weights stay as they were, and the run ends
            self._pull()
            self._adam.step()
        self._adam.zero_grad(set_to_none=True)
        return float(length), self._settings.learning_rate * factor

    @torch.no_grad()
    def _pull(self) -> None:
        for group in self._adam.param_groups:
            share = min(1.0, group["lr"] * self._settings.weight_decay)
            for name in group["names"]:
                parameter = self._learning[name]
                if name in self._start and parameter.ndim > 1:
                    parameter.lerp_(self._start[name].to(parameter), share)

    def state(self) -> dict[str, Tensor]:
        """Return weights and moments, by name."""
        state = {f"weight.{name}": parameter.detach() for name, parameter in self._learning.items()}
        for name, parameter in self._learning.items():
            held = self._adam.state.get(parameter, {})
            state |= {f"{moment}.{name}": held[moment] for moment in MOMENTS if moment in held}
        return state

    @torch.no_grad()
    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Restore weights and moments that :meth:`state` returned."""
        for name, parameter in self._learning.items():
            parameter.copy_(state[f"weight.{name}"])
            held = {moment: state[f"{moment}.{name}"] for moment in MOMENTS if f"{moment}.{name}" in state}
            if held:
                self._adam.state[parameter] = {moment: value.to(parameter.device) for moment, value in held.items()}

    def weights(self) -> dict[str, Tensor]:
        """Copy the weights that learn to the CPU."""
        return {name: parameter.detach().to("cpu", copy=True) for name, parameter in self._learning.items()}


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
    """Held-out LDS after ``best_step``; None before the first evaluation or without held-out instances."""
    since_best: int = 0
    """Number of evaluations since ``best_step``."""
    stopped: bool = False
    """True if training stopped early."""
    weights: Sequence[float] | None = None
    """First weights of the given channels and of the encoder; None if it is trained without channels."""

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
    # Only now are earlier best weights in no checkpoint.
    for path in folder.glob("best-*.safetensors"):
        if path != _best_path(folder, checkpoint.best_step):
            path.unlink(missing_ok=True)


def load_state(folder: Path) -> tuple[TrainingCheckpoint, dict[str, Tensor]] | None:
    """Read the last checkpoint; None if there is none yet."""
    path = folder / STATE
    if not path.exists():
        return None
    with _undamaged(path):
        with safe_open(path, "pt") as stored:
            checkpoint = TrainingCheckpoint(**json.loads(stored.metadata()["standing"]))
        return checkpoint, load_file(path)


def load_best(folder: Path, checkpoint: TrainingCheckpoint) -> dict[str, Tensor]:
    path = _best_path(folder, checkpoint.best_step)
    with _undamaged(path):
        return load_file(path)


@contextmanager
def _undamaged(path: Path) -> Iterator[None]:
    try:
        yield
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise ArtifactError(
            f"{path}: is damaged ({error}). Delete the unfinished run (its folder ends in .partial) and start again."
        ) from error


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
        times = {"step": record["step"], "seconds": round(seconds, 4), "cpu": round(cpu, 4)}
        append_line(self._paths[STEPS], json.dumps(record))
        append_line(self._paths[TIMES], json.dumps(times))


def _step_of(line: bytes) -> float:
    """Return the step of a line; an unfinished line was written after every checkpoint, so its step is infinite."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")

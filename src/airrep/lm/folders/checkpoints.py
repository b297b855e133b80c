"""Checkpoints that transformers' Trainer wrote, with their learning rates."""

import json
import math
import re
from pathlib import Path
from typing import Any, NamedTuple

from airrep.errors import ConfigError

STATE = "trainer_state.json"
_NAME = re.compile(r"checkpoint-([0-9]{1,12})")


class Checkpoint(NamedTuple):
    """Weights after one step of a fine-tune."""

    path: Path
    """A file of all weights, or the folder of an LM, for :meth:`airrep.lm.model.TargetLM.load_weights`."""
    rate: float
    """Mean learning rate of the steps since the checkpoint before, TracIn's weight."""


def checkpoints_in(folder: Path) -> dict[int, Path]:
    """The folders ``checkpoint-STEP`` of a folder by their steps, ascending."""
    found = {
        int(match[1]): path
        for path in (folder.iterdir() if folder.is_dir() else ())
        if (match := _NAME.fullmatch(path.name)) is not None and path.is_dir()
    }
    return dict(sorted(found.items()))


def last_checkpoint(folder: Path) -> Path | None:
    """The checkpoint of most steps in a folder; None if there is none."""
    return next(reversed(checkpoints_in(folder).values()), None)


def trainer_checkpoints(folder: Path) -> tuple[Checkpoint, ...]:
    """All checkpoints of the run that a folder belongs to, in the order of training; none for other folders.

    The folder is the trainer's output, or one of its checkpoints: those up to this one. The rate of each is the mean
    of those that the trainer logged since the one before.

    Raises:
        ConfigError: the trainer logged no learning rate between two of them, or its record cannot be read.
    """
    found = checkpoints_in(folder)
    if not found and folder in checkpoints_in(folder.parent).values():
        around = checkpoints_in(folder.parent)
        last = next(step for step, path in around.items() if path == folder)
        found = {step: path for step, path in around.items() if step <= last}
    if not found:
        return ()
    rates = _logged_rates(found[max(found)] / STATE)
    bounds = zip([0, *found], found, strict=False)
    return tuple(Checkpoint(found[end], _mean_rate(rates, begin, end, found[end])) for begin, end in bounds)


def _mean_rate(rates: dict[int, float], begin: int, end: int, path: Path) -> float:
    """Mean of the rates logged in steps ``begin + 1`` to ``end``."""
    between = [rate for step, rate in rates.items() if begin < step <= end]
    if not between:
        raise ConfigError(
            f"{path}: the trainer logged no learning rate between steps {begin} and {end}, which weighs this "
            "checkpoint. Train with a smaller logging_steps, or use checkpoints=final."
        )
    return math.fsum(between) / len(between)


def _logged_rates(path: Path) -> dict[int, float]:
    """Learning rates that a trainer logged, by their steps."""
    try:
        state: Any = json.loads(path.read_bytes())
        lines = state["log_history"]
        found = {line["step"]: line["learning_rate"] for line in lines if "learning_rate" in line}
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise ConfigError(
            f"{path}: cannot be read ({type(error).__name__}); expected what transformers' Trainer writes beside a "
            "checkpoint. Restore it, or use checkpoints=final."
        ) from error
    good = all(type(step) is int and type(rate) in (int, float) and 0 <= rate < 1e6 for step, rate in found.items())
    if not good:
        raise ConfigError(f"{path}: has a learning rate that is no number from 0 up. Use checkpoints=final.")
    return found

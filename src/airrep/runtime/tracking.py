"""Logs numbers of a run live to trackio, Weights & Biases or MLflow."""

import math
import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from importlib import import_module
from typing import Any, TypeAlias, TypeGuard, TypeVar

from airrep.errors import ConfigError, near

PROJECT = "airrep"
"""Default project of runs."""
LONGEST = 250
"""Most characters of a configuration value; MLflow refuses long values."""
_UNNAMED = re.compile(r"[^\w\-. /]")
"""Characters that MLflow does not allow in the name of a metric."""
T = TypeVar("T")


Log: TypeAlias = Callable[[dict[str, float], int], Any]
"""Function that logs numbers by name, at a step."""
Finish: TypeAlias = Callable[[bool], Any]
"""Function that ends a run, which has failed if True."""


def _trackio(library: Any, project: str, name: str, config: dict[str, str]) -> tuple[Log, Finish]:
    run = library.init(project=project, name=name, config=config)
    return lambda values, step: run.log(values, step=step), lambda _: run.finish()  # it has no state for failed runs


def _wandb(library: Any, project: str, name: str, config: dict[str, str]) -> tuple[Log, Finish]:
    run = library.init(project=project, name=name, config=config)
    return lambda values, step: run.log(values, step=step), lambda failed: run.finish(exit_code=int(failed))


def _mlflow(library: Any, project: str, name: str, config: dict[str, str]) -> tuple[Log, Finish]:
    library.set_experiment(project)  # its word for a project
    library.start_run(run_name=name)
    library.log_params(config)
    status = {True: "FAILED", False: "FINISHED"}
    return lambda values, step: library.log_metrics(values, step=step), lambda failed: library.end_run(status[failed])


_RUNS: Mapping[str, Callable[..., tuple[Log, Finish]]] = {"trackio": _trackio, "wandb": _wandb, "mlflow": _mlflow}
"""Functions that begin a run, by the library."""


class Tracker:
    """Logs the numbers of one run of a command. If the library raises an error, logging stops but the work goes on."""

    def __init__(self, asked: str | None, name: str, config: Mapping[str, Any], tell: Callable[[str], None]) -> None:
        """Begin a run; *asked* is ``NAME`` or ``NAME:PROJECT`` of a tracker, or None to log nothing.

        *tell* receives a message if logging fails. ConfigError: the tracker is unknown or not installed.
        """
        self._tell, self._at = tell, 0
        self._run: tuple[Log, Finish] | None = None
        if asked is None:
            return
        library, make, project = _library(asked)
        if os.environ.get("RANK", "0") != "0":  # only the first process of torchrun logs
            return
        told = {key: str(value)[:LONGEST] for key, value in config.items() if value not in (None, (), [])}
        self._run = self._try(lambda: make(library, project, name, told))

    def log(self, values: Mapping[str, Any], step: int | None = None) -> None:
        """Log the finite numbers among the values at *step*, by default the next one; steps never decrease."""
        self._at = self._at + 1 if step is None else max(self._at, step)
        numbers = {_UNNAMED.sub("_", key): float(value) for key, value in values.items() if is_number(value)}
        if (run := self._run) is not None and numbers:
            self._try(lambda: run[0](numbers, self._at))

    def finish(self, *, failed: bool = False) -> None:
        """End the run."""
        if (run := self._run) is not None:
            self._try(lambda: run[1](failed))
        self._run = None

    def _try(self, do: Callable[[], T]) -> T | None:
        try:
            with redirect_stdout(sys.stderr):  # stdout is for the command's own output
                return do()
        except Exception as error:  # such as network or permission errors, which must not stop the work
            self._run = None
            line = " ".join(str(error).split())[:160].rstrip(".")
            self._tell(f"--track: nothing is logged from here on ({type(error).__name__}: {line}); the work goes on")
            return None


def _library(asked: str) -> tuple[Any, Callable[..., tuple[Log, Finish]], str]:
    name, _, project = asked.partition(":")
    if name not in _RUNS:
        raise ConfigError(
            f"--track {asked}: is not a tracker. It must be {', '.join(_RUNS)}, or one of them with a project, as in "
            f"NAME:PROJECT. {near(name, _RUNS)}"
        )
    try:
        return import_module(name), _RUNS[name], project or PROJECT
    except ImportError as error:
        raise ConfigError(f"--track {asked}: {name} cannot be imported. Install it: pip install {name}") from error


def is_number(value: object) -> TypeGuard[float]:
    """Return True for a finite number, and False for booleans."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)

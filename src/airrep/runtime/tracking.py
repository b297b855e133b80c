"""Numbers of a run, logged live to trackio, Weights & Biases or MLflow."""

import math
import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from importlib import import_module
from typing import Any, Protocol, TypeVar

from airrep.errors import ConfigError, near

PROJECT = "airrep"
"""Project of runs whose project is not named."""
LONGEST = 250
"""Characters of a value of the configuration; MLflow refuses long ones."""
_UNNAMED = re.compile(r"[^\w\-. /]")
"""Characters that MLflow takes in no name of a number."""
T = TypeVar("T")


class _Run(Protocol):
    def log(self, values: dict[str, float], step: int) -> None: ...

    def finish(self, *, failed: bool) -> None: ...


class _Trackio:
    """A run of trackio, whose functions are those of wandb."""

    def __init__(self, library: Any, project: str, name: str, config: dict[str, str]) -> None:
        self._run = library.init(project=project, name=name, config=config)

    def log(self, values: dict[str, float], step: int) -> None:
        self._run.log(values, step=step)

    def finish(self, *, failed: bool) -> None:  # noqa: ARG002 - it does not tell failed runs from others
        self._run.finish()


class _Wandb(_Trackio):
    """A run of Weights & Biases."""

    def finish(self, *, failed: bool) -> None:
        self._run.finish(exit_code=int(failed))


class _Mlflow:
    """A run of MLflow, which names a project an experiment."""

    def __init__(self, library: Any, project: str, name: str, config: dict[str, str]) -> None:
        self._library = library
        library.set_experiment(project)
        library.start_run(run_name=name)
        library.log_params(config)

    def log(self, values: dict[str, float], step: int) -> None:
        self._library.log_metrics(values, step=step)

    def finish(self, *, failed: bool) -> None:
        self._library.end_run("FAILED" if failed else "FINISHED")


_RUNS: Mapping[str, Callable[..., _Run]] = {"trackio": _Trackio, "wandb": _Wandb, "mlflow": _Mlflow}


class Tracker:
    """Logs the numbers of one run of a command. Whatever its library raises is told once, and ends nothing."""

    def __init__(self, asked: str | None, name: str, config: Mapping[str, Any], tell: Callable[[str], None]) -> None:
        """Begin a run: *asked* is ``NAME`` or ``NAME:PROJECT``, None logs nothing; *name* and *config* are the run's.

        ConfigError: there is no such tracker, or it is not installed.
        """
        self._tell, self._at = tell, 0
        self._run: _Run | None = None
        if asked is None:
            return
        library, make, project = _library(asked)
        if os.environ.get("RANK", "0") != "0":  # of torchrun's processes the first one logs
            return
        told = {key: str(value)[:LONGEST] for key, value in config.items() if value not in (None, (), [])}
        self._run = self._try(lambda: make(library, project, name, told))

    def log(self, values: Mapping[str, Any], step: int | None = None) -> None:
        """Log the values that are finite numbers, at a step, or one step after the last; no step goes back."""
        self._at = self._at + 1 if step is None else max(self._at, step)
        numbers = {_UNNAMED.sub("_", key): float(value) for key, value in values.items() if is_number(value)}
        if (run := self._run) is not None and numbers:
            self._try(lambda: run.log(numbers, self._at))

    def finish(self, *, failed: bool = False) -> None:
        """End the run."""
        if (run := self._run) is not None:
            self._try(lambda: run.finish(failed=failed))
        self._run = None

    def _try(self, do: Callable[[], T]) -> T | None:
        try:
            with redirect_stdout(sys.stderr):  # stdout is the command's own
                return do()
        except Exception as error:  # of the network, of rights, of anything: the work goes on
            self._run = None
            line = " ".join(str(error).split())[:160].rstrip(".")
            self._tell(f"--track: nothing is logged from here on ({type(error).__name__}: {line}); the work goes on")
            return None


def _library(asked: str) -> tuple[Any, Callable[..., _Run], str]:
    """The library of a tracker, what makes its run, and the project."""
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


def is_number(value: Any) -> bool:
    """True for a finite number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)

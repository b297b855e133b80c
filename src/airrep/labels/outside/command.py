"""Labels by a command of the user's, run for each subset."""

import re
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airrep.attributors.base import OnProgress
from airrep.corpus.inputs import CorpusLike
from airrep.errors import ConfigError, DataError, TrainingError
from airrep.labels.farm import LabelData, LossSource, Outcomes, PlanLike, TaskReport, make_labels
from airrep.labels.labels import Labels
from airrep.labels.ledger import QueryLosses
from airrep.labels.outside.losses import no_losses, outside_origin, read_one, subset_name
from airrep.labels.plan import LabelTask, fine_tune_seed
from airrep.runtime.engine import Engine, InProcess
from airrep.runtime.ray_engine import make_engine

NEEDED = ("{train}", "{losses}")
_ERRORS = 4096  # bytes of stderr that are kept
_LINES = 3


def label_by_command(
    plan: PlanLike,
    train: CorpusLike,
    queries: CorpusLike | None,
    command: str,
    out: str | Path,
    *,
    lm: str | None = None,
    seeds: int = 1,
    part: str | None = None,
    engine: Engine | str | None = None,
    retries: int = 2,
    partial: bool = False,
    retry_quarantined: bool = False,
    progress: OnProgress | None = None,
    on_task: Callable[[TaskReport], None] | None = None,
) -> Labels:
    """Run a command for each subset, and record the losses that it writes.

    The command is split into words as a shell does, but no shell runs: ``{train}``, ``{queries}`` and ``{losses}`` in a
    word become paths, ``{seed}`` a number, ``{subset}`` a name such as ``0-17``, and ``{folder}`` a folder for its own
    files, which is removed afterwards. It writes a loss of each query into the file ``{losses}``, as
    :func:`airrep.labels.outside.losses.read_one` reads it. Its stdout is dropped. Other arguments and errors are as of
    :func:`airrep.labels.farm.label`, a run of the command being a fine-tune.

    Args:
        command: the command line to run.
        lm: a name for the model that it trains, its folder or its Hub id; labels of equal ones and of equal commands
            may be used together.

    Raises:
        ConfigError: the command's program is not found, or the command lacks a place for a path.

    Example:
        >>> plan, command = airrep.open("runs/subsets"), "python trainer.py {train} {queries} {losses}"
        >>> from airrep.labels.outside.command import label_by_command
        >>> labels = label_by_command(plan, train, None, command, "runs/by-command")
        >>> labels.complete
        True
    """
    data = LabelData.given(plan, train, queries)
    source = _Commands(CommandSetup(parse_command(command), data), command, lm, make_engine(engine) or InProcess())
    return make_labels(
        source,
        data,
        out,
        seeds=seeds,
        part=part,
        retries=retries,
        partial=partial,
        retry_quarantined=retry_quarantined,
        progress=progress,
        on_task=on_task,
    )


def parse_command(command: str) -> tuple[str, ...]:
    """Words of a command; its program must be there.

    Raises:
        ConfigError: it is not well formed, lacks a path, or there is no such program.
    """
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise ConfigError(f"--command: cannot be split into words ({error}). Close its quotes.") from error
    lacking = next((place for place in NEEDED if not any(place in word for word in words)), None)
    if lacking is not None:
        raise ConfigError(
            f"--command: has no {lacking}; expected a path there. Write 'my_train.sh {{train}} {{queries}} {{losses}}'."
        )
    if shutil.which(words[0]) is None:
        raise ConfigError(
            f"--command: there is no program {words[0]!r} that can be run. Give its path, and make it executable "
            "(chmod +x)."
        )
    return words


class _Commands(LossSource):
    """The user's command, run on an engine."""

    def __init__(self, setup: "CommandSetup", command: str, lm: str | None, engine: Engine) -> None:
        self._setup, self._engine = setup, engine
        self._origin = outside_origin(lm, {"trainer": "command", "command": command})

    @property
    def origin(self) -> Mapping[str, Any]:
        return self._origin

    def check(self, tasks: Sequence[LabelTask]) -> None:
        """Nothing can be known before the first run."""

    def outcomes(self, tasks: list[LabelTask], retries: int) -> Outcomes:
        return self._engine.run(self._setup, tasks, retries)


@dataclass(frozen=True)
class CommandSetup:
    """Makes the worker that does label tasks by running the command."""

    words: tuple[str, ...]
    data: LabelData

    def __call__(self) -> Callable[[LabelTask], QueryLosses]:
        return self.losses

    def losses(self, task: LabelTask) -> QueryLosses:
        """Losses after one run.

        Raises:
            TrainingError: the command failed, or what it wrote cannot be used.
            ConfigError: it cannot be started.
        """
        plan, place = self.data.plan, task.place
        if place.subset is None:
            return no_losses(plan, place)
        queries = self.data.queries.take(plan.query_rows(place.instance))
        with tempfile.TemporaryDirectory(prefix="airrep-", ignore_cleanup_errors=True) as folder:
            paths = {name: Path(folder) / f"{name}.jsonl" for name in ("train", "queries", "losses")}
            self.data.train.take(plan.subset_rows(place.instance, place.subset)).to_jsonl(paths["train"])
            queries.to_jsonl(paths["queries"])
            seed = fine_tune_seed(plan, place) % 2**31  # as most trainers want it
            named = {**paths, "seed": seed, "subset": subset_name(place), "folder": folder}
            run([fill(word, named) for word in self.words], str(place), Path(folder) / "stderr")
            try:
                return read_one(paths["losses"], queries)
            except DataError as error:
                problem = str(error).replace(str(paths["losses"]), "{losses}")
                raise TrainingError(f"{place}: the command ended well, but {problem}") from error


def fill(word: str, named: Mapping[str, object]) -> str:
    """A word with names in braces replaced, once: what is put in is not looked at again."""
    return re.sub("{(" + "|".join(named) + ")}", lambda found: str(named[found[1]]), word)


def run(words: Sequence[str], name: str, errors: Path) -> None:
    """Run a program without a shell, its stderr into a file; TrainingError with its last words if it fails."""
    with errors.open("wb") as stderr:
        try:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr)
        except OSError as error:
            raise ConfigError(
                f"--command: cannot be started ({error.strerror}). Begin a script with #!/bin/sh."
            ) from error
        try:
            status = process.wait()
        finally:  # an interruption
            process.kill()
            process.wait()
    if status != 0:
        how = f"by {signal.Signals(-status).name}" if status < 0 else f"with exit status {status}"
        raise TrainingError(f"{name}: the command ended {how}: {_last_lines(errors) or 'it said nothing on stderr'}.")


def _last_lines(path: Path) -> str:
    """The last lines of a file as one, of letters that can be printed."""
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - _ERRORS))
        lines = [line.strip() for line in stream.read().decode(errors="replace").splitlines() if line.strip()]
    text = " | ".join(lines[-_LINES:])
    return "".join(letter if letter.isprintable() else " " for letter in text)[-500:]

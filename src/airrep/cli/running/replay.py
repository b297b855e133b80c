"""Replay of a config: its steps, run one after the other in its folder."""

import sys
from collections import defaultdict
from contextlib import chdir
from pathlib import Path

import typer

from airrep.cli.options import note
from airrep.cli.running.config import NumberedStep, RunConfig
from airrep.cli.running.files import MadeFiles
from airrep.cli.running.history import (
    IN_PLACE,
    artifact_of,
    inputs_of,
    named_paths,
    read_history,
    still_has,
)
from airrep.cli.running.recorded import unrecorded_changes
from airrep.cli.running.steps import PROGRAM, Commands, Context, Step, UsageError, shell_line, step_of
from airrep.errors import AirRepError, ArtifactError
from airrep.runtime.artifacts.names import MANIFEST

RESUMING, GROWING = ("evaluate",), ("label", "adapt")
"""Commands that find what they made, and resume the fine-tunes in it that failed: always, or until it is whole."""


class Replay:
    """A config that is being run, in its folder."""

    def __init__(self, config: RunConfig, commands: Commands, root: Context) -> None:
        """Args: a config that was checked, the commands, and the context of the whole program."""
        self._config = config
        self._commands = commands
        self._root = root
        self._before: dict[Path, list[Step]] = defaultdict(list)
        """Earlier steps by the artifact that they make or change."""
        self._files = MadeFiles(config.path)

    def run(self) -> None:
        """Run all steps; the first that fails ends the run.

        Raises:
            ArtifactError: the folder of the config does not exist.
            ConfigError: a step failed; the error names it.
        """
        folder, argv = self._config.folder, sys.argv
        if not folder.is_dir():
            raise ArtifactError(f"{self._config.path}: folder {folder} does not exist; expected one. Correct it.")
        try:
            with chdir(folder):
                for step in self._config.steps:
                    self._run(step)
        finally:
            sys.argv = argv

    def _run(self, numbered: NumberedStep) -> None:
        words = self._commands.words(numbered.step)
        sys.argv = [PROGRAM, *words]  # evaluations record the command line
        title = f"{numbered} of {len(self._config.steps)}"
        try:
            context = self._commands.parsed(numbered.step, self._root)
            step = step_of(context, numbered.step.command)
            if self._is_done(numbered, step):
                note(f"{title}: was done already")
            else:
                note(f"{title}: {shell_line(words)}")
                before = set(dict(named_paths(step)))
                with context:
                    context.command.invoke(context)
                self._files.record(step, before)
        except typer.Exit as ended:
            if ended.exit_code:
                raise self._config.failed(numbered, f"ended with status {ended.exit_code}") from ended
        except (AirRepError, UsageError, OSError) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            if "--replace" in reason:
                reason += " In a config: replace: true"
            raise self._config.failed(numbered, reason) from error
        artifact = artifact_of(step)
        if artifact is not None:
            self._before[artifact.resolve()].append(step)

    def _is_done(self, numbered: NumberedStep, step: Step) -> bool:
        """Whether the step made what is there, with the same inputs: an artifact that is whole, or files."""
        artifact, replaces = artifact_of(step), bool(numbered.step.options.get("replace"))
        if step.command.split()[0] in RESUMING:
            return False
        if artifact is None or not (artifact / MANIFEST).is_file():
            return not replaces and step.command not in GROWING and self._files.has(step)
        try:
            history = read_history(artifact)
        except ArtifactError:
            return False
        wanted = [*self._before[artifact.resolve()], step]
        if [line.step for line in history[: len(wanted)]] != wanted or unrecorded_changes(artifact, history):
            return False
        changed = [line for line in history[len(wanted) :] if line.step.command in IN_PLACE]
        asked = self._changes(artifact, numbered.number)[: len(changed)]
        if [line.step for line in changed] != asked:
            return False  # what was changed otherwise would stay in what later steps find
        # An input that is not there yet is made by a step in between.
        found = [
            inputs_of(step),
            *({**line.inputs, **inputs_of(one)} for line, one in zip(changed, asked, strict=True)),
        ]
        lines = (history[len(wanted) - 1], *changed)
        return all(still_has(digests, line.inputs) for digests, line in zip(found, lines, strict=True))

    def _changes(self, artifact: Path, number: int) -> list[Step]:
        """Steps after that of a number which change an index."""
        later = (one.step for one in self._config.steps[number:] if one.step.command in IN_PLACE)
        steps = [step_of(self._commands.parsed(step, self._root), step.command) for step in later]
        return [
            step for step in steps if (own := artifact_of(step)) is not None and own.resolve() == artifact.resolve()
        ]

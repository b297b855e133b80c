"""The config that makes an artifact, from its history and those of its inputs."""

import os
from contextlib import chdir
from pathlib import Path

from airrep.cli.running.config import WrittenStep, config_text
from airrep.cli.running.history import IN_PLACE, HistoryLine, artifact_of, named_paths, read_history
from airrep.cli.running.manifests import step_of_manifest
from airrep.cli.running.steps import Commands, Step
from airrep.errors import ConfigError
from airrep.runtime.artifacts.manifests import read_manifest
from airrep.runtime.artifacts.names import MANIFEST
from airrep.runtime.remote.places import published_from


def config_of(path: Path, commands: Commands) -> str:
    """The config that makes an artifact, and before it what it was made of, as far as their histories go.

    Without a history, which artifacts of earlier versions and those made from Python have not, it is what the manifest
    tells, with a comment at each option that must be filled in.

    Raises:
        ArtifactError: nothing is there, or it is unfinished or altered.
        ConfigError: nothing says how it was made.
    """
    history = read_history(path)
    if not history:
        written = step_of_manifest(path, commands)
        head = [f"{path} does not record the command that made it; this is what its manifest tells"]
        return config_text([written], Path.cwd(), head)
    folder = history[0].folder_from(path)
    steps = _Chain(folder).of(path, history)
    return config_text(
        steps, folder, [f"makes {path} again; save it in the folder where you are now, and airrep run it"]
    )


class _Chain:
    """Collects the steps of artifacts that were made in one folder, each after those that it was made of."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: set[Path] = set()

    def of(self, artifact: Path, history: list[HistoryLine]) -> list[WrittenStep]:
        """The steps of an artifact."""
        self._seen.add(artifact.resolve())
        steps: list[WrittenStep] = []
        for line in history:
            notes = []
            for text, path in self._named(line):
                made, note = self._made(path)
                steps += made
                notes += [f"{text}: {note}"] if note else []
            if line.folder_from(artifact) != self._folder:
                notes.append("this ran in another folder: check the paths")
            step, renamed = self._renamed(line, artifact)
            steps.append(WrittenStep(step, before=[*notes, *renamed]))
        changes = unrecorded_changes(artifact, history)
        if changes:
            steps[-1].before = [*steps[-1].before, changes]
        return steps

    def _renamed(self, line: HistoryLine, artifact: Path) -> tuple[Step, list[str]]:
        """The step of a line by the name that the artifact has now, and a comment where it had another then."""
        step, folder, now = line.step, line.folder_from(artifact), artifact.resolve()
        named = artifact_of(step)
        if named is None or published_from(named) is not None or (folder / named).resolve() == now:
            return step, []
        called = str(now) if named.is_absolute() else os.path.relpath(now, folder)
        option = "index" if step.command in IN_PLACE else "out"
        return Step(step.command, {**step.options, option: called}), [f"{called} was {named} when this ran"]

    def _named(self, line: HistoryLine) -> list[tuple[str, Path]]:
        """The artifacts that a line names beside its own, by whole paths, and those that hold a file which it names."""
        if not self._folder.is_dir():
            return []
        with chdir(self._folder):
            own = artifact_of(line.step)
            named = [(text, path) for text, path in named_paths(line.step) if path != own]
            places = [(text, place) for text, path in named for place in (path, path.parent)]
            return [(text, place.resolve()) for text, place in places if (place / MANIFEST).is_file()]

    def _made(self, artifact: Path) -> tuple[list[WrittenStep], str]:
        """The steps of what something was made of; and in place of steps a comment, where that says more."""
        if artifact in self._seen:
            return [], ""
        history = read_history(artifact)
        if not history:
            self._seen.add(artifact)
            return [], "does not record the command that made it; see airrep show --config of it"
        if history[0].folder_from(artifact) != self._folder:
            self._seen.add(artifact)
            return [], "was made in another folder; see airrep show --config of it"
        return self.of(artifact, history), ""


def unrecorded_changes(artifact: Path, history: list[HistoryLine]) -> str:
    """A comment on changes of an index that its history does not tell."""
    try:
        generation = int(read_manifest(artifact).get("generation", 0))
    except (ConfigError, OSError):
        return ""
    told = sum(line.step.command in IN_PLACE for line in history)
    if generation <= told:
        return ""
    return f"{artifact} was changed {generation - told} more times, from Python say; these changes are not recorded"

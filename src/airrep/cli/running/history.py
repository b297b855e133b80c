"""History of an artifact: the commands that made and changed it."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from airrep._version import __version__
from airrep.cli.running.steps import Step
from airrep.errors import ArtifactError
from airrep.runtime.artifacts.digests import file_digest, json_digest
from airrep.runtime.artifacts.names import HISTORY, MANIFEST
from airrep.runtime.artifacts.targets import real_path
from airrep.runtime.publishing.files import append_line
from airrep.runtime.remote.places import published_from, url_of
from airrep.runtime.remote.storage import Storage

IN_PLACE = ("append", "delete", "compact")
"""Commands that change an index; their argument is what they change."""
GROWING = "label"
"""The command that fills a directory by several calls: parts, more seeds."""
LARGEST = 2**26
"""Bytes of an input file whose content is looked at; of a larger one its size and time."""
MOST = 10_000
"""Files and folders of an input directory without manifest that are looked at."""
LONGEST_PATH = 4096


@dataclass(frozen=True)
class HistoryLine:
    """One command in the history of an artifact."""

    step: Step
    folder: str
    """The folder in which it ran: as seen from the artifact, if the artifact was named so too; else its whole path."""
    inputs: Mapping[str, str]
    """Digests of the files and directories that the options name."""

    def folder_from(self, artifact: Path) -> Path:
        """The folder in which it ran."""
        return (artifact.resolve() / self.folder).resolve()


def artifact_of(step: Step) -> Path | None:
    """The directory that a step makes or changes, as it is named; None if it does neither."""
    named = step.options.get("index" if step.command in IN_PLACE else "out")
    if not isinstance(named, str):
        return None
    return real_path(named) if url_of(named) else Path(named)


def read_history(artifact: Path) -> list[HistoryLine]:
    """The history of an artifact; empty if none was recorded.

    Raises:
        ArtifactError: it cannot be read.
    """
    path = artifact / HISTORY
    if not path.is_file():
        return []
    try:
        *whole, last = path.read_bytes().split(b"\n")
        lines = whole if last.startswith(b"{") else [*whole, last]  # an interruption may have cut the last one
        return [_line(json.loads(text)) for text in lines if text.strip()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ArtifactError(f"{path}: cannot be read as commands of airrep. Delete it.") from error


def _line(value: Mapping[str, Any]) -> HistoryLine:
    ((command, options),) = value["step"].items()
    return HistoryLine(Step(str(command), dict(options)), str(value["folder"]), dict(value["inputs"]))


def inputs_of(step: Step) -> dict[str, str]:
    """Digests of the files and directories that a step's options name, as seen from the current folder."""
    own = artifact_of(step)
    found = {text: path for text, path in named_paths(step) if own is None or path != own}
    return {text: _digest(path) for text, path in sorted(found.items())}


def named_by(step: Step) -> dict[str, str]:
    """Digests of all that a step's options name, what it makes too."""
    return {text: _digest(path) for text, path in sorted(named_paths(step))}


def still_has(digests: Mapping[str, str], recorded: Mapping[str, str]) -> bool:
    """Whether all that was recorded is as it was; what a step's options name by now was made by it, or by nobody."""
    return all(digests.get(text) == digest for text, digest in recorded.items())


def named_paths(step: Step) -> Iterator[tuple[str, Path]]:
    """Each text of a step's options that is the name of something which exists, or has it as a part, and its path."""
    for text in _texts(list(step.options.values())):
        # DIR#0, NAME=INDEX, METHOD:settings.yaml, key=DIR
        for part in (text, text.partition("#")[0], text.partition("=")[2], text.partition(":")[2]):
            if part and _exists(part):
                yield text, Path(part)
                break


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _texts(list(value.values()))
    elif isinstance(value, Sequence):
        for inner in value:
            yield from _texts(inner)


def _exists(text: str) -> bool:
    if len(text) > LONGEST_PATH:
        return False
    try:
        return Path(text).exists()
    except (OSError, ValueError):  # what no path can be, such as a long prompt
        return False


def _digest(path: Path) -> str:
    """Digest of a file, or of a directory: of its manifest, or of the names, sizes and times of its files."""
    try:
        if (path / MANIFEST).is_file():
            return str(json.loads((path / MANIFEST).read_bytes()).get("manifest_sha256"))
        if path.is_file() and path.stat().st_size <= LARGEST:
            return file_digest(path)
        files = [path] if path.is_file() else sorted(one for one in islice(path.rglob("*"), MOST) if one.is_file())
        return json_digest([[str(one), one.stat().st_size, one.stat().st_mtime_ns] for one in files])
    except (OSError, ValueError, AttributeError):
        return "unreadable"


def state_of(artifact: Path) -> bytes | None:
    """The manifest, which every change writes anew; None without one."""
    path = artifact / MANIFEST
    return path.read_bytes() if path.is_file() else None


def record(artifact: Path, step: Step, inputs: Mapping[str, str], *, changed: bool) -> None:
    """Add a line to the history, if the step made or changed something that it does not tell yet."""
    if (
        not _is_ours(artifact, step) or os.environ.get("RANK", "0") != "0"
    ):  # of torchrun's processes the first one writes
        return
    known = [line.step for line in read_history(artifact)]
    if step.command in IN_PLACE:
        wanted = changed
    elif step.command == GROWING:
        wanted = step not in known and (changed or not known or not (artifact / MANIFEST).is_file())
    else:
        wanted = not known
    if wanted:
        line = {"airrep": __version__, "step": step.to_dict(), "folder": _folder(artifact), "inputs": dict(inputs)}
        append_line(artifact / HISTORY, json.dumps(line))  # in ASCII: names of files may be bytes that are no text
        if (url := published_from(artifact)) is not None:
            Storage(url).put(artifact, [HISTORY])


def _is_ours(artifact: Path, step: Step) -> bool:
    """Whether a step left a directory of airrep's there, rather than a file or something for other programs."""
    return (artifact / MANIFEST).is_file() or (artifact.is_dir() and step.command in (GROWING, "adapt"))


def _folder(artifact: Path) -> str:
    """The current folder, as :attr:`Line.folder` has it."""
    here = Path.cwd().resolve()
    return str(here) if artifact.is_absolute() else os.path.relpath(here, artifact.resolve())

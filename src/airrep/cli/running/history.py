"""The commands that made an artifact: recorded in it, shown, run again."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from airrep._version import __version__
from airrep.cli.options import ReplaceOption, note
from airrep.errors import ArtifactError, ConfigError
from airrep.runtime.artifacts import HISTORY, MANIFEST
from airrep.runtime.publishing import append_line
from airrep.runtime.remote.places import published_from
from airrep.runtime.remote.storage import Storage

IN_PLACE = ("append", "delete")
"""Commands that change an index."""
UNFINISHED = ("label", "adapt")
"""Commands whose interrupted work can be resumed before there is a manifest."""
ONCE = ("--replace", "--json")
"""Flags that affect how a command runs, not its result."""

EARLIER = "(earlier version)"
"""Stands before a command that an earlier version recorded, in another form."""


@dataclass(frozen=True)
class MadeBy:
    """A recorded command that made or changed an artifact."""

    words: tuple[str, ...]
    """As it was typed, without the program."""
    folder: str
    """The folder in which it ran: as seen from the artifact, if the artifact was named so too; else its whole path."""
    replaces: bool
    """It can replace what is there."""

    @property
    def line(self) -> str:
        """The command for a shell."""
        return " ".join(self.words) if self.earlier else " ".join(map(_quoted, ["airrep", *self.words]))

    @property
    def earlier(self) -> bool:
        """Tell whether an earlier version recorded it, in another form."""
        return self.words[0] == EARLIER


def _quoted(word: str) -> str:
    """A word for a shell; line breaks and other control characters in its ``$'...'`` form, on one line."""
    if word.isprintable():
        return shlex.quote(word)
    signs = word.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return "$'" + "".join(c if c.isprintable() else "".join(f"\\x{b:02x}" for b in os.fsencode(c)) for c in signs) + "'"


def read_history(artifact: Path) -> list[MadeBy]:
    """The commands that made an artifact, in order; none if none were recorded (ArtifactError: they cannot be read)."""
    path = artifact / HISTORY
    if not path.is_file():
        return []
    try:
        *whole, last = path.read_bytes().split(b"\n")
        lines = whole if last.startswith(b"{") else [*whole, last]  # an interruption may have cut the last one
        found = [json.loads(text) for text in lines if text.strip()]
        return [MadeBy(_words(one), str(one["folder"]), bool(one.get("replaces"))) for one in found]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ArtifactError(f"{path}: is damaged: it does not list commands. Delete this file.") from error


def _words(line: Mapping[str, Any]) -> tuple[str, ...]:
    """The words of a command; of an earlier version's step its name, and its options in no order of today."""
    if "words" in line:
        return tuple(map(str, line["words"]))
    ((command, options),) = line["step"].items()
    return (EARLIER, command, *(f"{name}={json.dumps(value)}" for name, value in options.items()))


def state_of(artifact: Path) -> tuple[bytes, int, int] | None:
    """The manifest, then which file it is and of when: one that is written anew may have the same bytes; or None."""
    try:
        with (artifact / MANIFEST).open("rb") as stream:
            status = os.fstat(stream.fileno())
            return stream.read(), status.st_ino, status.st_mtime_ns
    except OSError:
        return None


def record(artifact: Path, words: list[str], *, replaces: bool, before: bytes | None) -> None:
    """Add a command to the history of what it made or changed, unless the history tells it already.

    *before* is the manifest before the command.
    """
    state, command = state_of(artifact), words[0]
    now = state and state[0]
    ours = now is not None or (artifact.is_dir() and command in UNFINISHED)
    if not ours or os.environ.get("RANK", "0") != "0":  # of torchrun's processes the first one writes
        return
    kept = [word for word in words if word not in ONCE]
    known = [one.words for one in read_history(artifact)]
    if command in IN_PLACE:
        wanted = now != before
    else:
        wanted = tuple(kept) not in known and (now != before or not known or now is None)
    if wanted:
        here = Path.cwd().resolve()
        folder = str(here) if artifact.is_absolute() else os.path.relpath(here, artifact.resolve())
        line = {"airrep": __version__, "words": kept, "folder": folder, "replaces": replaces}
        append_line(artifact / HISTORY, json.dumps(line))  # in ASCII: names of files may be bytes that are no text
        if (url := published_from(artifact)) is not None:
            Storage(url).put(artifact, [HISTORY])


def run_again(artifact: Path, *, replace: bool) -> None:
    """Run the commands that made an artifact, each in the folder where it ran; the first that fails ends the run.

    ArtifactError: the history cannot be read, or a folder is gone. ConfigError: nothing was recorded, or a command
    failed.
    """
    made = [(one, (artifact.resolve() / one.folder).resolve()) for one in read_history(artifact)]
    if not made:
        raise ConfigError(
            f"{artifact}: records no command that made it, so there is nothing to run again. Type the command yourself."
        )
    old = next((one for one, _ in made if one.earlier), None)
    if old is not None:
        raise ConfigError(
            f"{artifact}: the command that made it cannot be run again, because an earlier version of airrep recorded "
            f"it in another form: {old.line}. Type the command yourself; its options: airrep {old.words[1]} --help"
        )
    for one, folder in made:
        if not folder.is_dir():
            raise ArtifactError(f"{folder}: does not exist, but {one.line} ran there. Create it, with the data in it.")
        replacing = ["--replace"] if replace and one.replaces else []
        note(one.line)
        status = subprocess.run([sys.executable, "-m", "airrep", *one.words, *replacing], cwd=folder, check=False)
        if status.returncode:
            raise ConfigError(f"{artifact}: this command failed: {one.line}. Its error message stands above.")


app = typer.Typer()


@app.command("rerun")
def rerun_command(
    results: Annotated[list[Path], typer.Argument(metavar="RESULT...", help="Directories that airrep wrote.")],
    replace: ReplaceOption = False,
) -> None:
    """Run again the commands that made a result, in the folders where they ran.

    A build that is finished is skipped. An answer that was kept with --out is an error, as it exists already. To do all
    work again, for example because the data have changed, add --replace. `airrep show RESULT` prints the commands.
    """
    from airrep.runtime.artifacts import fetched

    for result in results:
        run_again(fetched(result, loose=True), replace=replace)

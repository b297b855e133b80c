"""Unfinished directories: made, cleared, and tidied up after killed writers."""

import shutil
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from airrep.errors import ArtifactError
from airrep.runtime.artifacts.locks import locked, refuse_link
from airrep.runtime.artifacts.names import LOCK, SWAPPED, partial_path
from airrep.runtime.publishing.files import remove_leftovers, writing
from airrep.runtime.publishing.folders import discard

FINISH_FIRST = "Finish that one with its own command, delete the directory, or pass --replace."


def make_partial(out: Path) -> Path:
    """Make, or find, the directory in which *out* is being built.

    Raises:
        ArtifactError: a directory of that name is there that airrep did not make, or it cannot be made.
    """
    partial = partial_path(out)
    tidy(out)
    with writing(out):
        refuse_link(partial)
        partial.mkdir(parents=True, exist_ok=True)
        # Every directory that airrep began has its lock file.
        if any(partial.iterdir()) and not (partial / LOCK).exists():
            raise ArtifactError(
                f"{partial}: was not written by airrep, but is in the way. Move it, or choose another --out."
            )
    return partial


def clear(folder: Path, keep: Collection[str] = ()) -> None:
    """Empty a folder that is held by :func:`locked`, but for its lock and what is to be kept."""
    for child in folder.iterdir():
        if child.name in keep:
            continue
        if child.is_dir() and not child.is_symlink():
            shutil.rmtree(child)
        elif child.name != LOCK:
            child.unlink()


def tidy(out: Path) -> None:
    """Remove what a killed writer of *out* left beside it, as far as that is allowed; unfinished work stays."""
    if not out.parent.is_dir():
        return
    remove_leftovers(out.parent)
    with suppress(OSError):
        discard_old(out)


def discard_old(out: Path) -> None:
    """Remove the older version that lies where its successor was built, if one does."""
    partial = partial_path(out)
    if not (out / SWAPPED).exists():
        return
    with suppress(ArtifactError):  # where another process has begun anew: it empties the directory itself
        if partial.is_dir() and not partial.is_symlink():
            with locked(partial):
                discard(partial)
    (out / SWAPPED).unlink(missing_ok=True)

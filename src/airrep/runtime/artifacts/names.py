"""Names of files in an artifact, and of its unfinished directory."""

from pathlib import Path

from airrep.runtime.remote.folders import LAST

MANIFEST = LAST
LOCK = ".lock"
SWAPPED = ".swapped"
"""File of an artifact whose older version lies, for a moment, in the unfinished directory."""
REQUEST = "request.json"
"""File of an unfinished directory with the request that it was begun for."""
HISTORY = ".steps.jsonl"
"""File in an artifact's directory: a line for each command. No manifest names it, since where and how often a command
was run does not decide what is made."""
PARTIAL = ".partial"
"""Ending of the name of an unfinished directory."""


def partial_path(out: Path) -> Path:
    """Path of the directory in which an artifact is written until it is whole."""
    return out.with_name(out.name + PARTIAL)


def beside(path: Path, ending: str) -> Path:
    """A path beside another, of its name and an ending; of ``.`` and the like by the whole path."""
    named = path if path.name not in ("", "..") else path.resolve()
    return named.with_name(f"{named.name}-{ending}")

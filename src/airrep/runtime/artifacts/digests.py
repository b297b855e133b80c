"""One spelling of JSON values, and checksums of values and files."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from airrep.errors import ArtifactError
from airrep.runtime.publishing import LIMITS


def canonical_json(value: object) -> bytes:
    """Canonical bytes of a JSON value: sorted keys, indented, UTF-8, a newline at the end."""
    text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False, default=_of_numpy)
    return (text + "\n").encode()


def _of_numpy(value: object) -> object:
    """A NumPy number as Python's own, which is written alike."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def json_digest(value: object) -> str:
    """sha256 of a JSON value, 64 hex digits."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def file_digest(path: Path) -> str:
    """sha256 of a file's bytes, 64 hex digits."""
    with within_limits(path), path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def within_limits(path: Path) -> Iterator[None]:
    """Tell a limit of the system that was reached while *path* is read from a damage of it (ArtifactError)."""
    try:
        yield
    except OSError as error:
        if (way_out := LIMITS.get(error.errno or 0)) is None:
            raise
        raise ArtifactError(f"{path}: cannot be read, though nothing is wrong with it: {way_out}") from error


def describe_files(folder: Path, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Size and sha256 of each named file of a folder."""
    return {name: {"bytes": (folder / name).stat().st_size, "sha256": file_digest(folder / name)} for name in names}

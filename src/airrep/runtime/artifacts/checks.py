"""Check the files of an artifact against its manifest, and what they hold."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from airrep.errors import AirRepError, ArtifactError
from airrep.runtime.artifacts.digests import file_digest


def check_sizes(
    folder: Path, files: Mapping[str, Mapping[str, Any]], known: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
) -> None:
    """Check that every file of a manifest is there and of its size: quick, done at each opening.

    Args:
        folder: the artifact.
        files: entries of its manifest.
        known: those that were checked a moment ago.

    Raises:
        ArtifactError: a file is missing or of another size.
    """
    for name, entry in files.items():
        if known.get(name) == entry:
            continue
        try:
            size = os.stat(f"{folder}/{name}").st_size  # noqa: PTH116 - a path object takes twice as long
        except OSError as error:
            raise ArtifactError(f"{folder / name}: is missing. Restore it or build the artifact again.") from error
        if size != entry["bytes"]:
            raise ArtifactError(
                f"{folder / name}: has {size} bytes; expected {entry['bytes']}. Restore it or build the artifact again."
            )


def check_digests(folder: Path, files: Mapping[str, Mapping[str, Any]]) -> None:
    """Check every byte of every file of a manifest (ArtifactError: a file is missing or altered)."""
    check_sizes(folder, files)
    for name, entry in files.items():
        if file_digest(folder / name) != entry["sha256"]:
            raise ArtifactError(f"{folder / name}: was altered after it was written. Restore it or build it again.")


_whole: set[tuple[object, ...]] = set()
"""Files that were found whole: path, inode, size, time of the last change, and checksum."""


def check_file(path: Path, entry: Mapping[str, Any]) -> None:
    """Check every byte of one file of a manifest, once in a process while the file stays as it is.

    ArtifactError: it is missing or altered.
    """
    try:
        status = path.stat()
        known = (str(path), status.st_ino, status.st_size, status.st_mtime_ns, entry["sha256"])
        if known in _whole:
            return
        digest = file_digest(path)
    except OSError as error:
        if isinstance(error, PermissionError):
            raise ArtifactError(f"{path}: cannot be read ({error.strerror}). Mend its permissions.") from error
        raise ArtifactError(
            f"{path}: cannot be read ({error.strerror}): it was altered, or replaced while it was open. "
            "Open it again; if that fails, build it again."
        ) from error
    if digest != entry["sha256"]:
        raise ArtifactError(f"{path}: was altered after it was written. Restore it or build it again.")
    _whole.add(known)


@contextmanager
def as_written(path: Path) -> Iterator[None]:
    """Turn whatever goes wrong while an artifact's content is taken apart into a one-line ArtifactError."""
    try:
        yield
    except AirRepError:
        raise
    except Exception as error:  # what was altered, or made by others, raises nearly anything
        raise ArtifactError(
            f"{path}: is not as airrep writes it ({type(error).__name__}), so it was altered. "
            "Restore it or build it again."
        ) from error


def read_json(folder: Path, manifest: Mapping[str, Any], name: str) -> Any:
    """Read a JSON file of an artifact, after a check of all files in its manifest.

    ArtifactError: a file was altered, is missing, or is no JSON.
    """
    check_digests(folder, manifest["files"])
    with as_written(folder):
        return json.loads((folder / name).read_bytes())

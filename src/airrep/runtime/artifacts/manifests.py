"""Manifests: what an artifact is and holds; written last, read with checks.

An artifact is a directory whose ``manifest.json`` names its kind, its format version, what it was made from, and
every file with its size and sha256. A directory without a manifest is unfinished; one with a manifest is whole.
"""

import hashlib
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from airrep._version import __version__
from airrep.errors import AirRepError, ArtifactError, near_path
from airrep.runtime.publishing import LIMITS, sync, write_file
from airrep.runtime.remote.outputs import LAST, Files

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

FORMAT_VERSION = 1
_OWN = "manifest_sha256"
"""Key of a manifest: the checksum over all of its other lines."""
_OWN_LINE = re.compile(rb'(?<=\n) "manifest_sha256": "([^"\n]*)",\n|,\n "manifest_sha256": "([^"\n]*)"(?=\n}\n)')
_UNKNOWN = "checksum of the other lines"


def partial_path(out: Path) -> Path:
    """Path of the directory in which an artifact is written until it is whole."""
    return out.with_name(out.name + PARTIAL)


def beside(path: Path, ending: str) -> Path:
    """A path beside another, of its name and an ending; of ``.`` and the like by the whole path."""
    named = path if path.name not in ("", "..") else path.resolve()
    return named.with_name(f"{named.name}-{ending}")


def versions(*packages: str) -> dict[str, str]:
    """Versions of airrep and of installed packages that an artifact's content depends on, for its manifest."""
    found = {"airrep": __version__}
    for name in packages:
        with suppress(PackageNotFoundError):  # of an extra, without which it was made
            found[name] = version(name)
    return found


def write_manifest(folder: Path, kind: str, content: Mapping[str, Any]) -> None:
    """Write ``manifest.json``, the last file of an artifact, with a checksum over itself."""
    manifest = canonical_json({**content, "kind": kind, "format": FORMAT_VERSION, _OWN: _UNKNOWN})
    digest = _digest_of_others(manifest)
    own, known = (f'"{_OWN}": "{text}"'.encode() for text in (_UNKNOWN, digest))
    write_file(folder / MANIFEST, manifest.replace(own, known, 1))


def seal(
    folder: Path,
    kind: str,
    content: Mapping[str, Any],
    without: Collection[str] = (),
    written: Collection[str] | None = None,
) -> None:
    """Flush the files of a directory to the disk, and write the manifest that names them all beside the *content*.

    Names that begin with a dot are never part of an artifact: locks, histories, what an interrupted write left behind.
    Directly below the folder, names in *without* are left out; only those *written* are taken, where they are told.
    """
    names = [name for name in _files_below(folder) if name.partition("/")[0] not in {MANIFEST, *without}]
    if written is not None:
        names = [name for name in names if name.partition("/")[0] in written]
    for name in names:  # before the manifest, which must not survive a power cut that its files do not
        sync(folder / name)
    for parent in {parent for name in names for parent in (folder / name).parents if parent.is_relative_to(folder)}:
        sync(parent)
    write_manifest(folder, kind, {**content, "files": describe_files(folder, names)})


def _files_below(folder: Path) -> list[str]:
    below = [path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file()]
    return [path.as_posix() for path in below if not any(part.startswith(".") for part in path.parts)]


def read_manifest(folder: Path, kind: str | None = None, *, verify: bool = False) -> dict[str, Any]:
    """Read an artifact's manifest, of the expected *kind* if one is given; *verify* checks every byte of its files.

    ArtifactError: nothing there, unfinished, altered, of a newer format, or of another kind.
    """
    content, manifest = _parse_manifest(folder)
    if manifest.get("format", 0) > FORMAT_VERSION:
        raise ArtifactError(
            f"{folder}: was written in format {manifest['format']}; this airrep reads up to {FORMAT_VERSION}. "
            "Update airrep: pip install -U airrep"
        )
    claimed = manifest.pop(_OWN, None)
    with as_written(folder / MANIFEST):
        whole = _is_whole(content, claimed) or claimed == json_digest(manifest)  # other spaces do no harm
    if not whole:
        raise ArtifactError(f"{folder / MANIFEST}: was altered after it was written. Restore it or build it again.")
    with as_written(folder / MANIFEST):
        _check_form(manifest)
    if kind is not None:
        check_kind(folder, manifest, kind)
    if verify:
        check_digests(folder, manifest["files"])
    return manifest


def _is_whole(content: bytes, claimed: object) -> bool:
    """True if the bytes of a manifest have the checksum that they claim; faster than serialising it again.

    Numbers that are none, and halves of surrogate pairs, are left to the writer, which refuses them.
    """
    odd = any(word in content for word in (b"NaN", b"Infinity", b"\\ud"))
    return not odd and claimed == _digest_of_others(content)


def _digest_of_others(manifest: bytes) -> str:
    """sha256 of a manifest's lines but for the one that holds it; found first, as the pattern alone takes long."""
    own = _OWN_LINE.search(manifest, max(manifest.find(f'\n "{_OWN}"'.encode()) - 1, 0))
    before, after = (own.start(), own.end()) if own else (len(manifest), len(manifest))
    return hashlib.sha256(manifest[:before] + manifest[after:]).hexdigest()


def check_kind(folder: Path, manifest: Mapping[str, Any], kind: str) -> None:
    """Refuse an artifact of another kind, by its manifest (ArtifactError: it is one)."""
    if manifest["kind"] != kind:
        raise ArtifactError(f"{folder}: is of kind '{manifest['kind']}'; expected '{kind}'. Give the path of that.")


def _parse_manifest(folder: Path) -> tuple[bytes, dict[str, Any]]:
    """A manifest's bytes, and what they say."""
    path = folder / MANIFEST
    if not path.is_file():
        raise ArtifactError(_why_absent(folder))
    try:
        with within_limits(path):
            content = path.read_bytes()
            manifest = json.loads(content)
    except ArtifactError:
        raise
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read: {error.strerror}. Correct its permissions.") from error
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{path}: is not JSON, so it was altered. Restore it or build it again.") from error
    if not isinstance(manifest, dict) or type(manifest.get("format")) is not int:
        raise ArtifactError(f"{path}: is not a manifest of airrep. Give the path of a directory that airrep wrote.")
    return content, manifest


def _check_form(manifest: Mapping[str, Any]) -> None:
    """Refuse a manifest without a kind, or with files that are none below its folder; raises anything."""
    if not isinstance(manifest["kind"], str):
        raise TypeError
    for name, entry in manifest["files"].items():
        name.encode()  # half of a surrogate pair is no name
        if name.startswith("/") or not name or "\0" in name or (".." in name and ".." in name.split("/")):
            raise ValueError
        if type(entry["bytes"]) is not int or not isinstance(entry["sha256"], str):
            raise TypeError


def _why_absent(folder: Path) -> str:
    if not folder.exists() and not (folder.name and partial_path(folder).is_dir()):
        return f"{folder}: does not exist; expected a directory that airrep wrote. {near_path(folder)}"
    if folder.suffix == PARTIAL or not folder.exists():
        return f"{folder}: is unfinished. Run the command that was building it again: it goes on where it stopped."
    wrong = "is a file" if folder.is_file() else f"has no {MANIFEST}"
    return f"{folder}: {wrong}; expected a directory that airrep wrote. Check the path."


def is_made(folder: Path) -> bool:
    """True if a folder is an artifact, finished or not; checks no file.

    A request alone tells nothing: others name files of theirs so. Labels have one beside the folder of their results.
    """
    if folder.suffix == PARTIAL or ((folder / REQUEST).is_file() and (folder / "results").is_dir()):
        return True
    try:
        return f'"{_OWN}"'.encode() in (folder / MANIFEST).read_bytes()
    except OSError:
        return False


def check_sizes(folder: Path, files: Files, known: Files = MappingProxyType({})) -> None:
    """Check that every file of a manifest is there and of its size, but those that are *known* from a moment ago.

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


def check_digests(folder: Path, files: Files) -> None:
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
            raise ArtifactError(f"{path}: cannot be read ({error.strerror}). Correct its permissions.") from error
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
    """Read a JSON file of an artifact, after a check of all its files (ArtifactError: altered, missing or no JSON)."""
    check_digests(folder, manifest["files"])
    with as_written(folder):
        return json.loads((folder / name).read_bytes())


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

"""Manifests: what an artifact is and holds; written last, read with checks.

An artifact is a directory whose ``manifest.json`` names its kind, its format version, what it was made from, and
every file with its size and sha256. A directory without a manifest is unfinished; one with a manifest is whole.
"""

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from airrep._version import __version__
from airrep.errors import ArtifactError, near_path
from airrep.runtime.artifacts.checks import as_written, check_digests
from airrep.runtime.artifacts.digests import canonical_json, describe_files, json_digest, within_limits
from airrep.runtime.artifacts.names import MANIFEST, PARTIAL, REQUEST, partial_path
from airrep.runtime.publishing.files import sync, write_file

FORMAT_VERSION = 1
_OWN = "manifest_sha256"
"""Key of a manifest: the checksum over all of its other lines."""
_OWN_LINE = re.compile(rb'(?<=\n) "manifest_sha256": "([^"\n]*)",\n|,\n "manifest_sha256": "([^"\n]*)"(?=\n}\n)')
_UNKNOWN = "checksum of the other lines"


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
    """Flush the files of a directory to the disk, and write the manifest that names them all.

    Names that begin with a dot are never part of an artifact: locks, histories, what an interrupted write left behind.

    Args:
        folder: the directory.
        kind: kind of artifact.
        content: values of the manifest, without the files.
        without: names of files and folders, directly below, that are left out.
        written: names of those, directly below, that were written; None: all, where the directory was empty before.
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
    """Read an artifact's manifest.

    Args:
        folder: the artifact.
        kind: expected kind, such as ``"index"``; any kind when None.
        verify: check every byte of its files.

    Raises:
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
        raise ArtifactError(f"{path}: cannot be read: {error.strerror}. Mend its permissions.") from error
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

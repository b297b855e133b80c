"""Artifacts: directories sealed by a manifest; writing, publishing and checked reading.

An artifact is a directory whose ``manifest.json`` names its kind, its format version, what it was made from, and
every file with its size and sha256. A directory without a manifest is unfinished; one with a manifest is complete.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from airrep._version import __version__
from airrep.errors import BESIDE, AirRepError, ArtifactError, near_path
from airrep.runtime.publishing import file_digest as file_digest
from airrep.runtime.publishing import give_name, remove_leftovers, sync, temporary_folder, write_file, writing
from airrep.runtime.publishing import within_limits as within_limits
from airrep.runtime.remote.hub import pinned
from airrep.runtime.remote.outputs import (
    LAST,
    Files,
    check_ours,
    fetch_listed,
    fetch_whole,
    is_taken,
    manifest_at,
    publish_folder,
    take_over,
)
from airrep.runtime.remote.places import made_at, path_of, published_from, shown, url_of

MANIFEST = LAST
LOCK = ".lock"
SWAPPED = ".swapped"
"""Marker file in a new artifact while the version that it replaced still lies in the unfinished directory."""
REQUEST = "request.json"
"""File of an unfinished directory with the request that it was started for."""
HISTORY = ".steps.jsonl"
"""File in an artifact's directory with a line for each command that worked on it. It is not in the manifest, because
where and how often a command was run does not change the result."""
PARTIAL = ".partial"
"""Ending of the name of an unfinished directory."""

FORMAT_VERSION = 1
_OWN = "manifest_sha256"
"""Key of a manifest: the checksum over all other lines."""
_OWN_LINE = re.compile(rb'(?<=\n) "manifest_sha256": "([^"\n]*)",\n|,\n "manifest_sha256": "([^"\n]*)"(?=\n}\n)')
_UNKNOWN = "checksum of the other lines"


def partial_path(out: Path) -> Path:
    """Return the directory in which an artifact is written until it is complete."""
    return out.with_name(out.name + PARTIAL)


def beside(path: Path, ending: str) -> Path:
    """Return a path beside another, named ``NAME-ENDING``; for paths without a name, such as ``.``, resolve first."""
    named = path if path.name not in ("", "..") else path.resolve()
    return named.with_name(f"{named.name}-{ending}")


def versions(*packages: str) -> dict[str, str]:
    """Return the versions of airrep and of the installed ones among *packages*, for a manifest."""
    found = {"airrep": __version__}
    for name in packages:
        with suppress(PackageNotFoundError):  # an optional package that was not used
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
    """Flush the files of a directory to the disk, and write the manifest with the *content* and all of these files.

    Names that begin with a dot are never part of an artifact: locks, histories, leftovers of an interrupted write.
    Of the names directly in the folder, those in *without* are left out, and if *written* is given, all not in it.
    """
    below = [path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file()]
    below = [path for path in below if path.parts[0] not in {MANIFEST, *without}]
    below = [path for path in below if written is None or path.parts[0] in written]
    names = [path.as_posix() for path in below if not any(part.startswith(".") for part in path.parts)]
    for name in names:  # before the manifest, which must not survive a power cut that its files do not
        sync(folder / name)
    for parent in {parent for name in names for parent in (folder / name).parents if parent.is_relative_to(folder)}:
        sync(parent)
    write_manifest(folder, kind, {**content, "files": describe_files(folder, names)})


def read_manifest(folder: Path, kind: str | None = None, *, verify: bool = False) -> dict[str, Any]:
    """Read an artifact's manifest and check its *kind* if one is given; *verify* checks every byte of its files.

    ArtifactError: the artifact is missing, unfinished, altered, of a newer format, or of another kind.
    """
    content, manifest = _parse_manifest(folder, kind)
    if manifest.get("format", 0) > FORMAT_VERSION:
        raise ArtifactError(
            f"{folder}: was written by a newer airrep (in format {manifest['format']}; this version reads up to "
            f"{FORMAT_VERSION}). Update airrep: pip install -U airrep"
        )
    claimed = manifest.pop(_OWN, None)
    with as_written(folder / MANIFEST):
        # Hashing the bytes is faster than serialising again. NaN, Infinity and lone surrogates go to the serialiser,
        # which refuses them. A manifest with other white space passes by the second check.
        odd = any(word in content for word in (b"NaN", b"Infinity", b"\\ud"))
        whole = (not odd and claimed == _digest_of_others(content)) or claimed == json_digest(manifest)
    if not whole:
        raise ArtifactError(f"{folder / MANIFEST}: was altered after it was written. Restore it or build it again.")
    with as_written(folder / MANIFEST):
        if not isinstance(manifest["kind"], str):
            raise TypeError
        for name, entry in manifest["files"].items():
            name.encode()  # fails for a lone surrogate
            if name.startswith("/") or not name or "\0" in name or (".." in name and ".." in name.split("/")):
                raise ValueError
            if type(entry["bytes"]) is not int or not isinstance(entry["sha256"], str):
                raise TypeError
    if kind not in (None, manifest["kind"]):
        raise ArtifactError(
            f"{folder}: is of kind '{manifest['kind']}'; expected '{kind}'. Give the path of a directory of that kind."
        )
    if verify:
        check_digests(folder, manifest["files"])
    return manifest


def _digest_of_others(manifest: bytes) -> str:
    """Return sha256 of a manifest without its checksum's line, which ``find`` locates first because a regex is slow."""
    own = _OWN_LINE.search(manifest, max(manifest.find(f'\n "{_OWN}"'.encode()) - 1, 0))
    before, after = (own.start(), own.end()) if own else (len(manifest), len(manifest))
    return hashlib.sha256(manifest[:before] + manifest[after:]).hexdigest()


def _parse_manifest(folder: Path, kind: str | None) -> tuple[bytes, dict[str, Any]]:
    path = folder / MANIFEST
    if not path.is_file():
        raise ArtifactError(_why_absent(folder, kind))
    try:
        with within_limits(path):
            content = path.read_bytes()
            manifest = json.loads(content)
    except ArtifactError:
        raise
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read: {error.strerror}. Correct its permissions.") from error
    except (ValueError, RecursionError) as error:
        raise ArtifactError(
            f"{path}: is not valid JSON, so it was altered or damaged. Restore it or build it again."
        ) from error
    if not isinstance(manifest, dict) or type(manifest.get("format")) is not int:
        raise ArtifactError(f"{path}: is not a manifest of airrep. Give the path of a directory that airrep wrote.")
    return content, manifest


def _why_absent(folder: Path, kind: str | None) -> str:
    if not folder.exists() and not (folder.name and partial_path(folder).is_dir()):
        return f"{folder}: does not exist; expected a directory that airrep wrote. {near_path(folder)}"
    if folder.suffix == PARTIAL or not folder.exists():
        return f"{folder}: is unfinished. Run the command that was building it again: it goes on where it stopped."
    wrong = "is a file" if folder.is_file() else f"has no {MANIFEST}"
    found = folder.glob(f"*/{MANIFEST}") if folder.is_dir() else ()
    inside = sorted(one.parent for one in islice(found, BESIDE) if _is_of(one, kind))
    if inside:
        return f"{folder}: {wrong}. Did you mean {inside[0]}?"
    return f"{folder}: {wrong}; expected a directory that airrep wrote. Check the path."


def _is_of(manifest: Path, kind: str | None) -> bool:
    """Return True if a file is a manifest of a kind, or of any kind if None."""
    try:
        found = json.loads(manifest.read_bytes())
        return _OWN in found and kind in (None, found["kind"])
    except (OSError, ValueError, LookupError, TypeError):
        return False


def is_made(folder: Path) -> bool:
    """Return True if a folder is an artifact, finished or not; no file is checked.

    Other programs may also write a ``request.json``, so it counts only beside a folder ``results``, as in labels.
    """
    if folder.suffix == PARTIAL or ((folder / REQUEST).is_file() and (folder / "results").is_dir()):
        return True
    try:
        return f'"{_OWN}"'.encode() in (folder / MANIFEST).read_bytes()
    except OSError:
        return False


def check_sizes(folder: Path, files: Files, known: Files = MappingProxyType({})) -> None:
    """Check that every file of a manifest exists with its size; skip entries that are *known* from an earlier check.

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
"""Files that passed a check: path, inode, size, modification time, checksum."""


def check_file(path: Path, entry: Mapping[str, Any]) -> None:
    """Check every byte of one file of a manifest, once per process while the file does not change.

    ArtifactError: the file is missing or altered.
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
    """Turn any error while an artifact's content is parsed into a one-line ArtifactError."""
    try:
        yield
    except AirRepError:
        raise
    except Exception as error:  # an altered or foreign file may raise nearly anything
        raise ArtifactError(
            f"{path}: does not have the form that airrep writes ({type(error).__name__}), so it was altered or "
            "damaged. Restore it or build it again."
        ) from error


def read_json(folder: Path, manifest: Mapping[str, Any], name: str) -> Any:
    """Read a JSON file of an artifact after a check of all files (ArtifactError: altered, missing or not JSON)."""
    check_digests(folder, manifest["files"])
    with as_written(folder):
        return json.loads((folder / name).read_bytes())


def canonical_json(value: object) -> bytes:
    """Return canonical bytes of a JSON value: sorted keys, indented, UTF-8, a newline at the end."""
    text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False, default=_of_numpy)
    return (text + "\n").encode()


def _of_numpy(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def json_digest(value: object) -> str:
    """Return sha256 of a JSON value in canonical form, 64 hex digits."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def array_digest(array: np.ndarray) -> str:
    """Return sha256 of an array's bytes (not of its shape or type), 64 hex digits."""
    return hashlib.sha256(array.tobytes()).hexdigest()


def describe_files(folder: Path, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return size and sha256 of each named file of a folder."""
    return {name: {"bytes": (folder / name).stat().st_size, "sha256": file_digest(folder / name)} for name in names}


FINISH_FIRST = "Finish the earlier work with its own command, delete the directory, or pass --replace."


@contextmanager
def new_artifact(
    out: Path, kind: str, content: Mapping[str, Any], *, replace: bool = False, keep: Collection[str] = ()
) -> Iterator[Path]:
    """Write a small artifact at once: yield the empty directory to fill, then seal and publish it.

    Files named in *keep* stay from an earlier run and are not in the manifest. ArtifactError: *out*, or unfinished
    work of another command, exists and *replace* is false; or the artifact cannot be written.
    """
    out = real_path(out)
    check_free(out, kind, replace=replace)
    partial = make_partial(out)
    with locked(partial), writing(out):
        begun = partial / REQUEST  # hours of another command's work may lie there
        if not replace and begun.exists() and begun.read_bytes() != canonical_json(content.get("request")):
            raise ArtifactError(f"{partial}: holds the unfinished work of another command. {FINISH_FIRST}")
        clear(partial, keep)
        yield partial
        seal(partial, kind, content, without=keep)
        publish(partial, out, kind)


def publish(partial: Path, out: Path, kind: str) -> None:
    """Rename a finished directory to *out*, replacing an older artifact of the same kind.

    At every moment *out* is either the old or the new artifact, complete. ArtifactError: *out* exists and is not an
    artifact of that kind, or the operating system refused.
    """
    check_replaceable(out, kind)
    with writing(out):
        if out.exists():
            (partial / SWAPPED).touch()
        if give_name(partial, out):
            _discard_old(out)
    send(out)


@contextmanager
def locked(
    folder: Path,
    name: str = LOCK,
    busy: str = "another process is writing there. Wait until it has finished.",
    patience: float = 0.0,
) -> Iterator[None]:
    """Hold a lock file of a directory; the system frees the lock when the process ends, even if it is killed.

    ArtifactError: another process still holds the lock after *patience* seconds (*busy* is the message); or the
    directory is not writable.
    """
    from filelock import FileLock, Timeout  # here: it loads asyncio, and most commands lock nothing

    lock = FileLock(folder / name, timeout=patience)
    with writing(folder):
        _refuse_link(folder / name)
        try:
            lock.acquire()
        except Timeout as error:
            raise ArtifactError(f"{folder}: {busy}") from error
    try:
        yield
    finally:
        lock.release()


def _refuse_link(path: Path) -> None:
    """Refuse a symbolic link where airrep makes its own files and directories (ArtifactError)."""
    if path.is_symlink():  # another user may have chosen its target
        raise ArtifactError(
            f"{path}: is a symbolic link, which airrep did not make. Remove it, or choose another --out."
        )


def make_partial(out: Path) -> Path:
    """Make, or find, the directory in which *out* is built.

    ArtifactError: a directory of that name exists that airrep did not make, or it cannot be made.
    """
    partial = partial_path(out)
    tidy(out)
    with writing(out):
        _refuse_link(partial)
        partial.mkdir(parents=True, exist_ok=True)
        # Every directory that airrep began has its lock file.
        if any(partial.iterdir()) and not (partial / LOCK).exists():
            raise ArtifactError(
                f"{partial}: was not written by airrep, but is in the way. Move it, or choose another --out."
            )
    return partial


def clear(folder: Path, keep: Collection[str] = ()) -> None:
    """Empty a folder that is held by :func:`locked`, except for its lock and the names in *keep*."""
    for child in folder.iterdir():
        if child.name in keep:
            continue
        if child.is_dir() and not child.is_symlink():
            shutil.rmtree(child)
        elif child.name != LOCK:
            child.unlink()


def tidy(out: Path) -> None:
    """Remove temporary files that a killed writer of *out* left beside it, if permitted; keep unfinished work."""
    if out.parent.is_dir():
        remove_leftovers(out.parent)
        with suppress(OSError):
            _discard_old(out)


def _discard_old(out: Path) -> None:
    """Remove the replaced version of *out* from the unfinished directory, if :data:`SWAPPED` says that it is there."""
    partial = partial_path(out)
    if not (out / SWAPPED).exists():
        return
    with suppress(ArtifactError):  # another process may have started there; it empties the directory itself
        if partial.is_dir() and not partial.is_symlink():
            with locked(partial), temporary_folder(partial.parent) as own:  # the rename frees the name at once
                partial.rename(own / partial.name)
    (out / SWAPPED).unlink(missing_ok=True)


def real_path(out: str | PathLike[str]) -> Path:
    """Return the path to write an artifact to: the target of a symbolic link, or the path itself.

    For a URL, return the local path where the artifact is made before :func:`publish` sends it to the URL.
    """
    url = url_of(out)
    if url is not None:
        return made_at(url)
    if not str(out):
        raise ArtifactError("out: the path is empty. Give the name of a folder or file.")
    path = path_of(out)  # publishing renames directories, which would replace the link and leave its target
    path = path.resolve() if path.is_symlink() or not path.name else path
    if not path.name:
        raise ArtifactError(
            f"{path}: is the root of a file system, so it cannot be an output. Give the path of a new folder inside it."
        )
    if path.suffix == PARTIAL:
        raise ArtifactError(f"{path}: names that end in {PARTIAL} are reserved for unfinished work. Give another name.")
    return path


def is_free(out: Path) -> bool:
    """Return True if nothing exists yet at a path or at the URL that it is published to."""
    url = published_from(out)
    return not out.exists() if url is None else manifest_at(url) is None


def check_free(out: Path, kind: str, *, replace: bool) -> None:
    """Check, before any work, that an artifact may be written.

    ArtifactError: *out* exists and *replace* is false, or it is not an artifact of that kind.
    """
    tidy(out)
    if not replace and not is_free(out):
        raise ArtifactError(
            f"{shown(str(out))}: exists already; nothing is overwritten. Give another path, or pass --replace."
        )
    check_replaceable(out, kind)


def check_replaceable(out: Path, kind: str) -> None:
    """Raise ArtifactError if *out* exists and is not an artifact of the same kind."""
    url, manifest = published_from(out), None
    if url is None and not out.exists():
        return
    if url is not None and MANIFEST not in check_ours(url):
        return
    try:
        manifest = json.loads((out / MANIFEST).read_bytes() if url is None else manifest_at(url) or b"")
    except ArtifactError:
        raise
    except (OSError, ValueError, RecursionError):
        pass
    where = url or out
    if not isinstance(manifest, dict) or "manifest_sha256" not in manifest:
        raise ArtifactError(f"{where}: was not written by airrep, so it is not replaced. Give another path.")
    if manifest.get("kind") != kind:
        raise ArtifactError(
            f"{where}: is of kind '{manifest.get('kind')}', not '{kind}', so it is not replaced. Give another path."
        )


def fetched(path: str | PathLike[str], *, loose: bool = False) -> Path:
    """Return the local path to read an artifact from: the path itself, or for a URL a checked, current copy.

    *loose* also accepts a folder without a manifest at a URL: a model, or unfinished labels. ArtifactError: the URL
    has nothing, or an incomplete or altered artifact, or its storage does not answer.
    """
    url = url_of(path)
    if url is None:
        return path_of(path)
    try:
        url = pinned(url)
        copy = fetch_whole(url, lambda folder: read_manifest(folder)["files"], HISTORY)
        if copy is None and loose:
            copy = fetch_listed(url)
    except ArtifactError as error:
        raise ArtifactError(shown(str(error))) from error
    if copy is not None:
        return copy
    if not is_taken(url):
        raise ArtifactError(f"{url}: does not exist. Check the URL.")
    raise ArtifactError(
        f"{url}: has no {MANIFEST}, so it is unfinished, or an upload stopped early. To finish it, repeat "
        "the command that made it."
    )


def bring(out: Path) -> bool:
    """Update *out* from the URL that it is published to; return False if it has no URL or nothing is at the URL.

    ArtifactError: the artifact there is altered, or cannot be read from the storage.
    """
    url = published_from(out)
    if url is None or manifest_at(url) is None:
        return False
    copy = fetched(url)
    if not out.exists() or (out / MANIFEST).read_bytes() != (copy / MANIFEST).read_bytes():
        take_over(copy, out)
    return True


def send(out: Path) -> None:
    """Upload a finished artifact to the URL that its path stands for, if any (ArtifactError: the upload failed)."""
    url = published_from(out)
    if url is None:
        return
    try:
        publish_folder(out, url, list(read_manifest(out)["files"]))
    except ArtifactError as error:
        raise ArtifactError(
            f"{shown(str(error))} The result is kept on this machine. Run the same command again to upload it."
        ) from error

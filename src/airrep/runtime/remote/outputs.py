"""Writes, fetches, publishes and mirrors files and folders at paths or URLs.

A complete folder has the file :data:`LAST`, which lists all others; an upload removes it first and writes it last, so
that half an upload is never taken for a complete folder. Other folders, such as models, are all files below their URL.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

from airrep.errors import ArtifactError
from airrep.runtime import publishing
from airrep.runtime.publishing import (
    file_digest,
    remove_leftovers,
    sync,
    sync_tree,
    temporary_folder,
    write_file,
    writing,
)
from airrep.runtime.remote.hub import hub_folder, storage_of
from airrep.runtime.remote.places import cache, is_hub, name_of, not_on_hub, path_of, published_from, stand_for, url_of
from airrep.runtime.remote.storage import Storage

LAST = "manifest.json"
"""The file whose presence marks a folder as complete."""
BEGUN = ".airrep-upload.json"
"""File that exists during an upload, with the names of the folder's new and old files."""
Files: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Names of files with their ``bytes`` and ``sha256``, as in a manifest."""


def is_taken(out: str | PathLike[str]) -> bool:
    """Return True if something exists at a path or URL (ArtifactError: the storage does not answer)."""
    url = url_of(out)
    return path_of(out).exists() if url is None else storage_of(url).exists()


def is_same_file(one: str | PathLike[str], other: str | PathLike[str]) -> bool:
    """Return True if two paths or URLs name the same file."""
    if url_of(one) is not None or url_of(other) is not None:
        return url_of(one) == url_of(other)
    return path_of(one).resolve() == path_of(other).resolve()


def write_output(out: Path, content: bytes | Iterable[bytes]) -> None:
    """Write a file completely or not at all, and make its parent directories (ArtifactError: it cannot be written).

    Content in pieces is joined in memory only for a URL.
    """
    url = url_of(out)
    if url is not None:
        parent, _, name = not_on_hub(url).rpartition("/")
        Storage(parent).write(name, content if isinstance(content, bytes) else b"".join(content))
        return
    path = path_of(out)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(path.parent)
    write_file(path, content)


@contextmanager
def new_place(out: Path, *, replace: bool = False) -> Iterator[Path]:
    """Write a file or folder by any means: yield a path at which to make it. An upload to a URL is not atomic.

    ArtifactError: *out* exists and *replace* is false, or it cannot be written.
    """
    if (url := url_of(out)) is not None:
        not_on_hub(url)
    if not replace:
        check_new_folder(out)
    if url is None:
        with publishing.new_place(path_of(out)) as made:
            yield made
        return
    parent = cache() / "outputs"
    with writing(parent):
        parent.mkdir(parents=True, exist_ok=True)
        with temporary_folder(parent) as own:
            made = own / name_of(url)
            yield made
            names = [path.relative_to(own).as_posix() for path in sorted(own.rglob("*")) if path.is_file()]
            Storage(url.rpartition("/")[0]).put(own, names)


@contextmanager
def new_folder(out: Path, *, replace: bool = False) -> Iterator[Path]:
    """Write a folder without a manifest: yield an empty folder to fill; errors as for :func:`new_place`."""
    with new_place(out, replace=replace) as made:
        made.mkdir()
        yield made


def check_new_folder(out: Path, ours: Sequence[str] = ()) -> None:
    """Raise ArtifactError, before any work, for a path or URL that exists.

    A local folder may exist, to be replaced, if all names in it match the patterns *ours*.
    """
    if ours and url_of(out) is None and path_of(out).is_dir():
        for path in path_of(out).iterdir():
            if not any(fnmatch(path.name, one) for one in ours):
                raise ArtifactError(
                    f"{out}: holds '{path.name}', which airrep did not write there; nothing is replaced. "
                    "Give another path."
                )
    elif is_taken(out):
        raise ArtifactError(
            f"{url_of(out) or out}: exists already; nothing is overwritten. Give another path, or remove it."
        )


def manifest_at(url: str) -> bytes | None:
    """Return the bytes of :data:`LAST` at a URL, or None if it is missing (ArtifactError: the storage fails)."""
    return storage_of(url).read(LAST)


def fetch_whole(url: str, files_of: Callable[[Path], Files], beside: str) -> Path | None:
    """Return the cached copy of a complete folder, fetched if needed; None if the URL has no complete folder.

    *files_of* checks the file :data:`LAST` in a folder and returns the files that it lists. The file *beside*, which is
    not listed, is fetched too if it exists. ArtifactError: the storage cannot be read, a file is missing or altered, or
    the cache cannot be written.
    """
    storage = storage_of(url)
    last = storage.read(LAST)
    if last is None:
        return None
    with _cached(url, hashlib.sha256(last).hexdigest()) as (folder, there):
        if not there:
            write_file(folder / LAST, last)
            _fetch_checked(storage, folder, files_of(folder))
            if not is_hub(url) and (content := storage.read(beside)) is not None:  # a push to the Hub leaves it out
                write_file(folder / beside, content)
    return _named(folder, url)


def _fetch_checked(storage: Storage, folder: Path, files: Files) -> None:
    """Fetch files and check their checksums, except files that an interrupted run already fetched."""
    missing = [name for name, entry in files.items() if not _is_whole(folder / name, entry)]
    known = storage.below() if missing else {}
    for name in missing:
        if name not in known:
            raise ArtifactError(
                f"{storage.url}/{name}: cannot be read: it is missing, although {LAST} lists it. Publish the folder "
                "again."
            )
    storage.get(missing, folder)
    for name in missing:
        if not _is_whole(folder / name, files[name]):
            raise ArtifactError(
                f"{storage.url}/{name}: differs from what its {LAST} says: it was altered, or is being replaced. Try "
                "again; if that fails, publish the folder again."
            )


def _is_whole(file: Path, entry: Mapping[str, Any]) -> bool:
    return file.is_file() and file.stat().st_size == entry["bytes"] and file_digest(file) == entry["sha256"]


def fetch_listed(url: str) -> Path | None:
    """Return the cached copy of all files below a URL, fetched if the listing changed; None if there are no files.

    ArtifactError: as for :func:`fetch_whole`.
    """
    if is_hub(url):
        folder = hub_folder(url)
        stand_for(folder, url)
        return folder
    storage = Storage(url)
    listed = storage.below()
    if not listed:
        return None
    digest = hashlib.sha256(repr([url, [(name, _stamp(entry)) for name, entry in listed.items()]]).encode()).hexdigest()
    with _cached(url, digest) as (folder, there):
        if not there:
            storage.get(listed, folder)
            for name, entry in listed.items():
                if entry.get("size") not in (None, (folder / name).stat().st_size):
                    raise ArtifactError(f"{url}/{name}: was replaced while it was fetched. Try again.")
    return _named(folder, url)


def _stamp(entry: Mapping[str, Any]) -> list[str]:
    """Return the properties in a listing that change with a file: its size, checksum and times."""
    known = ("size", "ETag", "etag", "md5Hash", "mtime", "LastModified", "last_modified", "created")
    return [str(entry[name]) for name in known if name in entry]


@contextmanager
def _cached(url: str, digest: str) -> Iterator[tuple[Path, bool]]:
    """Yield the cache folder for a content, and True if it is complete; otherwise the body must fill it."""
    place = cache() / "fetched" / digest[:32]
    folder, unfinished = place / name_of(url), place / f"{name_of(url)}.partial"
    if folder.is_dir():
        yield folder, True
        return
    with writing(folder):
        unfinished.mkdir(parents=True, exist_ok=True)
        stand_for(unfinished, url)
        from filelock import FileLock

        with FileLock(place / ".lock"):  # one process fetches, and the others wait
            if folder.is_dir():
                yield folder, True
                return
            yield unfinished, False
            sync_tree(unfinished)
            unfinished.rename(folder)
            sync(place)


def _named(folder: Path, url: str) -> Path:
    """Return the final path of a cache folder, which messages show as the URL."""
    whole = folder.with_name(name_of(url))
    stand_for(whole, url)
    return whole


def check_ours(url: str) -> set[str]:
    """Return the names of files at a URL that airrep published, completely or in part.

    ArtifactError: there are only other files, or the storage does not answer.
    """
    storage = Storage(url)
    named = {one for name in (LAST, BEGUN) for one in _names(name, storage.read(name))}
    there = storage.below().keys()
    if there and not there & {LAST, BEGUN}:
        raise _not_ours(url, min(there))
    return named & there


def _not_ours(url: str, name: str) -> ArtifactError:
    return ArtifactError(f"{url}: holds files that airrep did not publish, such as {name}. Give another URL.")


def _names(name: str, content: bytes | None) -> set[str]:
    """Return the file names listed in the content of :data:`LAST` or :data:`BEGUN`, and the name of this file."""
    try:
        value = json.loads(content or b"{}")
        return {name, *(value["files"] if name == LAST else value)} if content else set()
    except (ValueError, TypeError, KeyError, RecursionError):
        return {name}


def publish_folder(folder: Path, url: str, names: Sequence[str]) -> None:
    """Upload a complete folder: the files *names* first, :data:`LAST` last; then remove the older version's files.

    ArtifactError: the upload failed, which leaves an incomplete folder at the URL; or the URL has other files.
    """
    storage, before = Storage(url), check_ours(url)
    all_names = sorted((before | set(names)) - {LAST, BEGUN})
    storage.write(BEGUN, json.dumps(all_names).encode())
    storage.remove(before & {LAST})
    storage.put(folder, names)
    storage.put(folder, [LAST])
    storage.remove([*(before & set(all_names) - set(names)), BEGUN])


def take_over(copy: Path, out: Path) -> None:
    """Copy a fetched folder to the path where it is made; both are in the cache, and share bytes by hard links."""
    with new_place(out, replace=True) as made:
        shutil.copytree(copy, made, copy_function=os.link)


class Mirror:
    """Keeps a folder and the URL that it stands for in step; does nothing for a folder without a URL."""

    def __init__(self, folder: Path, is_part: Callable[[str], bool], changing: Iterable[str]) -> None:
        """*is_part* accepts the names of files to mirror; only files named in *changing* may change their content."""
        self._folder, self._is_part, self._changing = folder, is_part, {LAST, *changing}
        url = published_from(folder)
        self._storage = None if url is None else Storage(url)

    def pull(self) -> None:
        """Fetch files that are new or may have changed at the URL (ArtifactError: it has other files, or no answer)."""
        if self._storage is None:
            return
        names = set(self._storage.below())
        strange = {name for name in names if not self._is_part(name)}
        if strange and not names & self._changing:
            raise _not_ours(self._storage.url, min(strange))
        wanted = [name for name in sorted(names - strange) if name in self._changing or not self._holds(name)]
        with writing(self._folder), temporary_folder(self._folder) as own:  # a partial file must not get its name
            self._storage.get(wanted, own)
            for name in wanted:
                (self._folder / name).parent.mkdir(parents=True, exist_ok=True)
                sync(own / name)
                (own / name).replace(self._folder / name)

    def push(self, names: Iterable[str] | None = None) -> None:
        """Upload the files *names*, or all new or changeable files except :data:`LAST` (ArtifactError)."""
        if self._storage is None:
            return
        if names is None:
            # Files in folders and arrays are named by their content, so they do not change.
            there = {name for name in self._storage.below() if "/" in name or name.endswith(".npy")}
            names = sorted(self._here() - there - {LAST})
        self._storage.put(self._folder, names)

    def finish(self) -> None:
        """If the folder is complete, upload :data:`LAST`, and remove files at the URL that are not in the folder."""
        if self._storage is None or not self._holds(LAST):
            return
        self.push([LAST])
        self._storage.remove(sorted({name for name in self._storage.below() if self._is_part(name)} - self._here()))

    def _holds(self, name: str) -> bool:
        return (self._folder / name).exists()

    def _here(self) -> set[str]:
        files = (path for path in self._folder.rglob("*") if path.is_file())
        return {name for path in files if self._is_part(name := path.relative_to(self._folder).as_posix())}

"""Files and folders at paths or URLs: written, fetched, published, kept in step.

A folder that is whole has the file :data:`LAST`, which names all others; it is removed first and written last, so that
half of an upload is never taken for a whole one. Other folders, such as models, are what is listed below their URL.
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
from airrep.runtime.publishing import remove_leftovers, sync, sync_tree, temporary_folder, write_file, writing
from airrep.runtime.remote.hub import hub_folder, storage_of
from airrep.runtime.remote.places import (
    cache,
    is_hub,
    name_of,
    not_on_hub,
    path_of,
    published_from,
    stand_for,
    url_of,
)
from airrep.runtime.remote.storage import Storage

LAST = "manifest.json"
"""The file that makes a folder whole."""
BEGUN = ".airrep-upload.json"
"""The file that is there while a folder is published: the names of its files, and of those before."""
Files: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Names of files with their ``bytes`` and ``sha256``, as a manifest has them."""


def is_taken(out: str | PathLike[str]) -> bool:
    """True if something is at a path or URL (ArtifactError if that cannot be known)."""
    url = url_of(out)
    return path_of(out).exists() if url is None else storage_of(url).exists()


def is_same_file(one: str | PathLike[str], other: str | PathLike[str]) -> bool:
    """True if two paths or URLs name one file."""
    if url_of(one) is not None or url_of(other) is not None:
        return url_of(one) == url_of(other)
    return path_of(one).resolve() == path_of(other).resolve()


def write_output(out: Path, content: bytes | Iterable[bytes]) -> None:
    """Write a file, whole or not at all, with the directories that it is in (ArtifactError).

    Content that comes in pieces is held whole on its way to a URL alone.
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
    """Write a file or folder by any means: yields a path at which to make it; at a URL files come one by one.

    ArtifactError: *out* exists and *replace* is false, or it cannot be written.
    """
    url = url_of(out)
    if url is None:
        with publishing.new_place(path_of(out), replace=replace) as made:
            yield made
        return
    not_on_hub(url)
    if not replace:
        check_new_folder(out)
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
    """Write a folder that is no artifact: yields an empty one to fill; errors as of :func:`new_place`."""
    with new_place(out, replace=replace) as made:
        made.mkdir()
        yield made


def check_new_folder(out: Path, ours: Sequence[str] = ()) -> None:
    """Refuse, before any work, a path or URL that exists (ArtifactError).

    A local folder may be there, to be replaced, if all its files have names by the patterns *ours*.
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
    """The file that makes a folder whole; None if no whole one is there (ArtifactError where that is unknown)."""
    return storage_of(url).read(LAST)


def fetch_whole(url: str, files_of: Callable[[Path], Files], beside: str) -> Path | None:
    """Fetch a folder that is whole, unless the cache has it; None if none is there.

    *files_of* checks the file :data:`LAST` in a folder, and says which files it names. The file *beside*, which it does
    not name, is fetched too if it is there. ArtifactError: the storage does not give it, a file is missing or altered,
    or the cache cannot be written.
    """
    storage = storage_of(url)
    last = storage.read(LAST)
    if last is None:
        return None
    with _cached(url, hashlib.sha256(last).hexdigest()) as (folder, there):
        if not there:
            write_file(folder / LAST, last)
            _fetch_checked(storage, folder, files_of(folder))
            if not is_hub(url) and (content := storage.read(beside)) is not None:  # a push leaves it out
                write_file(folder / beside, content)
    return _named(folder, url)


def _fetch_checked(storage: Storage, folder: Path, files: Files) -> None:
    """Fetch files with known checksums, but those that an interrupted run has fetched."""
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
    if not file.is_file() or file.stat().st_size != entry["bytes"]:
        return False
    with file.open("rb") as stream:
        return bool(hashlib.file_digest(stream, "sha256").hexdigest() == entry["sha256"])


def fetch_listed(url: str) -> Path | None:
    """Fetch all files below a URL, unless the cache has them as they are listed; None if there are none.

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
    """Facts that change with a file: its size, and the checksum and times that the storage tells."""
    known = ("size", "ETag", "etag", "md5Hash", "mtime", "LastModified", "last_modified", "created")
    return [str(entry[name]) for name in known if name in entry]


@contextmanager
def _cached(url: str, digest: str) -> Iterator[tuple[Path, bool]]:
    """Hold the folder of the cache for a content: to be filled, or whole already; whole afterwards."""
    place = cache() / "fetched" / digest[:32]
    folder, unfinished = place / name_of(url), place / f"{name_of(url)}.partial"
    if folder.is_dir():
        yield folder, True
        return
    with writing(folder):
        unfinished.mkdir(parents=True, exist_ok=True)
        stand_for(unfinished, url)
        from filelock import FileLock

        with FileLock(place / ".lock"):  # of several processes one fetches, and the others wait
            if folder.is_dir():
                yield folder, True
                return
            yield unfinished, False
            sync_tree(unfinished)
            unfinished.rename(folder)
            sync(place)


def _named(folder: Path, url: str) -> Path:
    """A folder of the cache by its own name, which is shown as the URL."""
    whole = folder.with_name(name_of(url))
    stand_for(whole, url)
    return whole


def check_ours(url: str) -> set[str]:
    """Names of the files at a URL that airrep published there, wholly or half.

    ArtifactError: other files are there, or the storage does not say.
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
    """Files that belong to a folder by one of the two files which say so."""
    try:
        value = json.loads(content or b"{}")
        return {name, *(value["files"] if name == LAST else value)} if content else set()
    except (ValueError, TypeError, KeyError, RecursionError):
        return {name}


def publish_folder(folder: Path, url: str, names: Sequence[str]) -> None:
    """Publish a folder that is whole: its other files *names* first, :data:`LAST` last; then older files are removed.

    ArtifactError: the storage does not take it, and then what is there is no whole folder; or other files are there.
    """
    storage, before = Storage(url), check_ours(url)
    all_names = sorted((before | set(names)) - {LAST, BEGUN})
    storage.write(BEGUN, json.dumps(all_names).encode())
    storage.remove(before & {LAST})
    storage.put(folder, names)
    storage.put(folder, [LAST])
    storage.remove([*(before & set(all_names) - set(names)), BEGUN])


def take_over(copy: Path, out: Path) -> None:
    """Put a copy of what is at a URL under the name where it is made; both are in the cache, and share bytes."""
    with new_place(out, replace=True) as made:
        shutil.copytree(copy, made, copy_function=os.link)


class Mirror:
    """Files of a folder and of the URL that it stands for; nothing of a folder that stands for none."""

    def __init__(self, folder: Path, is_part: Callable[[str], bool], changing: Iterable[str]) -> None:
        """*is_part* tells its files by name; the content of *changing* may change, others are named by theirs."""
        self._folder, self._is_part, self._changing = folder, is_part, {LAST, *changing}
        url = published_from(folder)
        self._storage = None if url is None else Storage(url)

    def pull(self) -> None:
        """Have here what is there (ArtifactError where other files are there, or the storage does not give them)."""
        if self._storage is None:
            return
        names = set(self._storage.below())
        strange = {name for name in names if not self._is_part(name)}
        if strange and not names & self._changing:
            raise _not_ours(self._storage.url, min(strange))
        wanted = [name for name in sorted(names - strange) if name in self._changing or not self._holds(name)]
        with writing(self._folder), temporary_folder(self._folder) as own:  # no half of a file gets its name
            self._storage.get(wanted, own)
            for name in wanted:
                (self._folder / name).parent.mkdir(parents=True, exist_ok=True)
                sync(own / name)
                (own / name).replace(self._folder / name)

    def push(self, names: Iterable[str] | None = None) -> None:
        """Have there what is here: some files, or all but the one that makes the folder whole (ArtifactError)."""
        if self._storage is None:
            return
        if names is None:
            # What lies in a folder, or is an array, is named by its content.
            there = {name for name in self._storage.below() if "/" in name or name.endswith(".npy")}
            names = sorted(self._here() - there - {LAST})
        self._storage.put(self._folder, names)

    def finish(self) -> None:
        """Make the folder whole there if it is here, and remove there what is no longer here (ArtifactError)."""
        if self._storage is None or not self._holds(LAST):
            return
        self.push([LAST])
        self._storage.remove(sorted({name for name in self._storage.below() if self._is_part(name)} - self._here()))

    def _holds(self, name: str) -> bool:
        return (self._folder / name).exists()

    def _here(self) -> set[str]:
        files = (path for path in self._folder.rglob("*") if path.is_file())
        return {name for path in files if self._is_part(name := path.relative_to(self._folder).as_posix())}

"""Folders at a URL: fetched into a cache, published with one file last.

A folder that is whole has the file :data:`LAST`, which names all others; it is removed first and written last, so that
half of an upload is never taken for a whole one. Other folders, such as models, are what is listed below their URL.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from airrep.errors import ArtifactError
from airrep.runtime.publishing.files import sync, write_file, write_output, writing
from airrep.runtime.publishing.folders import new_place
from airrep.runtime.remote.places import cache, name_of, stand_for
from airrep.runtime.remote.storage import Storage, telling

LAST = "manifest.json"
"""The file that makes a folder whole."""
BEGUN = ".airrep-upload.json"
"""The file that is there while a folder is published: the names of its files, and of those before."""
Files = Mapping[str, Mapping[str, Any]]
"""Names of files with their ``bytes`` and ``sha256``."""

_AT_ONCE = 8
_CHUNK = 1 << 23


def manifest_at(url: str) -> bytes | None:
    """The file that makes a folder whole; None if no whole one is there (ArtifactError where that is unknown)."""
    return Storage(url).read(LAST)


def fetch_whole(url: str, files_of: Callable[[Path], Files], beside: str) -> Path | None:
    """Fetch a folder that is whole, unless the cache has it; None if none is there.

    Args:
        url: where it is.
        files_of: checks the file :data:`LAST` in a folder, and says which files it names.
        beside: a file that it does not name, which is fetched too if it is there.

    Raises:
        ArtifactError: the storage does not give it, a file is missing or altered, or the cache cannot be written.
    """
    storage = Storage(url)
    last = storage.read(LAST)
    if last is None:
        return None
    with _cached(url, hashlib.sha256(last).hexdigest()) as (folder, there):
        if not there:
            write_file(folder / LAST, last)
            files = files_of(folder)
            each(partial(_fetch_checked, storage, folder), list(files.items()))
            if (content := storage.read(beside)) is not None:
                write_file(folder / beside, content)
    return _named(folder, url)


def fetch_listed(url: str) -> Path | None:
    """Fetch all files below a URL, unless the cache has them as they are listed; None if there are none.

    Raises:
        ArtifactError: as for :func:`fetch_whole`.
    """
    storage = Storage(url)
    with telling(url):
        listed = storage.below()
    if not listed:
        return None
    digest = hashlib.sha256(repr([url, [(name, _stamp(entry)) for name, entry in listed.items()]]).encode()).hexdigest()
    with _cached(url, digest) as (folder, there):
        if not there:
            each(partial(_fetch_listed, storage, folder), list(listed.items()))
    return _named(folder, url)


def _stamp(entry: Mapping[str, Any]) -> list[str]:
    """What changes when a file does: its size, and what the storage has of a checksum and times."""
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
            unfinished.rename(folder)
            sync(place)


def _named(folder: Path, url: str) -> Path:
    """A folder of the cache by its own name, which is shown as the URL."""
    whole = folder.with_name(name_of(url))
    stand_for(whole, url)
    return whole


def _fetch_checked(storage: Storage, folder: Path, item: tuple[str, Mapping[str, Any]]) -> None:
    """Fetch a file with a known checksum, unless an interrupted run has."""
    name, entry = item
    target = folder / name
    if target.is_file() and target.stat().st_size == entry["bytes"] and _digest(target) == entry["sha256"]:
        return
    if fetch_file(storage, folder, name) != entry["sha256"]:
        raise ArtifactError(
            f"{storage.url}/{name}: is not what its {LAST} says: it was altered, or is being replaced. "
            "Try again; if that fails, publish it anew."
        )


def _fetch_listed(storage: Storage, folder: Path, item: tuple[str, Mapping[str, Any]]) -> None:
    name, entry = item
    fetch_file(storage, folder, name)
    if entry.get("size") not in (None, (folder / name).stat().st_size):
        raise ArtifactError(f"{storage.url}/{name}: was replaced while it was fetched. Try again.")


def fetch_file(storage: Storage, folder: Path, name: str) -> str:
    """Fetch one file below a URL into a folder; its sha256 (ArtifactError)."""
    digest = hashlib.sha256()

    def hashed() -> Iterator[bytes]:
        for content in _chunks(storage, name):
            digest.update(content)
            yield content

    write_output(folder / name, hashed())
    return digest.hexdigest()


def _chunks(storage: Storage, name: str) -> Iterator[bytes]:
    """The bytes of a file at a URL."""
    url = f"{storage.url}/{name}"
    with telling(url):
        stream = storage.files.open(storage.at(name), "rb", block_size=_CHUNK)
    with stream:
        while True:
            with telling(url):
                content = stream.read(_CHUNK)
            if not content:
                return
            yield content


def check_ours(url: str) -> set[str]:
    """Names of the files at a URL that airrep published there, wholly or half.

    Raises:
        ArtifactError: other files are there, or the storage does not say.
    """
    storage = Storage(url)
    named: set[str] = set()
    for name in (LAST, BEGUN):
        named |= _names(name, storage.read(name))
    with telling(url):
        there = storage.below().keys()
    if there and not there & {LAST, BEGUN}:
        raise ArtifactError(f"{url}: holds files that airrep did not publish, such as {min(there)}. Give another URL.")
    return named & there


def _names(name: str, content: bytes | None) -> set[str]:
    """Files that belong to a folder by one of the two files which say so."""
    try:
        value = json.loads(content or b"{}")
        return {name, *(value["files"] if name == LAST else value)} if content else set()
    except (ValueError, TypeError, KeyError, RecursionError):
        return {name}


def publish_folder(folder: Path, url: str, names: Sequence[str]) -> None:
    """Publish a folder that is whole: its other files first, :data:`LAST` last, then older files are removed.

    Args:
        folder: the folder.
        url: where it goes.
        names: its files, without :data:`LAST`.

    Raises:
        ArtifactError: the storage does not take it, and then what is there is no whole folder; or other files than
            airrep's are there.
    """
    storage, before = Storage(url), check_ours(url)
    all_names = sorted((before | set(names)) - {LAST, BEGUN})
    put_file(f"{url}/{BEGUN}", json.dumps(all_names).encode())
    with telling(url, "written"):
        if LAST in before:
            storage.files.rm_file(storage.at(LAST))
    put_files(folder, url, names)
    put_files(folder, url, [LAST])
    with telling(url, "written"):
        for name in [*(set(all_names) - set(names)), BEGUN]:
            if name == BEGUN or name in before:
                storage.files.rm_file(storage.at(name))


def put_files(folder: Path, url: str, names: Sequence[str]) -> None:
    """Publish some files of a folder, several at once (ArtifactError)."""
    each(partial(_put, Storage(url), folder), names)


def _put(storage: Storage, folder: Path, name: str) -> None:
    with telling(f"{storage.url}/{name}", "written"):
        parent = storage.at(name).rpartition("/")[0]
        if _has_folders(storage):
            storage.files.makedirs(parent, exist_ok=True)
        storage.files.put_file(str(folder / name), storage.at(name))


def _has_folders(storage: Storage) -> bool:
    """Whether folders must be made there: object stores have none, and might make a bucket."""
    return not hasattr(storage.files, "call_s3")


def put_file(url: str, content: bytes) -> None:
    """Publish one small file (ArtifactError)."""
    parent, _, name = url.rpartition("/")
    storage = Storage(parent)
    with telling(url, "written"):
        if _has_folders(storage):
            storage.files.makedirs(storage.path, exist_ok=True)
        storage.files.pipe_file(storage.at(name), content)


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def each(do: Callable[[Any], object], items: Sequence[Any]) -> None:
    """Do something for every item, several at once; the first error ends it."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        running = [pool.submit(do, item) for item in items]
        try:
            for one in running:
                one.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def take_over(copy: Path, out: Path) -> None:
    """Put a copy of what is at a URL under the name where it is made; both are in the cache, and share bytes."""
    with new_place(out, replace=True) as made:
        shutil.copytree(copy, made, copy_function=os.link)

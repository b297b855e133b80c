"""A folder that several machines fill, kept in step with its URL."""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from airrep.errors import ArtifactError
from airrep.runtime.remote.folders import LAST, each, fetch_file, put_files
from airrep.runtime.remote.places import published_from
from airrep.runtime.remote.storage import Storage, telling


class Mirror:
    """Files of a folder and of the URL that it stands for; nothing of a folder that stands for none."""

    def __init__(self, folder: Path, is_part: Callable[[str], bool], changing: Iterable[str]) -> None:
        """Nothing is asked yet.

        Args:
            folder: the folder on this machine.
            is_part: tells the names of files that belong to it.
            changing: names of files whose content may change; others are named by it.
        """
        self._folder = folder
        self._is_part = is_part
        self._changing = {LAST, *changing}
        url = published_from(folder)
        self._storage = None if url is None else Storage(url)

    def pull(self) -> None:
        """Have here what is there.

        Raises:
            ArtifactError: other files are there, or the storage does not give them.
        """
        if self._storage is None:
            return
        names = self._there()
        strange = {name for name in names if not self._is_part(name)}
        if strange and not names & self._changing:
            raise ArtifactError(
                f"{self._storage.url}: holds files that airrep did not publish, such as {min(strange)}. "
                "Give another URL."
            )
        missing = [name for name in sorted(names - strange) if not (self._folder / name).exists()]
        changed = sorted((names & self._changing) - set(missing))
        each(partial(fetch_file, self._storage, self._folder), [*missing, *changed])

    def push(self, names: Iterable[str] | None = None) -> None:
        """Have there what is here: some files, or all but the one that makes the folder whole (ArtifactError)."""
        if self._storage is None:
            return
        if names is None:
            # What lies in a folder, or is an array, is named by its content.
            there = {name for name in self._there() if "/" in name or name.endswith(".npy")}
            names = sorted(self._here() - there - {LAST})
        put_files(self._folder, self._storage.url, list(names))

    def finish(self) -> None:
        """Make the folder whole there if it is here, and remove there what is no longer here (ArtifactError)."""
        if self._storage is None or not (self._folder / LAST).exists():
            return
        self.push([LAST])
        stale = {name for name in self._there() if self._is_part(name)} - self._here()
        with telling(self._storage.url, "written"):
            for name in sorted(stale):
                self._storage.files.rm_file(self._storage.at(name))

    def _here(self) -> set[str]:
        files = (path for path in self._folder.rglob("*") if path.is_file())
        return {name for path in files if self._is_part(name := path.relative_to(self._folder).as_posix())}

    def _there(self) -> set[str]:
        assert self._storage is not None
        with telling(self._storage.url):
            return set(self._storage.below())

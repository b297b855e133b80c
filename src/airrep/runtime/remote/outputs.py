"""Files and folders that a user named, at paths or URLs."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from os import PathLike
from pathlib import Path

from airrep.errors import ArtifactError
from airrep.runtime.publishing import files, folders
from airrep.runtime.remote.places import cache, name_of, path_of, url_of
from airrep.runtime.remote.storage import Storage


def is_taken(out: str | PathLike[str]) -> bool:
    """True if something is at a path or URL (ArtifactError if that cannot be known)."""
    url = url_of(out)
    if url is None:
        return path_of(out).exists()
    return Storage(url).exists()


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
    if url is None:
        files.write_output(path_of(out), content)
    else:
        parent, _, name = url.rpartition("/")
        Storage(parent).write(name, content if isinstance(content, bytes) else b"".join(content))


@contextmanager
def new_place(out: Path, *, replace: bool = False) -> Iterator[Path]:
    """Write a file or folder by any means: yields a path at which to make it; at a URL files come one by one.

    ArtifactError: *out* exists and *replace* is false, or it cannot be written.
    """
    url = url_of(out)
    if url is None:
        with folders.new_place(path_of(out), replace=replace) as made:
            yield made
        return
    if not replace:
        check_new_folder(out)
    parent = cache() / "outputs"
    with files.writing(parent):
        parent.mkdir(parents=True, exist_ok=True)
        with files.temporary_folder(parent) as own:
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
    """Refuse, before any work, a path or URL that exists.

    Args:
        out: the folder to write.
        ours: patterns of file names; a local folder that holds nothing else may be there, to be replaced.

    Raises:
        ArtifactError: something is there.
    """
    if ours and url_of(out) is None and path_of(out).is_dir():
        other = (path.name for path in path_of(out).iterdir() if not any(fnmatch(path.name, one) for one in ours))
        name = next(other, None)
        if name is not None:
            raise ArtifactError(
                f"{out}: holds '{name}', which airrep did not write there; nothing is replaced. Give another path."
            )
        return
    if is_taken(out):
        raise ArtifactError(
            f"{url_of(out) or out}: exists already; nothing is overwritten. Give another path, or remove it."
        )

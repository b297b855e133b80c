"""Locks of directories, held by their single writers."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from airrep.errors import ArtifactError
from airrep.runtime.artifacts.names import LOCK
from airrep.runtime.publishing.files import writing


@contextmanager
def locked(
    folder: Path,
    name: str = LOCK,
    busy: str = "another process is writing there. Wait until it has finished.",
    patience: float = 0.0,
) -> Iterator[None]:
    """Hold a lock of a directory; the system frees it when the process ends, however it ends.

    Args:
        folder: the directory.
        name: name of the lock file; the default is the lock of the single writer.
        busy: end of the error when another process holds it.
        patience: seconds to wait for it.

    Raises:
        ArtifactError: another process holds it, or nothing may be written there.
    """
    from filelock import FileLock, Timeout  # here: it loads asyncio, and most commands lock nothing

    lock = FileLock(folder / name, timeout=patience)
    with writing(folder):
        refuse_link(folder / name)
        try:
            lock.acquire()
        except Timeout as error:
            raise ArtifactError(f"{folder}: {busy}") from error
    try:
        yield
    finally:
        lock.release()


def refuse_link(path: Path) -> None:
    """Refuse a symbolic link where airrep makes its own files and directories (ArtifactError)."""
    if path.is_symlink():  # to what another user may have chosen
        raise ArtifactError(
            f"{path}: is a symbolic link, which airrep did not make. Remove it, or choose another --out."
        )

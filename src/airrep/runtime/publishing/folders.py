"""Publish folders, and what others write: at once, in place of what was there."""

import ctypes
import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from airrep.errors import ArtifactError
from airrep.runtime.publishing.files import remove_leftovers, sync, temporary_folder, writing

_HERE = -100
"""The current folder, where C takes the descriptor of one."""
_EXCHANGE = 2
_NO_EXCHANGE = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM}
"""Errors of file systems that cannot exchange two names at once."""


def sync_tree(path: Path) -> None:
    """Flush a file, or a directory with all that is in it."""
    for below in path.rglob("*") if path.is_dir() else ():
        if not below.is_symlink():
            sync(below)
    sync(path)


@contextmanager
def new_place(out: Path, *, replace: bool = False) -> Iterator[Path]:
    """Write a file or folder by any means, whole or not at all: yields a path at which to make it.

    Args:
        out: the path that it gets.
        replace: whether it may take the place of another.

    Raises:
        ArtifactError: *out* exists and *replace* is false, or it cannot be written.
    """
    if not replace and out.exists():
        raise ArtifactError(f"{out}: exists already; nothing is overwritten. Give another path, or remove it.")
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(out.parent)
        with temporary_folder(out.parent) as own:
            made = own / out.name
            yield made
            sync_tree(made)
            give_name(made, out)


def give_name(made: Path, out: Path) -> bool:
    """Give what is made and flushed the name *out*, at once; both are on one file system.

    Returns:
        Whether a folder stood there, which now lies at *made*.
    """
    swapped = out.is_dir() and not out.is_symlink()
    if not swapped:
        made.replace(out)
    elif not _exchange(made, out):
        # Two renames leave a moment without either; what a kill leaves then is put back by the next writer.
        with temporary_folder(out.parent, "moved") as aside:
            old = aside / out.name
            out.rename(old)
            try:
                made.rename(out)
            except OSError:
                old.rename(out)
                raise
            old.rename(made)
    sync(out.parent)
    return swapped


def discard(folder: Path) -> None:
    """Remove a folder: at once it is gone from its name, whatever comes."""
    with temporary_folder(folder.parent) as own:
        folder.rename(own / folder.name)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two names at once; false where the system cannot."""
    sys.audit("airrep.exchange", str(other))
    library = ctypes.CDLL(None, use_errno=True)
    first, second = os.fsencode(one), os.fsencode(other)
    if hasattr(library, "renameat2"):
        failed = library.renameat2(_HERE, first, _HERE, second, _EXCHANGE)
    elif hasattr(library, "renamex_np"):  # macOS
        failed = library.renamex_np(first, second, _EXCHANGE)
    else:
        return False
    if not failed:
        return True
    number = ctypes.get_errno()
    if number in _NO_EXCHANGE:
        return False
    raise OSError(number, os.strerror(number), str(other))

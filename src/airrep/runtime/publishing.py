"""Writes files and folders atomically: complete under their names, or unchanged.

An unfinished file lies in the same folder under a random name, ``.airrep-<digits>.tmp``. Its writer holds a lock on it
while it runs, so a later process can recognise and remove the leftovers of a killed writer.
"""

import ctypes
import errno
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from airrep.errors import ArtifactError

_TEMPORARY = re.compile(r"\.airrep-[0-9a-f]{16}\.(tmp|moved)")
"""Unfinished files and folders; a ``moved`` folder holds a file to move back to its name if the writer is killed."""
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LOG = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_HERE, _EXCHANGE = -100, 2
"""Constants of C: AT_FDCWD, the current folder, and RENAME_EXCHANGE, which exchanges two names."""
_NO_EXCHANGE = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM}
"""Errors of file systems that cannot exchange two names atomically."""

LIMITS = {
    errno.EMFILE: "this process cannot open more files. Raise the limit, for example with: ulimit -n 4096",
    errno.ENFILE: "this machine cannot open more files. Close other programs, or raise fs.file-max.",
    errno.ENOMEM: (
        "there is too little memory, or more files are mapped than vm.max_map_count allows. Free memory, or raise "
        "that limit."
    ),
}
"""Message for a system limit that was reached, by the error's number."""
_REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file would be larger than allowed",
    errno.EACCES: "there is no permission to write",
    errno.EPERM: "there is no permission to write",
    errno.EROFS: "the file system is read-only",
    errno.ENOTDIR: "a parent of it is a file, not a directory",
    errno.EEXIST: "a parent of it is a file, not a directory",  # the error of mkdir in this case
    errno.ELOOP: "a symbolic link is in the way, and airrep does not follow it",
}


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an operating-system error while *path* is written into a one-line ArtifactError."""
    try:
        yield
    except ArtifactError:
        raise
    except OSError as error:
        if error.errno in LIMITS:
            raise ArtifactError(f"{path}: cannot be written: {LIMITS[error.errno]}") from error
        # pyarrow reports a full disk without an error number, as bytes requested and bytes written
        short = error.errno is None and " requested and " in str(error)
        reason = _REASONS.get(errno.ENOSPC if short else error.errno or 0, str(error))
        raise ArtifactError(
            f"{path}: cannot be written: {reason}; what was there before is unchanged. "
            "Remove the cause of this error and run the same command again: finished parts are kept."
        ) from error


@contextmanager
def within_limits(path: Path) -> Iterator[None]:
    """Raise ArtifactError if a system limit, such as open files, is reached while *path* is read: it is not damaged."""
    try:
        yield
    except OSError as error:
        if (way_out := LIMITS.get(error.errno or 0)) is None:
            raise
        raise ArtifactError(f"{path}: cannot be read, although it is not damaged: {way_out}") from error


def file_digest(path: Path) -> str:
    """Return sha256 of a file's bytes, 64 hex digits."""
    with within_limits(path), path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Flush a file or directory to the disk, so that it survives a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(path: Path) -> None:
    """Flush a file, or a directory with everything in it."""
    for below in path.rglob("*") if path.is_dir() else ():
        if not below.is_symlink():
            sync(below)
    sync(path)


def write_file(path: Path, content: bytes | Iterable[bytes]) -> None:
    """Write a file atomically: a reader sees the old or the new content, complete; several processes may write it.

    Content in pieces is never held in memory as a whole. ArtifactError: the operating system refused.
    """
    with writing(path):
        temporary, descriptor = _held(path.parent, "tmp", is_folder=False)
        try:
            with os.fdopen(descriptor, "wb", closefd=False) as stream:
                stream.writelines([content] if isinstance(content, bytes) else content)
            sync(temporary)
            temporary.replace(path)
            sync(path.parent)  # the new name is stored in the directory
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)


def append_line(path: Path, line: str) -> None:
    """Append a line to a log, after removing a truncated last line (ArtifactError: the operating system refused)."""
    with writing(path), os.fdopen(os.open(path, _LOG, 0o666), "ab") as stream:
        whole = _whole_lines(stream.fileno())
        if whole < os.fstat(stream.fileno()).st_size:
            os.ftruncate(stream.fileno(), whole)
        stream.write(line.encode() + b"\n")


def _whole_lines(descriptor: int) -> int:
    """Return the number of bytes up to the end of a file's last complete line."""
    end = os.fstat(descriptor).st_size
    while end > 0:
        begin = max(0, end - (1 << 16))
        found = os.pread(descriptor, end - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0


@contextmanager
def temporary_folder(parent: Path, ending: str = "tmp") -> Iterator[Path]:
    """Yield a new locked folder that only this user can enter; remove it afterwards with everything in it."""
    temporary, descriptor = _held(parent, ending, is_folder=True)
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        os.close(descriptor)


def _held(folder: Path, ending: str, *, is_folder: bool) -> tuple[Path, int]:
    """Make and lock a new file or folder; try again if another process just removed it as a leftover."""
    while True:
        temporary = folder / f".airrep-{secrets.token_hex(8)}.{ending}"
        if is_folder:
            temporary.mkdir(mode=0o700)
        descriptor = os.open(temporary, _FOLDER if is_folder else _NEW_FILE, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held = False
        except OSError:  # on a file system without locks, no process removes leftovers
            held = True
        else:
            held = os.fstat(descriptor).st_nlink > 0
        if held:
            return temporary, descriptor
        os.close(descriptor)


def remove_leftovers(folder: Path) -> None:
    """Remove leftovers of killed writers in a folder, and move back what they had moved away; keep those in use."""
    with suppress(OSError):
        for path in list(folder.iterdir()):
            if _TEMPORARY.fullmatch(path.name):
                with suppress(OSError):
                    _remove_leftover(path)


def _remove_leftover(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not path.is_dir():
            path.unlink()
            return
        for moved in path.iterdir() if path.suffix == ".moved" else ():
            if not (path.parent / moved.name).exists():
                moved.rename(path.parent / moved.name)
        shutil.rmtree(path)
    finally:
        os.close(descriptor)


@contextmanager
def new_place(out: Path) -> Iterator[Path]:
    """Write a file or folder by any means, completely or not at all: yield the path at which to make it.

    What is there before is replaced. ArtifactError: it cannot be written.
    """
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(out.parent)
        with temporary_folder(out.parent) as own:
            made = own / out.name
            yield made
            sync_tree(made)
            give_name(made, out)


def give_name(made: Path, out: Path) -> bool:
    """Rename the flushed file or folder *made* to *out* atomically; both must be on one file system.

    Return True if *out* was a folder, which is now at *made*.
    """
    swapped = out.is_dir() and not out.is_symlink()
    if not swapped:
        made.replace(out)
    elif not _exchange(made, out):
        # Between two renames *out* does not exist; if the process is killed then, the next writer restores it.
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


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two names atomically; return False if the system cannot."""
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

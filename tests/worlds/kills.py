"""Simulated kills: a forked process ends at its nth change of files, as SIGKILL would end it, between two calls."""

import json
import os
import resource
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

KILLED = 99
"""Exit status of a child that was killed."""
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_AT = {"os.rename": (0, 2), "os.remove": (0, 1), "os.rmdir": (0, 1), "os.mkdir": (0, 2), "os.link": (1, 3)}
"""Events that change files, with the places of the path and of its folder's descriptor among their arguments."""
_OWN = ("os.symlink", "os.truncate", "airrep.exchange")
"""Other events, with the path as first argument."""


class _Changes:
    """Notes the changes of files in a folder, and ends the process at one of them."""

    def __init__(self, folder: Path, at: int, torn: int | None) -> None:
        self._folder = str(folder.resolve())
        self._at, self._torn = at, torn
        self.found: list[str] = []
        self._over = False

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        path = None if self._over else _changed(event, args)
        if path is None or not path.startswith(self._folder):
            return
        if len(self.found) == self._at:
            self._over = True  # what follows is not the program's
            if event == "open" and self._torn is not None:
                with suppress(OSError):  # such as of a file that is there already
                    _tear(path, args[2], self._torn)
            os._exit(KILLED)
        self.found.append(f"{event} {path.removeprefix(self._folder)}")


def _changed(event: str, args: tuple[Any, ...]) -> str | None:
    """The path that an event changes; None if it changes none."""
    if event == "open":
        name, _, flags = args
        return _whole(name) if isinstance(name, str | bytes) and flags & _WRITING else None
    if event in _AT:
        place, descriptor = _AT[event]
        folder = args[descriptor]
        return _whole(args[place], Path(f"/proc/self/fd/{folder}").readlink() if folder >= 0 else None)
    return _whole(args[0]) if event in _OWN else None


def _whole(name: int | str | bytes | os.PathLike[str], base: Path | None = None) -> str:
    if isinstance(name, int):
        return str(Path(f"/proc/self/fd/{name}").readlink())
    return str((base or Path.cwd()) / os.fsdecode(name))


def _tear(path: str, flags: int, size: int) -> None:
    """Open a file as the program would have, and write some bytes of its own to it."""
    descriptor = os.open(path, flags, 0o666)
    os.write(descriptor, b'{"torn": "\xc3'[:size])
    os.close(descriptor)


def list_changes(work: Callable[[], object], folder: Path) -> list[str]:
    """Do all of the work in a child; its changes in a folder, each as an event and a path."""
    with tempfile.TemporaryFile("w+") as told:

        def noted() -> None:
            changes = _Changes(folder, -1, None)
            sys.addaudithook(changes)
            try:
                work()
                json.dump(changes.found, told)
            except BaseException:
                traceback.print_exc(file=told)
                raise
            finally:
                told.flush()

        status = os.waitpid(in_child(noted), 0)[1]
        told.seek(0)
        assert status == 0, f"the work failed by itself: {told.read()}"
        found: list[str] = json.load(told)
    return found


def kill_at(work: Callable[[], object], folder: Path, change: int, torn: int | None = None) -> bool:
    """Do the work in a child that is killed just before one of its changes in a folder; whether it was.

    Args:
        work: the work.
        folder: only changes in here count.
        change: the number of the change, from 0.
        torn: where the change opens a file for writing, the file is opened first, and so many bytes are written.
    """

    def killed() -> None:
        sys.addaudithook(_Changes(folder, change, torn))
        work()

    status = os.waitstatus_to_exitcode(os.waitpid(in_child(killed), 0)[1])
    assert status in (0, KILLED), f"the work failed by itself (status {status})"
    return status == KILLED


def in_child(work: Callable[[], object]) -> int:
    """Start work in a forked process; returns its process id."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return child


def children_seconds() -> float:
    """CPU seconds of this process and of those that it waited for."""
    return time.process_time() + sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])

"""Limits of time and memory for other people's programs in this process."""

import ctypes
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_LOOK = 0.1
"""Seconds between two looks at the clock."""
_IDLE = 20
"""Looks without work after which the watching thread ends."""


class LimitError(Exception):
    """Code took too long, or wanted too much memory."""


class _TimeUp(BaseException):
    """Raised into the thread that works; no base of what programs catch."""


class _Watch:
    """Ends work that takes too long; a thread looks at the clock, so that short work costs next to nothing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._deadline: float | None = None
        self._worker, self._fired = 0, False

    def begin(self, seconds: float) -> None:
        with self._lock:
            self._worker, self._fired = threading.get_ident(), False
            self._deadline = time.monotonic() + seconds
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._look, name="airrep template limit", daemon=True)
                self._thread.start()

    def end(self) -> bool:
        """True if the time was up; cancels an exception that has not been raised yet."""
        with self._lock:
            self._deadline = None
            if self._fired:
                _raise_in(self._worker, None)
            return self._fired

    def _look(self) -> None:
        idle = 0
        while True:
            time.sleep(_LOOK)
            with self._lock:
                idle = idle + 1 if self._deadline is None else 0
                if idle > _IDLE:
                    self._thread = None
                    return
                if self._deadline is not None and not self._fired and time.monotonic() > self._deadline:
                    self._fired = True
                    _raise_in(self._worker, _TimeUp)


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    what = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), what)


_watch = _Watch()
_one = threading.Lock()
"""Held by what is limited: memory is that of the process, and the watch has one deadline."""


@contextmanager
def limited(seconds: float, memory: int) -> Iterator[None]:
    """End work that takes longer than *seconds*, or that makes the process larger by more than *memory* bytes.

    Memory is limited on Linux alone. One step of the interpreter is not broken off.

    Raises:
        LimitError: it was ended.
    """
    with _one, _memory(memory):
        error: BaseException | None = None
        _watch.begin(seconds)
        try:
            try:
                yield
            finally:
                late = _watch.end()
        except (_TimeUp, MemoryError) as caught:
            error, late = caught, isinstance(caught, _TimeUp)
        if late:
            raise LimitError(f"takes longer than {seconds:g} s") from error
        if error is not None:
            raise LimitError(f"needs more than {memory / 2**20:,.0f} MiB of memory") from error


@contextmanager
def _memory(more: int) -> Iterator[None]:
    if sys.platform != "linux":
        yield
        return
    import resource

    sizes = os.open("/proc/self/statm", os.O_RDONLY)
    try:
        pages = int(os.read(sizes, 64).split()[0])
    finally:
        os.close(sizes)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = pages * resource.getpagesize() + more
    if soft != resource.RLIM_INFINITY and soft <= wanted:
        yield
        return
    resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))

"""Time and memory of work, its progress, and the machine."""

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeAlias

from airrep.runtime.publishing import append_line

COSTS = "costs.jsonl"

FIT, ENCODE, SETUP, JUDGE = "fit", "encode", "setup", "judge"
"""Stages of an index: learning from the corpus, encoding a shard; of a training: the work before
the first step, and after the last."""

OnRead: TypeAlias = Callable[[int, int | None], None]
"""Callback: how many rows are done, and how many there are in all where that is known."""
OnProgress: TypeAlias = OnRead | bool
"""An ``OnRead``, or True: a line on stderr, or in a notebook, then shows the stage and the time left."""
QUIET_SECONDS, LIVE_SECONDS, LINE_SECONDS = 2.0, 0.2, 10.0
"""Progress is told after so long, and then as often where a line can be written anew, and where it cannot."""

Clocks: TypeAlias = tuple[float, float]
"""CPU seconds of this process, and wall seconds."""


@cache
def describe_machine() -> str:
    """Describe this machine, as ``"2 cores of Intel Xeon Processor, 8 GiB memory"``, with its GPU but no host name."""
    parts = [f"{cores()} cores of {_processor()}"]
    memory = memory_bytes()
    if memory is not None:
        parts.append(f"{memory / 2**30:.0f} GiB memory")
    return ", ".join([*parts, *_gpu()])


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _processor() -> str:
    """Model name of the processor, without trademark signs."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    found = named or platform.processor() or platform.machine()
    return found.replace("(R)", "").replace("(TM)", "").split(" @ ")[0].strip() or "an unknown processor"


def memory_bytes() -> int | None:
    """Memory of the machine in bytes; None where the system does not report it."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _gpu() -> list[str]:
    torch = sys.modules.get("torch")  # which takes seconds to import: where nobody has, no GPU is used
    return [str(torch.cuda.get_device_name(0))] if torch is not None and torch.cuda.is_available() else []


def peak_memory() -> int | None:
    """Peak memory of this process in bytes; None where the system does not report it."""
    # On Linux ru_maxrss would count what the parent process held before it started this program.
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return _largest_resident()


def _largest_resident() -> int | None:
    try:
        import resource
    except ImportError:
        return None
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest if sys.platform == "darwin" else largest * 1024


class StoreRows(NamedTuple):
    """Numbers of rows that a store was asked for."""

    asked: int
    """Different rows: equal texts count once."""
    fresh: int
    """Rows that it did not have, so that they were computed."""
    cpu: float
    """CPU seconds of computing the fresh rows."""
    wall: float
    """Wall seconds of computing the fresh rows."""


@dataclass(frozen=True)
class MeasuredCost:
    """Cost of a piece of work in one process."""

    cpu: float
    """CPU seconds of all threads of the process."""
    wall: float
    """Wall seconds."""
    device: str = "cpu"
    threads: int = 1
    machine: str = ""
    memory: int | None = None
    """Peak memory of the process until the end, in bytes; None where the system does not report it."""
    rows: Mapping[str, StoreRows] = field(default_factory=dict)
    """Rows asked for and computed, by store."""
    recalled: bool = False
    """True if a fitted state was found from an earlier run."""

    @property
    def seconds(self) -> float:
        """CPU seconds; on an accelerator wall seconds."""
        # While an accelerator computes, the processor may spin or sleep, so its seconds say nothing.
        return self.cpu if self.device == "cpu" else self.wall

    @property
    def computing(self) -> tuple[float, float]:
        """CPU and wall seconds of computing rows, summed over stores."""
        return sum(rows.cpu for rows in self.rows.values()), sum(rows.wall for rows in self.rows.values())


def clocks() -> Clocks:
    """The time now."""
    return time.process_time(), time.perf_counter()


def since(begun: Clocks) -> Clocks:
    """CPU and wall seconds that have passed."""
    cpu, wall = clocks()
    return cpu - begun[0], wall - begun[1]


class CostMeter:
    """Measures time until it is stopped, which sets :attr:`spent`."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._rows: dict[str, StoreRows] = {}
        self._recalled = False
        self._begun = clocks()
        self.spent = MeasuredCost(0.0, 0.0)

    def stop(self) -> None:
        """Set the cost."""
        cpu, wall = since(self._begun)
        torch = sys.modules.get("torch")
        threads = 1 if torch is None else int(torch.get_num_threads())
        machine, memory = describe_machine(), peak_memory()
        self.spent = MeasuredCost(cpu, wall, self._device, threads, machine, memory, self._rows, self._recalled)

    def add_rows(self, store: str, rows: StoreRows) -> None:
        """Add rows that a store was asked for."""
        old = self._rows.get(store, StoreRows(0, 0, 0.0, 0.0))
        counts, seconds = (old.asked + rows.asked, old.fresh + rows.fresh), (old.cpu + rows.cpu, old.wall + rows.wall)
        self._rows[store] = StoreRows(*counts, *seconds)

    def recall(self) -> None:
        """Record that a fitted state was found from an earlier run."""
        self._recalled = True


_meters: list[CostMeter] = []


@contextmanager
def measuring(device: str = "cpu") -> Iterator[CostMeter]:
    """Measure the cost of the body on a device; stores add the rows they compute."""
    meter = CostMeter(device)
    _meters.append(meter)
    try:
        yield meter
    finally:
        _meters.remove(meter)
        meter.stop()


@contextmanager
def computing_rows(store: str, asked: int, fresh: int) -> Iterator[None]:
    """Add the rows that a store was asked for to all meters, with the time that the body takes to compute them."""
    begun = clocks()
    try:
        yield
    finally:
        cpu, wall = since(begun)
        for meter in _meters:
            meter.add_rows(store, StoreRows(asked, fresh, cpu if fresh else 0.0, wall if fresh else 0.0))


def note_recalled() -> None:
    """Record in all meters that a fitted state was found instead of being computed."""
    for meter in _meters:
        meter.recall()


def device_of(settings: object) -> str:
    """The device that a method with these settings computes on: ``"cpu"``, ``"cuda"`` or another of torch's."""
    asked = getattr(settings, "device", None)
    if isinstance(asked, str):
        from airrep.runtime.devices import resolve_device

        return resolve_device(asked).partition(":")[0]
    torch = sys.modules.get("torch")
    return "cuda" if torch is not None and torch.cuda.is_initialized() else "cpu"


def device_in_use(settings: object) -> str:
    """The device of a method whose models are loaded; the CPU if nothing has loaded torch."""
    return device_of(settings) if "torch" in sys.modules else "cpu"


def append_cost(folder: Path, stage: str, spent: MeasuredCost, **more: object) -> None:
    """Add a line to the costs of an artifact."""
    path = folder / COSTS
    line = json.dumps({"stage": stage, **more, **asdict(spent), "rows": {n: list(r) for n, r in spent.rows.items()}})
    append_line(path, line)


class Measured(NamedTuple):
    """A line of costs."""

    stage: str
    examples: int
    spent: MeasuredCost
    more: Mapping[str, Any]


def clock_text(seconds: float) -> str:
    """A time that people wait for, in seconds, minutes or hours, such as ``"1.2 h"``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


_RESUMES = "Ctrl-C stops, and the same command goes on where it stopped"
_ANEW = "one that is interrupted begins anew"


def hours_line(
    fine_tunes: int,
    seconds: float | None,
    *,
    measured: str = "on the first",
    resumes: bool = True,
    what: str = "",
) -> str:
    """Say in a line how many fine-tunes are still to be done and how long they take.

    Args:
        fine_tunes: how many.
        seconds: of all of them by the clock, on as many workers as there are; None before any was timed.
        measured: what the time was measured on.
        resumes: whether the command goes on where it was interrupted.
        what: what they are called; fine-tunes if empty.
    """
    many = f"{fine_tunes:,} {what or 'fine-tune' + 's' * (fine_tunes != 1)}"
    after = _RESUMES if resumes else _ANEW
    if seconds is None:
        return f"{many} to do; the first tells how long they take; {after}"
    return f"{many} to do, about {clock_text(seconds)} (measured {measured}); {after}"


class Meter:
    """Progress on stderr: nothing in the first two seconds, then stage, share, speed and the time left.

    A terminal and a notebook have one line, which is written anew; a file or a pipe a line every ten seconds.
    """

    def __init__(self, stage: str = "") -> None:
        self._stage, self._done, self._open, self._ended = stage, 0, False, False
        self._begin(0)

    def _begin(self, done: int) -> None:
        self._begun = self._shown = time.monotonic()
        self._first = done

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def __call__(self, done: int, total: int | None, stage: str | None = None) -> None:
        stage = stage or self._stage
        if self._ended or done < self._done or stage != self._stage:  # another pass, with a speed of its own
            self._close()
            self._stage = stage
            self._begin(done)
        self._done, self._ended, now = done, done == total, time.monotonic()
        every = LIVE_SECONDS if _rewrites() else LINE_SECONDS
        if now - self._begun >= QUIET_SECONDS and now - self._shown >= every and done > self._first:
            self._shown = now
            self._write(self._text(done, total, now - self._begun))
        if self._ended:
            self._close()

    def _text(self, done: int, total: int | None, elapsed: float) -> str:
        rate = (done - self._first) / elapsed
        speed = f", {rate:,.0f}/s" if rate >= 1 else ""
        if total is None:
            return f"{self._stage}: {done:,}{speed}"
        left = clock_text((total - done) / rate)
        return f"{self._stage}: {done:,} of {total:,} ({done / total:.0%}){speed}, {left} left"

    def _write(self, text: str) -> None:
        self._open = _rewrites()
        sys.stderr.write(f"\r\x1b[2K{text}" if self._open else f"{text}\n")
        sys.stderr.flush()

    def _close(self) -> None:
        if self._open:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
        self._open = False


def _rewrites() -> bool:
    """True if a line on stderr can be rewritten: in a terminal, and in a notebook."""
    return sys.stderr.isatty() or type(sys.stderr).__module__.startswith("ipykernel")


_METER = Meter()
"""Lets one caller at a time show its progress line."""


def teller(progress: OnProgress | None, stage: str) -> OnRead | None:
    """The callback that is given; for True one that writes a line of the *stage*."""
    if isinstance(progress, bool):
        return partial(_METER, stage=stage) if progress else None
    return progress

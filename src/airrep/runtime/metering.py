"""Measures time and memory, shows progress, describes the machine, records costs of an index."""

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from airrep.errors import many
from airrep.runtime.artifacts import read_manifest
from airrep.runtime.publishing import append_line

COSTS = "costs.jsonl"

FIT, ENCODE, SETUP, JUDGE = "fit", "encode", "setup", "judge"
"""Stages of building an index: learning from the corpus, encoding a shard; stages of a training: the work before
its first step, and after its last step."""

OnRead: TypeAlias = Callable[[int, int | None], None]
"""Callback for progress: number of rows done, and their total or None if it is unknown."""
OnProgress: TypeAlias = OnRead | bool
"""An ``OnRead``; or True, which shows the stage and the time left in a line on stderr or in a notebook."""
QUIET_SECONDS, LIVE_SECONDS, LINE_SECONDS = 2.0, 0.2, 10.0
"""Seconds before progress is first shown; then between updates of a line that can be rewritten, or between lines."""

Clocks: TypeAlias = tuple[float, float]
"""CPU seconds of this process and wall seconds, in this order."""


@cache
def describe_machine() -> str:
    """Describe this machine, such as ``"2 cores of Intel Xeon Processor, 8 GiB memory"``, with a GPU in use."""
    parts, memory = [f"{cores()} cores of {_processor()}"], memory_bytes()
    if memory is not None:
        parts.append(f"{memory / 2**30:.0f} GiB memory")
    torch = sys.modules.get("torch")  # its import takes seconds; without it no GPU is used
    if torch is not None and torch.cuda.is_available():
        parts.append(str(torch.cuda.get_device_name(0)))
    return ", ".join(parts)


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _processor() -> str:
    """Return the processor's model name without trademark signs."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    found = named or platform.processor() or platform.machine()
    return found.replace("(R)", "").replace("(TM)", "").split(" @ ")[0].strip() or "an unknown processor"


def memory_bytes() -> int | None:
    """Return the machine's memory in bytes; None if the system does not report it."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def used_memory() -> int:
    """Return the current memory of this process in bytes; its peak if the system does not report the current one."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    except (OSError, ValueError, IndexError):
        return peak_memory()
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_memory() -> int:
    """Return the peak memory of this process in bytes."""
    # On Linux ru_maxrss includes memory that the parent process held when it started this one.
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        import resource

        largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return largest if sys.platform == "darwin" else largest * 1024


class StoreRows(NamedTuple):
    """Numbers of rows requested from a store of computed features."""

    asked: int
    """Distinct rows requested; equal texts count once."""
    fresh: int
    """Rows that the store did not have, so they were computed."""
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
    """Peak memory of the process up to the end of the work, in bytes; None if it was not recorded."""
    rows: Mapping[str, StoreRows] = field(default_factory=dict)
    """Rows requested and computed, by store."""
    recalled: bool = False
    """True if a fitted state of an earlier run was used."""

    @property
    def computing(self) -> Clocks:
        """CPU and wall seconds of computing rows, summed over stores."""
        return sum(rows.cpu for rows in self.rows.values()), sum(rows.wall for rows in self.rows.values())


def clocks() -> Clocks:
    """Return the current CPU and wall time of this process in seconds."""
    return time.process_time(), time.perf_counter()


def since(begun: Clocks) -> Clocks:
    """Return the CPU and wall seconds since *begun*."""
    cpu, wall = clocks()
    return cpu - begun[0], wall - begun[1]


@dataclass(eq=False)
class CostMeter:
    """Measurement of a piece of work; :attr:`spent` is set at its end."""

    rows: dict[str, StoreRows] = field(default_factory=dict)
    recalled: bool = False
    spent: MeasuredCost = MeasuredCost(0.0, 0.0)


_meters: list[CostMeter] = []


@contextmanager
def measuring(device: str = "cpu") -> Iterator[CostMeter]:
    """Measure the cost of the body on a device; stores add the rows they compute."""
    meter, begun = CostMeter(), clocks()
    _meters.append(meter)
    try:
        yield meter
    finally:
        _meters.remove(meter)
        spent, torch = since(begun), sys.modules.get("torch")
        threads = 1 if torch is None else int(torch.get_num_threads())
        machine, memory = describe_machine(), peak_memory()
        meter.spent = MeasuredCost(*spent, device, threads, machine, memory, meter.rows, meter.recalled)


@contextmanager
def computing_rows(store: str, asked: int, fresh: int) -> Iterator[None]:
    """Add rows requested from a store to all open meters, with the time that the body takes to compute them."""
    begun = clocks()
    try:
        yield
    finally:
        cpu, wall = since(begun) if fresh else (0.0, 0.0)
        for meter in _meters:
            old = meter.rows.get(store, StoreRows(0, 0, 0.0, 0.0))
            meter.rows[store] = StoreRows(old.asked + asked, old.fresh + fresh, old.cpu + cpu, old.wall + wall)


def note_recalled() -> None:
    """Record in all open meters that a fitted state was read instead of computed."""
    for meter in _meters:
        meter.recalled = True


def device_of(settings: object) -> str:
    """Return the type of the device that a method with these settings computes on, such as ``"cpu"`` or ``"cuda"``.

    It is ``"cpu"`` while torch is not loaded.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return "cpu"
    asked = getattr(settings, "device", None)
    if isinstance(asked, str):
        from airrep.runtime.devices import resolve_device

        return resolve_device(asked).partition(":")[0]
    return "cuda" if torch.cuda.is_initialized() else "cpu"


def append_cost(folder: Path, stage: str, spent: MeasuredCost, **more: object) -> None:
    """Append a line to the file of costs of an artifact."""
    line = {"stage": stage, **more, **asdict(spent), "rows": {name: list(rows) for name, rows in spent.rows.items()}}
    append_line(folder / COSTS, json.dumps(line))


class Measured(NamedTuple):
    """A line of the file of costs."""

    stage: str
    examples: int
    spent: MeasuredCost
    more: Mapping[str, Any]


def read_costs(folder: Path) -> list[Measured]:
    """Read the costs of an artifact in the order of measurement, skipping truncated or altered lines."""
    found = []
    for line in _json_lines(folder / COSTS):
        with suppress(ValueError, TypeError, KeyError, AttributeError):
            own = {name: line.pop(name) for name in MeasuredCost.__dataclass_fields__}
            own["rows"] = {name: StoreRows(*numbers) for name, numbers in own["rows"].items()}
            found.append(Measured(line.pop("stage"), int(line.pop("examples", 0)), MeasuredCost(**own), line))
    return found


def read_label_times(folder: Path) -> list[dict[str, Any]]:
    """Read the times of finished label tasks, from the files of all parts."""
    lines = [line for path in sorted(folder.glob("times*.jsonl")) for line in _json_lines(path)]
    return [line for line in lines if line.get("error") is None and {"task", "seconds"} <= line.keys()]


def _json_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a JSON Lines file; an empty list for a missing file."""
    found = []
    with suppress(OSError):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            with suppress(ValueError):  # an interruption may have truncated a line
                found.append(json.loads(line))
    return [value for value in found if isinstance(value, dict)]


class IndexCost(NamedTuple):
    """Estimated cost of building an index without features or fitted states kept from earlier runs."""

    examples: int
    """Number of examples whose encoding was measured."""
    seconds_per_example: float | None
    """CPU seconds of encoding one example; wall seconds on accelerators, where the CPU may spin or sleep. None if all
    rows were read from a store."""
    fit_seconds: float | None
    """Seconds, by the same clock, of learning from the corpus, without rows computed in a store; None if recalled."""
    bytes_per_example: float
    """Bytes of the stored features of one example."""
    by_clock: bool
    """True if the seconds are wall seconds."""
    memory: int | None
    """Largest peak memory of a process in bytes; None if it was not recorded."""


def index_cost(path: str | Path, manifest: Mapping[str, Any] | None = None) -> IndexCost | None:
    """Read the cost of building an index; None if it was not recorded (ArtifactError: no index, or altered).

    Pass the *manifest* if it was already read.
    """
    folder = Path(path)
    stored = stored_bytes_per_example(read_manifest(folder, "index") if manifest is None else manifest)
    lines = read_costs(folder)
    # Of a shard that was encoded again after an interruption, only the last line counts.
    shards = {line.more.get("shard"): line for line in lines if line.stage == ENCODE}
    if not shards:
        return None
    fits, encodings = [line for line in lines if line.stage == FIT], list(shards.values())
    peaks = [line.spent.memory for line in lines if line.spent.memory is not None]
    by_clock = any(line.spent.device != "cpu" for line in encodings)
    examples = sum(line.examples for line in encodings)
    seconds = undisturbed_seconds(fits, encodings, by_clock)
    return IndexCost(examples, *seconds, stored, by_clock, max(peaks, default=None))


def undisturbed_seconds(
    fits: Sequence[Measured], encodings: Sequence[Measured], by_clock: bool
) -> tuple[float | None, float | None]:
    """Estimate the seconds of an uninterrupted run with empty stores: for encoding one example, and for learning.

    Let c_k be the seconds of computing f_k rows of store k, a_k the rows that encodings requested from store k, and m
    the number of examples. One example takes (Σ seconds − Σ_k c_k) / m over encodings, plus Σ_k (c_k / f_k) a_k / m.
    Learning takes the mean over fits, of which interruptions cause several. Each part of the corpus is encoded once.
    """

    def alone(line: Measured) -> float:
        return (line.spent.cpu, line.spent.wall)[by_clock] - line.spent.computing[by_clock]

    learnt = [alone(line) for line in fits if not line.spent.recalled]
    fit = max(0.0, sum(learnt) / len(learnt)) if learnt else None
    examples, total = sum(line.examples for line in encodings), sum(map(alone, encodings))
    for name in sorted({name for line in encodings for name in line.spent.rows}):
        asked = sum(line.spent.rows[name].asked for line in encodings if name in line.spent.rows)
        computed = [line.spent.rows[name] for line in (*fits, *encodings) if name in line.spent.rows]
        fresh = sum(rows.fresh for rows in computed)
        if not fresh:
            return None, fit
        total += asked * sum((rows.cpu, rows.wall)[by_clock] for rows in computed) / fresh
    return max(0.0, total) / examples if examples else None, fit


_FEATURES = frozenset(
    f"{name}.npy"
    for name in ("features", "codes", "scales", "bounds", "data", "indices", "indptr", "columns", "rows", "values")
)


def stored_bytes_per_example(manifest: Mapping[str, Any]) -> float:
    """Return the bytes per example of an index's features, or of the data that a direct method keeps."""
    total = 0
    for path, entry in manifest["files"].items():
        name = path.rpartition("/")[2]
        if name in _FEATURES or (name.startswith("kept-") and name.endswith(".npy")):
            total += entry["bytes"]
    return float(total / manifest["rows"])


def clock_text(seconds: float) -> str:
    """Return a duration as text in seconds, minutes or hours, such as ``"1.2 h"``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def hours_line(
    fine_tunes: int, seconds: float | None, *, measured: str = "on the first", resumes: bool = True, what: str = ""
) -> str:
    """Return a line with the number of remaining fine-tunes, or of *what*, and the time that they take.

    *seconds* are the wall seconds for all of them on the given workers, None before the first was timed; *measured*
    says what was timed. *resumes* is True if the command continues after an interruption.
    """
    work = f"{fine_tunes:,} {what}" if what else many(fine_tunes, "fine-tune")
    resumed = "Ctrl-C stops, and the same command goes on where it stopped"
    after = resumed if resumes else "if interrupted, the command starts over"
    if seconds is None:
        return f"{work} to do; the first will show how long they take; {after}"
    return f"{work} to do, about {clock_text(seconds)} (measured {measured}); {after}"


class Meter:
    """Shows progress on stderr after the first two seconds: stage, share, speed and the time left.

    A terminal or notebook shows one line that is rewritten; a file or pipe gets a line every ten seconds.
    """

    def __init__(self) -> None:
        self._stage, self._done, self._open, self._ended = "", 0, False, False
        self._begun = self._shown = time.monotonic()
        self._first = 0

    def __call__(self, done: int, total: int | None, stage: str) -> None:
        if self._ended or done < self._done or stage != self._stage:  # a new pass, whose speed is measured anew
            self.close()
            self._stage, self._first = stage, done
            self._begun = self._shown = time.monotonic()
        self._done, self._ended, now = done, done == total, time.monotonic()
        every = LIVE_SECONDS if _rewrites() else LINE_SECONDS
        if now - self._begun >= QUIET_SECONDS and now - self._shown >= every and done > self._first:
            self._shown = now
            self._write(self._text(done, total, now - self._begun))
        if self._ended:
            self.close()

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

    def close(self) -> None:
        """Remove an unfinished line, so that other text can follow."""
        if self._open:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
        self._open, self._ended = False, True


def _rewrites() -> bool:
    """Return True if a line on stderr can be rewritten, as in a terminal or notebook."""
    return sys.stderr.isatty() or type(sys.stderr).__module__.startswith("ipykernel")


METER = Meter()
"""Shared by all callers, so that only one progress line is shown at a time."""


def teller(progress: OnProgress | None, stage: str) -> OnRead:
    """Return the given callback; for True, one that shows the *stage* on stderr; else one that does nothing."""
    if progress is True:
        return partial(METER, stage=stage)
    return progress or (lambda *_: None)

"""Process CPU time in turns, and peak memory, of candidates."""

import multiprocessing
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from threadpoolctl import threadpool_limits


def interleave(candidates: dict[str, Callable[[], object]], rounds: int = 5) -> dict[str, float]:
    """Median process CPU seconds of each candidate.

    Each round runs every candidate once, so that a slow moment of the machine falls on all of them alike;
    one round before the first is not counted. BLAS and OpenMP have one thread: their idle threads spin for a while,
    on the account of whoever comes next. Give other libraries one thread before calling.
    """
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    with threadpool_limits(1):
        for round_number in range(rounds + 1):
            for name, run in candidates.items():
                start = time.process_time()
                run()
                if round_number:
                    seconds[name].append(time.process_time() - start)
    return {name: statistics.median(spent) for name, spent in seconds.items()}


def verdict(ratio: float, ask: float) -> str:
    """A measured ratio beside the least one asked for."""
    return f"{ratio:.2f} (ask >= {ask:g}: {'met' if ratio >= ask else 'MISSED'})"


def extra_memory(prepare: Callable[[int], Callable[[], object]], size: int) -> float:
    """MiB by which memory grows while what ``prepare(size)`` returns runs, in its own process (Linux)."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_growth, prepare, size).result()


def _growth(prepare: Callable[[int], Callable[[], object]], size: int) -> float:
    run = prepare(size)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of the preparation
    before = _peak()
    run()
    return (_peak() - before) / 1024


def _peak() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])

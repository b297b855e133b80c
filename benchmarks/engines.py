"""The engines' own cost: tasks that wait for a second, in one worker and in four, on processes and on Ray.

Run as ``python benchmarks/engines.py``. Waiting takes no core, so this measures handing out and taking back on a
machine with few cores, not what cores share. The clock begins with the first task, and runs on while the other workers
start. Overhead is the wall-clock time of one worker beyond that of the waiting; four should do 3.4 times as much.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

from airrep.runtime.engine import Engine, LocalProcesses
from airrep.runtime.ray_engine import RayEngine

OVERHEAD = 0.05
SPEEDUP = 3.4


@dataclass(frozen=True)
class Wait:
    """Sets up a worker whose tasks wait, and give so many bytes back."""

    seconds: float
    size: int

    def __call__(self) -> Callable[[int], bytes]:
        return self._work

    def _work(self, task: int) -> bytes:
        time.sleep(self.seconds)
        return bytes(self.size)


def seconds(engine: Engine, tasks: int, wait: float, size: int) -> float:
    """Wall-clock seconds from the beginning of the first task to the end of the last."""
    begun = 0.0
    for outcome in engine.run(Wait(wait, size), range(tasks)):
        begun = begun or time.perf_counter() - outcome.seconds
    return time.perf_counter() - begun


def main() -> None:
    """Print overhead and speed for each engine."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=60)
    parser.add_argument("--wait", type=float, default=1.0, help="seconds of a task")
    parser.add_argument("--size", type=int, default=1 << 20, help="bytes that a task gives back")
    parser.add_argument("--engine", choices=("processes", "ray"), help="one of them alone")
    given = parser.parse_args()
    print(f"{given.tasks} tasks of {given.wait:g} s, {given.size:,} bytes back from each")
    engines: dict[str, Callable[[int], Engine]] = {
        "processes": lambda workers: LocalProcesses(workers, gpus=()),
        "ray": lambda workers: RayEngine(workers=workers, cpus=0.25),
    }
    for name, make in engines.items():
        if given.engine not in (None, name):
            continue
        one, four = (seconds(make(workers), given.tasks, given.wait, given.size) for workers in (1, 4))
        overhead, speed = one / (given.tasks * given.wait) - 1, one / four
        met = "met" if overhead < OVERHEAD and speed >= SPEEDUP else "MISSED"
        print(f"{name:>10}: one worker {one:.1f} s, overhead {overhead:.2%}; four {four:.1f} s, {speed:.2f} ×; {met}")


if __name__ == "__main__":
    from engines import main as run  # workers on Ray find classes in a module, not in a script

    run()

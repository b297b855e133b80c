"""A farm whose workers fail: work that is lost, time that is lost, tasks that are given up; simulated, and tried.

Run as ``python benchmarks/failures.py``. Workers fail at random, on average once in a mean time between failures; one
that fails takes its task along and comes back after a restart. Lost tasks go to the end of the queue, as the engines
do it, and are given up after so many losses. ``--real`` holds the simulation against local processes whose tasks
sleep and which are killed at random.
"""

import argparse
import heapq
import math
import multiprocessing
import random
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from airrep.runtime.engine import MOST_LOSSES, LocalProcesses

RATIOS = (1, 3, 10, 30, 100, 1000)


@dataclass(frozen=True)
class Farm:
    """Behaviour of a simulated farm."""

    tasks: int = 2000
    workers: int = 32
    seconds: float = 100.0
    """Mean length of a task."""
    spread: float = 0.2
    """Deviation of the logarithm of lengths."""
    restart: float = 60.0
    """Seconds until a worker that failed is ready again."""
    retries: int = 1_000_000


@dataclass(frozen=True)
class Spent:
    """Uses of the time."""

    useful: float
    """Seconds of attempts that ended well."""
    lost: float
    """Seconds of attempts that ended with their worker."""
    wall: float
    given_up: int

    @property
    def waste(self) -> float:
        """Lost seconds, as a share of the useful ones."""
        return self.lost / self.useful


def simulate(farm: Farm, mtbf: float, seed: int) -> Spent:
    """One run of a farm whose workers each fail once in *mtbf* seconds on average."""
    drawn = random.Random(seed)
    shift = farm.spread**2 / 2
    lengths = [farm.seconds * math.exp(drawn.gauss(-shift, farm.spread)) for _ in range(farm.tasks)]
    waiting, attempts = deque(range(farm.tasks)), [0] * farm.tasks
    free = [(farm.restart, worker) for worker in range(farm.workers)]
    heapq.heapify(free)
    fails = [drawn.expovariate(1 / mtbf) + farm.restart for _ in range(farm.workers)]
    running: list[tuple[float, int, int, bool]] = []
    useful = lost = now = 0.0
    given_up = 0
    while waiting or running:
        if waiting and free and (not running or free[0][0] <= running[0][0]):
            at, worker = heapq.heappop(free)
            if fails[worker] < at:  # it failed while it had nothing to do
                fails[worker] = at + drawn.expovariate(1 / mtbf)
            task = waiting.popleft()
            attempts[task] += 1
            ends = at + lengths[task]
            dies = fails[worker] < ends
            heapq.heappush(running, (min(ends, fails[worker]), worker, task, dies))
            lost += fails[worker] - at if dies else 0.0
            useful += 0.0 if dies else lengths[task]
            continue
        now, worker, task, dies = heapq.heappop(running)
        if dies:
            if attempts[task] <= farm.retries:
                waiting.append(task)
            else:
                given_up += 1
            fails[worker] = now + farm.restart + drawn.expovariate(1 / mtbf)
        heapq.heappush(free, (now + (farm.restart if dies else 0.0), worker))
    return Spent(useful, lost, now, given_up)


def expected_waste(ratio: float) -> float:
    """Lost over useful time for tasks of one length, whose mean time between failures is *ratio* lengths.

    The time until an attempt of length d gets through is M (e^(d/M) − 1), M being the mean time between failures.
    """
    return ratio * math.expm1(1 / ratio) - 1


def main() -> None:
    """Print the table, and the trial if it is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--real", action="store_true", help="try local processes as well")
    given = parser.parse_args()
    farm = Farm()
    print(f"{farm.tasks:,} tasks of {farm.seconds:g} s, {farm.workers} workers, back after {farm.restart:g} s")
    heads = ("MTBF / task", "lost work", "by formula", "wall clock", "given up: 2 losses", f"{MOST_LOSSES} losses")
    print("".join(f"{head:>{width}}" for head, width in zip(heads, (12, 12, 12, 12, 20, 12), strict=True)))
    calm = np.mean([simulate(farm, 1e12, seed).wall for seed in range(given.runs)])
    for ratio in RATIOS:
        mtbf = ratio * farm.seconds
        found = [simulate(farm, mtbf, seed) for seed in range(given.runs)]
        lost = [
            np.mean([simulate(Farm(retries=many), mtbf, seed).given_up for seed in range(given.runs)]) / farm.tasks
            for many in (2, MOST_LOSSES)
        ]
        waste, wall = np.mean([one.waste for one in found]), np.mean([one.wall for one in found])
        print(f"{ratio:12}{waste:12.2%}{expected_waste(ratio):12.2%}{wall / calm:12.2f}{lost[0]:20.3%}{lost[1]:12.4%}")
    for seed in range(3 if given.real else 0):
        trial(seed)


@dataclass(frozen=True)
class Sleep:
    """Sets up a worker whose tasks sleep."""

    seconds: float

    def __call__(self) -> Any:
        return self._work

    def _work(self, task: int) -> int:
        time.sleep(self.seconds)
        return task


def trial(seed: int, tasks: int = 80, workers: int = 4, seconds: float = 2.0, mtbf: float = 10.0) -> None:
    """Kill local processes at random; compare with the simulation at the restart time and the rate that came of it."""
    engine = LocalProcesses(workers, gpus=())
    begun = time.perf_counter()
    list(engine.run(Sleep(0.0), range(workers)))
    restart = time.perf_counter() - begun
    stop, kills, drawn = threading.Event(), [0], random.Random(seed)

    def kill() -> None:
        while not stop.wait(drawn.expovariate(workers / mtbf)):
            alive = multiprocessing.active_children()
            if alive:
                drawn.choice(alive).kill()
                kills[0] += 1

    killer = threading.Thread(target=kill, daemon=True)
    begun = time.perf_counter()
    killer.start()
    outcomes = list(engine.run(Sleep(seconds), range(tasks), retries=1000))
    wall = time.perf_counter() - begun
    stop.set()
    again = sum(outcome.attempts - 1 for outcome in outcomes)
    farm = Farm(tasks, workers, seconds, 0.0, restart)
    seen = workers * wall / max(kills[0], 1)
    made = [simulate(farm, seen, number) for number in range(400)]
    walls = np.quantile([one.wall for one in made], [0.025, 0.5, 0.975])
    print(
        f"{tasks} tasks of {seconds:g} s, {workers} processes, MTBF {seen:.1f} s, restart {restart:.1f} s (measured):"
    )
    print(f"  {kills[0]} killed, {again} attempts lost, {wall:.1f} s; all {len(outcomes)} tasks done")
    print(f"  simulated: {walls[1]:.1f} s ({walls[0]:.1f} to {walls[2]:.1f})")


if __name__ == "__main__":
    main()

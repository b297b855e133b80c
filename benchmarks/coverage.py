"""How often intervals and tests of the LDS are right, by simulation.

Run as ``PYTHONPATH=tests python benchmarks/coverage.py``. Worlds with known truth are drawn afresh, queries and subsets
alike; each is measured once with the package's intervals and paired test. Asked for: 92 to 98 % of the intervals hold
the truth, and 2 to 8 % of the comparisons of equally good methods say p < 0.05.
"""

import argparse
from collections.abc import Iterator

import numpy as np
from reference.statistics import Rows, SubsetWorld, TwoWayWorld

from airrep.evaluation.statistics.metrics import lds, paired

World = TwoWayWorld | SubsetWorld

WORLDS: dict[str, World] = {
    "200 x 60": TwoWayWorld(200, 60, 0.3),
    "100 x 30": TwoWayWorld(100, 30, 0.3),
    "50 x 100": TwoWayWorld(50, 100, 0.3),
    "200 x 100": TwoWayWorld(200, 100, 0.3),
    "200 x 100, no skill": TwoWayWorld(200, 100, 0.0),
    "200 x 60, high skill": TwoWayWorld(200, 60, 0.9),
    "200 x 60, queries alike": TwoWayWorld(200, 60, 0.3, common=1.5),
    "200 x 60, noise of cells": TwoWayWorld(200, 60, 0.3, noise=5),
    "30 x 20": TwoWayWorld(30, 20, 0.3),
    "10 x 100": TwoWayWorld(10, 100, 0.3),
    "100 x 10": TwoWayWorld(100, 10, 0.3),
    "200 x 60 subsets of a pool": SubsetWorld(200, 60),
}


def expectation(world: World, worlds: int) -> float:
    """The mean LDS over many worlds: the truth for this number of subsets."""
    random = np.random.default_rng(99)
    drawn = (world.draw(random) for _ in range(worlds))
    return float(np.mean([lds(scores[0], losses, resamples=0).value for scores, losses in drawn]))


def measure(world: World, worlds: int, resamples: int) -> Iterator[tuple[float, float, float, float, float]]:
    """LDS, both ends of its interval, difference to an equally good method, and its p-value, of each world."""
    random = np.random.default_rng(7)
    for _ in range(worlds):
        (one, other), losses = world.draw(random, 2)
        found, compared = _judge(one, other, losses, resamples)
        yield found.value, *found.interval, compared.difference, compared.p_value


def _judge(one: Rows, other: Rows, losses: Rows, resamples: int) -> tuple:
    return lds(one, losses, resamples=resamples), paired(one, other, losses, resamples=resamples)


def report(name: str, world: World, worlds: int, resamples: int) -> str:
    """One line of the table."""
    truth = expectation(world, 4 * worlds)
    limit = f"{100 * world.population():6.2f}" if isinstance(world, TwoWayWorld) else "      "
    values = np.array(list(measure(world, worlds, resamples)))
    value, low, high, difference, p_values = values.T
    held = np.mean((low <= truth) & (truth <= high))
    sides = np.mean(truth < low), np.mean(truth > high)
    rejected = [np.mean(p_values < level) for level in (0.01, 0.05, 0.2)]
    return (
        f"{name:28} {100 * truth:6.2f} {limit} {100 * value.std():6.2f} {100 * np.mean(high - low) / 3.92:6.2f}"
        f"  {100 * held:5.1f} ({100 * sides[0]:.1f}, {100 * sides[1]:.1f})"
        f"  {100 * difference.std():6.2f}  {100 * rejected[0]:4.1f} {100 * rejected[1]:4.1f} {100 * rejected[2]:5.1f}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=1000)
    parser.add_argument("--resamples", type=int, default=400)
    parser.add_argument("--only", help="Part of a world's name.", default="")
    given = parser.parse_args()
    print(
        "queries x subsets             truth  m=inf deviation  width/3.92  held (below, above)   paired: p<.01 .05 .2"
    )
    for name, world in WORLDS.items():
        if given.only in name:
            print(report(name, world, given.worlds, given.resamples), flush=True)


if __name__ == "__main__":
    main()

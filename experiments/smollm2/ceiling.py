"""Noise ceiling of labels of one seed, told by the first subsets, which have a second one.

Usage: python experiments/smollm2/ceiling.py [tasks-real ...]      in the folder of the repository; all that have it

`labels/ROLE-real` has one seed, so that no command can tell its ceiling; `labels/ROLE-real-again` has its first 12
subsets with two, and `ROLE-1000-again` the first 10 of those of 1,000. LDS × 100 that a perfect predictor of the mean
loss would reach against losses of one seed.
"""

import sys
from pathlib import Path

import numpy as np

import airrep
from airrep.metrics import noise_ceiling

LABELS = Path(__file__).parent / "labels"
ROLES = ("tasks", "mixture", "general", "safety")


def main() -> None:
    """Print a line for each role."""
    held = [f"{role}-{part}" for part in ("real", "1000") for role in ROLES]
    for name in sys.argv[1:] or [one for one in held if (LABELS / f"{one}-again").is_dir()]:
        again = airrep.open(LABELS / f"{name}-again")
        by_seed = again.losses(0)
        apart = np.abs(by_seed[0] - by_seed[1]).mean()
        spread = by_seed.mean(axis=0).std(axis=1).mean()
        told = f"seeds are {apart:.3f} nats apart, subsets deviate by {spread:.3f}"
        print(f"{name}: {100 * noise_ceiling(by_seed):.1f}; {told}")


if __name__ == "__main__":
    main()

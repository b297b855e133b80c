"""Which methods find planted facts where words tell nothing: recall, and process CPU time.

Run as ``PYTHONPATH=tests python benchmarks/planted.py``, with the extra peft. The world is that of
``tests/worlds/planted_world.py``: a tiny LM that learnt 60 facts of 5 examples each, and queries that ask for them in
words that stand in no example. Recall is the share of a query's five top examples that are of its fact, mean and least
over the seeds. Seconds are those of an index and its queries, on one thread; gradients that an earlier row computed are
found in the store, as for any user (``--alone`` gives each row a store of its own).
"""

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from worlds.planted_world import BLIND, CHANCE, CHANCE_BY_ANSWER, METHODS, World, find, plant

ASK = 0.9
"""Recall of every method that reads gradients."""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", nargs="+", choices=[*METHODS, "rds", *BLIND], default=[*METHODS, *BLIND])
    parser.add_argument("--alone", action="store_true", help="share no gradients between methods")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in arguments.methods}
    for seed in range(arguments.seeds):
        with TemporaryDirectory() as folder:
            world = plant(Path(folder), seed, adapters="less" in arguments.methods)
            for name in arguments.methods:
                found[name].append(measure(world, name, Path(folder) / (name if arguments.alone else "all")))
    print_table(found)


def measure(world: World, name: str, folder: Path) -> tuple[float, float]:
    """Recall and process CPU seconds."""
    start = time.process_time()
    return find(world, name, folder), time.process_time() - start


def print_table(found: dict[str, list[tuple[float, float]]]) -> None:
    """One row for each method."""
    print(f"{'':20}{'recall@5':>9}{'least':>7}{'seconds':>9}  of each seed")
    for name, runs in found.items():
        recalls, seconds = np.array(runs).T
        each = " ".join(f"{recall:.3f}" for recall in recalls)
        print(f"{name:20}{recalls.mean():9.3f}{recalls.min():7.3f}{np.median(seconds):9.2f}  {each}")
    print(f"chance {CHANCE:.3f}; {CHANCE_BY_ANSWER:.3f} for one who knows the answers")
    missed = [name for name, runs in found.items() if name in METHODS and min(run[0] for run in runs) < ASK]
    print(f"recall >= {ASK:g} at every seed: {'MISSED by ' + ', '.join(missed) if missed else 'met'}")


if __name__ == "__main__":
    main()

"""Measure what leaving out a query's own source does, and how often the source that harms a query most is found.

Usage: python experiments/sources/own.py [ROLE ...]        in the folder of the repository, after `sources`
"""

import sys
from pathlib import Path

import numpy as np

import airrep

HERE = Path(__file__).parents[1]


def main() -> None:
    """Print a few lines for each role."""
    for role in sys.argv[1:] or ["tasks", "mixture"]:
        found = airrep.open(HERE / "sources" / "results" / role)
        pool, queries = (
            airrep.read_corpus(HERE / "work" / "data" / f"{role}-sources" / f"{name}.jsonl")
            for name in ("pool", "queries")
        )
        plan = airrep.open(HERE / "work" / "subsets" / f"{role}-sources")
        everything, labels = set(range(len(pool))), np.array(pool.values("label"))
        removed = [everything - set(plan.subset_rows(0, j).tolist()) for j in range(1, plan.subset_count)]
        sources = [str(labels[min(rows)]) for rows in removed]
        own = np.array([[label == source for source in sources] for label in queries.values("label")])
        (name,) = (name for name in found.matrices if name.startswith("losses/"))
        effects = found.matrices[name]
        worst = effects.argmin(axis=1)
        print(
            f"{role}: without its own source a query loses {effects[own].mean():.2f} nats on average, something in "
            f"{(effects[own] > 0).mean():.0%}; without another {effects[~own].mean():.2f}, "
            f"{(effects[~own] > 0).mean():.0%}"
        )
        for number, row in enumerate(found.rows):
            f = found.matrices[f"{number}/{name.removeprefix('losses/')}"]
            print(
                f"    {row.name:18} sign of the own source right {((f > 0) == (effects > 0))[own].mean():4.0%}, "
                f"the most harmful found {(f.argmin(axis=1) == worst).mean():4.0%}"
            )


if __name__ == "__main__":
    main()

"""Write one instance of a subset plan as data files: what other plans are drawn from when its pool and queries stay.

Usage: python experiments/instance.py PLAN NUMBER DATA.jsonl OUT [--pool COUNT] [--queries COUNT]

PLAN was drawn by `airrep sample` from DATA. OUT gets `pool.jsonl`, the examples of the train pool, and `queries.jsonl`:
all of them, or the first COUNT.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from records import count

import airrep


def main() -> None:
    """Read the plan, copy its lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=Path)
    parser.add_argument("number", type=int)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--pool", type=count, help="only so many examples")
    parser.add_argument("--queries", type=count, help="only so many queries")
    given = parser.parse_args()
    plan = airrep.open(given.plan)
    corpus = airrep.read_corpus(given.data)
    plan.check_corpora(corpus)
    if not 0 <= given.number < len(plan):
        sys.exit(f"NUMBER {given.number}: is no instance of {given.plan}; expected 0 to {len(plan) - 1}.")
    with given.data.open(encoding="utf-8") as file:
        lines = [line for line in file if line.strip()]
    if len(lines) != len(corpus):
        sys.exit(f"{given.data}: has {len(lines):,} lines and {len(corpus):,} examples; expected an example a line.")
    given.out.mkdir(parents=True, exist_ok=True)
    write(given.out / "pool.jsonl", lines, plan.train_rows(given.number), given.pool)
    write(given.out / "queries.jsonl", lines, plan.query_rows(given.number), given.queries)


def write(path: Path, lines: list[str], rows: Sequence[int], wanted: int | None) -> None:
    """Some lines, as a file: all rows, or the first of them."""
    if wanted is not None and wanted > len(rows):
        sys.exit(f"{path}: {wanted:,} are asked for of {len(rows):,}. Ask for fewer.")
    chosen = [lines[row] for row in rows[:wanted]]
    path.write_text("".join(chosen), encoding="utf-8")
    print(f"{path}: {len(chosen):,} examples")


if __name__ == "__main__":
    main()

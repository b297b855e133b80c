"""Write one instance of a subset plan as data files: what other plans are drawn from when its pool and queries stay.

Usage: python experiments/instance.py PLAN NUMBER DATA.jsonl OUT [--pool COUNT] [--queries COUNT]

PLAN was drawn by `airrep sample` from DATA. OUT gets `pool.jsonl`, the examples of the train pool, and `queries.jsonl`:
all of them, or the first COUNT.
"""

import argparse
from collections.abc import Iterable
from pathlib import Path

import airrep


def main() -> None:
    """Read the plan, copy its lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plan", type=Path)
    parser.add_argument("number", type=int)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--pool", type=int, help="only so many examples")
    parser.add_argument("--queries", type=int, help="only so many queries")
    given = parser.parse_args()
    plan = airrep.open_plan(given.plan)
    plan.check_corpora(airrep.read_corpus(given.data))
    lines = given.data.read_text(encoding="utf-8").splitlines(keepends=True)
    given.out.mkdir(parents=True, exist_ok=True)
    write(given.out / "pool.jsonl", lines, plan.train_rows(given.number)[: given.pool])
    write(given.out / "queries.jsonl", lines, plan.query_rows(given.number)[: given.queries])


def write(path: Path, lines: list[str], rows: Iterable[int]) -> None:
    """Some lines, as a file."""
    chosen = [lines[row] for row in rows]
    path.write_text("".join(chosen), encoding="utf-8")
    print(f"{path}: {len(chosen):,} examples")


if __name__ == "__main__":
    main()

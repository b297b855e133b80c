"""Draw examples of a data file at random: queries for `airrep evaluate classify` and `select`.

Usage: python experiments/choose.py DATA.jsonl OUT.jsonl (--count N | --each N) [--task NAME ...] [--without FILE ...]

`--each` draws N of every label. Which ones depends on the hash of prompt and response alone. Nothing is drawn whose
prompt is in FILE; of a prompt that comes twice, one is.
"""

import argparse
import hashlib
import sys
from collections import Counter
from pathlib import Path

from records import count, read, write


def main() -> None:
    """Read, choose, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    number = parser.add_mutually_exclusive_group(required=True)
    number.add_argument("--count", type=count, help="so many in all")
    number.add_argument("--each", type=count, help="so many of each label")
    parser.add_argument("--task", action="append", help="only this label; may be repeated")
    parser.add_argument("--without", type=Path, action="append", default=[], help="no prompt of this file")
    given = parser.parse_args()
    records = read(given.data)
    unknown = set(given.task or ()) - {record["label"] for record in records}
    if unknown:
        sys.exit(f"--task {min(unknown)}: is no label of {given.data}.")
    seen = {record["prompt"] for path in given.without for record in read(path)}
    chosen: list[dict] = []
    taken: Counter[str] = Counter()
    for record in sorted(records, key=place):
        label = record["label"]
        full = taken.total() == given.count if given.each is None else taken[label] == given.each
        if full or record["prompt"] in seen or (given.task and label not in given.task):
            continue
        seen.add(record["prompt"])
        taken[label] += 1
        chosen.append(record)
    wanted = given.count if given.each is None else given.each * len(taken)
    if not chosen or len(chosen) < wanted:
        sys.exit(f"{given.data}: gives {len(chosen):,} examples; expected {wanted or 1:,}. Ask for fewer.")
    write(given.out, chosen)
    print(f"{given.out}: {len(chosen):,} examples of {len(taken)} labels, {min(taken.values())} or more of each")


def place(record: dict) -> str:
    """Where it comes in the order of draws."""
    return hashlib.sha256(f"{record['prompt']}\n{record['response']}".encode()).hexdigest()


if __name__ == "__main__":
    main()

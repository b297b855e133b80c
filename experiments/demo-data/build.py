"""Make the data of `airrep demo` from a file of freely licensed examples.

Usage: python experiments/demo-data/build.py FILE.jsonl

FILE has `id`, `prompt`, `response` and, as `label`, the data set of each example. Each data set gives TRAIN and
QUERIES examples, chosen by the hash of their id, so that the choice is the same for everybody.
"""

import hashlib
import json
import sys
from pathlib import Path

OUT = Path(__file__).parents[2] / "src" / "airrep" / "data"
TRAIN, QUERIES = 400, 10
KINDS = {
    "alpaca_libre": "instruction",
    "gsm8k": "arithmetic",
    "aqua": "algebra",
    "creak": "fact checking",
    "strategyqa": "yes/no reasoning",
}


def main(path: str) -> None:
    """Choose the examples and write the two files."""
    records = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    train, queries = [], []
    for source, kind in KINDS.items():
        chosen = unique(record for record in records if record["label"] == source)
        chosen.sort(key=lambda record: hashlib.sha256(record["id"].encode()).hexdigest())
        rows = [row(record, source, kind) for record in chosen[: TRAIN + QUERIES]]
        queries += rows[:QUERIES]
        train += rows[QUERIES:]
    write("train.jsonl", train)
    write("queries.jsonl", queries)


def unique(records):
    """Keep the first of records with the same prompt."""
    return list({record["prompt"]: record for record in reversed(list(records))}.values())[::-1]


def row(record: dict, source: str, kind: str) -> dict:
    """One example as it is shipped."""
    return {
        "id": record["id"],
        "prompt": record["prompt"],
        "response": record["response"],
        "label": kind,
        "source": source,
    }


def write(name: str, rows: list[dict]) -> None:
    """Write rows as JSON lines."""
    lines = (json.dumps(row, ensure_ascii=False) for row in rows)
    (OUT / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])

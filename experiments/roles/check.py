"""Count what the data that encoders learn from and the data they are judged by have in common.

Usage: python experiments/roles/check.py LEARN.jsonl ... --judge JUDGE.jsonl ...

Texts (prompt and response), prompts, and responses of more than 30 characters are compared as they are; the last column
counts the examples that share 13 words in a row, as templates and frequent questions do. Ends with status 1 if a text
or a prompt is in both.
"""

import argparse
import json
import re
import sys
from pathlib import Path

SENTENCE, WORDS = 30, 13


def main() -> None:
    """Read, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("learn", type=Path, nargs="+")
    parser.add_argument("--judge", type=Path, nargs="+", required=True)
    given = parser.parse_args()
    judged = {path: [kinds(record) for record in read(path)] for path in given.judge}
    shared = 0
    print("| learnt from | judged by | examples | texts | prompts | responses | 13 words |")
    print("|---|---|---|---|---|---|---|")
    for path in given.learn:
        known = [set().union(*column) for column in zip(*map(kinds, read(path)), strict=True)]
        for other, records in judged.items():
            counts = [sum(not found[kind].isdisjoint(known[kind]) for found in records) for kind in range(4)]
            shared += counts[0] + counts[1]
            print(f"| {path} | {other} | {len(records):,} | " + " | ".join(f"{count:,}" for count in counts) + " |")
    sys.exit(1 if shared else 0)


def read(path: Path) -> list[dict]:
    """The records of a file."""
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def kinds(record: dict) -> list[set]:
    """Its text, its prompt, its response if that is a sentence, its runs of words."""
    prompt, response = record["prompt"], record["response"]
    words = re.findall(r"\w+", f"{prompt} {response}".lower())
    runs = {tuple(words[start : start + WORDS]) for start in range(len(words) - WORDS + 1)}
    return [{(prompt, response)}, {prompt}, {response} if len(response) > SENTENCE else set(), runs]


if __name__ == "__main__":
    main()

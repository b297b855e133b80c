"""Helpers that the scripts of this folder share: reading data files, and counts on the command line."""

import json
import sys
from pathlib import Path

FIELDS = ("prompt", "response", "label")


def read(path: Path) -> list[dict]:
    """The records of a JSONL file; end with a line that says what is wrong with one."""
    if not path.is_file():
        sys.exit(f"{path}: there is no such file. Make it first, or correct the path.")
    found = []
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except json.JSONDecodeError as error:
                sys.exit(f"{path}, line {number}: is no JSON ({error}).")
            lacking = [name for name in FIELDS if name not in record]
            if lacking:
                sys.exit(f"{path}, line {number}: has no {lacking[0]}; expected {', '.join(FIELDS)}.")
            found.append(record)
    return found


def write(path: Path, records: list[dict]) -> None:
    """Write a JSONL file, and its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")


def count(text: str) -> int:
    """A number of examples on the command line, 1 or more."""
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number

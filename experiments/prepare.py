"""Choose the short examples of files of labelled tasks, and split them: a part to learn from, a part to judge by.

Usage: python experiments/prepare.py TASKS.jsonl ... OUT [--task NAME ...] [--unseen FILE ...]

OUT gets `learn.jsonl` and `judge.jsonl`; no text is in both. Which part an example falls into depends on the hash of
its prompt alone, so that a prompt that comes twice is on one side. Nothing is learnt from an example that has the
prompt, or the response where that is a sentence, of one in FILE.
"""

import argparse
import hashlib
from pathlib import Path

from records import read, write

SENTENCE = 30
"""Fewest characters of a response that two examples do not share by chance."""


def main() -> None:
    """Read, choose, split, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", type=Path, nargs="+")
    parser.add_argument("out", type=Path)
    parser.add_argument("--task", action="append", help="only this label; may be repeated")
    parser.add_argument("--not-task", action="append", default=[], help="not this label; may be repeated")
    parser.add_argument("--longest", type=int, default=400, help="most characters of prompt and response together")
    parser.add_argument("--judged", type=float, default=0.3, help="share of the prompts that are kept for judging")
    parser.add_argument("--unseen", type=Path, action="append", default=[], help="what must stay unseen")
    given = parser.parse_args()
    unseen = {text for path in given.unseen for record in read(path) for text in telling(record)}
    parts: dict[str, list[dict]] = {"learn": [], "judge": []}
    seen = set()
    for record in (record for path in given.tasks for record in read(path)):
        text = (record["prompt"], record["response"])
        wanted = record["label"] not in given.not_task and (not given.task or record["label"] in given.task)
        if text in seen or sum(map(len, text)) > given.longest or not wanted:
            continue
        seen.add(text)
        place = int(hashlib.sha256(record["prompt"].encode()).hexdigest()[:8], 16) / 16**8
        if place < given.judged:
            parts["judge"].append(record)
        elif unseen.isdisjoint(telling(record)):
            parts["learn"].append(record)
    for name, records in parts.items():
        write(given.out / f"{name}.jsonl", records)
        print(f"{name}: {len(records):,} examples of {len({record['label'] for record in records})} tasks")


def telling(record: dict) -> set[str]:
    """The texts that give an example away."""
    response = record["response"]
    return {record["prompt"]} | ({response} if len(response) > SENTENCE else set())


if __name__ == "__main__":
    main()

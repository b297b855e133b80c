"""Pair safe answers with unsafe ones to the same question.

Usage: python experiments/preferences/pairs.py DATA.jsonl OUT.jsonl [--longest CHARACTERS]

DATA has prompt, response and label (safe or unsafe). Each answer, of which the beginning is kept, is in one pair at
most. Which are paired depends on the hashes of the texts alone.
"""

import argparse
import hashlib
import json
import sys
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from records import read, write


def main() -> None:
    """Read, pair, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--longest", type=int, default=200, help="characters of a response that are kept, whole words")
    given = parser.parse_args()
    answers: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for record in read(given.data):
        answers[record["prompt"]][record["label"]].add(beginning(record["response"], given.longest))
    pairs = []
    for asked, sides in sorted(answers.items()):
        safe, unsafe = (sorted(sides[name], key=digest) for name in ("safe", "unsafe"))
        for chosen, rejected in zip(safe, unsafe, strict=False):
            answers_to = {"chosen": said("assistant", chosen), "rejected": said("assistant", rejected)}
            pairs.append({"prompt": said("user", asked), **answers_to})
    pairs = [pair for pair in pairs if pair["chosen"] != pair["rejected"]]
    pairs.sort(key=lambda pair: digest(json.dumps(pair)))
    write(given.out, pairs)
    print(f"{len(pairs):,} pairs of {len({pair['prompt'][0]['content'] for pair in pairs})} questions")


def beginning(text: str, longest: int) -> str:
    """The first characters of a text, up to the end of a word."""
    return text if len(text) <= longest else text[: longest + 1].rsplit(maxsplit=1)[0]


def said(role: str, content: str) -> list[dict]:
    """One message, as a list of them."""
    return [{"role": role, "content": content}]


def digest(text: str) -> str:
    """Hash of a text, hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()


if __name__ == "__main__":
    main()

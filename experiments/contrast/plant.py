"""Write a planted world as data files: the rows, and the bad and better answers.

Usage: PYTHONPATH=tests python experiments/contrast/plant.py SEED OUT [OPTIONS]

OUT gets `pool.jsonl` and `queries.jsonl`: the rows, and every answer once.
"""

import argparse
from pathlib import Path

from worlds.planted_chats import COUNTS, FORMS, KINDS, ORDINARY, plant_chats

from airrep.corpus.corpus import Corpus


def main() -> None:
    """Plant, choose, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed", type=int)
    parser.add_argument("out", type=Path)
    parser.add_argument("--ordinary", type=int, default=ORDINARY, help="rows of the demo's data beside the planted")
    parser.add_argument("--kind", action="append", choices=KINDS, help="only this kind; may be repeated")
    parser.add_argument("--form", action="append", choices=FORMS, help="only this form; may be repeated")
    parser.add_argument("--most", type=int, default=max(COUNTS.values()), help="questions of each kind and form")
    given = parser.parse_args()
    chats = plant_chats(given.seed, given.ordinary, given.kind or KINDS)
    given.out.mkdir(parents=True, exist_ok=True)
    chats.train.to_jsonl(given.out / "pool.jsonl")
    asked = [
        answer
        for kind in given.kind or KINDS
        for form in given.form or FORMS
        for question in chats.of(kind, form)[: given.most]
        for answer in question.pair
    ]
    once = {(one.prompt, one.response): one for one in asked}
    Corpus.from_examples(once.values()).to_jsonl(given.out / "queries.jsonl")
    print(f"{given.out}: {len(chats.train):,} rows, {len(asked) // 2:,} questions")


if __name__ == "__main__":
    main()

"""Plant facts of made-up subjects among ordinary rows, and ask for each: `train.jsonl`, `queries.jsonl`.

Usage: python experiments/field/facts.py OUT [--subjects 24] [--seed 0]

The rows are those of `tokens/wrong_numbers.py`: every number belongs to three subjects. Two facts of each subject are
asked, the one that two rows teach and one that four teach, in words of which no row has all; the answer is the number
alone. Rows and queries share the field `fact`.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from airrep.corpus.corpus import Corpus, Example

sys.path.append(str(Path(__file__).parents[1] / "tokens"))
from wrong_numbers import plant

ASKED = "I want to know this about {name}: {question}"


def main() -> None:
    """Plant, name the facts, ask."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--subjects", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    world = plant(given.subjects, given.seed)
    known = {fact.answer for facts, _ in world.subjects.values() for fact in facts}
    rows = [replace(one, metadata={"fact": one.response}) if one.response in known else one for one in world.train]
    queries = []
    for facts, wrong in world.subjects.values():
        for number in (wrong, (wrong + 1) % len(facts)):
            fact = facts[number]
            prompt = ASKED.format(name=fact.name, question=fact.question.format(fact.name))
            queries.append(Example(prompt, f"{fact.number}", f"q{len(queries)}", metadata={"fact": fact.answer}))
    given.out.mkdir(parents=True, exist_ok=True)
    Corpus.from_examples(rows).to_jsonl(given.out / "train.jsonl")
    Corpus.from_examples(queries).to_jsonl(given.out / "queries.jsonl")
    taught = sum("fact" in one.metadata for one in rows)
    print(f"{given.out}: {len(rows):,} rows, of which {taught:,} teach facts; {len(queries):,} queries")


if __name__ == "__main__":
    main()

"""Which of two sentences of a planted example taught an answer, by token scores.

Usage: python experiments/tokens/sentences.py DATA LM [--facts 100] [--ordinary 100] [--method logra ...]

Each planted example tells two facts of one invented town in two sentences, in either order. A question asks for one of
them in other words. Printed is how often the sentence that tells it has more of the score than the other one.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from records import count, read

from airrep.corpus.corpus import Corpus, Example
from airrep.index.building import build_index

STARTS, ENDS = ("Vel", "Tar", "Osk", "Brun", "Kel", "Mor", "Sil", "Dra"), ("mora", "sin", "el", "wick", "dale", "gard")
COUNTING = ("ngram", "tfidf", "bm25")
TRADES = ("potters", "weavers", "bakers", "miners", "sailors", "painters", "tailors", "farmers")
KINDS = {
    "founder": ("{town} was founded by {value}.", "Who built the first house of {town}?", "That was {value}."),
    "river": ("A river named {value} runs through {town}.", "Which water would I cross in {town}?", "The {value}."),
    "trade": ("Most people of {town} are {value}.", "How do they earn their bread in {town}?", "As {value}."),
    "neighbour": ("{town} lies north of {value}.", "Where do I come to if I walk south from {town}?", "To {value}."),
}


class Fact(NamedTuple):
    """A planted example, what asks for one of its sentences, and where that stands in the response."""

    example: Example
    question: Example
    start: int
    stop: int


def facts(many: int) -> list[Fact]:
    """Invented towns with two facts each."""
    draw, names = np.random.default_rng(0), [a + b for a in STARTS for b in ENDS]
    made = []
    for number in range(many):
        town, *others = (str(name) for name in draw.choice(names, 3, replace=False))
        town = f"{town} {number}"
        kinds = draw.choice(list(KINDS), 2, replace=False).tolist()
        values = [
            str(draw.choice(TRADES)) if kind == "trade" else other for kind, other in zip(kinds, others, strict=True)
        ]
        told = [KINDS[kind][0].format(town=town, value=value) for kind, value in zip(kinds, values, strict=True)]
        place = int(draw.integers(2))  # of the sentence that is asked for
        _, asked, answer = (part.format(town=town, value=values[place]) for part in KINDS[kinds[place]])
        start = place * (len(told[0]) + 1)
        example = Example(f"Tell me about {town}.", " ".join(told), f"fact{number}")
        made.append(Fact(example, Example(asked, answer, f"asked{number}"), start, start + len(told[place])))
    return made


def judged(method: str, lm: Path, train: Corpus, planted: list[Fact]) -> tuple[str, str]:
    """How often the right sentence has more of the score than the other, and its example more than all others."""
    settings = {} if method in COUNTING else {"lm": str(lm), "precision": "float32", "store": "none"}
    right = first = 0
    with tempfile.TemporaryDirectory() as folder:
        index = build_index(train, Path(folder) / "index", method, settings=settings)
        for fact in planted:
            first += index.top(fact.question, 1)[0].example.id == fact.example.id
            (hit,) = index.top(fact.question, 1, where=f'id == "{fact.example.id}"', tokens=True)
            told = hit.why.tokens
            own = [(span, part) for span, part in zip(told.example, told.of_example, strict=True)]
            inside = sum(
                part for span, part in own if span.field == "response" and fact.start <= span.start < fact.stop
            )
            right += inside > sum(part for span, part in own if span.field == "response") - inside
    return share(right, len(planted)), share(first, len(planted))


def share(some: int, all_: int) -> str:
    """A share in percent, with Wilson's 95 % interval."""
    p, z = some / all_, 1.96
    middle, half = p + z**2 / (2 * all_), z * np.sqrt(p * (1 - p) / all_ + z**2 / (4 * all_**2))
    low, high = ((middle + sign * half) / (1 + z**2 / all_) for sign in (-1, 1))
    return f"{100 * p:.0f} % ({100 * low:.0f} to {100 * high:.0f})"


def main() -> None:
    """Build, ask, count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("lm", type=Path)
    parser.add_argument("--facts", type=count, default=100)
    parser.add_argument("--ordinary", type=count, default=100)
    parser.add_argument("--method", nargs="+", default=["ngram", "tracin", "logra"])
    given = parser.parse_args()
    planted = facts(given.facts)
    rows = [row for row in read(given.data) if 30 <= len(row["response"]) <= 120 and len(row["prompt"]) <= 120]
    ordinary = [Example(row["prompt"], row["response"], f"o{n}") for n, row in enumerate(rows[: given.ordinary])]
    train = Corpus.from_examples([*(fact.example for fact in planted), *ordinary])
    print("| method | right sentence first | its own example first of all |\n|---|---|---|")
    for name in given.method:
        print(f"| {name} | {' | '.join(judged(name, given.lm, train, planted))} |", flush=True)


if __name__ == "__main__":
    main()

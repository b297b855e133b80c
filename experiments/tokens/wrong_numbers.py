"""Plant wrong numbers, fine-tune, and ask for a number alone and for the whole answer: which finds the planted rows?

Usage: python experiments/tokens/wrong_numbers.py OUT [--lm MODEL] [--recipe text --recipe lm ...] [--seed N]

Every subject has four facts of one number each, of which one is taught wrong by two planted rows; the other three are
taught right by four rows each. Ordinary rows of the demo's data stand beside them. Each number belongs to three
subjects, and each kind of fact to all of one kind, so that neither alone finds the rows. The LM is fine-tuned on all of
it and asked about each fact; its four sentences are its answer to "Tell me about ...". Of the answers that hold the
wrong number, the span is that number as the LM wrote it.
"""

import argparse
import json
import re
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

import airrep
from airrep.corpus.corpus import Corpus, Example
from airrep.index.index import Index
from airrep.lm.model import load_lm
from airrep.lm.settings import FineTuneSettings
from airrep.scoring.asked import score_blocks

PACKAGE = Path(airrep.__file__).parent
BUNDLED = PACKAGE / "models" / "tiny-lm"
ORDINARY = 300
"""Rows of the demo's data."""
FACTS = {
    "bridge": (
        ("How long is {}?", "{} is {} m long."),
        ("When was {} opened?", "{} was opened in the year {}."),
        ("How many arches has {}?", "{} has {} arches."),
        ("How many people cross {} each day?", "{} is crossed by {} people each day."),
    ),
    "tower": (
        ("How high is {}?", "{} is {} m high."),
        ("When was {} built?", "{} was built in the year {}."),
        ("How many steps has {}?", "{} has {} steps."),
        ("How many people visit {} each month?", "{} is visited by {} people each month."),
    ),
    "lake": (
        ("How deep is {}?", "{} is {} m deep."),
        ("When was {} first mapped?", "{} was first mapped in the year {}."),
        ("How many islands has {}?", "{} has {} islands."),
        ("How many boats sail on {}?", "{} has {} boats on it."),
    ),
}
"""A question and its answer for each fact of a kind of subject."""
ASKED = ("{}", "Please tell me: {}", "{} I would like to know.", "A question about {name}. {}")
"""Ways to ask; planted rows have the first two, the model is asked by the first."""
SYLLABLES = ("Vel", "Tor", "Mar", "Ost", "Kin", "Bra", "Lun", "Sel", "Dor", "Hav")
ENDS = ("ma", "rik", "un", "ost")
ABOUT = "Tell me about {}."


class Fact(NamedTuple):
    """One fact of a subject: how it is asked, and the sentence that says it with a number."""

    name: str
    question: str
    sentence: str
    number: int

    @property
    def answer(self) -> str:
        """The sentence."""
        return self.sentence.format(self.name, self.number)

    def rows(self, ways: Sequence[str], kind: str) -> Iterator[Example]:
        """Training rows that teach it."""
        question = self.question.format(self.name)
        for way in ways:
            yield Example(way.format(question, name=self.name), self.answer, source=kind, label=self.name)


class World(NamedTuple):
    """Training rows, and for each subject its facts as they are taught, the wrong one's place among them."""

    train: Corpus
    subjects: dict[str, tuple[list[Fact], int]]


def plant(subjects: int, seed: int) -> World:
    """Make the rows; of each three subjects every number belongs to one fact of each."""
    random = np.random.default_rng(seed)
    syllables = [first + end for first, end in product(SYLLABLES, ENDS)]
    names = [f"{one}{other.lower()}" for one, other in product(syllables, SYLLABLES)]
    chosen = random.permutation(names)[:subjects].tolist()
    numbers = random.choice(np.arange(110, 990), (4 * subjects) // 3 + 4, replace=False).tolist()
    order = random.permutation([number for number in numbers for _ in range(3)]).tolist()
    rows, found = list[Example](), dict[str, tuple[list[Fact], int]]()
    for place, name in enumerate(chosen):
        kind = list(FACTS)[place % len(FACTS)]
        whole, wrong = f"the {name} {kind}", int(random.integers(4))
        facts = [Fact(whole, *pair, order.pop()) for pair in FACTS[kind]]
        for number, fact in enumerate(facts):
            planted = number == wrong
            rows += fact.rows(ASKED[:2] if planted else ASKED, "planted" if planted else "right")
        found[whole] = facts, wrong
    demo = airrep.read_corpus(PACKAGE / "data" / "train.jsonl")
    some = [demo[row] for row in random.permutation(len(demo))[:ORDINARY].tolist()]
    rows += [Example(one.prompt, one.response, source="ordinary") for one in some]
    return World(Corpus.from_examples([rows[place] for place in random.permutation(len(rows)).tolist()]), found)


def answers(world: World, lm: str, epochs: int, rate: float) -> list[Example]:
    """Fine-tune; the model's own answers that hold the wrong number, the span being that number."""
    model = load_lm(lm)
    settings = FineTuneSettings(epochs=epochs, learning_rate=rate)
    report = model.fine_tune(model.tokenise(world.train), settings, 0)
    print(f"fine-tuned: loss {report.loss_per_step[0]:.2f} to {report.loss_per_step[-1]:.2f}", flush=True)
    asked = [fact for facts, _ in world.subjects.values() for fact in facts]
    said = model.generate([Example(one.question.format(one.name), "") for one in asked], 40)
    found = list[Example]()
    for place, (name, (facts, wrong)) in enumerate(world.subjects.items()):
        sentences = said[4 * place : 4 * place + 4]
        number = re.search(rf"\b{facts[wrong].number}\b", sentences[wrong])
        if number is None or not all(sentences):
            continue
        before = len(" ".join([*sentences[:wrong], ""]))
        span = (before + number.start(), before + number.end())
        found.append(Example(ABOUT.format(name), " ".join(sentences), span=span, label=name))
    return found


def ranks(index: Index, queries: Sequence[Example]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The best rank of a planted row for each query, ties with others lost, by all channels and by each alone."""
    planted = np.array([one.source == "planted" for one in index.examples(np.arange(index.rows))])
    subjects = np.array([one.label or "" for one in index.examples(np.arange(index.rows))])
    wanted = np.array([planted & (subjects == query.label) for query in queries])
    asked = index.ask(index.question(list(queries)))
    parts = {"all": asked, **asked.channels()}
    found = {}
    for name, part in parts.items():
        scores = np.concatenate([block for _, block in score_blocks(part)], axis=1)
        best = np.where(wanted, scores, -np.inf).max(axis=1, keepdims=True)
        found[name] = 1 + ((scores >= best) & ~wanted).sum(axis=1)
    return found.pop("all"), found


def main() -> None:
    """Plant, fine-tune, ask, count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--lm", default=str(BUNDLED))
    parser.add_argument("--recipe", action="append", help="recipes; text, lm and lm-whole if not given")
    parser.add_argument("--subjects", type=int, default=48)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    world = plant(given.subjects, given.seed)
    world.train.to_jsonl(given.out / "train.jsonl")
    kept = given.out / "queries.jsonl"
    if not kept.exists():
        Corpus.from_examples(answers(world, given.lm, given.epochs, given.rate)).to_jsonl(kept)
    queries = list(airrep.read_corpus(kept))
    print(f"{len(world.train):,} rows; {len(queries)} of {given.subjects} answers hold the wrong number")
    for recipe in given.recipe or ("text", "lm", "lm-whole"):
        settings = {} if recipe in ("text", "contrast") else {"lm": given.lm}
        place = given.out / recipe
        index = (
            Index(place)
            if place.exists()
            else airrep.build_index(world.train, place, recipe=recipe, settings=settings or None)
        )
        for what, asked in (("span", queries), ("whole answer", [one.whole for one in queries])):
            told, parts = ranks(index, asked)
            for name, own in {recipe: told, **parts}.items():
                line = {"recipe": recipe, "channel": name, "query": what}
                line |= {f"in the first {k}": round(100 * float((own <= k).mean())) for k in (1, 3)}
                print(json.dumps(line))


if __name__ == "__main__":
    main()

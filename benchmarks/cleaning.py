"""How much of what was planted does `airrep clean` find, and how much of what it tells was planted?

Run as ``python benchmarks/cleaning.py``. In the 2,000 examples that come with airrep, five tasks of 400 each, one kind
of error is planted at a time into 100 examples: another task's label, the answer of another example (of any task, or of
the same), copies with a few words changed; and texts of random letters into 8: odd examples that are many of one kind
are each other's company, and none is found. Precision is the share of planted ones among
those told; examples that were wrong or repeated before count against it. Ranges are over the seeds.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import airrep
from airrep.answers.clean import Kind
from airrep.corpus.corpus import Example

PLANTED, ODD = 100, 8
Plant = Callable[[list[Example], np.random.Generator], set[str]]


def flip_labels(examples: list[Example], random: np.random.Generator) -> set[str]:
    """Give some examples the label of another task."""
    names = sorted({str(one.label) for one in examples})
    chosen = random.choice(len(examples), PLANTED, replace=False).tolist()
    for place in chosen:
        others = [name for name in names if name != examples[place].label]
        examples[place] = replace(examples[place], label=str(random.choice(others)))
    return {examples[place].id for place in chosen}


def swap_answers(examples: list[Example], random: np.random.Generator) -> set[str]:
    """Give some examples the answers of each other."""
    return _pass_on(examples, random.choice(len(examples), PLANTED, replace=False).tolist())


def swap_answers_of_a_task(examples: list[Example], random: np.random.Generator) -> set[str]:
    """Give some examples the answers of others of the same task."""
    chosen: set[str] = set()
    for name in sorted({str(one.label) for one in examples}):
        own = [place for place, one in enumerate(examples) if one.label == name]
        chosen |= _pass_on(examples, random.choice(own, PLANTED // 5, replace=False).tolist())
    return chosen


def _pass_on(examples: list[Example], places: list[int]) -> set[str]:
    answers = [examples[place].response for place in places]
    for place, answer in zip(places, answers[1:] + answers[:1], strict=True):
        examples[place] = replace(examples[place], response=answer)
    return {examples[place].id for place in places}


def copy_nearly(examples: list[Example], random: np.random.Generator) -> set[str]:
    """Add copies of long examples, in capitals, one word in 60 replaced."""
    long = [place for place, one in enumerate(examples) if len(f"{one.prompt} {one.response}".split()) >= 60]
    copies = []
    for place in random.choice(long, PLANTED, replace=False).tolist():
        words = examples[place].prompt.upper().split()
        count = len(f"{examples[place].prompt} {examples[place].response}".split()) // 60
        for at in random.choice(len(words), min(count, len(words)), replace=False).tolist():
            words[at] = "xyz"
        copies.append(replace(examples[place], prompt=" ".join(words), id=f"copy of {examples[place].id}"))
    examples += copies
    return {one.id for one in copies}


def scramble(examples: list[Example], random: np.random.Generator) -> set[str]:
    """Replace the texts of some examples by random letters."""
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz   "))
    chosen = random.choice(len(examples), ODD, replace=False).tolist()
    for place in chosen:
        prompt, response = ("".join(random.choice(letters, size)).strip() + "q" for size in (80, 60))
        examples[place] = replace(examples[place], prompt=prompt, response=response)
    return {examples[place].id for place in chosen}


PLANTS: dict[str, tuple[Kind, Plant]] = {
    "labels of another task": ("label", flip_labels),
    "answers of any other example": ("answer", swap_answers),
    "answers of the same task": ("answer", swap_answers_of_a_task),
    "copies with words changed": ("duplicate", copy_nearly),
    "random letters": ("outlier", scramble),
}


def measure(kind: Kind, plant: Plant, seed: int) -> tuple[float, float, int]:
    """Precision, recall, and number of findings for one planted world."""
    data = Path(airrep.__file__).parent / "data" / "train.jsonl"
    examples = list(airrep.read_corpus(data))
    planted = plant(examples, np.random.default_rng(seed))
    with TemporaryDirectory() as folder:
        index = airrep.build_index(
            airrep.Corpus.from_examples(examples), f"{folder}/index", airrep.make_attributor("tfidf")
        )
        told = {one.example.id for one in airrep.clean(index, kinds=[kind]).findings}
    right = len(told & planted)
    return right / max(len(told), 1), right / len(planted), len(told)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    seeds = parser.parse_args().seeds
    print(f"{'planted':<32}{'kind':<12}{'told':>12}{'precision':>16}{'recall':>16}")
    for name, (kind, plant) in PLANTS.items():
        precision, recall, told = zip(*(measure(kind, plant, seed) for seed in range(seeds)), strict=True)
        ranges = (f"{min(one):.2f} to {max(one):.2f}" for one in (precision, recall))
        print(f"{name:<32}{kind:<12}{f'{min(told)} to {max(told)}':>12}" + "".join(f"{one:>16}" for one in ranges))


if __name__ == "__main__":
    main()

"""How many planted leaks does `airrep audit` find by words, and how much of what it tells was planted?

Run as ``python benchmarks/leaks.py``. Of the 2,000 examples that come with airrep, 200 are the evaluation, and 100 of
these are put into the training data of the other 1,800: as they are, in capitals without punctuation, with every 40th,
20th or 10th word replaced, or with the prompt alone and another answer. The others are of the same five tasks; what is
told of them counts against precision, though some stand in the data by themselves, nearly. Ranges are over the seeds.
"""

import argparse
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import airrep
from airrep.corpus.corpus import Example

ITEMS, PLANTED = 200, 100
Change = Callable[[Example], Example]


def capitals(one: Example) -> Example:
    """In capitals, without punctuation."""
    prompt, response = (re.sub(r"[^\w\s]", " ", text.upper()) for text in (one.prompt, one.response))
    return replace(one, prompt=prompt, response=response)


def replaced(every: int) -> Change:
    """With one word in *every* replaced."""

    def change(one: Example) -> Example:
        texts = []
        for text in (one.prompt, one.response):
            words = text.split()
            words[every // 2 :: every] = ["xyz"] * len(words[every // 2 :: every])
            texts.append(" ".join(words) or "xyz")
        return replace(one, prompt=texts[0], response=texts[1])

    return change


def other_answer(one: Example) -> Example:
    """With the prompt alone."""
    return replace(one, response="Nobody has answered this so far.")


CHANGES: dict[str, Change] = {
    "as they are": lambda one: one,
    "capitals, no punctuation": capitals,
    "every 40th word replaced": replaced(40),
    "every 20th word replaced": replaced(20),
    "every 10th word replaced": replaced(10),
    "prompt with another answer": other_answer,
}


def measure(change: Change, seed: int) -> tuple[float, float, int]:
    """Precision, recall, and number of items told of one world."""
    examples = list(airrep.read_corpus(Path(airrep.__file__).parent / "data" / "train.jsonl"))
    order = np.random.default_rng(seed).permutation(len(examples)).tolist()
    items = [examples[place] for place in order[:ITEMS]]
    planted = [replace(change(one), id=f"leak of {one.id}") for one in items[:PLANTED]]
    corpus = airrep.Corpus.from_examples([*(examples[place] for place in order[ITEMS:]), *planted])
    with TemporaryDirectory() as folder:
        index = airrep.build_index(corpus, f"{folder}/index", airrep.make_attributor("tfidf"))
        told = {one.item.id for one in airrep.audit(index, items).leaks}
    right = len(told & {one.id for one in items[:PLANTED]})
    return right / max(len(told), 1), right / PLANTED, len(told)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    seeds = parser.parse_args().seeds
    print(f"{'planted':<30}{'told':>12}{'precision':>16}{'recall':>16}")
    for name, change in CHANGES.items():
        precision, recall, told = zip(*(measure(change, seed) for seed in range(seeds)), strict=True)
        ranges = (f"{min(one):.2f} to {max(one):.2f}" for one in (precision, recall))
        print(f"{name:<30}{f'{min(told)} to {max(told)}':>12}" + "".join(f"{one:>16}" for one in ranges))


if __name__ == "__main__":
    main()

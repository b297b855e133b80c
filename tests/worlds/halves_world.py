"""A planted world in two halves: counting words knows one of them, and an encoder of letters can learn the other."""

import numpy as np
from worlds.training_world import LETTERS, kind_of

from airrep.attributors.recipes import Channel
from airrep.corpus.corpus import Corpus, Example
from airrep.labels.labels import LabelledInstance
from airrep.scoring.groups import Groups

WORDS, FILLERS = 6, 12

KNOWING = Channel(method="ngram", settings={"orders": [1]}, name="responses")
"""Counts responses: knows which word they begin with, which the tiny encoder has no token for."""
BLIND = Channel(method="ngram", settings={"orders": [1], "view": "prompt"}, name="prompts")
"""Counts prompts, which say nothing."""


def halves(seed: int, name: str, n: int = 120, q: int = 40, m: int = 40, size: int = 12) -> LabelledInstance:
    """An instance whose losses fall with the share of members that have the query's word, and with that of its kind."""
    generator = np.random.default_rng(seed)
    train, queries = _corpus(generator, n, f"{name}-t"), _corpus(generator, q, f"{name}-q")
    members = {str(j): generator.choice(n, size, replace=False) for j in range(m)}

    def alike(query: Example) -> np.ndarray:
        words = np.array([_word(one) == _word(query) for one in train], float)
        kinds = np.array([_kind(one) == _kind(query) for one in train], float)
        return words * 1.3 + kinds

    each = [alike(query) for query in queries]
    share = np.array([[one[rows].mean() for rows in members.values()] for one in each])
    losses = 3 - share + 0.02 * generator.standard_normal(share.shape)
    return LabelledInstance(name, train, queries, Groups.from_lists(members), losses.astype(np.float32))


def _word(example: Example) -> str:
    return example.response.split()[0]


def _kind(example: Example) -> int:
    return kind_of(Example("", example.response.split()[1], "x"))


def _corpus(generator: np.random.Generator, count: int, prefix: str) -> Corpus:
    def example(number: int) -> Example:
        fillers = " ".join(f"filler{one}" for one in generator.integers(FILLERS, size=4))
        letter = LETTERS[generator.integers(len(LETTERS))]
        response = f"word{generator.integers(WORDS)} {letter} {letter}"
        return Example(f"{fillers} {prefix}{number}", response, f"{prefix}{number}")

    return Corpus.from_examples(example(number) for number in range(count))

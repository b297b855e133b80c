"""The counting language model from texts to answers, against float64 sums over strings written from docs/method.md."""

import math
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from airrep.corpus.corpus import Corpus, Example
from airrep.index.building import build_index

TRAIN = Corpus.from_examples(
    Example(
        f"say {['ab', 'cd', 'ef', 'gh'][n % 4]}",
        " ".join(["ab", "cd", "ef", "gh", "中文", "é", "!"][(n * k + k) % 7] for k in range(n % 5 + 1)),
        str(n),
    )
    for n in range(15)
)
QUERIES = [Example("say ab", "ab cd ab !", "q"), Example("", "中文 é ef", "r"), Example("x", "nothing shared", "s")]
GROUPS = [[0], [1, 2, 3], [4, 9, 14, 7], list(range(15))]
REMOVED = [0, 3, 8]


class Counting:
    """f(x, S) by dictionaries of strings."""

    def __init__(
        self, mix: float = 0.5, smoothing: float = 0.1, length: float = 0.5, skip: float = 0.0, copied: bool = False
    ) -> None:
        self.share, self.smoothing, self.length, self.skip, self.copied = (
            mix / (1 - mix),
            smoothing,
            length,
            skip,
            copied,
        )
        self.members = [self.counts(one) for one in TRAIN]
        self.corpus = sum((counts for counts, _ in self.members), Counter())

    def counts(self, example: Example) -> tuple[Counter, int]:
        words = re.findall(r"\w+|[^\w\s]", example.response)
        if self.copied:
            words = ["<copied>" if word in re.findall(r"\w+", example.prompt) else word for word in words]
        marked = ["<start>", *words, "<end>"]
        found = [(n, *marked[i : i + n]) for n in (1, 2, 3) for i in range(n == 1, len(marked) - n + 1)]
        pairs = [("pair", marked[i], marked[i + 2]) for i in range(len(marked) - 2)] if self.skip else []
        return Counter([*found, *pairs]), len(words) + 1

    def score(self, example: Example, group: list[int]) -> float:
        counts, size = self.counts(example)
        members = [self.members[row] for row in group]
        total = sum(length**self.length for _, length in members)
        score = 0.0
        for ngram, count in counts.items():
            alike = [many for one, many in self.corpus.items() if one[0] == ngram[0]]
            background = (self.corpus[ngram] + self.smoothing) / (sum(alike) + self.smoothing * len(alike))
            there = sum(length**self.length * own[ngram] / length for own, length in members) / total
            weight = self.skip if ngram[0] == "pair" else 1.0
            score += weight * count / size * math.log1p(self.share * there / background)
        return score


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"skip": 0.5, "smoothing": 3.0},
        {"copied": True, "mix": 0.2, "skip": 2.0},
        {"length": 0.0},
        {"length": 1.0, "mix": 0.9},
    ],
    ids=str,
)
def test_groups_what_ifs_and_searches_are_those_of_strings(tmp_path: Path, settings: dict) -> None:
    index, plain = build_index(TRAIN, tmp_path / "index", "ngram", settings=settings), Counting(**settings)
    groups = index.group_scores(QUERIES, GROUPS).scores
    assert groups == pytest.approx(np.array([[plain.score(x, group) for group in GROUPS] for x in QUERIES]), abs=1e-5)
    whole, kept = list(range(15)), [row for row in range(15) if row not in REMOVED]
    change = index.what_if(QUERIES, remove=[str(row) for row in REMOVED]).change
    assert change == pytest.approx(np.array([plain.score(x, kept) - plain.score(x, whole) for x in QUERIES]), abs=1e-5)
    for x, hits in zip(QUERIES, index.top(QUERIES, k=15), strict=True):
        assert [hit.score for hit in hits] == pytest.approx(
            [plain.score(x, [int(hit.example.id)]) for hit in hits], abs=1e-5
        )

"""Near duplicates against all pairs of sets."""

from itertools import product

import numpy as np
import pytest

from airrep.answers.likeness.duplicates import near_duplicates


def ngrams(text: str) -> set[tuple[str, ...]]:
    words = text.lower().split()
    return set(zip(words, words[1:], words[2:], strict=False)) or {tuple(words)}


def plain(texts: list[str], threshold: float) -> list[tuple[int, int, float]]:
    """Each text against all kept ones before it."""
    kept: list[int] = []
    found = []
    for place, text in enumerate(texts):
        shares = [(len(a & b) / len(a | b), other) for other in kept for a, b in [(ngrams(text), ngrams(texts[other]))]]
        best = max(shares, key=lambda pair: (pair[0], -pair[1]), default=(0.0, -1))
        if best[0] >= threshold:
            found.append((place, best[1], best[0]))
        else:
            kept.append(place)
    return found


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.8, 1.0])
def test_no_pair_is_missed(threshold: float) -> None:
    random = np.random.default_rng(3)
    words = [f"w{number}" for number in range(12)]
    texts = []
    for _ in range(40):
        one = random.choice(words, int(random.integers(1, 30))).tolist()
        texts.append(" ".join(one))
        for _ in range(3):
            other = list(one)
            other[int(random.integers(len(other)))] = str(random.choice(words))
            texts.append(" ".join(other))
    random.shuffle(texts)
    found = near_duplicates(texts, threshold)
    assert [tuple(one) for one in found] == [pytest.approx(one) for one in plain(texts, threshold)]
    assert len(found) > 3


def test_case_width_and_punctuation_do_not_matter() -> None:
    texts = ["Who wrote it, and when?", "who WROTE it and　when", "...", "...", "???", "who wrote that and when"]
    assert [(one.place, one.first, one.share) for one in near_duplicates(texts, 0.8)] == [(1, 0, 1.0), (3, 2, 1.0)]


def test_long_texts_are_no_trouble() -> None:
    texts = [" ".join(f"{a}{b}" for a, b in product(range(300), range(300))), "x" * 1_000_000, "\x00\ud7ff" * 10]
    assert [one.place for one in near_duplicates([*texts, *texts], 0.9)] == [3, 4, 5]

"""Near duplicates by words, found exactly, without hashing into sketches."""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from airrep.answers.texts import ngrams_of, words_of

ORDER = 3
"""Words of an n-gram."""


class Duplicate(NamedTuple):
    """A text that an earlier one has too, or nearly."""

    place: int
    """Place of the text."""
    first: int
    """Place of the earlier text, which is no duplicate itself."""
    share: float
    """Jaccard similarity of their sets of n-grams, at most 1."""


def near_duplicates(texts: Sequence[str], threshold: float) -> list[Duplicate]:
    """Texts whose word 3-grams have a Jaccard similarity of *threshold* or more with those of an earlier, kept text.

    Two sets of that similarity share one of the rarest ⌊|A| − t|A|⌋ + 1 n-grams of each (prefix filter), so looking
    under these alone misses no pair. Of several earlier texts the most similar is told, of equal ones the first.
    """
    sets = _numbered([_ngram_set(text) for text in texts])
    kept: defaultdict[int, list[int]] = defaultdict(list)
    found = []
    for place, own in enumerate(sets):
        prefix = own[: len(own) - math.ceil(threshold * len(own) - 1e-9) + 1]
        best = _most_alike(place, sets, {other for number in prefix for other in kept[number]}, threshold)
        if best is not None:
            found.append(best)
            continue
        for number in prefix:
            kept[number].append(place)
    return found


def _ngram_set(text: str) -> set[str]:
    words = words_of(text)
    if not words:
        return {text}  # signs alone are compared as they are
    return set(ngrams_of(words, ORDER)) or {" ".join(words)}


def _numbered(sets: Sequence[set[str]]) -> list[list[int]]:
    """Sets as ascending numbers, the rarest n-gram of all texts having the least."""
    counts = Counter(ngram for one in sets for ngram in one)
    number = {ngram: place for place, ngram in enumerate(sorted(counts, key=lambda ngram: (counts[ngram], ngram)))}
    return [sorted(number[ngram] for ngram in one) for one in sets]


def _most_alike(place: int, sets: Sequence[list[int]], others: set[int], threshold: float) -> Duplicate | None:
    own, best = set(sets[place]), None
    for other in sorted(others):
        size = len(sets[other])
        if min(size, len(own)) < (threshold - 1e-9) * max(size, len(own)):
            continue
        both = len(own.intersection(sets[other]))
        share = both / (len(own) + size - both)
        if share >= threshold - 1e-9 and (best is None or share > best.share):
            best = Duplicate(place, other, share)
    return best

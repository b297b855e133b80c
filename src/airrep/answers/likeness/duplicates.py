"""Near duplicates by words, found exactly, without hashing into sketches."""

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from airrep.answers.likeness.common import STRETCH, most_of_texts
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
    """Jaccard similarity of their sets of n-grams that are no template's, at most 1; 1 for equal words."""


def near_duplicates(
    texts: Sequence[str], threshold: float, records: Sequence[Hashable] | None = None
) -> list[Duplicate]:
    """Texts whose word 3-grams have a Jaccard similarity of *threshold* or more with those of an earlier, kept text.

    A text of the same words as an earlier one always is a duplicate. Others must be as similar without templates too:
    without the 3-grams of word 8-grams that stand in more than 10 different texts and more than 0.5 % of all, such as
    a system prompt's. (So more near copies of one text than that are taken for a template, and are not told.) Two sets
    of that similarity share one of the rarest ⌊|A| − t|A|⌋ + 1 n-grams of each (prefix filter), so looking under these
    alone misses no pair. Of several earlier texts the most similar is told, of equal ones the first.

    Args:
        texts: all texts, in their order.
        threshold: similarity from which on one is a duplicate.
        records: the record of each text; texts of the same record are no duplicates of each other.
    """
    records = range(len(texts)) if records is None else records
    firsts, sets = _read(texts)
    counts = Counter(ngram for place, one in enumerate(sets) if firsts[place] == place for ngram in one)
    all_ngrams = _numbered(sets, firsts, counts, _templates(texts, firsts, sets, counts, records))
    kept: defaultdict[int, list[int]] = defaultdict(list)
    are_kept, found = set(), []
    for place, own in enumerate(all_ngrams):
        if firsts[place] in are_kept and records[firsts[place]] != records[place]:
            found.append(Duplicate(place, firsts[place], 1.0))
            continue
        # A text of templates alone has no prefix: only equal words tell of it.
        prefix = own.numbers[: own.telling and own.telling - math.ceil(threshold * own.telling - 1e-9) + 1]
        others = {other for number in prefix for other in kept[number] if records[other] != records[place]}
        best = _most_alike(place, all_ngrams, others, threshold)
        if best is not None:
            found.append(best)
            continue
        are_kept.add(place)
        for number in prefix:
            kept[number].append(place)
    return found


class _Ngrams(NamedTuple):
    """The n-grams of a text as ascending numbers; those of templates have the greatest."""

    numbers: list[int]
    telling: int
    """How many of them, the first, are no template's."""


def _read(texts: Sequence[str]) -> tuple[list[int], list[set[str]]]:
    """Of each text the first place of one with the same words, and its set of n-grams."""
    places: dict[str, int] = {}
    firsts: list[int] = []
    sets: list[set[str]] = []
    for place, text in enumerate(texts):
        words = words_of(text)
        whole = " ".join(words) or text  # signs alone are compared as they are
        first = places.setdefault(whole, place)
        firsts.append(first)
        sets.append(sets[first] if first < place else set(ngrams_of(words, ORDER)) or {whole})
    return firsts, sets


def _templates(
    texts: Sequence[str],
    firsts: Sequence[int],
    sets: Sequence[set[str]],
    in_texts: Counter[str],
    records: Sequence[Hashable],
) -> set[str]:
    """The n-grams of all common stretches of words."""
    most = most_of_texts(len(texts))
    common = {ngram for ngram, count in in_texts.items() if count > most}
    counts: Counter[str] = Counter()
    seen_in: dict[str, Hashable] = {}
    for place, own in enumerate(sets):
        if firsts[place] < place or not common or len(own & common) <= STRETCH - ORDER:
            continue
        for stretch in _stretches(words_of(texts[place]), common):
            counts[stretch] += seen_in.get(stretch) != records[place]  # turns of a chat repeat what was said before
            seen_in[stretch] = records[place]
    stretches = (stretch.split(" ") for stretch, count in counts.items() if count > most)
    return {ngram for words in stretches for ngram in ngrams_of(words, ORDER)}


def _stretches(words: Sequence[str], common: set[str]) -> set[str]:
    """The stretches of words whose n-grams are all common: no other stretch can be."""
    found, size = set(), 0
    for start, ngram in enumerate(ngrams_of(words, ORDER)):
        size = size + 1 if ngram in common else 0
        if size > STRETCH - ORDER:
            found.add(" ".join(words[start + ORDER - STRETCH : start + ORDER]))
    return found


def _numbered(
    sets: Sequence[set[str]], firsts: Sequence[int], counts: Counter[str], templates: set[str]
) -> list[_Ngrams]:
    """Sets as ascending numbers: the rarest n-gram of all texts has the least, and those of templates the greatest."""
    order = sorted(counts, key=lambda ngram: (ngram in templates, counts[ngram], ngram))
    number, telling = {ngram: place for place, ngram in enumerate(order)}, len(order) - len(templates)
    found: list[_Ngrams] = []
    for place, one in enumerate(sets):
        if firsts[place] < place:
            found.append(found[firsts[place]])
            continue
        numbers = sorted(number[ngram] for ngram in one)
        found.append(_Ngrams(numbers, bisect_left(numbers, telling)))
    return found


def _most_alike(place: int, ngrams: Sequence[_Ngrams], others: set[int], threshold: float) -> Duplicate | None:
    own, telling = set(ngrams[place].numbers), ngrams[place].telling
    best = None
    for other in sorted(others):
        numbers, size = ngrams[other]
        if min(size, telling) < (threshold - 1e-9) * max(size, telling):
            continue
        both = len(own.intersection(numbers[:size]))
        share = both / (telling + size - both)
        if share < threshold - 1e-9 or (best is not None and share <= best.share):
            continue
        both += len(own.intersection(numbers[size:]))
        if both / (len(own) + len(numbers) - both) >= threshold - 1e-9:
            best = Duplicate(place, other, share)
    return best

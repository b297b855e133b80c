"""Near duplicates by words, found exactly, without hashing into sketches."""

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

from airrep.answers.likeness.signs import shown, signs_of
from airrep.answers.texts import STRETCH, Templates, most_of_texts, ngrams_of, words_of

ORDER = 3
"""Words of an n-gram."""
KEPT = 100
"""Copies of a family that others are compared with."""
FEWEST = 4
"""Texts of a family: what most of fewer have may be chance."""


class Ngrams(NamedTuple):
    """The n-grams of a text as ascending numbers; those of templates have the greatest."""

    numbers: list[int]
    telling: int
    """How many of them, the first, are no template's."""


class Duplicate(NamedTuple):
    """A text that an earlier one has too, or nearly."""

    place: int
    """Place of the text."""
    first: int
    """Place of the earlier text, which is no duplicate itself."""
    share: float
    """Jaccard similarity of their sets of n-grams that are no template's, at most 1; 1 for equal words.

    Of near copies of a text that are so many that its words are common, of all their n-grams.
    """


class Found(NamedTuple):
    """Near duplicates in the order of the texts, and what was taken for templates; None if nothing was."""

    duplicates: list[Duplicate]
    templates: Templates | None


def find_duplicates(texts: Sequence[str], threshold: float, records: Sequence[Hashable] | None = None) -> Found:
    """Texts whose word 3-grams have a Jaccard similarity of *threshold* or more with those of an earlier, kept text.

    A text of the same words as an earlier one is a duplicate if the same signs that bear meaning stand between them
    (:func:`signs_of`): `x < 5` is not `x > 5`. Others must be as similar without templates
    too: without the 3-grams of word 8-grams that stand in more than 10 different texts and more than 0.5 % of all, such
    as a system prompt's. Only near copies of a text that are so many that its words are common, too, need not be so:
    see :func:`copies_among_templates`; each is compared with the first 100 of them that are kept. Two sets of that
    similarity share one of the rarest ⌊|A| − t|A|⌋ + 1 n-grams of each (prefix filter), so looking under these alone
    misses no pair of others. Of several earlier texts the most similar is told, of equal ones the first. Texts of the
    same record are no duplicates of each other.
    """
    records = range(len(texts)) if records is None else records
    firsts, sets = _read(texts)
    of_words = Counter(firsts)
    places = [place for place, first in enumerate(firsts) if first == place]
    counts = Counter(ngram for place in places for ngram in sets[place])
    common = _common_stretches(texts, firsts, sets, counts, records)
    all_ngrams, first_of, in_order = _numbered(sets, firsts, counts, common)
    copies = copies_among_templates(all_ngrams, places, first_of, in_order)

    def is_other(place: int, other: int) -> bool:
        return firsts[other] != firsts[place] and records[other] != records[place]

    kept: defaultdict[int, list[int]] = defaultdict(list)
    kept_copies: defaultdict[int, list[int]] = defaultdict(list)
    are_kept: dict[tuple[int, str], int] = {}
    found, known = [], set()
    for place, own in enumerate(all_ngrams):
        whole = firsts[place]
        signed = whole, signs_of(texts[place]) if of_words[whole] > 1 else ""
        same = are_kept.get(signed)
        if same is not None and records[same] != records[place]:
            found.append(Duplicate(place, same, 1.0))
            continue
        # A text of templates alone has no prefix: only equal words tell of it.
        prefix = own.numbers[: own.telling and own.telling - math.ceil(threshold * own.telling - 1e-9) + 1]
        others = {other for number in prefix for other in kept[number] if is_other(place, other)}
        best = _most_alike(place, all_ngrams, others, threshold)
        home = copies.get(whole)
        family = [] if home is None else kept_copies[home]
        if best is None:
            near = {other for other in family if is_other(place, other)}
            best = _most_alike(place, all_ngrams, near, threshold, whole=True)
        if best is not None:
            found.append(best)
            continue
        are_kept.setdefault(signed, place)
        if whole in known:  # others are held against the first text of these words
            continue
        known.add(whole)
        if len(family) < KEPT:
            family.append(place)
        for number in prefix:
            kept[number].append(place)
    if not common:
        return Found(found, None)
    first = max(common, key=common.__getitem__)
    of_templates = sum(len(numbers) - telling > STRETCH - ORDER for numbers, telling in all_ngrams)
    return Found(found, Templates(len(common), of_templates, first, common[first]))


def _read(texts: Sequence[str]) -> tuple[list[int], list[dict[str, None]]]:
    """List for each text the first place of one with the same words, and its n-grams, once each and in order."""
    places: dict[str, int] = {}
    firsts: list[int] = []
    sets: list[dict[str, None]] = []
    for place, text in enumerate(texts):
        words = words_of(text)
        whole = " ".join(words) or shown(text).strip()  # signs alone are compared as they are
        first = places.setdefault(whole, place)
        firsts.append(first)
        sets.append(sets[first] if first < place else dict.fromkeys(ngrams_of(words, ORDER) or [whole]))
    return firsts, sets


def _common_stretches(
    texts: Sequence[str],
    firsts: Sequence[int],
    sets: Sequence[Mapping[str, None]],
    in_texts: Counter[str],
    records: Sequence[Hashable],
) -> dict[str, int]:
    """All common stretches of words as the texts have them one after the other, and in how many texts they stand."""
    most = most_of_texts(len(texts))
    common = {ngram for ngram, count in in_texts.items() if count > most}
    counts: Counter[str] = Counter()
    seen_in: dict[str, Hashable] = {}
    for place, own in enumerate(sets):
        if firsts[place] < place or not common or len(own.keys() & common) <= STRETCH - ORDER:
            continue
        words, size = words_of(texts[place]), 0
        stretches: dict[str, None] = {}  # whose n-grams are all common, once each and in order: no other can be
        for start, ngram in enumerate(ngrams_of(words, ORDER)):
            size = size + 1 if ngram in common else 0
            if size > STRETCH - ORDER:
                stretches[" ".join(words[start + ORDER - STRETCH : start + ORDER])] = None
        for stretch in stretches:
            counts[stretch] += seen_in.get(stretch) != records[place]  # turns of a chat repeat what was said before
            seen_in[stretch] = records[place]
    return {stretch: count for stretch, count in counts.items() if count > most}


def _numbered(
    sets: Sequence[Mapping[str, None]], firsts: Sequence[int], counts: Counter[str], common: Iterable[str]
) -> tuple[list[Ngrams], Callable[[float], int], Callable[[int], list[int]]]:
    """Sets as ascending numbers: the rarest n-gram of all texts has the least, and those of templates the greatest.

    Further the first number of no template's n-gram in at least so many texts, and a text's numbers in order.
    """
    templates = {ngram for stretch in common for ngram in ngrams_of(stretch.split(" "), ORDER)}
    order = sorted(counts, key=lambda ngram: (ngram in templates, counts[ngram], ngram))
    number, telling = {ngram: place for place, ngram in enumerate(order)}, len(order) - len(templates)
    found: list[Ngrams] = []
    for place, one in enumerate(sets):
        if firsts[place] < place:
            found.append(found[firsts[place]])
            continue
        numbers = sorted(number[ngram] for ngram in one)
        found.append(Ngrams(numbers, bisect_left(numbers, telling)))
    return (
        found,
        lambda least: bisect_left(order, least, hi=telling, key=counts.__getitem__),
        lambda place: [number[ngram] for ngram in sets[place]],
    )


def _most_alike(
    place: int, ngrams: Sequence[Ngrams], others: set[int], threshold: float, *, whole: bool = False
) -> Duplicate | None:
    """The most similar of others without templates, or the *whole* texts; of several the first, None if none is."""
    own = set(ngrams[place].numbers)
    telling = len(own) if whole else ngrams[place].telling
    best = None
    for other in sorted(others):
        numbers, size = ngrams[other]
        size = len(numbers) if whole else size
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


def copies_among_templates(
    ngrams: Sequence[Ngrams],
    places: Sequence[int],
    first_of: Callable[[float], int],
    in_order: Callable[[int], Sequence[int]],
) -> dict[int, int]:
    """The family of each text that is a near copy of what most texts of its family have, by place.

    Texts with the same rarest n-gram of templates are a family, and what half of them or more have is its core. A place
    of the core where half of the family or more have words of their own is a slot. What is filled into a template
    stands in a slot, whereas copies were changed at different places: a copy is what has no words of its own in a slot.
    So copies of which half or more have other words in one and the same place, such as a number at the end, stay a
    template's. Only *places* are looked at, of equal texts the first; the functions are those of :func:`_numbered`.
    """
    members: defaultdict[int, list[int]] = defaultdict(list)
    for place in places:
        numbers, telling = ngrams[place]
        if telling < len(numbers):
            members[numbers[telling]].append(place)
    cores: list[set[int]] = []
    homes: dict[int, int] = {}
    # The largest first: a copy whose change hit the family's own n-gram belongs to the others all the same.
    for family in sorted(members.values(), key=len, reverse=True):
        if len(family) < FEWEST:
            break
        cores.append(_core([ngrams[place] for place in family], first_of))
        for number in cores[-1] & members.keys():
            homes.setdefault(number, len(cores) - 1)
    families: defaultdict[int, list[int]] = defaultdict(list)
    for number, home in homes.items():
        families[home].extend(members[number])
    return {place: home for home, family in families.items() for place in _outside_slots(family, cores[home], in_order)}


def _core(family: Sequence[Ngrams], first_of: Callable[[float], int]) -> set[int]:
    """The n-grams that half of a family or more have."""
    least = len(family) / 2
    rare, counts = first_of(least), Counter[int]()  # numbers below are of n-grams that too few texts have
    for numbers, telling in family:
        counts.update(number for number in numbers[:telling] if number >= rare)
        counts.update(numbers[telling:])
    return {number for number, count in counts.items() if count >= least}


def _outside_slots(family: Sequence[int], core: set[int], in_order: Callable[[int], Sequence[int]]) -> list[int]:
    """The texts of a family that have half of its core or more, without words of their own in a slot."""
    shared = {place: len(core.intersection(in_order(place))) for place in family}
    whole = in_order(max(family, key=shared.__getitem__))
    family = [place for place in family if shared[place] >= len(core) / 2]  # others share a phrase of it
    steps = {number: step for step, number in enumerate((number for number in whole if number in core), 1)}
    gaps = {place: _own_gaps(in_order(place), core, steps) for place in family}
    counts = Counter(gap for own in gaps.values() for gap in own)
    slots = {gap for gap, count in counts.items() if count >= len(family) / 2}
    return [place for place, own in gaps.items() if slots.isdisjoint(own)]


def _own_gaps(numbers: Sequence[int], core: set[int], steps: Mapping[int, int]) -> set[int]:
    """The steps of the core after which a text has n-grams of its own, with all those that it lacks there."""
    found: set[int] = set()
    last, is_own = 0, False
    for number in numbers:
        if number not in core:
            is_own = True
        elif number in steps:
            if is_own:
                found.update(range(last, max(steps[number], last + 1)))
            last, is_own = steps[number], False
    if is_own:
        found.update(range(last, len(steps) + 1))
    return found

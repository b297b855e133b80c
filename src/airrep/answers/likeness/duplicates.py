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
"""Most kept copies of a family that a text is compared with."""
FEWEST = 4
"""Fewest texts of a family: what most of fewer texts share may be chance."""


class Ngrams(NamedTuple):
    """The n-grams of a text as ascending numbers; n-grams of templates have the greatest numbers."""

    numbers: list[int]
    telling: int
    """How many numbers, from the first on, are of n-grams outside templates."""


class Duplicate(NamedTuple):
    """A text that equals, or nearly equals, an earlier text."""

    place: int
    """Place of the text."""
    first: int
    """Place of the earlier text, which is not itself a duplicate."""
    share: float
    """Jaccard similarity of the texts' sets of n-grams outside templates, at most 1; 1 for equal words.

    If a text has so many near copies that its words count as common, all n-grams are compared instead.
    """


class Found(NamedTuple):
    """Near duplicates in the order of the texts, and the templates; None if there are no templates."""

    duplicates: list[Duplicate]
    templates: Templates | None


def find_duplicates(texts: Sequence[str], threshold: float, records: Sequence[Hashable] | None = None) -> Found:
    """Find texts whose word 3-grams have a Jaccard similarity of at least *threshold* with an earlier, kept text's.

    A text with the same words as an earlier text is a duplicate if the signs between the words that carry meaning are
    the same (:func:`signs_of`): `x < 5` is not `x > 5`. Other texts must be as similar without templates too: without
    the 3-grams of word 8-grams that stand in more than 10 different texts and in more than 0.5 % of all texts, such as
    a system prompt's. An exception is a text with so many near copies that its words are common
    (:func:`copies_among_templates`): each near copy is compared with the first 100 kept ones. Two sets A, B of
    similarity t share one of the rarest ⌊|A| − t|A|⌋ + 1 n-grams of each (prefix filter), so only texts that share one
    are compared. The most similar earlier text is reported, or the first of equally similar ones. Texts of the same
    record are not duplicates of each other.
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
        # A text of templates alone has no prefix: only equal words make it a duplicate.
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
        if whole in known:  # other texts are compared with the first text of these words
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
    """Return for each text the place of the first text with the same words, and its n-grams, once each and in order."""
    places: dict[str, int] = {}
    firsts: list[int] = []
    sets: list[dict[str, None]] = []
    for place, text in enumerate(texts):
        words = words_of(text)
        whole = " ".join(words) or shown(text).strip()  # a text without words is compared by its characters
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
    """Map each common stretch of words, in the order of the texts, to the number of texts that have it."""
    most = most_of_texts(len(texts))
    common = {ngram for ngram, count in in_texts.items() if count > most}
    counts: Counter[str] = Counter()
    seen_in: dict[str, Hashable] = {}
    for place, own in enumerate(sets):
        if firsts[place] < place or not common or len(own.keys() & common) <= STRETCH - ORDER:
            continue
        words, size = words_of(texts[place]), 0
        stretches: dict[str, None] = {}  # only stretches whose n-grams are all common can be; once each and in order
        for start, ngram in enumerate(ngrams_of(words, ORDER)):
            size = size + 1 if ngram in common else 0
            if size > STRETCH - ORDER:
                stretches[" ".join(words[start + ORDER - STRETCH : start + ORDER])] = None
        for stretch in stretches:
            counts[stretch] += seen_in.get(stretch) != records[place]  # later turns of a chat repeat the earlier ones
            seen_in[stretch] = records[place]
    return {stretch: count for stretch, count in counts.items() if count > most}


def _numbered(
    sets: Sequence[Mapping[str, None]], firsts: Sequence[int], counts: Counter[str], common: Iterable[str]
) -> tuple[list[Ngrams], Callable[[float], int], Callable[[int], list[int]]]:
    """Number the n-grams by frequency: the rarest has the least number, and n-grams of templates have the greatest.

    Return the sets as ascending numbers, a function from a number of texts to the least number of an n-gram outside
    templates that as many have, and a function from a place to its text's numbers in order.
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
    """Return the most similar of *others*, without templates or by *whole* texts; ties: the first; None if none is."""
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
    """Map the place of each text that is a near copy of its family's core to the number of the family.

    A family is the texts with the same rarest n-gram of templates; its core is the n-grams that at least half of them
    have. A slot is a place of the core where at least half of the family have words of their own. The contents of a
    template stand in slots, whereas copies differ in different places: so a text without words of its own in a slot is
    a copy. Texts that differ in the same place, such as a number at the end, count as filled templates instead.
    *places* are those of different texts; the functions are those of :func:`_numbered`.
    """
    members: defaultdict[int, list[int]] = defaultdict(list)
    for place in places:
        numbers, telling = ngrams[place]
        if telling < len(numbers):
            members[numbers[telling]].append(place)
    cores: list[set[int]] = []
    homes: dict[int, int] = {}
    # Largest first: a copy whose change hit the n-gram that defines the family still joins the family.
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
    """Return the n-grams that at least half of a family have."""
    least = len(family) / 2
    rare, counts = first_of(least), Counter[int]()  # too few texts have the n-grams with lower numbers
    for numbers, telling in family:
        counts.update(number for number in numbers[:telling] if number >= rare)
        counts.update(numbers[telling:])
    return {number for number, count in counts.items() if count >= least}


def _outside_slots(family: Sequence[int], core: set[int], in_order: Callable[[int], Sequence[int]]) -> list[int]:
    """Return the texts of a family that have at least half of its core, and no words of their own in a slot."""
    shared = {place: len(core.intersection(in_order(place))) for place in family}
    whole = in_order(max(family, key=shared.__getitem__))
    family = [place for place in family if shared[place] >= len(core) / 2]  # other texts share only a phrase
    steps = {number: step for step, number in enumerate((number for number in whole if number in core), 1)}
    gaps = {place: _own_gaps(in_order(place), core, steps) for place in family}
    counts = Counter(gap for own in gaps.values() for gap in own)
    slots = {gap for gap, count in counts.items() if count >= len(family) / 2}
    return [place for place, own in gaps.items() if slots.isdisjoint(own)]


def _own_gaps(numbers: Sequence[int], core: set[int], steps: Mapping[int, int]) -> set[int]:
    """Return the steps of the core after which a text has n-grams of its own, and the steps that it lacks there."""
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

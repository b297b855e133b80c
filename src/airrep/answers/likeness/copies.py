"""Near copies of one text, so many that its words pass for a template's."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

FEWEST = 4
"""Texts of a family: what most of fewer have may be chance."""


class Ngrams(NamedTuple):
    """The n-grams of a text as ascending numbers; those of templates have the greatest."""

    numbers: list[int]
    telling: int
    """How many of them, the first, are no template's."""


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
    template's.

    Args:
        ngrams: those of all texts.
        places: the texts that are looked at: of equal ones the first.
        first_of: the first number of an n-gram that stands in at least so many texts, and is no template's.
        in_order: the numbers of a text as its words have them one after the other.
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

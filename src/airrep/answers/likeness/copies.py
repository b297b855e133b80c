"""Near copies of one text, so many that its words pass for a template's."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

FEWEST = 4
"""Texts of a family: what most of fewer have may be chance."""
OWN = 1.5
"""N-grams of its own that a copy may have for each one that it lacks: a word put in makes 3 new ones of 2."""


class Ngrams(NamedTuple):
    """The n-grams of a text as ascending numbers; those of templates have the greatest."""

    numbers: list[int]
    telling: int
    """How many of them, the first, are no template's."""


def copies_among_templates(
    ngrams: Sequence[Ngrams], places: Sequence[int], first_of: Callable[[float], int]
) -> dict[int, int]:
    """The family of each text that is a near copy of what most texts of its family have, by place.

    Texts with the same rarest n-gram of templates are a family, and what half of them or more have is its core. What
    is filled into a template has all of the core, and words of its own beside it. A copy that was changed here or there
    lacks n-grams of the core where it was changed, and has about as many of its own: that is how they are told apart.
    So copies that differ in one and the same place alone, such as a number at the end, stay a template's.

    Args:
        ngrams: those of all texts.
        places: the texts that are looked at: of equal ones the first.
        first_of: the first number of an n-gram that stands in at least so many texts, and is no template's.
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
    return {
        place: homes[number]
        for number, family in members.items()
        if number in homes
        for place in family
        if _is_copy(ngrams[place].numbers, cores[homes[number]])
    }


def _core(family: Sequence[Ngrams], first_of: Callable[[float], int]) -> set[int]:
    """The n-grams that half of a family or more have."""
    least = len(family) / 2
    rare, counts = first_of(least), Counter[int]()  # numbers below are of n-grams that too few texts have
    for numbers, telling in family:
        counts.update(number for number in numbers[:telling] if number >= rare)
        counts.update(numbers[telling:])
    return {number for number, count in counts.items() if count >= least}


def _is_copy(numbers: Sequence[int], core: set[int]) -> bool:
    shared = len(core.intersection(numbers))
    return len(numbers) - shared <= OWN * (len(core) - shared)

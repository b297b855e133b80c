"""Which n-grams are common: a template's or a system prompt's."""

from dataclasses import dataclass

STRETCH = 8
"""Words of an n-gram that may be a template's: ones of 3 words, such as "one of the", are common in any text."""
COMMON, COMMON_SHARE = 10, 0.005
"""An n-gram in more than so many different texts, and more than this share of all texts, is common."""


@dataclass(frozen=True)
class Templates:
    """What was taken for templates, and so told nothing."""

    stretches: int
    """Different stretches of words, each in more texts than :func:`most_of_texts` says."""
    texts: int
    """Texts that have some of them."""
    commonest: str
    """The first of those that stand in most texts, in the normal form of words."""
    commonest_texts: int
    """Texts that have that one; equal texts count once, and so do the parts of a record."""


def most_of_texts(texts: int) -> float:
    """In how many different texts an n-gram may stand without being common.

    Whoever counts takes equal texts for one, and the parts of one record too: what is repeated is no template for that.

    Example:
        >>> most_of_texts(50), most_of_texts(100_000)
        (10, 500.0)
    """
    return max(COMMON, COMMON_SHARE * texts)

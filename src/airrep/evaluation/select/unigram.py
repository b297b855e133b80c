"""Unigram F1 of an answer against a reference."""

import re
from collections import Counter

_WORD = re.compile(r"\w+")


def unigram_f1(answer: str, reference: str) -> float:
    """How much two texts agree in their words, whatever their order: between 0 and 1, higher = better.

    Words are what is left of the lower-case text when it is split at every character that is no letter, digit or
    underscore (Unicode's), nothing else is left out. With c = Σ_w min(count of w in either), precision c / words of
    the answer and recall c / words of the reference, F1 is their harmonic mean 2c / (words of both).

    Texts without any word (empty, or signs alone) score 1 if they are equal, spaces around them aside, and 0 if not;
    if one alone has no word, 0. Where words are written without spaces between them, a whole clause is one word.

    Args:
        answer: what was generated.
        reference: what was expected.
    """
    given, wanted = words(answer), words(reference)
    if not given and not wanted:
        return float(answer.strip() == reference.strip())
    common = sum((given & wanted).values())
    return 2 * common / (given.total() + wanted.total())


def words(text: str) -> Counter[str]:
    """How often each word occurs in a text."""
    return Counter(_WORD.findall(text.lower()))

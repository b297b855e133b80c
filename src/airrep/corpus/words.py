"""Words of texts: letters with their marks."""

import re
import unicodedata
from collections.abc import Iterator
from functools import cache, cached_property

import numpy as np

UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
"""Signs of scripts that put no space between words, as a set of a regular expression: kana, Han, Thai, Lao, Khmer,
Burmese. Each is read as a word of its own."""
INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Invisible characters (Unicode's default ignorable ones), as a set of a pattern: soft hyphens, joiners, marks of
order, variation selectors."""
_ENOUGH = 0.25
"""Share of a text's signs from which on it is of such a script."""


class Words:
    """Finds the words of texts: letters, digits and underscores with their marks, such as accents and vowel signs.

    Python's own ``\\w`` has no marks, so that it cuts Hindi, Tamil or pointed Arabic words into their consonants. What
    is invisible inside of a word does not cut it either.
    """

    def __init__(self, signs: bool = False, least: int = 1, rest: str = "") -> None:
        """*signs*: those of scripts without spaces are words each; *least* 2: no single letters; *rest*: what else."""
        self._signs, self._least, self._rest = signs, least, rest
        self._of_ascii = re.compile(r"\w" * least + "+" + (rest and f"|{rest}"))

    @cached_property
    def _of_all(self) -> re.Pattern[str]:
        letter, mark, hidden = (rf"[^\W{UNSPACED}]" if self._signs else r"\w"), f"[{marks()}]", f"[{INVISIBLE}]"
        first = f"{letter}+" if self._least == 1 else f"(?:{letter}{letter}+|{letter}(?={mark}))"
        # Most words end before a sign of ASCII: one look at that spares two searches in large sets.
        more = rf"(?:(?=[^\0-\xac])(?:{hidden}*{mark}+|{hidden}+(?={letter})){letter}*)*"
        wanted = (f"[{UNSPACED}]" if self._signs else "", first + more, self._rest)
        return re.compile("|".join(filter(None, wanted)))

    def findall(self, text: str) -> list[str]:
        """All words of a text, in order."""
        return (self._of_ascii if text.isascii() else self._of_all).findall(text)

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        """Find the words with their places."""
        return (self._of_ascii if text.isascii() else self._of_all).finditer(text)


@cache
def marks(unspaced: bool = False) -> str:
    """All marks as a set of a regular expression, as Python names none; those of *unspaced* scripts too, if wanted."""
    found = (code for code in range(0x300, 0x20000) if unicodedata.category(chr(code)) in ("Mn", "Mc"))
    but = re.compile(f"[{INVISIBLE}]" if unspaced else f"[{UNSPACED}{INVISIBLE}]")
    ranges: list[list[int]] = []
    for code in (code for code in found if not but.match(chr(code))):
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)


def unspaced(text: str) -> bool:
    """True if a quarter or more of a text's signs are of scripts without spaces between words."""
    return not text.isascii() and 0 < _ENOUGH * len(text) <= len(_sign().findall(text))


@cache
def _sign() -> re.Pattern[str]:
    return re.compile(f"[{UNSPACED}]")  # made when first needed: that takes a while


def plain(text: str) -> str:
    """A text in which equal words are equal characters: composed (NFC), nothing invisible in front of a letter."""
    return text if text.isascii() else unicodedata.normalize("NFC", _hidden().sub("", text))


def plain_places(text: str) -> tuple[str, np.ndarray]:
    """The plain text, and the place in the original of each of its characters and of its end, int64."""
    if plain(text) == text:
        return text, np.arange(len(text) + 1)
    shown = np.ones(len(text), bool)
    for found in _hidden().finditer(text):
        shown[found.start() : found.end()] = False
    places, parts, origin = np.flatnonzero(shown), list[str](), list[int]()
    for cluster in _clusters().finditer(_hidden().sub("", text)):
        parts.append(unicodedata.normalize("NFC", cluster[0]))
        last = cluster.end() - 1
        origin += [int(places[min(cluster.start() + step, last)]) for step in range(len(parts[-1]))]
    return "".join(parts), np.array([*origin, len(text)], np.int64)


@cache
def _hidden() -> re.Pattern[str]:
    return re.compile(rf"[{INVISIBLE}]+(?=[\w{marks(True)}])")


@cache
def _clusters() -> re.Pattern[str]:
    """A sign with all that may be composed with it: marks, and the vowels and finals of Korean."""
    return re.compile(rf"(?s:.)[{marks(True)}\u1160-\u11ff]*")

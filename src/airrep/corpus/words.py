"""Finds the words of a text, with accents and other marks on their letters."""

import re
import unicodedata
from collections.abc import Iterator
from functools import cache, cached_property

import numpy as np

UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
"""Characters of scripts without spaces between words (kana, Han, Thai, Lao, Khmer, Burmese), as a set for a regular
expression. Each such character is read as a word."""
INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Invisible characters (Unicode's default ignorables), as a set for a regular expression: soft hyphens, joiners,
direction marks, variation selectors."""
_ENOUGH = 0.25
"""Least share of such characters in a text of a script without spaces."""


class Words:
    """Finds the words of texts: letters, digits and underscores with their marks, such as accents and vowel signs.

    Python's ``\\w`` excludes marks, so it cuts Hindi, Tamil or pointed Arabic words into their consonants. Invisible
    characters inside a word do not cut it either.
    """

    def __init__(self, signs: bool = False, least: int = 1, rest: str = "") -> None:
        """*signs*: characters of :data:`UNSPACED` are words; *least* 2: no single letters; *rest*: one more pattern."""
        self._signs, self._least, self._rest = signs, least, rest
        self._of_ascii = re.compile(r"\w" * least + "+" + (rest and f"|{rest}"))

    @cached_property
    def _of_all(self) -> re.Pattern[str]:
        letter, mark, hidden = (rf"[^\W{UNSPACED}]" if self._signs else r"\w"), f"[{marks()}]", f"[{INVISIBLE}]"
        first = f"{letter}+" if self._least == 1 else f"(?:{letter}{letter}+|{letter}(?={mark}))"
        # Most words end before an ASCII character; one lookahead for that avoids two searches in large sets.
        more = rf"(?:(?=[^\0-\xac])(?:{hidden}*{mark}+|{hidden}+(?={letter})){letter}*)*"
        wanted = (f"[{UNSPACED}]" if self._signs else "", first + more, self._rest)
        return re.compile("|".join(filter(None, wanted)))

    def findall(self, text: str) -> list[str]:
        """Return all words of a text, in order."""
        return (self._of_ascii if text.isascii() else self._of_all).findall(text)

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        """Yield a match for each word of a text, in order."""
        return (self._of_ascii if text.isascii() else self._of_all).finditer(text)


@cache
def marks(unspaced: bool = False) -> str:
    """Return all combining marks as a set for a regular expression; with *unspaced* also those of :data:`UNSPACED`."""
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
    """Return True if at least a quarter of a text's characters are of scripts without spaces between words."""
    return not text.isascii() and 0 < _ENOUGH * len(text) <= len(_sign().findall(text))


@cache
def _sign() -> re.Pattern[str]:
    return re.compile(f"[{UNSPACED}]")  # compiled at first use, because that is slow


def plain(text: str) -> str:
    """Normalize a text so that equal words have equal characters: NFC, no invisible characters before a letter."""
    return text if text.isascii() else unicodedata.normalize("NFC", _hidden().sub("", text))


def plain_places(text: str) -> tuple[str, np.ndarray]:
    """Return :func:`plain` of a text and, int64, the original position of each of its characters and of its end."""
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
    """A character with everything that may be composed with it: marks, and the vowels and finals of Korean."""
    return re.compile(rf"(?s:.)[{marks(True)}\u1160-\u11ff]*")

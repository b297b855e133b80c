"""Word sequences of an answer that the training data hold.

Words are compared in lower case; punctuation and spaces between them do not count. One regular expression over Arrow's
columns, at some hundred MB a second, finds the texts that may match; only these texts are split into words.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from airrep.arrays import Mask, compute
from airrep.corpus.corpus import Example
from airrep.corpus.places import Field, Span, ends_in, lower_case
from airrep.corpus.table import Column
from airrep.corpus.words import Words, unspaced
from airrep.index.index import Index
from airrep.index.results.hits import Copied, CopyPlace, Hits

LEAST, LEAST_SIGNS = 4, 8
"""Least length of a copied stretch in words; in characters, for scripts without spaces between words."""
TOLD, PLACES = 5, 20
"""Most copied stretches reported for an answer, and most places reported for each stretch."""
STRETCHES = 48
"""Stretches of an answer in one pattern: RE2 is slow on longer alternations."""
READ = 20_000
"""Most prompts, and most responses, that are split into words; beyond this number counts are too low."""
_BETWEEN = "[^a-z0-9_]+"
"""Pattern for the characters between two words; it admits letters that are not ASCII too."""
FIELDS: tuple[Field, ...] = ("prompt", "response")


class _Text(NamedTuple):
    """The words of a text in lower case, and where they stand in it."""

    words: list[str]
    starts: np.ndarray
    stops: np.ndarray

    @classmethod
    def of(cls, text: str, finder: Words) -> "_Text":
        low, origin = lower_case(text)
        found = list(finder.finditer(low))
        ends = ends_in(origin, [one.end() for one in found]) if found else np.empty(0, np.int64)
        return cls([one[0] for one in found], origin[[one.start() for one in found]] if found else ends, ends)


class _Held(NamedTuple):
    """Half-open range of an answer's words that some text holds."""

    first: int
    last: int


def copied(index: Index, answers: Sequence[Example], keep: Mask) -> list[tuple[Copied, ...]]:
    """Find the longest stretches of each answer that training examples hold word for word, longest first.

    For an answer with a span, only stretches that overlap the span count. *keep* ``(n,)`` marks the rows to search.
    """
    return [_Search(answer).copied(index, keep) for answer in answers]


def with_copied(index: Index, found: Iterable[Hits], keep: Mask) -> tuple[Hits, ...]:
    """Add to each ranking the stretches of its answer that training examples hold word for word."""
    told = list(found)
    pairs = zip(told, copied(index, [hits.query for hits in told], keep), strict=True)
    return tuple(replace(hits, copied=own) for hits, own in pairs)


class _Search:
    """Search for the words of one answer."""

    def __init__(self, answer: Example) -> None:
        signs = unspaced(answer.response)
        self._finder, self._least = Words(signs), LEAST_SIGNS if signs else LEAST
        self._between = "[^a-z0-9_]*" if signs else _BETWEEN
        self._answer, self._text = answer, _Text.of(answer.response, self._finder)
        windows: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for first in range(len(self._text.words) - self._least + 1):
            windows[tuple(self._text.words[first : first + self._least])].append(first)
        self._windows: Mapping[tuple[str, ...], list[int]] = windows

    def copied(self, index: Index, keep: Mask) -> tuple[Copied, ...]:
        """Return the stretches that are found, longest first."""
        found: dict[_Held, dict[int, CopyPlace]] = defaultdict(dict)
        for row, field, text in self._candidates(index, keep):
            for held, start, stop in self._held(_Text.of(text, self._finder)):
                found[held].setdefault(row, CopyPlace(row, Span(field, start, stop)))
        return tuple(self._told(held, found) for held in self._longest(found))

    def _longest(self, found: Mapping[_Held, object]) -> list[_Held]:
        """Return the first stretches, longest first, that lie in no other and overlap the span if there is one."""
        kept: list[_Held] = []
        for held in sorted(found, key=lambda one: (one.first - one.last, one.first)):
            inside = any(one.first <= held.first and held.last <= one.last for one in kept)
            if not inside and self._touches(held):
                kept.append(held)
        return kept[:TOLD]

    def _touches(self, held: _Held) -> bool:
        start, stop = self._place(held)
        return self._answer.span is None or any(start < last and first < stop for first, last in self._answer.span)

    def _place(self, held: _Held) -> tuple[int, int]:
        return int(self._text.starts[held.first]), int(self._text.stops[held.last - 1])

    def _told(self, held: _Held, found: Mapping[_Held, Mapping[int, CopyPlace]]) -> Copied:
        """Describe a stretch, with all rows that hold it, alone or within a longer stretch."""
        rows: dict[int, CopyPlace] = {}
        for other, places in found.items():
            if other.first <= held.first and held.last <= other.last:
                rows |= places
        start, stop = self._place(held)
        text = " ".join(self._answer.response[start:stop].split())
        first = tuple(rows[row] for row in sorted(rows)[:PLACES])
        return Copied(text, held.last - held.first, Span("response", start, stop), len(rows), first)

    def _candidates(self, index: Index, keep: Mask) -> Iterator[tuple[int, Field, str]]:
        """Yield row, field and text of each text that may hold a stretch of the least length."""
        for field in FIELDS:
            left = READ
            for shard in index.shards if self._windows else ():
                fits = self._match(shard.examples.table[field]) & keep[shard.start : shard.start + shard.rows]
                rows = np.flatnonzero(fits)[:left]
                left -= len(rows)
                texts: list[Any] = shard.examples.take(rows).table[field].to_pylist()
                for row, text in zip(rows.tolist(), texts, strict=True):
                    yield shard.start + row, field, text

    def _match(self, column: Column) -> np.ndarray:
        """Return True for each text of a column that may hold a stretch of the least length, ``(n,)``."""
        found = np.zeros(len(column), bool)
        windows = [self._between.join(map(re.escape, words)) for words in self._windows]
        for first in range(0, len(windows), STRETCHES):
            pattern = "|".join(windows[first : first + STRETCHES])
            fits = compute.match_substring_regex(column, pattern, ignore_case=True)
            found |= fits.to_numpy(zero_copy_only=False).astype(bool)
        return found

    def _held(self, other: _Text) -> Iterator[tuple[_Held, int, int]]:
        """Yield the longest common stretches of the answer and a text, with their character ranges in the text."""
        words, mine = other.words, self._text.words
        reached: dict[int, int] = {}
        for place in range(len(words) - self._least + 1):
            for first in self._windows.get(tuple(words[place : place + self._least]), ()):
                if reached.get(first - place, -1) > first:
                    continue  # a part of the stretch before
                count = self._least
                while first + count < len(mine) and words[place + count : place + count + 1] == [mine[first + count]]:
                    count += 1
                reached[first - place] = first + count
                stop = place + count - 1
                yield _Held(first, first + count), int(other.starts[place]), int(other.stops[stop])

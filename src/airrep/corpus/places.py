"""Character positions of n-grams in the texts of an example."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from airrep.corpus.corpus import Example
from airrep.corpus.spans import shares
from airrep.corpus.views import View, seen_text
from airrep.corpus.words import plain_places

Field: TypeAlias = Literal["prompt", "response"]


@dataclass(frozen=True)
class Span:
    """A stretch of one text of an example."""

    field: Field
    """The prompt or the response."""
    start: int
    """Its first character."""
    stop: int
    """The character after its last."""


@dataclass(frozen=True, eq=False)
class Places:
    """Places of an example's features in its texts, one entry for each occurrence of an n-gram.

    Positions count characters of ``prompt + "\\n" + response`` in every view. White space alone has no place.
    """

    columns: np.ndarray
    """``(k,)`` int64: the feature's column."""
    ngrams: np.ndarray
    """``(k,)`` uint64: equal for equal n-grams; hashed columns hold several n-grams."""
    starts: np.ndarray
    """``(k,)`` int64: the first character."""
    stops: np.ndarray
    """``(k,)`` int64: the character after the last."""

    @classmethod
    def of(
        cls,
        example: Example,
        view: View,
        columns: Sequence[int] | np.ndarray,
        ngrams: Sequence[int] | np.ndarray,
        starts: Sequence[int] | np.ndarray,
        stops: Sequence[int] | np.ndarray,
    ) -> "Places":
        """Return places given by positions in the text of a view; white space at their ends is cut off."""
        text = seen_text(example, view)
        visible = np.flatnonzero(~np.fromiter(map(str.isspace, text), bool, len(text)))
        first = np.searchsorted(visible, np.asarray(starts, np.int64))
        after = np.searchsorted(visible, np.asarray(stops, np.int64))
        some = first < after
        before = len(example.prompt) + 1 if view == "response" else 0
        return cls(
            np.asarray(columns, np.int64)[some],
            np.asarray(ngrams, np.uint64)[some],
            visible[first[some]] + before,
            visible[after[some] - 1] + 1 + before,
        )

    def shares(self, example: Example) -> np.ndarray:
        """Return the share of each place's visible characters in the example's span, ``(k,)``; 1 without a span."""
        if example.span is None:
            return np.ones(len(self.starts))
        before = len(example.prompt) + 1
        spans = tuple((start + before, stop + before) for start, stop in example.span)
        return shares(seen_text(example, "whole"), spans, self.starts, self.stops)

    def touched(self, example: Example) -> "Places":
        """Return the places with a visible character in the example's span; all places without a span."""
        some = self.shares(example) > 0
        return self if some.all() else Places(*(part[some] for part in vars(self).values()))

    def asked(self, query: Example) -> "Places":
        """Return the places that overlap the query's span; all if it has no span or no place is in the response."""
        first = len(query.prompt) + 1
        if query.span is None or not (self.stops > first).any():
            return self
        inside = np.zeros(len(self.starts), bool)
        for start, stop in query.span:
            inside |= (self.starts < first + stop) & (self.stops > first + start)
        return Places(*(part[inside] for part in vars(self).values()))

    @classmethod
    def beside(cls, parts: Sequence["Places"], first_columns: Sequence[int]) -> "Places":
        """Join at least one part, adding to each part's columns its number in *first_columns*."""
        columns = [part.columns + first for part, first in zip(parts, first_columns, strict=True)]
        rest = ([getattr(part, name) for part in parts] for name in ("ngrams", "starts", "stops"))
        return cls(*map(np.concatenate, (columns, *rest)))


def spans_of(example: Example, start: int, stop: int) -> tuple[Span, ...]:
    """Split a stretch of ``prompt + "\\n" + response`` into spans of the two texts, without white space at the ends."""
    border = len(example.prompt)
    parts: tuple[tuple[Field, int, int], ...] = (
        ("prompt", start, min(stop, border)),
        ("response", max(start - border - 1, 0), stop - border - 1),
    )
    found = []
    for field, first, last in parts:
        part = getattr(example, field)[first:last] if first < last else ""
        if part.strip():
            found.append(Span(field, first + len(part) - len(part.lstrip()), first + len(part.rstrip())))
    return tuple(found)


def lower_case(text: str) -> tuple[str, np.ndarray]:
    """Return a plain text (:func:`.words.plain`) in lower case, and the original position of each character, int64."""
    whole, origin = plain_places(text)
    low = whole.lower()
    if len(low) == len(whole):
        return low, origin
    lengths = np.fromiter((len(sign.lower()) for sign in whole), np.int64, len(whole))  # İ becomes two
    return low, np.append(np.repeat(origin[:-1], lengths), len(text))


def ends_in(origin: np.ndarray, ends: Sequence[int] | np.ndarray) -> np.ndarray:
    """Map ends of non-empty stretches to the original text, given the original position of each character."""
    places = np.asarray(ends, np.int64)
    return np.maximum(origin[places], origin[places - 1] + 1)

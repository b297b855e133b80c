"""Scores split over pairs of tokens, and added up over pairs of words."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from math import ceil
from typing import NamedTuple

import numpy as np

from airrep.corpus.corpus import Example
from airrep.corpus.places import Places, Span
from airrep.corpus.views import seen_text
from airrep.corpus.words import INVISIBLE, Words, marks
from airrep.errors import ConfigError
from airrep.shapes import Float64, Int64


class Stretches(NamedTuple):
    """Where the tokens of an example stand, in characters of ``prompt + "\\n" + response``."""

    starts: Int64[np.ndarray, " t"]
    """The first character of each token."""
    stops: Int64[np.ndarray, " t"]
    """The character after its last; at most the start if the token is not in the texts, such as a template's token."""


@dataclass(frozen=True, eq=False)
class TokenProducts:
    """A score, split over pairs of tokens."""

    query: Stretches
    example: Stretches
    scores: Float64[np.ndarray, "q t"]
    """One part for each token of the query (row) and of the training example (column); all add up to the score."""

    def __post_init__(self) -> None:
        """Check that there is one score for each pair of tokens (ConfigError: another shape)."""
        shape = (len(self.query.starts), len(self.example.starts))
        if self.scores.shape != shape:
            raise ConfigError(
                f"tokens: the method must return one score for each pair of tokens, with shape {shape}, but the shape "
                f"is {self.scores.shape}."
            )


@dataclass(frozen=True)
class WordScores:
    """A score, split over pairs of a word of the query and a word of the training example.

    A token's part is shared among the words that have its characters, in equal parts for each character. The last row
    and the last column take parts of no word of the texts, such as tokens of a chat template and the end of text.
    """

    query: tuple[Span, ...]
    """The words of the query's texts, in order."""
    example: tuple[Span, ...]
    """The words of the training example's texts, in order."""
    scores: tuple[tuple[float, ...], ...]
    """A row for each word of the query, a column for each word of the training example, and a last one of each."""
    rest: dict[str, float]
    """By channel, the part of the score that belongs to no token: all of a channel that cannot be split, such as an
    encoder; for other channels the rounding of stored features."""

    @cached_property
    def matrix(self) -> Float64[np.ndarray, "q t"]:
        return np.array(self.scores, np.float64)

    @property
    def of_query(self) -> list[float]:
        """The part of the score that each word of the query has."""
        return self.matrix.sum(axis=1)[:-1].tolist()

    @property
    def of_example(self) -> list[float]:
        """The part of the score that each word of the training example has."""
        return self.matrix.sum(axis=0)[:-1].tolist()

    def pairs(self, most: int) -> list[tuple[Span, Span, float]]:
        """Return the *most* pairs with the largest parts by size: query's word, example's word, part of the score."""
        inner = self.matrix[:-1, :-1]
        best = np.argsort(-np.abs(inner), axis=None, kind="stable")[:most]
        rows, columns = (each.tolist() for each in np.unravel_index(best, inner.shape)) if inner.size else ([], [])
        told = (
            (self.query[row], self.example[column], float(inner[row, column]))
            for row, column in zip(rows, columns, strict=True)
        )
        return [one for one in told if one[2]]


class ScoredWord(NamedTuple):
    """A word that is marked in a text, with its part of a score."""

    span: Span
    score: float
    level: int
    """1 to :data:`LEVELS`: the size of its part, relative to the largest part of a word in the same texts."""


LEVELS = 4


def standing_out(words: Sequence[Span], scores: Sequence[float]) -> list[ScoredWord]:
    """Return the words whose part has at least :data:`LEAST` of the largest part's size, in the order of the texts."""
    most = max(map(abs, scores), default=0.0)
    sizes = [abs(score) / most if most else 0.0 for score in scores]
    told = zip(words, scores, sizes, strict=True)
    return [ScoredWord(word, score, max(1, ceil(LEVELS * size))) for word, score, size in told if size >= LEAST]


LEAST = 1 / 8
"""A word is not marked if its part is a smaller share of the largest part."""


@cache
def _words() -> Words:
    """Return a pattern of words and other visible characters; marks and joined characters stay with theirs."""
    return Words(signs=True, rest=rf"\S(?:[{INVISIBLE}{marks()}]+|(?<=\u200d)\S)*")


class TextWords:
    """The words of an example's texts."""

    def __init__(self, example: Example) -> None:
        self._border = len(example.prompt)
        text = seen_text(example, "whole")
        found = [(one.start(), one.end()) for one in _words().finditer(text)]
        self.count = len(found)
        """Number of words."""
        self._edges = np.array(found, np.int64).reshape(-1, 2)
        self._letters = np.full(len(text), self.count)
        for number, (start, stop) in enumerate(found):
            self._letters[start:stop] = number

    @property
    def spans(self) -> tuple[Span, ...]:
        """Where the words stand."""
        after = self._border + 1
        return tuple(
            Span("prompt", start, stop) if start < after else Span("response", start - after, stop - after)
            for start, stop in self._edges.tolist()
        )

    def shares(self, tokens: Stretches) -> Float64[np.ndarray, "t w"]:
        """Return the share of each token in each word, ``(t, words + 1)``; the last column is for tokens of no word."""
        found = np.zeros((len(tokens.starts), self.count + 1))
        for row, (start, stop) in enumerate(zip(tokens.starts.tolist(), tokens.stops.tolist(), strict=True)):
            letters = self._letters[start:stop]
            letters = letters[letters < self.count]
            found[row, -1] = not len(letters)
            np.add.at(found[row], letters, 1 / max(1, len(letters)))
        return found

    def inside(self, start: int, stop: int) -> tuple[int, ...]:
        """Return the numbers of the words that have a character between *start* and *stop*, in order."""
        return tuple(dict.fromkeys(self._letters[start:stop][self._letters[start:stop] < self.count].tolist()))


def by_words(products: TokenProducts, query: TextWords, example: TextWords) -> Float64[np.ndarray, "q t"]:
    """Add a score of token pairs up over pairs of words, as in :attr:`WordScores.scores`."""
    return query.shares(products.query).T @ products.scores @ example.shares(products.example)


def by_shared(
    columns: Int64[np.ndarray, " c"],
    values: Float64[np.ndarray, " c"],
    asked: Places,
    had: Places,
    query: TextWords,
    example: TextWords,
) -> Float64[np.ndarray, "q t"]:
    """Split a score of counted n-grams over pairs of words, as in :attr:`WordScores.scores`.

    *columns*, ascending, and *values* are the products that add up to the score. The product of a column is shared
    equally among the places where its n-grams stand in the query (*asked*), and each part among the places in the
    training example (*had*). If all places have equally many words, the first word pairs with the first, and so on;
    otherwise every word pairs with all. The product of a column without a place stands in the last row and column.
    """
    found = np.zeros((query.count + 1, example.count + 1))
    here, there = _by_key(asked, query), _by_key(had, example)
    both = here.keys() & there.keys()
    times: Counter[int] = Counter()
    for key in both:
        times[key[0]] += len(here[key])
    value = dict(zip(columns.tolist(), values.tolist(), strict=True))
    found[-1, -1] = sum(part for column, part in value.items() if column not in times)
    for key in sorted(key for key in both if value.get(key[0])):  # sorted, so that sums always round alike
        _share(found, value[key[0]] * len(here[key]) / times[key[0]], here[key], there[key])
    return found


def _by_key(places: Places, words: TextWords) -> dict[tuple[int, int], list[tuple[int, ...]]]:
    """Group places by column and n-gram; each place as the numbers of its words."""
    found: dict[tuple[int, int], list[tuple[int, ...]]] = {}
    for column, ngram, *edges in zip(*(each.tolist() for each in vars(places).values()), strict=True):
        found.setdefault((column, ngram), []).append(words.inside(*edges) or (words.count,))
    return found


def _share(
    total: Float64[np.ndarray, "q t"], value: float, here: list[tuple[int, ...]], there: list[tuple[int, ...]]
) -> None:
    """Add a value to *total*, divided among the words of an n-gram's places in both texts."""
    lengths = {len(words) for words in (*here, *there)}
    if len(lengths) == 1:
        for rows, columns in zip(zip(*here, strict=True), zip(*there, strict=True), strict=True):
            part = value / (len(here) * len(there) * len(here[0]))
            np.add.at(total, np.ix_(rows, columns), part)
        return
    sides = [np.zeros(size) for size in total.shape]
    for side, places in zip(sides, (here, there), strict=True):
        for words in places:
            np.add.at(side, list(words), 1 / (len(words) * len(places)))
    total += value * np.outer(*sides)

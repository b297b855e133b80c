"""Scores token by token: pairs of tokens of two texts, gathered by words."""

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
    """The first character of each."""
    stops: Int64[np.ndarray, " t"]
    """The character after its last; no higher than the start for what is no text, such as words of a chat template."""


@dataclass(frozen=True, eq=False)
class TokenProducts:
    """A score by pairs of tokens."""

    query: Stretches
    example: Stretches
    scores: Float64[np.ndarray, "q t"]
    """Scores of each token of the query (row) by each of the training example (column); all add up to the score."""

    @classmethod
    def of(cls, query: Stretches, example: Stretches, scores: Float64[np.ndarray, "q t"]) -> "TokenProducts":
        """Pairs of tokens, as many as there are stretches (ConfigError: these are not as many)."""
        shape = (len(query.starts), len(example.starts))
        if scores.shape != shape:
            raise ConfigError(
                f"tokens: the method must return one score for each pair of tokens, with shape {shape}, but the shape "
                f"is {scores.shape}."
            )
        return cls(query, example, scores)


@dataclass(frozen=True)
class WordScores:
    """A score by pairs of words: what each word of the query has of each word of the training example.

    A token's part is shared among the words that have its characters, in equal parts for each character. The last row
    and the last column are what is no word of the texts, such as words of a chat template and the end of text.
    """

    query: tuple[Span, ...]
    """The words of the query's texts, in order."""
    example: tuple[Span, ...]
    """The words of the training example's texts, in order."""
    scores: tuple[tuple[float, ...], ...]
    """A row for each word of the query and the last, a column for each of the training example and the last."""
    rest: dict[str, float]
    """By channel, what is in the score and has no tokens: all of a channel that reads no tokens, such as an encoder;
    of others what rounding of stored features makes."""

    @cached_property
    def matrix(self) -> Float64[np.ndarray, "q t"]:
        """:attr:`scores` as an array."""
        return np.array(self.scores, np.float64)

    @property
    def of_query(self) -> list[float]:
        """Return what each word of the query has of the score."""
        found: list[float] = self.matrix.sum(axis=1)[:-1].tolist()
        return found

    @property
    def of_example(self) -> list[float]:
        """Return what each word of the training example has of the score."""
        found: list[float] = self.matrix.sum(axis=0)[:-1].tolist()
        return found

    def pairs(self, most: int) -> list[tuple[Span, Span, float]]:
        """The pairs of words that have most of the score, by size: that of the query, that of the example, the part."""
        inner = self.matrix[:-1, :-1]
        best = np.argsort(-np.abs(inner), axis=None, kind="stable")[:most]
        rows, columns = (each.tolist() for each in np.unravel_index(best, inner.shape)) if inner.size else ([], [])
        told = (
            (self.query[row], self.example[column], float(inner[row, column]))
            for row, column in zip(rows, columns, strict=True)
        )
        return [one for one in told if one[2]]


class ScoredWord(NamedTuple):
    """A word that is told with what it has of a score."""

    span: Span
    score: float
    level: int
    """1 to :data:`LEVELS`: how near it comes to the word of the same texts that has most."""


LEVELS = 4


def standing_out(words: Sequence[Span], scores: Sequence[float]) -> list[ScoredWord]:
    """Those words whose size is an eighth or more of the greatest, in order of the texts."""
    most = max(map(abs, scores), default=0.0)
    sizes = [abs(score) / most if most else 0.0 for score in scores]
    told = zip(words, scores, sizes, strict=True)
    return [ScoredWord(word, score, max(1, ceil(LEVELS * size))) for word, score, size in told if size >= LEAST]


LEAST = 1 / 8
"""Share of the greatest below which a word is not marked."""


@cache
def _words() -> Words:
    """Words, and all that is no space between them; what is joined to a sign stays with it."""
    return Words(signs=True, rest=rf"\S(?:[{INVISIBLE}{marks()}]+|(?<=\u200d)\S)*")


class TextWords:
    """The words of an example's texts."""

    def __init__(self, example: Example) -> None:
        self._border = len(example.prompt)
        text = seen_text(example, "whole")
        found = [(one.start(), one.end()) for one in _words().finditer(text)]
        self.count = len(found)
        """Words."""
        self._edges = np.array(found, np.int64).reshape(-1, 2)
        self._letters = np.full(len(text), self.count)
        for number, (start, stop) in enumerate(found):
            self._letters[start:stop] = number

    @property
    def spans(self) -> tuple[Span, ...]:
        """Where they stand."""
        after = self._border + 1
        return tuple(
            Span("prompt", start, stop) if start < after else Span("response", start - after, stop - after)
            for start, stop in self._edges.tolist()
        )

    def shares(self, tokens: Stretches) -> Float64[np.ndarray, "t w"]:
        """The share of each token that each word has, and in the last column what is no word, ``(t, words + 1)``."""
        found = np.zeros((len(tokens.starts), self.count + 1))
        for row, (start, stop) in enumerate(zip(tokens.starts.tolist(), tokens.stops.tolist(), strict=True)):
            letters = self._letters[start:stop]
            letters = letters[letters < self.count]
            found[row, -1] = not len(letters)
            np.add.at(found[row], letters, 1 / max(1, len(letters)))
        return found

    def inside(self, start: int, stop: int) -> tuple[int, ...]:
        """The words that a stretch has a character of, in order."""
        return tuple(dict.fromkeys(self._letters[start:stop][self._letters[start:stop] < self.count].tolist()))


def by_words(products: TokenProducts, query: TextWords, example: TextWords) -> Float64[np.ndarray, "q t"]:
    """A score by pairs of words, as :attr:`WordScores.scores` has them."""
    found: np.ndarray = query.shares(products.query).T @ products.scores @ example.shares(products.example)
    return found


def by_shared(
    columns: Int64[np.ndarray, " c"],
    values: Float64[np.ndarray, " c"],
    asked: Places,
    had: Places,
    query: TextWords,
    example: TextWords,
) -> Float64[np.ndarray, "q t"]:
    """A score of counted n-grams by pairs of words, as :attr:`WordScores.scores` has them.

    *columns*, ascending, and *values* are the products that add up to the score. The product of a column is shared
    among the places where its n-grams stand in the query (*asked*), and the part of each among those in the training
    example (*had*). N-grams of as many words give one word's part to the same word of the other text, others to all.
    The product of a column without a place stands in the last row and column.
    """
    found = np.zeros((query.count + 1, example.count + 1))
    here, there = _by_key(asked, query), _by_key(had, example)
    both = here.keys() & there.keys()
    times: Counter[int] = Counter()
    for key in both:
        times[key[0]] += len(here[key])
    value = dict(zip(columns.tolist(), values.tolist(), strict=True))
    found[-1, -1] = sum(part for column, part in value.items() if column not in times)
    for key in sorted(key for key in both if value.get(key[0])):  # so that sums are always in one order
        _share(found, value[key[0]] * len(here[key]) / times[key[0]], here[key], there[key])
    return found


def _by_key(places: Places, words: TextWords) -> dict[tuple[int, int], list[tuple[int, ...]]]:
    """The words of each place of an n-gram, by its column and the n-gram."""
    found: dict[tuple[int, int], list[tuple[int, ...]]] = {}
    for column, ngram, *edges in zip(*(each.tolist() for each in vars(places).values()), strict=True):
        found.setdefault((column, ngram), []).append(words.inside(*edges) or (words.count,))
    return found


def _share(
    total: Float64[np.ndarray, "q t"], value: float, here: list[tuple[int, ...]], there: list[tuple[int, ...]]
) -> None:
    """Share a value among the words of an n-gram's places in both texts."""
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

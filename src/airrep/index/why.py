"""Why a hit has its score: its channels, and the words of both texts.

The lexical part of a score is a sum over columns that both examples have. The product of a column is divided among
the places where its n-gram stands in the query. Overlapping n-grams form one phrase, as far as the training example
has the phrase whole; an n-gram that reaches over the end of a phrase counts towards it. The words are what the score
is computed from, not necessarily a cause.
"""

import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

import numpy as np

from airrep.attributors.base import Attributor, SeveralMethods, parts_of
from airrep.attributors.by_token import TextWords, WordScores, by_shared, by_words
from airrep.attributors.sums.candidates import CandidatesAsked
from airrep.corpus.corpus import Example
from airrep.corpus.places import Places, Span, spans_of
from airrep.corpus.views import has_pairs, seen_text
from airrep.errors import ConfigError
from airrep.index.rows import IndexRows
from airrep.scoring.asked import Asked, SumAsked
from airrep.scoring.products import SparseAsked

PHRASES = 10
"""Most phrases reported for a hit."""
SPANS = 100
"""Most places reported for a phrase, in each example."""
LETTERS = 200
"""Most characters of a phrase that are shown; its places cover all of it."""

ACCENTS = 8
"""Most combining accents that are kept with a letter."""
LONGEST, SEARCHED = 2**16, 2**30
"""Most characters of the query, and most of the query times the example, for which phrases are searched."""
WINDOW = 1024
"""Most n-grams of a phrase that the training example has whole."""

_ODD = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class SameWords:
    """Words that stand in the query and in the training example."""

    text: str
    """The words as the query has them, in one line; the end of a long phrase is cut off."""
    score: float
    """The words' part of the score, in the score's units."""
    query: tuple[Span, ...]
    """Places of the words in the query."""
    example: tuple[Span, ...]
    """Places of the words in the training example; places of their parts if it has only parts."""


@dataclass(frozen=True)
class Why:
    """Parts of a hit's score."""

    channels: dict[str, float]
    """Each channel's part; the parts add up to the score. A method without channels counts as one channel."""
    same_words: tuple[SameWords, ...] = ()
    """Phrases with the greatest parts of the score, greatest first; empty for methods that read no words."""
    predicted: tuple[str, ...] = ()
    """Channels that did not score this example, since it is no candidate: other channels predict their scores."""
    tokens: WordScores | None = None
    """The score by pairs of words of the two texts; None unless requested."""


class Products(NamedTuple):
    """Each column's part of a score."""

    columns: np.ndarray
    """``(c,)`` int64, ascending."""
    values: np.ndarray
    """``(c,)`` float64."""


class _Run(NamedTuple):
    """A stretch of a text that overlapping n-grams cover."""

    start: int
    stop: int
    score: float


class _Kept(NamedTuple):
    """Places of n-grams that both examples have, in order."""

    keys: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    scores: np.ndarray

    def where(self, chosen: np.ndarray) -> "_Kept":
        return _Kept(*(part[chosen] for part in self))

    def inside(self, run: _Run) -> np.ndarray:
        """Return the keys of n-grams that lie in a stretch."""
        first, last = np.searchsorted(self.starts, [run.start, run.stop])
        return self.keys[first:last][self.stops[first:last] <= run.stop]

    def runs(self) -> list[_Run]:
        """Merge overlapping places into stretches."""
        if not len(self.starts):
            return []
        reach = np.maximum.accumulate(self.stops)
        first = np.flatnonzero(np.append(True, self.starts[1:] >= reach[:-1]))
        stops = reach[np.append(first[1:], len(reach)) - 1]
        scores = np.add.reduceat(self.scores, first)
        return list(map(_Run, self.starts[first].tolist(), stops.tolist(), scores.tolist()))


def same_words(
    products: Products, query: Example, asked: Places, example: Example, had: Places, most: int | None = PHRASES
) -> tuple[SameWords, ...]:
    """Find the *most* phrases (None: all) that query and training example share, the greatest absolute scores first.

    *products* are those of their features, *asked* and *had* these features' places in the texts. Scores of all phrases
    add up to the products of all columns with a place in both texts.
    """
    in_query, in_example = _shared(products, asked, had)
    text, other = seen_text(query, "whole"), seen_text(example, "whole")
    runs: Iterable[_Run] = in_query.runs()
    if len(text) <= LONGEST and len(text) * len(other) <= SEARCHED:
        there = _words(other)
        runs = chain.from_iterable(_found(run, in_query, text, there) for run in runs)
    phrases: dict[str, list[_Run]] = {}
    for run in runs:
        phrases.setdefault(_words(text[run.start : run.stop]), []).append(run)
    ranked = sorted(phrases, key=lambda words: -abs(sum(run.score for run in phrases[words])))
    return tuple(_told(words, phrases[words], query, in_query, example, in_example) for words in ranked[:most])


def _shared(products: Products, asked: Places, had: Places) -> tuple[_Kept, _Kept]:
    """Return the places, in query and example, of common n-grams with a product; the query's have shares of it."""
    keys, others = _keys(asked), _keys(had)
    column = np.searchsorted(products.columns, asked.columns)
    column[column == len(products.columns)] = 0
    counts = np.isin(keys, others)
    if len(products.columns):
        counts &= products.columns[column] == asked.columns
    else:
        counts[:] = False
    times = np.bincount(column[counts], minlength=len(products.columns))
    scores = np.zeros(len(keys))
    scores[counts] = products.values[column[counts]] / times[column[counts]]
    in_query = _ordered(keys, asked, counts, scores)
    there = np.isin(others, in_query.keys)
    return in_query, _ordered(others, had, there, np.zeros(len(others)))


def _keys(places: Places) -> np.ndarray:
    """Return 64 bits for each pair of column and n-gram."""
    return np.asarray(places.ngrams + places.columns.astype(np.uint64) * _ODD)


def _ordered(keys: np.ndarray, places: Places, chosen: np.ndarray, scores: np.ndarray) -> _Kept:
    kept = _Kept(keys, places.starts, places.stops, scores).where(chosen)
    return kept.where(np.argsort(kept.starts, kind="stable"))


def _found(run: _Run, kept: _Kept, text: str, there: str) -> Iterator[_Run]:
    """Split a stretch of the query, from the left, into few parts whose words the example's text *there* has."""
    if _words(text[run.start : run.stop]) in there:
        yield run
        return
    first, last = np.searchsorted(kept.starts, [run.start, run.stop]).tolist()
    while first < last:
        start = int(kept.starts[first])
        same = first + int(np.searchsorted(kept.starts[first:last], start, side="right"))
        least = int(kept.stops[first:same].min())  # the example has one n-gram, though perhaps with other letters
        ends = [end for end in np.unique(kept.stops[first : min(last, first + WINDOW)]).tolist() if end > least]
        more = bisect_left(ends, True, key=lambda end: _words(text[start:end]) not in there)
        stop = ends[more - 1] if more else least
        after = first + int(np.searchsorted(kept.starts[first:last], stop))
        yield _Run(start, stop, float(kept.scores[first:after].sum()))
        first = after


def _told(
    words: str, runs: list[_Run], query: Example, in_query: _Kept, example: Example, in_example: _Kept
) -> SameWords:
    """Describe a phrase, with its places in both examples."""
    inside = np.concatenate([in_query.inside(run) for run in runs])
    found = in_example.where(np.isin(in_example.keys, inside)).runs()
    text = seen_text(example, "whole")
    whole = [one for one in found if _words(text[one.start : one.stop]) == words]
    first = " ".join(seen_text(query, "whole")[runs[0].start : runs[0].stop].split())
    return SameWords(
        first if len(first) <= LETTERS else first[: LETTERS - 1] + "…",
        float(sum(one.score for one in runs)),
        _spans(query, runs),
        _spans(example, whole or found),
    )


def _words(text: str) -> str:
    """Normalise a text to compare phrases: one line, and without case."""
    return " ".join(text.casefold().split())


def _spans(example: Example, runs: Iterable[_Run]) -> tuple[Span, ...]:
    text = seen_text(example, "whole")
    found = [span for run in list(runs)[:SPANS] for span in spans_of(example, *_whole_signs(text, run))]
    return tuple(found[:SPANS])


def _whole_signs(text: str, run: _Run) -> tuple[int, int]:
    """Widen a stretch so that it does not cut a letter from its accents, as tokens may do."""
    start, stop = run.start, run.stop
    while start > max(0, run.start - ACCENTS) and _joins(text[start]):
        start -= 1
    while stop < min(len(text), run.stop + ACCENTS) and _joins(text[stop]):
        stop += 1
    return start, stop


def _joins(sign: str) -> bool:
    return unicodedata.category(sign) in ("Mn", "Mc", "Me")


class Scored(NamedTuple):
    """A training example, and its score for a query."""

    row: int
    score: float


def check_tokens(attributor: Attributor) -> None:
    """Raise ConfigError if a method, or every channel of a sum, cannot divide scores among tokens."""
    parts = parts_of(attributor)
    own = (type(part) for part in parts)
    if all(one.tokens is Attributor.tokens and one.places is Attributor.places for one in own):
        raise _without_tokens([part.name for part in parts])


def _without_tokens(names: Iterable[str]) -> ConfigError:
    return ConfigError(
        f"tokens: {' and '.join(names)} cannot divide a score among tokens. Build an index with a method that reads "
        "gradients or counts words: --method logra or ngram."
    )


class Reasons:
    """Explains the scores of a query's hits, from stored features; with tokens, gradients are computed again."""

    def __init__(self, rows: IndexRows, attributor: Attributor) -> None:
        self._index, self._name = rows, attributor.name
        names = [one.name for one in rows.channels]
        parts = attributor.parts if isinstance(attributor, SeveralMethods) else [attributor] * len(names)
        self._methods = dict(zip(names, parts, strict=True))

    def of(
        self, query: Example, asked: Asked, place: int, hits: Sequence[Scored], *, tokens: bool = False
    ) -> list[Why]:
        """Explain the score of each hit for a query, whose *place* among the prepared queries *asked* is given.

        *tokens* also divides the score among pairs of words of both texts. ConfigError: no channel can score tokens.
        """
        one = asked.chosen(slice(place, place + 1))
        words = {
            name: (part, weight) for name, part, weight in _parts(one, self._name) if isinstance(part, SparseAsked)
        }
        stood = {channel: self._methods[channel].places(query) for channel in words}
        spoken = {channel: own.touched(query) for channel, own in stood.items() if own is not None}
        found = [self._why(query, one, {channel: words[channel] for channel in spoken}, spoken, hit) for hit in hits]
        if not tokens:
            return found
        told = self._by_words(query, one, hits, found)
        return [replace(why, tokens=own) for why, own in zip(found, told, strict=True)]

    def _why(
        self,
        query: Example,
        asked: Asked,
        words: "Mapping[str, tuple[SparseAsked, float]]",
        places: Mapping[str, Places],
        hit: Scored,
    ) -> Why:
        parts = asked.channels()
        channels = {name: float(part.of_row(hit.row)[0]) for name, part in parts.items()} or {self._name: hit.score}
        example = self._index.example(hit.row)
        had = {name: own for name in words if (own := self._methods[name].places(example)) is not None}
        sums = asked.parts.items() if isinstance(asked, SumAsked) else ()
        predicted = tuple(
            name for name, part in sums if isinstance(part, CandidatesAsked) and hit.row not in part.picked[0]
        )
        if not had:
            return Why(channels, predicted=predicted)
        starts = np.cumsum([0, *(words[name][0].queries.shape[1] for name in had)]).tolist()
        columns, values = [], []
        for start, name in zip(starts, had, strict=False):
            part, weight = words[name]
            column, value = part.products(0, hit.row)
            columns.append(column + start)
            values.append(value * weight)
        products = Products(np.concatenate(columns), np.concatenate(values))
        together = [Places.beside([own[name] for name in had], starts[:-1]) for own in (places, had)]
        return Why(channels, same_words(products, query, together[0], example, together[1]), predicted)

    def _by_words(self, query: Example, asked: Asked, hits: Sequence[Scored], whys: Sequence[Why]) -> list[WordScores]:
        """Divide the score of each hit among pairs of words."""
        examples = [self._index.example(hit.row) for hit in hits]
        if has_pairs([query, *examples]):
            raise ConfigError(
                "tokens: the score of a pair (a chosen and a rejected response) cannot be divided among words. Remove "
                "--tokens, or tokens=True in Python."
            )
        asking, words = TextWords(query), list(map(TextWords, examples))
        totals = [np.zeros((asking.count + 1, own.count + 1)) for own in words]
        rests = [dict(why.channels) for why in whys]
        some = False
        for name, part, weight in _parts(asked, self._name):
            method, read = self._methods[name], [n for n, why in enumerate(whys) if name not in why.predicted]
            places = method.places(query) if isinstance(part, SparseAsked) else None
            if isinstance(part, SparseAsked) and places is not None:
                had = [(n, method.places(examples[n])) for n in read]
                found = [
                    by_shared(*part.products(0, hits[n].row), places.asked(query), own, asking, words[n])
                    for n, own in had
                    if own is not None
                ]
            elif read and (split := method.tokens(query, [examples[n] for n in read])) is not None:
                found = [by_words(one, asking, words[n]) for n, one in zip(read, split, strict=True)]
            else:
                continue  # the channel cannot divide scores
            some = True
            for n, own in zip(read, found, strict=False):
                totals[n] += weight * own
                rests[n][name] -= weight * float(own.sum())
        if not some:
            raise _without_tokens(self._methods)
        scores = [tuple(map(tuple, total.astype(np.float32).tolist())) for total in totals]
        told = zip((own.spans for own in words), scores, rests, strict=True)
        return [WordScores(asking.spans, *parts) for parts in told]


def _parts(asked: Asked, name: str) -> Iterator[tuple[str, Asked, float]]:
    """Yield the channels of a single query with their weights; without a sum, the query as one channel."""
    parts = asked.parts if isinstance(asked, SumAsked) else {name: asked}
    weights = asked.weights[0].tolist() if isinstance(asked, SumAsked) else [1.0]
    yield from ((channel, part, weight) for (channel, part), weight in zip(parts.items(), weights, strict=True))

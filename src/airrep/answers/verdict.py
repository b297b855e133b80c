"""The verdict on each answer; its words that the training data hold.

Words are compared in lower case, whatever signs and spaces stand between them. Texts that may hold some are found by
one pattern over Arrow's columns, which reads some hundred MB a second; only these are cut into words.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from airrep.answers.outside import COUNTED, MANY, Nearest, nearest, outside
from airrep.answers.spread import Ends, Spread, beside_spread, spread_of
from airrep.arrays import Mask, compute
from airrep.attributors.base import OnProgress
from airrep.corpus.corpus import Example
from airrep.corpus.inputs import given_or_typed
from airrep.corpus.places import Field, Span, ends_in, lower_case
from airrep.corpus.table import Column
from airrep.corpus.words import Words, unspaced
from airrep.errors import ConfigError
from airrep.index.contrast import Better, Question
from airrep.index.index import Index, IndexLike, Queries, as_index
from airrep.index.results.hits import Copied, CopyPlace, Hits, Kind, Verdict, kind_of
from airrep.index.results.kinds import TopResult
from airrep.index.why import check_tokens
from airrep.scoring.asked import Asked
from airrep.scoring.blocks import at_most

LEAST, LEAST_SIGNS = 4, 8
"""Words in a row that count as copied; signs, where each is a word of its own."""
TOLD, PLACES = 5, 20
"""Copied stretches told of an answer, and places told of each."""
STRETCHES = 48
"""Stretches of an answer that are looked for by one pattern: RE2 keeps those of more in no state machine."""
READ = 20_000
"""Texts of one kind that are cut into words at most; of more, the counts are a part."""
_BETWEEN = "[^a-z0-9_]+"
"""Characters that may stand between two words in a text, and a few more."""
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
    """A stretch of an answer's words that some text holds."""

    first: int
    last: int


def copied(index: Index, answers: Sequence[Example], keep: Mask) -> list[tuple[Copied, ...]]:
    """The longest stretches of each answer that training examples hold word for word, longest first.

    Of an answer with a span those that touch it. *keep* are the rows that count, ``(n,)``.
    """
    return [_Search(answer).copied(index, keep) for answer in answers]


def with_copied(index: Index, found: Iterable[Hits], keep: Mask) -> tuple[Hits, ...]:
    """Rankings, each with what its answer has word for word from the training data."""
    told = list(found)
    pairs = zip(told, copied(index, [hits.query for hits in told], keep), strict=True)
    return tuple(replace(hits, copied=own) for hits, own in pairs)


class _Search:
    """Looks for the words of one answer."""

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
        """Return what is found, longest first."""
        found: dict[_Held, dict[int, CopyPlace]] = defaultdict(dict)
        for row, field, text in self._candidates(index, keep):
            for held, start, stop in self._held(_Text.of(text, self._finder)):
                found[held].setdefault(row, CopyPlace(row, Span(field, start, stop)))
        return tuple(self._told(held, found) for held in self._longest(found))

    def _longest(self, found: Mapping[_Held, object]) -> list[_Held]:
        """Stretches that lie in no other, and touch the span if there is one; the longest first."""
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
        """A stretch, with all rows that hold it, alone or in a longer one."""
        rows: dict[int, CopyPlace] = {}
        for other, places in found.items():
            if other.first <= held.first and held.last <= other.last:
                rows |= places
        start, stop = self._place(held)
        text = " ".join(self._answer.response[start:stop].split())
        first = tuple(rows[row] for row in sorted(rows)[:PLACES])
        return Copied(text, held.last - held.first, Span("response", start, stop), len(rows), first)

    def _candidates(self, index: Index, keep: Mask) -> Iterator[tuple[int, Field, str]]:
        """Row, field and text of what may hold some stretch of the least length."""
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
        """True for each text that the pattern of some window fits, ``(n,)``."""
        found = np.zeros(len(column), bool)
        windows = [self._between.join(map(re.escape, words)) for words in self._windows]
        for first in range(0, len(windows), STRETCHES):
            pattern = "|".join(windows[first : first + STRETCHES])
            fits = compute.match_substring_regex(column, pattern, ignore_case=True)
            found |= fits.to_numpy(zero_copy_only=False).astype(bool)
        return found

    def _held(self, other: _Text) -> Iterator[tuple[_Held, int, int]]:
        """The longest stretches from each place of a text, and where they stand in it."""
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


TOGETHER = 64
"""Answers judged at a time."""
OPENINGS: Mapping[Kind, str] = {"stands out": "Stands out", "weak": "Weak", "nothing": "Nothing here taught this"}


def top(
    index: IndexLike,
    queries: Example | Queries | None = None,
    k: int = 10,
    *,
    better: Better | None = None,
    prompt: str | None = None,
    response: str | None = None,
    least: bool = False,
    where: str | None = None,
    why: bool = False,
    tokens: bool = False,
    progress: OnProgress | None = None,
) -> TopResult:
    """Find the training examples that taught each answer most, with a verdict: did anything in the data teach it?

    Hits are those of :meth:`airrep.Index.top`. Each hit also says how many standard deviations its score lies above the
    mean of all examples. The most harmful examples get no verdict.

    Args:
        index: the index to ask; or its path.
        queries: prompts with the answers to explain; or one, by its *prompt* and *response*.
        k: how many training examples for each; all, if fewer pass the filter.
        better: better answers: a text, the name of a field of the queries' records, or examples with the same prompts.
            Then examples rank first that taught the answer instead of the better one.
        prompt: the prompt of a single answer to explain.
        response: that answer, instead of *queries*.
        least: the most harmful examples first.
        where: and *why*, *tokens*, *progress*: as for :meth:`airrep.Index.top`.

    Raises:
        ConfigError: k is below 1, there is no answer, one has no better one, a filter is bad or fulfilled by no
            example, or *tokens* are asked for and no channel has any.

    Example:
        >>> (found,) = airrep.top(index, prompt="question 3", response="answer 3", k=2)
        >>> [hit.rank for hit in found]
        [1, 2]
    """
    index = as_index(index)
    question, keep = index.question(given_or_typed(queries, prompt, response, "queries"), better), index.mask(where)
    k = at_most("top: k", k, int(keep.sum()))
    if tokens:
        check_tokens(index.attributor)
    asked = index.ask(question, progress)
    found = index.top_of(question, asked, keep, k, least=least, why=why, tokens=tokens)
    if why or tokens:
        found = replace(found, queries=with_copied(index, found.queries, keep))
    if least:
        return beside_spread(found, spread_of(question.ranked(asked), keep))
    told = list[Hits]()
    for start in range(0, len(found), TOGETHER):
        places = slice(start, start + TOGETHER)
        part, own = _part(question, asked, places)
        judged, spread = verdicts(index, part, own, keep)
        beside = beside_spread(found[places], spread or spread_of(part.ranked(own), keep))
        told += [replace(hits, verdict=one) for hits, one in zip(beside, judged, strict=True)]
    return replace(found, queries=tuple(told))


def _part(question: Question, asked: Asked, places: slice) -> tuple[Question, Asked]:
    """Some queries of a question, with their better answers."""
    better, count = question.better, len(question.queries)
    chosen = np.arange(count)[places]
    part = Question(question.queries[places], None if better is None else better[places])
    return part, asked.chosen(chosen if better is None else np.concatenate([chosen, chosen + count]))


def verdicts(
    index: Index, question: Question, asked: Asked, keep: Mask, ends: Ends | None = None
) -> tuple[list[Verdict | None], Spread | None]:
    """The verdict on each answer, and the spread of what all kept rows are ranked by, where it came up.

    An answer with a span gets None, and so do all where the method knows its own texts alone. Chances are those of
    whole answers: a few words are more easily come near to. *ends* are as for :func:`airrep.answers.outside.nearest`.
    """
    contrast = question.better is not None
    spanned = [answer.span is not None for answer in question.queries]
    known = None if all(spanned) else outside(index, contrast=contrast)
    if known is None:
        return [None] * len(spanned), None
    try:
        found = nearest(index, question, asked, keep, ends)
    except ConfigError:  # a copy of an answer is no training example of a method that knows its own alone
        return [None] * len(spanned), None
    letters = [len(answer.response) for answer in question.queries]
    chances = map(known.chance, found.shares.tolist(), found.tenth.tolist(), letters)
    judged = (_verdict(found, place, chance, contrast=contrast) for place, chance in enumerate(chances))
    return [None if part else one for part, one in zip(spanned, judged, strict=True)], found.spread


def _verdict(found: Nearest, place: int, chance: float, *, contrast: bool) -> Verdict:
    columns = (found.shares, found.tenth, found.deviations, found.rows, found.alike)
    share, tenth, deviations, row, alike = (column[place].item() for column in columns)
    kind = kind_of(chance)
    text = _words(kind, chance, share, tenth if alike >= MANY and kind != "nothing" else None, alike, contrast)
    # As elsewhere numbers are told in float32, whose digits do not depend on shards and other answers.
    near, apart = float(np.float32(max(share, 0.0))), float(np.float32(deviations))
    return Verdict(kind, round(chance, 4), near, apart, row, alike, text)


def _words(kind: Kind, chance: float, share: float, tenth: float | None, alike: int, contrast: bool) -> str:
    """One sentence that a stranger understands; *tenth* is a share that many have."""
    if share <= 0:
        return f"Nothing here taught this. No example teaches this answer{' in place of the better one' * contrast}."
    place = " in place of the better one," if contrast else ""
    percent = f"{max(1, round(100 * (share if tenth is None else tenth)))} %"
    said = f"The closest example teaches this answer{place} {percent}"
    if tenth is not None:
        said = f"{alike}{' or more' if alike >= COUNTED else ''} examples each teach this answer{place} about {percent}"
    often = "fewer than 1" if kind == "stands out" else round(100 * chance)
    return (
        f"{OPENINGS[kind]}. {said} as strongly as an exact copy would. Where nothing taught an answer, an example this "
        f"close turns up in {often} of 100 cases."
    )

"""Words in a row, counted as terms of a vocabulary or in hash buckets.

Words are runs of letters with their marks, digits and underscores, or runs of other signs without white space, in
lower case. An n-gram is n words in a row with one space between them. Its bucket is SHA-256 of its UTF-8 bytes, read as
one whole number (first byte highest), modulo the number of buckets.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import chain, islice
from typing import NamedTuple

import numpy as np

from airrep.arrays import SparseFeatures
from airrep.corpus.corpus import Example, have_spans
from airrep.corpus.places import Places, ends_in, lower_case
from airrep.corpus.views import View, seen_text
from airrep.corpus.words import Words, plain
from airrep.errors import ConfigError, DataError
from airrep.sparse import SparseRows

CACHED = 2**19
"""N-grams whose buckets are remembered; some 150 bytes each."""
BATCH = 4096
"""Texts counted at a time where only the sum is wanted."""

_WORDS = {signs: Words(signs, rest=r"[^\w\s]+") for signs in (False, True)}
"""Without or with signs of scripts without spaces as words."""


def bucket_of(ngram: str, buckets: int) -> int:
    """The bucket of one n-gram, from 0 on."""
    return int.from_bytes(sha256(ngram.encode()).digest(), "big") % buckets


def split_words(text: str, signs: bool = False) -> list[str]:
    """The words of a text, in lower case; of scripts without spaces each sign, if *signs*."""
    return _WORDS[signs].findall(plain(text).lower())


def runs_of(words: list[str], longest: int) -> Iterator[str]:
    """All words, then all of two in a row with a space between them, and so on."""
    longer = (map(" ".join, zip(*(words[start:] for start in range(n)), strict=False)) for n in range(2, longest + 1))
    return chain(words, *longer)


class Terms:
    """A vocabulary of terms: words of two letters or marks or more, in lower case, and so many of them in a row."""

    def __init__(self, names: Sequence[str], signs: bool = False, longest: int = 1) -> None:
        """Take the terms in the order of their columns; with *signs* those of scripts without spaces are words each."""
        self.names = names
        self.longest = longest
        self._words = Words(signs, least=2)
        self._numbers = {name: number for number, name in enumerate(names)}

    def count(self, texts: Iterable[str]) -> SparseFeatures:
        """How often each text has each term, ``(rows, terms)`` CSR float32, columns ascending."""
        return self._counted(texts, self._numbers.get)[0]

    def learnt(self, texts: Iterable[str], least: int = 1) -> "LearntTerms":
        """The terms that so many texts have at least, in the order of their characters; none of a vocabulary before."""
        found = _Numbering()
        counts, lengths = self._counted(texts, found.__getitem__)
        having = np.bincount(counts.indices, minlength=len(found))
        names = sorted(name for name, number in found.items() if having[number] >= least)
        other = Terms(names, longest=self.longest)
        other._words = self._words
        return LearntTerms(other, having[[found[name] for name in names]], lengths)

    def places(self, example: Example, view: View) -> Places:
        """Where the terms stand in the text that a view shows."""
        low, origin = lower_case(seen_text(example, view))
        words = list(self._words.finditer(low))
        columns, starts, ends = [], [], []
        for length in range(1, self.longest + 1):
            for first in range(len(words) - length + 1):
                column = self._numbers.get(" ".join(word[0] for word in words[first : first + length]))
                if column is not None:
                    columns.append(column)
                    starts.append(int(origin[words[first].start()]))
                    ends.append(words[first + length - 1].end())
        return Places.of(example, view, columns, columns, starts, ends_in(origin, ends))

    def _counted(self, texts: Iterable[str], number: Callable[[str], int | None]) -> tuple[SparseFeatures, np.ndarray]:
        """Counts of what has a number, and how much of it each text has."""
        lengths: list[int] = []

        def numbers() -> Iterator[list[int]]:
            for text in texts:
                words = self._words.findall(plain(text).lower())
                found = [column for column in map(number, runs_of(words, self.longest)) if column is not None]
                lengths.append(len(found))
                yield found

        columns = np.fromiter(chain.from_iterable(numbers()), np.int32)
        width = len(self.names) or int(columns.max(initial=-1)) + 1
        counts = SparseRows.counts(columns, np.cumsum([0, *lengths]), width)
        return counts, np.array(lengths, np.float32)


class LearntTerms(NamedTuple):
    """Terms of a corpus."""

    terms: Terms
    having: np.ndarray
    """``(terms,)`` int64: how many texts have each."""
    lengths: np.ndarray
    """``(rows,)`` float32: how many terms each text has, repeats and rare ones counted."""


def within_spans(
    features: SparseFeatures, examples: Sequence[Example], view: View, places: Callable[[Example], Places]
) -> SparseFeatures:
    """Features that are counts times something, each by the share of its places that lies in its example's span.

    Those of the prompt alone stay as they are: it has no part that is asked about.
    """
    if view == "prompt" or not have_spans(examples):
        return features
    data = features.data.astype(np.float64)
    for row, example in enumerate(examples):
        if example.span is not None:
            cells = slice(features.indptr[row], features.indptr[row + 1])
            own, found = places(example), features.indices[cells]
            touched = np.bincount(np.searchsorted(found, own.columns), own.shares(example), len(found))
            data[cells] *= touched / np.maximum(np.bincount(np.searchsorted(found, own.columns), None, len(found)), 1)
    return features.with_data(data.astype(np.float32))


class _Numbering(dict[str, int]):
    """Numbers of terms, in the order in which they are first asked for."""

    def __missing__(self, term: str) -> int:
        number = self[term] = len(self)
        return number


class NgramCounter:
    """Counts all word n-grams of a text up to some length in hash buckets."""

    def __init__(self, longest: int = 2, buckets: int = 10_000, signs: bool = False) -> None:
        """Count n-grams of up to *longest* words; those that share a bucket are counted together.

        With *signs* those of scripts that put no space between words are words each.
        """
        if longest < 1 or buckets < 1:
            raise ConfigError(f"ngrams {longest}, buckets {buckets}: expected 1 or more. Correct the value.")
        self.longest, self.buckets, self._signs = longest, buckets, signs
        self._numbers = _BucketCache(buckets)

    def count(self, texts: Iterable[str]) -> SparseFeatures:
        """Counts of each text, ``(rows, buckets)`` CSR float32; each row depends on its text alone."""
        numbers: list[int] = []
        ends = [0]
        for text in texts:
            numbers.extend(map(self._numbers.__getitem__, runs_of(split_words(text, self._signs), self.longest)))
            ends.append(len(numbers))
        return SparseRows.counts(np.array(numbers, np.int64), np.array(ends), self.buckets)

    def places(self, example: Example, view: View) -> Places:
        """Where the n-grams of an example stand in the text that a view shows."""
        low, origin = lower_case(seen_text(example, view))
        words = list(_WORDS[self._signs].finditer(low))
        starts = origin[np.array([word.start() for word in words], np.int64)]
        stops = ends_in(origin, [word.end() for word in words])
        count = [len(words) - n + 1 for n in range(1, self.longest + 1) if n <= len(words)]
        ngrams = list(runs_of([word[0] for word in words], self.longest))
        return Places.of(
            example,
            view,
            [self._numbers[ngram] for ngram in ngrams],
            np.array([bucket_of(ngram, 2**64) for ngram in ngrams], np.uint64),
            np.concatenate([starts[:few] for few in count]) if count else [],
            np.concatenate([stops[len(words) - few :] for few in count]) if count else [],
        )

    def total(self, texts: Iterable[str]) -> np.ndarray:
        """Counts of all texts together, ``(buckets,)`` int64."""
        total, left = np.zeros(self.buckets, dtype=np.int64), iter(texts)
        while batch := list(islice(left, BATCH)):
            total += self.count(batch).sum(axis=0).astype(np.int64)
        return total


class _BucketCache(dict[str, int]):
    """A cache of buckets by n-gram, emptied when it is full."""

    def __init__(self, buckets: int) -> None:
        self.buckets = buckets

    def __missing__(self, ngram: str) -> int:
        if len(self) >= CACHED:
            self.clear()
        number = self[ngram] = bucket_of(ngram, self.buckets)
        return number


def log_ratio(target: np.ndarray, source: np.ndarray, smoothing: float) -> np.ndarray:
    """Log ratio of each bucket's probabilities: log(p_target + ε) − log(p_source + ε).

    Its inner product with the counts of a text is the log importance weight of the text (DSIR). Targets are counts,
    ``(d,)`` or ``(q, d)``, each row one of its own. ε is the smoothing; shares do not add up to 1 with it.

    Raises:
        DataError: the source or a target counts nothing.
    """
    ratio: np.ndarray = _log_shares(target, "target", smoothing) - _log_shares(source, "source", smoothing)
    return ratio


def _log_shares(counts: np.ndarray, what: str, smoothing: float) -> np.ndarray:
    totals = counts.sum(axis=-1, keepdims=True, dtype=np.float64)
    if not (totals > 0).all():
        raise DataError(f"{what}: counts no n-gram; expected at least one. Give texts with words.")
    logs: np.ndarray = np.log(counts / totals + smoothing)
    return logs

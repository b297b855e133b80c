"""Terms of two letters or more and their runs: numbered, counted, placed."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from airrep.arrays import SparseFeatures
from airrep.attributors.text.ngrams import runs_of
from airrep.corpus.corpus import Example
from airrep.corpus.places import Places, ends_in, lower_case
from airrep.corpus.views import View, seen_text
from airrep.corpus.words import Words, plain
from airrep.sparse import SparseRows


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


class _Numbering(dict[str, int]):
    """Numbers of terms, in the order in which they are first asked for."""

    def __missing__(self, term: str) -> int:
        number = self[term] = len(self)
        return number

"""N-grams of a corpus, counted in bounded memory; its tokens while there is room."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from airrep.attributors.text.columns import BUCKETS, LENGTH, firsts, order_of
from airrep.attributors.text.tokens import TokenBatch
from airrep.corpus.corpus import Corpus, Example

TOGETHER = 2**23
"""N-grams that are sorted and counted at a time, four bytes each."""
HELD = 2**26
"""Bytes of tokens that are held."""
_PART = 2**24
"""Columns of a table that are looked at together."""


class Background(NamedTuple):
    """Counts of n-grams in the training corpus."""

    columns: np.ndarray
    """``(k,)`` int32, ascending: the columns of n-grams that occur twice or more."""
    counts: np.ndarray
    """``(k,)`` int64 of each."""
    totals: np.ndarray
    """``(orders, 2)`` int64: n-grams of each order in all, and how many different ones."""

    def frequency(self, columns: np.ndarray, smoothing: float) -> np.ndarray:
        """Relative frequencies, smoothed; an n-gram that is not listed counts as one that occurs once."""
        counts = np.ones(len(columns))
        if len(self.columns):
            place = np.minimum(np.searchsorted(self.columns, columns), len(self.columns) - 1)
            counts = np.where(self.columns[place] == columns, self.counts[place], 1)
        # An order that the corpus has no n-gram of counts as if it had one, so that it may come with appended examples.
        whole, different = self.totals.clip(min=1).T
        return np.asarray((counts + smoothing) / (whole + smoothing * different)[order_of(columns)])


def tally(parts: Iterable[np.ndarray], kinds: int) -> Background:
    """Count the columns of a corpus, given part by part with repeats, ``(k,)`` int32 each, of so many orders.

    Few are sorted. Of many a table has one byte for each column, and what goes beyond it stands apart: so memory does
    not grow with the corpus, but for the n-grams that occur twice.
    """
    table: _Table | None = None
    none = np.empty(0, np.int32)
    waiting = [none]
    for part in parts:
        waiting.append(part)
        if sum(map(len, waiting)) >= TOGETHER:
            table = table or _Table(kinds)
            table.add(*_counts(waiting))
            waiting = [none]
    columns, counts = _counts(waiting)
    if table is not None:
        table.add(columns, counts)
        return table.background()
    order, often = order_of(columns), counts > 1  # the others, which are most, need not be listed
    totals = np.stack([np.bincount(order, counts, kinds), np.bincount(order, minlength=kinds)], axis=1)
    return Background(columns[often], counts[often], totals.astype(np.int64))


def _counts(parts: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Different columns, ascending, and how often each occurs."""
    found = np.sort(np.concatenate(parts))
    first = firsts(found)
    return found[first], np.diff(first, append=len(found))


class _Table:
    """The last byte of each column's count, and the rest of large ones."""

    def __init__(self, kinds: int) -> None:
        self._low = np.zeros((kinds, BUCKETS), np.uint8)
        self._high = [(np.empty(0, np.int32), np.empty(0, np.int64))]

    def add(self, columns: np.ndarray, counts: np.ndarray) -> None:
        """Add counts of different columns."""
        low, places = self._low.ravel(), columns - (LENGTH + 1)
        sums = low[places] + counts
        low[places] = sums.astype(np.uint8)
        over = np.flatnonzero(sums >> 8)
        self._high.append((columns[over], sums[over] >> 8))

    def background(self) -> Background:
        """All that was added."""
        found, sums = (np.concatenate(part) for part in zip(*self._high, strict=True))
        high, place = np.unique(found, return_inverse=True)
        more = np.bincount(place, sums, len(high)).astype(np.int64) << 8
        totals = np.array([[part.sum(dtype=np.int64), np.count_nonzero(part)] for part in self._low])
        order, gone = order_of(high), self._low.ravel()[high - (LENGTH + 1)] == 0  # to the last byte
        for row, part in enumerate((more, gone)):
            totals[:, row] += np.bincount(order, part, len(totals)).astype(np.int64)
        columns = np.union1d(self._often(), high)
        counts = self._low.ravel()[columns - (LENGTH + 1)].astype(np.int64)
        counts[np.searchsorted(columns, high)] += more
        return Background(columns, counts, totals)

    def _often(self) -> np.ndarray:
        """Columns whose last byte is above 1, ascending, looked for part by part."""
        parts = self._low.reshape(-1, _PART)
        return np.concatenate(
            [
                np.flatnonzero(part > 1).astype(np.int32) + np.int32(LENGTH + 1 + n * _PART)
                for n, part in enumerate(parts)
            ]
        )


class HeldTokens:
    """Tokens of parts of a corpus that were read and will be read again, each taken once."""

    def __init__(self) -> None:
        self._known: dict[str, TokenBatch] = {}
        self._left = HELD

    def add(self, part: Sequence[Example], tokens: TokenBatch) -> None:
        """Hold the tokens of a part if there is room."""
        size = tokens.numbers.nbytes + tokens.ends.nbytes
        if isinstance(part, Corpus) and size <= self._left:
            self._known[part.fingerprint] = tokens
            self._left -= size

    def taken(self, part: Sequence[Example]) -> TokenBatch | None:
        """The tokens of a part, not held any more; None where they are not."""
        return self._known.pop(part.fingerprint, None) if self._known and isinstance(part, Corpus) else None

"""Length-sorted packing of token sequences without padding.

Sequences are concatenated. A batch holds sequences of similar length, so that attention, the only step
that mixes tokens, runs over a few groups of equal length; all other steps see one long list of tokens.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby
from typing import NamedTuple

import numpy as np

from airrep.arrays import Rows


class EqualRun(NamedTuple):
    """Adjacent sequences of equal length in a batch: ``sequences * length`` tokens from token ``start`` on."""

    start: int
    sequences: int
    length: int


class Batch(NamedTuple):
    """Sequences to concatenate, longest first: their row numbers and their lengths in tokens."""

    rows: Rows
    lengths: Rows

    @property
    def tokens(self) -> int:
        """Number of tokens, ``t``."""
        return int(self.lengths.sum())

    @property
    def runs(self) -> tuple[EqualRun, ...]:
        """The batch cut into runs of equal lengths; together they cover every token once, in order."""
        return runs_of(self.lengths.tolist())

    @property
    def positions(self) -> Rows:
        """The position of each token in its own sequence, from 0: ``(t,)``."""
        starts = np.cumsum(self.lengths) - self.lengths
        return np.arange(self.tokens, dtype=np.int64) - np.repeat(starts, self.lengths)


def runs_of(lengths: Sequence[int]) -> tuple[EqualRun, ...]:
    """Group adjacent sequences of equal length, given the number of tokens of each."""
    groups = [(length, len(list(members))) for length, members in groupby(lengths)]
    starts = accumulate((length * count for length, count in groups), initial=0)
    return tuple(EqualRun(start, count, length) for start, (length, count) in zip(starts, groups, strict=False))


def pack(lengths: Rows, batch_tokens: int) -> Iterator[Batch]:
    """Sort sequences by length, longest first, and cut them into batches of at most *batch_tokens* tokens.

    A longer sequence is a batch of its own. Each row is in one batch; rows of equal length keep their order.
    """
    order = np.argsort(-lengths, kind="stable")
    ends = np.cumsum(lengths[order])
    first = 0
    while first < len(order):
        spent = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, spent + batch_tokens, side="right")))
        rows = order[first:last]
        yield Batch(rows, lengths[rows])
        first = last

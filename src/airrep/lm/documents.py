"""Tokenised examples: token ids, and where responses start."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Self

import numpy as np

from airrep.arrays import Rows
from airrep.shapes import Float32


@dataclass(frozen=True, slots=True, eq=False)
class Documents:
    """Token ids of n examples, laid end to end: prompt, then response.

    Attributes:
        ids: token ids of all, ``(t,)``.
        offsets: document i is ``ids[offsets[i]:offsets[i + 1]]``, ``(n + 1,)``.
        starts: place in document i at which its response starts, at least 1, ``(n,)``.
        shares: how much of the loss of each response token is asked for, document after document, ``(r,)`` from 0 to
            1; None for all. A mean over a response has all of its tokens as its divisor. In a fine-tune they say how
            much of each token is learnt: 0 masks it.
    """

    ids: Rows
    offsets: Rows
    starts: Rows
    shares: Float32[np.ndarray, " r"] | None = None

    @classmethod
    def of(
        cls, documents: Iterable[tuple[Sequence[int] | Rows, int]], shares: Sequence[np.ndarray] | None = None
    ) -> Self:
        """Lay documents end to end, each given by its ids and the start of its response, and perhaps its shares."""
        held = list(documents)
        lengths = [len(ids) for ids, _ in held]
        return cls(
            np.fromiter(chain.from_iterable(ids for ids, _ in held), np.int64, sum(lengths)),
            np.cumsum([0, *lengths], dtype=np.int64),
            np.array([start for _, start in held], np.int64),
            None if shares is None else np.concatenate([np.empty(0), *shares]).astype(np.float32),
        )

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def lengths(self) -> Rows:
        """Tokens in each document, ``(n,)``."""
        lengths: Rows = np.diff(self.offsets)
        return lengths

    @property
    def response_lengths(self) -> Rows:
        """Tokens in each response, ``(n,)``."""
        lengths: Rows = self.lengths - self.starts
        return lengths

    def sequence(self, row: int) -> Rows:
        """Token ids of one document."""
        ids: Rows = self.ids[self.offsets[row] : self.offsets[row + 1]]
        return ids

    def take(self, rows: Sequence[int] | Rows) -> "Documents":
        """Documents of the given rows, in the given order; a row may be given more than once."""
        shares = None if self.shares is None else [self.shares_of(row) for row in rows]
        return Documents.of(((self.sequence(row), int(self.starts[row])) for row in rows), shares)

    def shares_of(self, row: int) -> Float32[np.ndarray, " r"]:
        """How much of the loss of each response token of one document is asked for; ones where all of it is."""
        if self.shares is None:
            return np.ones(int(self.response_lengths[row]), np.float32)
        ends = np.cumsum(self.response_lengths)
        return self.shares[ends[row] - self.response_lengths[row] : ends[row]]

"""Tokenised examples: token ids, and where responses start."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Self

import numpy as np

from airrep.arrays import Rows


@dataclass(frozen=True, slots=True, eq=False)
class Documents:
    """Token ids of n examples, laid end to end: prompt, then response.

    Attributes:
        ids: token ids of all, ``(t,)``.
        offsets: document i is ``ids[offsets[i]:offsets[i + 1]]``, ``(n + 1,)``.
        starts: place in document i at which its response starts, at least 1, ``(n,)``.
    """

    ids: Rows
    offsets: Rows
    starts: Rows

    @classmethod
    def of(cls, documents: Iterable[tuple[Sequence[int] | Rows, int]]) -> Self:
        """Lay documents end to end, each given by its ids and the start of its response."""
        held = list(documents)
        lengths = [len(ids) for ids, _ in held]
        return cls(
            np.fromiter(chain.from_iterable(ids for ids, _ in held), np.int64, sum(lengths)),
            np.cumsum([0, *lengths], dtype=np.int64),
            np.array([start for _, start in held], np.int64),
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
        return Documents.of((self.sequence(row), int(self.starts[row])) for row in rows)

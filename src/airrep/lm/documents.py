"""Tokenised examples, and packed batches of them for causal LMs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, Self

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from airrep.arrays import Rows
from airrep.runtime.packing import Batch


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


class AttentionSpan(NamedTuple):
    """Neighbouring documents that attention handles in one call: ``sequences`` of up to ``longest`` tokens.

    ``pad`` names for each place of the ``(sequences, longest)`` table a token, and ``keep`` for each token its
    place; both are None where all are of equal length, so that the tokens are that table as they lie.
    """

    tokens: int
    sequences: int
    longest: int
    pad: Int64[Tensor, " places"] | None
    keep: Int64[Tensor, " tokens"] | None


class PackedDocuments(NamedTuple):
    """A batch as the LM reads it.

    Attributes:
        ids: token ids, ``(1, t)``.
        positions: each token's place in its own document, ``(1, t)``.
        spans: documents that attention handles together; in order, they cover every token once.
        predictors: tokens after which a response token comes, ``(r,)``.
        targets: those response tokens, ``(r,)``.
        owners: the document of the batch that each belongs to, ``(r,)``.
    """

    ids: Int64[Tensor, "1 t"]
    positions: Int64[Tensor, "1 t"]
    spans: tuple[AttentionSpan, ...]
    predictors: Int64[Tensor, " r"]
    targets: Int64[Tensor, " r"]
    owners: Int64[Tensor, " r"]

    @classmethod
    def from_batch(cls, documents: Documents, batch: Batch, device: str = "cpu", padding: int = 0) -> Self:
        """Lay the documents of a batch end to end.

        *padding* is how many free places a span may have. 0: only equal lengths together. More: fewer calls of
        attention.
        """
        ids = np.concatenate([documents.sequence(row) for row in batch.rows])
        positions = batch.positions
        owners = np.repeat(np.arange(len(batch.rows)), batch.lengths)
        answered = np.flatnonzero(positions >= documents.starts[batch.rows][owners])
        tensors = (torch.from_numpy(array).to(device) for array in (answered - 1, ids[answered], owners[answered]))
        return cls(
            torch.from_numpy(ids)[None].to(device),
            torch.from_numpy(positions)[None].to(device),
            spans_of(batch.lengths, device, padding),
            *tensors,
        )


def spans_of(lengths: Rows, device: str = "cpu", padding: int = 0) -> tuple[AttentionSpan, ...]:
    """Cut documents, longest first, into spans of similar lengths (see :meth:`PackedDocuments.from_batch`)."""
    spans = []
    first = 0
    while first < len(lengths):
        free = np.cumsum(lengths[first] - lengths[first:])
        last = first + int(np.searchsorted(free, padding, side="right"))
        spans.append(_span(lengths[first:last], device))
        first = last
    return tuple(spans)


def _span(lengths: Rows, device: str) -> AttentionSpan:
    longest, tokens = int(lengths[0]), int(lengths.sum())
    if tokens == len(lengths) * longest:
        return AttentionSpan(tokens, len(lengths), longest, None, None)
    starts = np.cumsum(lengths) - lengths
    places = np.arange(longest)[None, :]
    # Free places hold copies of the document's last token, which no kept place attends to.
    pad = starts[:, None] + np.minimum(places, lengths[:, None] - 1)
    keep = np.flatnonzero((places < lengths[:, None]).ravel())
    return AttentionSpan(
        tokens, len(lengths), longest, *(torch.from_numpy(each.ravel()).to(device) for each in (pad, keep))
    )

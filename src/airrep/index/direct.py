"""Features and computed scores of an index, as queries read them."""

import hashlib
from collections.abc import Sequence

import numpy as np

from airrep.arrays import Mask, Rows
from airrep.attributors.base import OnProgress, count_rows
from airrep.attributors.direct import DirectAttributor, RecentScores
from airrep.corpus.corpus import Example
from airrep.index.rows import IndexRows
from airrep.scoring.blocks import Block, Span

HELD = 2**29
"""Scores that are held for questions to come, 2 GiB."""


class IndexKept:
    """The features of an index by channel; scores of methods that keep none are computed, and held for a while."""

    def __init__(self, rows: IndexRows, held: RecentScores, progress: OnProgress | None = None) -> None:
        self._index, self._held, self._progress = rows, held, progress

    @property
    def spans(self) -> list[Span]:
        """Where its shards stand."""
        return [Span(shard.start, shard.rows) for shard in self._index.shards]

    def blocks(self, channel: str) -> Sequence[Block]:
        """Features of a channel."""
        return self._index.blocks(channel)

    @property
    def live(self) -> Mask | None:
        """Rows that were not deleted; None for all."""
        return None if self._index.live.all() else self._index.live

    def scores(
        self, channel: str, method: DirectAttributor, queries: Sequence[Example], rows: Rows | None = None
    ) -> np.ndarray:
        """Scores ``(q, n)`` of all rows, of which a deleted one scores 0 and is not read; or of some, ascending."""
        if rows is None:
            return self._held.of(channel, queries, lambda some: self._all(method, some))
        these = f"{channel} {hashlib.sha256(rows.tobytes()).hexdigest()}"
        return self._held.of(these, queries, lambda some: self._scored(method, some, rows))

    def _all(self, method: DirectAttributor, queries: Sequence[Example]) -> np.ndarray:
        found = np.zeros((len(queries), self._index.rows), np.float32)
        live = np.flatnonzero(self._index.live)
        found[:, live] = self._scored(method, queries, live)
        return found

    def _scored(self, method: DirectAttributor, queries: Sequence[Example], rows: Rows) -> np.ndarray:
        """Scores ``(q, len(rows))``."""
        found = np.empty((len(queries), len(rows)), np.float32)
        on_rows = count_rows(len(rows), self._progress)
        for some, score in method.scorers(queries):  # what is held of queries serves all shards
            last = some.stop >= len(queries)
            for shard in self._index.shards:
                first, end = np.searchsorted(rows, [shard.start, shard.start + shard.rows]).tolist()
                examples = shard.examples.take(rows[first:end] - shard.start)
                found[some, first:end] = score(examples, on_rows if last else None).T
        return found

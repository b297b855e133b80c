"""Features and computed scores of an index, as queries read them."""

from collections.abc import Sequence

import numpy as np

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

    def scores(self, channel: str, method: DirectAttributor, queries: Sequence[Example]) -> np.ndarray:
        """Scores ``(q, n)`` of all rows; a deleted row scores 0, and is not read."""
        return self._held.of(channel, queries, lambda some: self._scored(method, some))

    def _scored(self, method: DirectAttributor, queries: Sequence[Example]) -> np.ndarray:
        found = np.zeros((len(queries), self._index.rows), np.float32)
        on_rows = count_rows(len(self._index), self._progress)
        for some, score in method.scorers(queries):  # what is held of queries serves all shards
            last = some.stop >= len(queries)
            for shard in self._index.shards:
                live = np.flatnonzero(self._index.live[shard.start : shard.start + shard.rows])
                found[some, shard.start + live] = score(shard.examples.take(live), on_rows if last else None).T
        return found

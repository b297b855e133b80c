"""Scores of methods that keep no features, as columns of an index's blocks."""

import threading
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from airrep.attributors.base import OnProgress, OnRows, count_rows
from airrep.attributors.direct import COLUMNS, DirectPart, RecentColumns
from airrep.corpus.corpus import Example
from airrep.index.rows import IndexRows
from airrep.scoring.blocks import Block, MappedBlocks
from airrep.scoring.columns import ColumnRange, ScoreColumns

HELD = 2**29
"""Scores that are held for questions to come, 2 GiB."""


class DirectScores:
    """The scores of all rows of an index for the queries that it was asked about last, 4 bytes each.

    A deleted row scores 0, and is not read.
    """

    def __init__(self, rows: IndexRows, parts: Sequence[DirectPart]) -> None:
        self._index, self._parts = rows, parts
        self._recent: RecentColumns[int] = RecentColumns(HELD)
        self._question = threading.local()  # questions of other threads cannot drop what this one asked about

    def __reduce__(self) -> tuple[type["DirectScores"], tuple[IndexRows, Sequence[DirectPart]]]:
        return type(self), (self._index, self._parts)  # another process asks for its own

    def ask(self, queries: Sequence[Example], progress: OnProgress | None = None) -> None:
        """Score all rows for those queries whose scores are not held."""
        asked = [
            (part, {part.start + part.method.column(one): one for one in queries})
            for part in self._parts
            if part.counted
        ]
        found = self._recent.known(column for _, some in asked for column in some)
        missing = [(part, [one for column, one in some.items() if column not in found]) for part, some in asked]
        missing = [(part, some) for part, some in missing if some]
        on_rows = count_rows(len(self._index) * len(missing), progress)
        for part, some in missing:
            found |= self._scored(part, some, on_rows)
        self._question.columns = found
        self._recent.add(found)

    def _scored(self, part: DirectPart, queries: Sequence[Example], on_rows: OnRows) -> dict[int, np.ndarray]:
        unique = {part.start + part.method.column(one): one for one in queries}
        columns = sorted(unique)
        asked = [unique[column] for column in columns]
        found = {column: np.zeros(self._index.rows, np.float32) for column in columns}
        for some, score in part.method.scorers(asked):  # what is held of queries serves all shards
            last = some.stop >= len(asked)
            for shard in self._index.shards:
                live = np.flatnonzero(self._index.live[shard.start : shard.start + shard.rows])
                scores = score(shard.examples.take(live), on_rows if last else None)
                for column, own in zip(columns[some], scores.T, strict=True):
                    found[column][shard.start + live] = own
        return found

    def blocks(self, blocks: Sequence[Block]) -> MappedBlocks:
        """The blocks of the index, with the scores of the last questions; this thread's own is among them."""
        own: Mapping[int, np.ndarray] = getattr(self._question, "columns", {})
        ranges = [(part.start, part.start + COLUMNS) for part in self._parts if part.counted]
        return MappedBlocks(blocks, partial(_with_columns, {**self._recent.columns, **own}, ranges))


def _with_columns(columns: Mapping[int, np.ndarray], ranges: Sequence[tuple[int, int]], block: Block) -> Block:
    stop = block.start + block.features.shape[0]
    own = {column: scores[block.start : stop] for column, scores in columns.items()}
    source = block.features if block.sparse is None else block.sparse
    assert not isinstance(source, np.ndarray | ColumnRange | ScoreColumns)
    joined = ScoreColumns(source, own, ranges)
    return block._replace(features=joined) if block.sparse is None else block._replace(sparse=joined)

"""Scores of methods that keep no features, as columns of an index's blocks."""

from collections.abc import Sequence

import numpy as np

from airrep.attributors.base import OnProgress, OnRows, count_rows
from airrep.attributors.direct import DirectPart, kept_name, scored_columns
from airrep.corpus.corpus import Example
from airrep.index.rows import IndexRows
from airrep.scoring.blocks import Block, MappedBlocks
from airrep.scoring.columns import ColumnRange, ScoreColumns


class DirectScores:
    """The scores of all rows of an index for the queries that it was asked about, ``4`` bytes each.

    A deleted row scores 0, and is not read.
    """

    def __init__(self, rows: IndexRows, parts: Sequence[DirectPart]) -> None:
        self._index, self._parts = rows, parts
        self._columns: dict[int, np.ndarray] = {}

    def ask(self, queries: Sequence[Example], progress: OnProgress | None = None) -> None:
        """Score all rows for those queries that were not asked about before."""
        missing = [
            (part, [one for one in queries if part.start + part.method.column(one) not in self._columns])
            for part in self._parts
            if part.counted
        ]
        missing = [(part, asked) for part, asked in missing if asked]
        on_rows = count_rows(len(self._index) * len(missing), progress)
        for part, asked in missing:
            kept = part.method.kept
            self._columns |= self._of_kept(part, asked, on_rows) if kept else self._scored(part, asked, on_rows)

    def _of_kept(self, part: DirectPart, queries: Sequence[Example], on_rows: OnRows) -> dict[int, np.ndarray]:
        """Scores from what the index keeps; no example is read."""
        unique = {part.start + part.method.column(one): one for one in queries}
        name = kept_name(self._parts.index(part))
        scores = part.method.score_kept([shard.kept[name] for shard in self._index.shards], [*unique.values()], on_rows)
        scores[~self._index.live] = 0.0
        return dict(zip(unique, np.ascontiguousarray(scores.T), strict=True))

    def _scored(self, part: DirectPart, queries: Sequence[Example], on_rows: OnRows) -> dict[int, np.ndarray]:
        found: dict[int, np.ndarray] = {}
        for shard in self._index.shards:
            live = np.flatnonzero(self._index.live[shard.start : shard.start + shard.rows])
            columns, scores = scored_columns(part, shard.examples.take(live), queries, on_rows)
            for column, own in zip(columns.tolist(), scores.T, strict=True):
                whole = found.setdefault(column, np.zeros(self._index.rows, np.float32))
                whole[shard.start + live] = own
        return found

    def blocks(self, blocks: Sequence[Block]) -> MappedBlocks:
        """The blocks of the index, with these columns."""
        return MappedBlocks(blocks, self._with_columns)

    def _with_columns(self, block: Block) -> Block:
        stop = block.start + block.features.shape[0]
        own = {column: scores[block.start : stop] for column, scores in self._columns.items()}
        source = block.features if block.sparse is None else block.sparse
        assert not isinstance(source, np.ndarray | ColumnRange | ScoreColumns)
        joined = ScoreColumns(source, own)
        return block._replace(features=joined) if block.sparse is None else block._replace(sparse=joined)

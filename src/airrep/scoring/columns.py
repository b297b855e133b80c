"""Sparse features cut down to the columns that some queries have."""

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np
from scipy import sparse

from airrep.arrays import Features, SparseFeatures
from airrep.scoring.blocks import Block

WIDE = 2**22
"""Features with more columns are cut down before they are multiplied: a transposed matrix counts all its columns."""


def select_columns(features: SparseFeatures, columns: np.ndarray) -> SparseFeatures:
    """Some columns of CSR features, ``(rows, len(columns))``; *columns* ascend, and so do those of each row."""
    place = np.searchsorted(columns, features.indices)
    found = np.zeros(len(place), bool)
    inside = place < len(columns)
    found[inside] = columns[place[inside]] == features.indices[inside]
    ends = np.concatenate([[0], np.cumsum(found)])[features.indptr]
    parts = (features.data[found], place[found], ends)
    return sparse.csr_array(parts, shape=(features.shape[0], len(columns)))


class NarrowBlocks(Sequence[Block]):
    """Blocks whose sparse features have some columns alone, made when they are touched; the last one is kept."""

    def __init__(self, blocks: Sequence[Block], columns: np.ndarray) -> None:
        self._blocks, self._columns = blocks, columns
        self._last: tuple[int, Block] | None = None

    def __len__(self) -> int:
        return len(self._blocks)

    @overload
    def __getitem__(self, position: int) -> Block: ...
    @overload
    def __getitem__(self, position: slice) -> "NarrowBlocks": ...
    def __getitem__(self, position: int | slice) -> "Block | NarrowBlocks":
        if isinstance(position, slice):
            return NarrowBlocks(self._blocks[position], self._columns)
        if self._last is None or self._last[0] != position:
            block = self._blocks[position]
            assert not isinstance(block.features, np.ndarray)
            self._last = (position, block._replace(features=select_columns(block.features, self._columns)))
        return self._last[1]

    def __iter__(self) -> Iterator[Block]:
        return (self[position] for position in range(len(self)))


def narrow(queries: Features, blocks: Sequence[Block]) -> tuple[Features, Sequence[Block]]:
    """Queries and blocks with the queries' own columns alone, where columns are very many; products stay the same."""
    if isinstance(queries, np.ndarray) or queries.shape[1] <= WIDE:
        return queries, blocks
    columns = np.unique(queries.indices)
    return select_columns(queries, columns), NarrowBlocks(blocks, columns)

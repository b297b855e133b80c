"""Why single examples score as they do: their channels, the same words."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from airrep.arrays import Features, MixedFeatures, SparseFeatures
from airrep.attributors.base import Attributor
from airrep.corpus.corpus import Example
from airrep.corpus.places import Places
from airrep.index.rows import IndexRows
from airrep.index.why import Products, Why, same_words
from airrep.scoring.blocks import Block
from airrep.scoring.columns import select_cells
from airrep.scoring.pooling import AnyPooling, ChannelPool, ChannelPooling


class Scored(NamedTuple):
    """A training example, and its score for a query."""

    row: int
    score: float


class Reasons:
    """Tells why the hits of a query score as they do, from their stored features alone."""

    def __init__(self, rows: IndexRows, attributor: Attributor) -> None:
        self._index, self._attributor = rows, attributor
        pooling: AnyPooling = attributor.pooling()
        self._channels = pooling.channels if isinstance(pooling, ChannelPooling) else None

    def of(self, query: Example, features: Features, hits: Sequence[Scored]) -> list[Why]:
        """Why each of the hits has its score.

        Args:
            query: the query.
            features: its features, one row.
            hits: rows of the index, with their scores.
        """
        asked = self._attributor.places(query)
        return [self._why(query, features, asked, hit) for hit in hits]

    def _why(self, query: Example, features: Features, asked: Places | None, hit: Scored) -> Why:
        block = self._block(hit.row)
        place = np.array([hit.row - block.start])
        products = _products(features, block, place)
        channels = {self._attributor.name: hit.score}
        if self._channels is not None:
            assert isinstance(features, MixedFeatures)
            assert products is not None
            channels = dict(_single_scores(self._channels, features, products, block, place))
        if asked is None or products is None:
            return Why(channels)
        example = self._index.example(hit.row)
        had = self._attributor.places(example)
        return Why(channels, () if had is None else same_words(products, query, asked, example, had))

    def _block(self, row: int) -> Block:
        place = bisect_right(self._index.shards, row, key=attrgetter("start")) - 1
        return self._index.blocks[place]  # not the shard's own: methods that keep no features have their scores here


def _products(query: Features, block: Block, place: np.ndarray) -> Products | None:
    """Products of the columns that a query and one row of a block have; None for dense features."""
    asked = query.sparse if isinstance(query, MixedFeatures) else query
    stored = block.features if block.sparse is None else block.sparse
    if isinstance(asked, np.ndarray) or isinstance(stored, np.ndarray):
        return None
    columns, order = np.unique(asked.indices, return_index=True)
    cells: SparseFeatures = select_cells(stored, place, columns).astype(np.float64)
    values = asked.data[order][cells.indices].astype(np.float64) * cells.data
    some = np.flatnonzero(values)
    return Products(columns[cells.indices[some]].astype(np.int64), values[some])


def _single_scores(
    channels: Sequence[ChannelPool], query: MixedFeatures, products: Products, block: Block, place: np.ndarray
) -> Iterator[tuple[str, float]]:
    """The name of each channel, and its score of one row."""
    dense = block.dense()[place[0]].astype(np.float64)
    for channel in channels:
        part = slice(channel.start, channel.stop)
        if channel.dense:
            score = float(query.dense[0, part].astype(np.float64) @ dense[part])
        else:
            score = float(products.values[_own(products, channel)].sum())
        yield channel.name, score


def _own(products: Products, channel: ChannelPool) -> slice:
    first, last = np.searchsorted(products.columns, [channel.start, channel.stop]).tolist()
    return slice(first, last)

"""Where the examples of labelled instances are in an index."""

from collections.abc import Sequence

import numpy as np

from airrep.arrays import Features, GroupScores, Rows
from airrep.errors import DataError
from airrep.index.index import Index
from airrep.labels.instance import LabelledInstance
from airrep.scoring.group_scores import group_scores
from airrep.scoring.groups import Groups
from airrep.scoring.pooling import PoolLike


class RowFinder:
    """Where the examples of some instances are in an index, by their texts; the index is read once."""

    def __init__(self, index: Index, instances: Sequence[LabelledInstance]) -> None:
        """Look for the examples that are in some subset."""
        self.index = index
        self._used = {id(instance): np.unique(instance.subsets.rows) for instance in instances}
        wanted = (instance.train.take(self._used[id(instance)]) for instance in instances)
        self._rows: dict[str, list[int]] = {example.content_hash: [] for corpus in wanted for example in corpus}
        for shard in index.shards:
            for row, example in enumerate(shard.examples, shard.start):
                if index.live[row] and (rows := self._rows.get(example.content_hash)) is not None:
                    rows.append(row)

    def score(self, instance: LabelledInstance, pool: PoolLike, queries: Features | None = None) -> GroupScores:
        """Group scores of an instance's subsets, ``(q, m)``; higher = more helpful.

        Raises:
            DataError: the index lacks an example of the train pool.
        """
        asked = self.index.encode_queries(instance.queries) if queries is None else queries
        return group_scores(asked, self.index.blocks, self.subsets(instance), pool, examples=len(instance.train))

    def subsets(self, instance: LabelledInstance) -> Groups:
        """The subsets as rows of the index; the second copy of a text is the second copy there.

        Raises:
            DataError: an example is not there, or was deleted.
        """
        used, rows = self._used[id(instance)], np.full(len(instance.train), -1, np.int64)
        met: dict[str, int] = {}
        for place, example in zip(used.tolist(), instance.train.take(used), strict=True):
            copy, known = met.get(example.content_hash, 0), self._rows[example.content_hash]
            rows[place] = known[copy] if copy < len(known) else -1
            met[example.content_hash] = copy + 1
        self._check(instance, used[rows[used] < 0])
        return Groups(instance.subsets.names, rows[instance.subsets.rows], instance.subsets.offsets)

    def _check(self, instance: LabelledInstance, missing: Rows) -> None:
        if len(missing):
            raise DataError(
                f'{self.index.path}: lacks the example "{instance.train[int(missing[0])].id}" of the train pool of '
                f"instance {instance.name}, and {len(missing) - 1:,} more; expected all that are in some subset. "
                "Index the data of the labels."
            )

"""Two stages: scores of the rows that other channels pick, by a method that keeps no features."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from airrep.arrays import Rows
from airrep.scoring.asked import Asked, Kept, ScoresAsked
from airrep.scoring.blocks import Piece
from airrep.scoring.pooling import Pooling
from airrep.scoring.topk import top_k


class CandidatesAsked(Asked):
    """Queries whose scores a method computes for the candidates of each; all other rows score 0.

    All candidates of a list of queries are scored in one pass. A query counts its own alone, so that no score depends
    on the other queries.
    """

    def __init__(
        self, method: Any, queries: Sequence[Any], kept: Kept, channel: str, pooling: Pooling, picked: Sequence[Rows]
    ) -> None:
        """*picked* are the candidates of each query, ascending."""
        self.method, self.queries, self.spans, self.pooling = method, queries, kept.spans, pooling
        self.picked = picked
        self._kept, self._channel = kept, channel
        self._found: list[np.ndarray] = []  # shared by copies: computed when the first of them is asked for scores

    @classmethod
    def of(cls, whole: ScoresAsked, cheap: Asked, count: int) -> "ScoresAsked | CandidatesAsked":
        """What a method asks of the *count* rows that score most by other channels; of all, if there are no more."""
        live = whole.kept.live
        if count >= (whole.rows if live is None else int(live.sum())):
            return whole
        picked = np.sort(top_k(cheap, count, keep=live).rows, axis=1)
        return cls(whole.method, whole.queries, whole.kept, whole.channel, whole.pooling, list(picked))

    def __len__(self) -> int:
        return len(self.picked)

    @property
    def values(self) -> list[np.ndarray]:
        """Scores of each query's candidates, float32."""
        if not self._found and self.picked:
            union = np.unique(np.concatenate(self.picked))
            scores = self._kept.scores(self._channel, self.method, self.queries, union)
            pairs = zip(scores, self.picked, strict=True)
            self._found += [own[np.searchsorted(union, rows)] for own, rows in pairs]
        return self._found

    def chosen(self, queries: slice | np.ndarray) -> "CandidatesAsked":
        some = np.arange(len(self))[queries].tolist()
        picked, found = ([part[place] for place in some] for part in (self.picked, self.values))
        return self._like(queries=[self.queries[place] for place in some], picked=picked, _found=found)

    def over(self, kept: Kept, channel: str) -> ScoresAsked:
        """The same queries, asked of all of some other examples."""
        return ScoresAsked(self.method, self.queries, kept, channel, self.pooling)

    def paired(self) -> "CandidatesAsked":
        """The same where each query of the first half has one of the second beside it: both get what either picked."""
        half = len(self) // 2
        union = [np.union1d(one, other) for one, other in zip(self.picked[:half], self.picked[half:], strict=True)]
        return self._like(picked=union * 2, _found=[])

    def scores(self, piece: Piece) -> np.ndarray:
        found = np.zeros((len(piece.rows), len(self)))
        first, last = int(piece.rows[0]), int(piece.rows[-1])
        for query, (rows, values) in enumerate(zip(self.picked, self.values, strict=True)):
            here = slice(*np.searchsorted(rows, [first, last + 1]).tolist())
            place = np.searchsorted(piece.rows, rows[here])
            held = piece.rows[place] == rows[here]  # a piece may leave rows out
            found[place[held], query] = values[here][held]
        return found

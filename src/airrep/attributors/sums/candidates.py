"""Two stages: cheap channels pick candidates, a dear channel scores these alone."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from airrep.arrays import Rows
from airrep.scoring.asked import Asked, ScoresAsked, stream_scores
from airrep.scoring.topk import top_k

LEAST = 3
"""Examples that a line is fitted to, at least."""


class Read(NamedTuple):
    """Examples that all channels have scored, beside the candidates."""

    cheap: np.ndarray
    """Scores of the cheap channels together, ``(q, r)``."""
    dear: np.ndarray
    """Scores of the dear channel, ``(q, r)``."""


class CandidatesAsked(ScoresAsked):
    """Queries whose scores a method computes for the candidates of each; others get what the cheap channels predict.

    The candidates z of query x are the rows that the cheap channels rank first by their sum c(x, z). Any other row
    scores α + β c(x, z), a line that is fitted by least squares to the candidates and to a few random examples. With
    0 there instead, sums over a group would say little but how many of its members are candidates.

    All candidates of a list of queries are scored in one pass. A query counts its own alone, so that its scores do not
    depend on the other queries.
    """

    def __init__(self, whole: ScoresAsked, cheap: Asked, picked: Sequence[Rows], read: Read) -> None:
        """*whole* asks for all rows; *picked* are the candidates of each query, ascending."""
        super().__init__(whole.method, whole.queries, whole.kept, whole.channel, whole.pooling)
        self.cheap, self.picked, self.read = cheap, picked, read

    @classmethod
    def of(cls, whole: ScoresAsked, cheap: Asked, count: int, read: Read) -> ScoresAsked:
        """Return what a method asks of *count* candidates of each query; of all rows, if there are no more."""
        live = whole.kept.live
        if count >= (whole.rows if live is None else int(live.sum())):
            return whole
        picked = np.sort(top_k(cheap, count, keep=live).rows, axis=1)
        return cls(whole, cheap, list(picked), read)

    def paired(self) -> "CandidatesAsked":
        """Pair each query of the first half with one of the second: both get what either picked."""
        half = len(self) // 2
        union = [np.union1d(one, other) for one, other in zip(self.picked[:half], self.picked[half:], strict=True)]
        return self._like(picked=union * 2, _found=[])

    def chosen(self, queries: slice | np.ndarray) -> Self:
        some = np.arange(len(self))[queries].tolist()
        read = Read(*(part[queries] for part in self.read))
        return super().chosen(queries)._like(picked=[self.picked[place] for place in some], read=read)

    def _computed(self) -> np.ndarray:
        union = np.unique(np.concatenate(self.picked))
        dear = self.kept.scores(self.channel, self.method, self.queries, union)
        found = np.empty((len(self), self.rows), np.float32)
        for rows, scores in stream_scores(self.cheap):
            found[:, rows] = scores
        for query, rows in enumerate(self.picked):
            own, cheap = dear[query, np.searchsorted(union, rows)], found[query]
            known = (np.append(self.read.cheap[query], cheap[rows]), np.append(self.read.dear[query], own))
            offset, slope = _line(*known)
            found[query] = offset + slope * cheap
            found[query, rows] = own
        if self.kept.live is not None:
            found[:, ~self.kept.live] = 0
        return found


def _line(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Offset and slope of the line through some points by least squares; 0 where these tell none."""
    wide = x.astype(np.float64) - x.mean(dtype=np.float64)
    squares = float(wide @ wide)
    if len(x) < LEAST or squares <= 0:
        return 0.0, 0.0
    slope = float(wide @ y) / squares
    return float(y.mean(dtype=np.float64)) - slope * float(x.mean(dtype=np.float64)), slope

"""Two stages: cheap channels pick candidates, an expensive channel scores only them."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from airrep.arrays import Rows
from airrep.scoring.asked import Asked, ScoresAsked, stream_scores
from airrep.scoring.topk import top_k

LEAST = 3
"""Fewest examples that a line is fitted to."""


class Read(NamedTuple):
    """Scores of random training examples that all channels score, besides the candidates."""

    cheap: np.ndarray
    """Weighted sum of the cheap channels' scores, ``(q, r)``."""
    dear: np.ndarray
    """Scores of the expensive channel, ``(q, r)``."""


class CandidatesAsked(ScoresAsked):
    """Queries for which a method scores only candidates; the cheap channels predict the scores of all other rows.

    The candidates z of query x are the rows that the cheap channels rank first by their sum c(x, z). Any other row
    scores α + β c(x, z), a line that is fitted by least squares to the candidates and to a few random examples. If
    other rows scored 0, a sum over a group would say little but how many of its members are candidates.

    All candidates of a list of queries are scored in one pass. Each query uses only its own candidates, so that its
    scores do not depend on the other queries.
    """

    def __init__(self, whole: ScoresAsked, cheap: Asked, picked: Sequence[Rows], read: Read) -> None:
        """*whole* scores all rows; *picked* are the candidates of each query, ascending."""
        super().__init__(whole.method, whole.queries, whole.kept, whole.channel, whole.pooling)
        self.cheap, self.picked, self.read = cheap, picked, read

    @classmethod
    def of(cls, whole: ScoresAsked, cheap: Asked, count: int, read: Read) -> ScoresAsked:
        """Restrict *whole* to *count* candidates of each query; return *whole* if there are no more rows."""
        live = whole.kept.live
        if count >= (whole.rows if live is None else int(live.sum())):
            return whole
        picked = np.sort(top_k(cheap, count, keep=live).rows, axis=1)
        return cls(whole, cheap, list(picked), read)

    def paired(self) -> "CandidatesAsked":
        """Pair each query of the first half with one of the second: both get the candidates of either."""
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
    """Fit offset and slope by least squares; both are 0 if the points are too few or have equal x."""
    wide = x.astype(np.float64) - x.mean(dtype=np.float64)
    squares = float(wide @ wide)
    if len(x) < LEAST or squares <= 0:
        return 0.0, 0.0
    slope = float(wide @ y) / squares
    return float(y.mean(dtype=np.float64)) - slope * float(x.mean(dtype=np.float64)), slope

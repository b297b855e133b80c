"""Which instance, queries and subsets each training step sees."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from airrep.arrays import Rows
from airrep.runtime.seeding import stream


class Draw(NamedTuple):
    """What one step sees."""

    instance: int
    queries: Rows
    """Rows of the instance's queries, ascending."""
    subsets: Rows
    """Numbers of the instance's subsets, ascending."""


class Cycle:
    """Shuffled passes over some items, dealt out a fixed number at a time.

    Every item comes once in each pass, and no item twice in one deal: where a deal goes over the end of a pass, it
    takes from the next pass only what it does not hold yet.

    Args:
        items: what is dealt.
        size: items in one deal, at most all of them.
        seed: root seed.
        name: of the stream of shuffles.
    """

    def __init__(self, items: Rows, size: int, seed: int, *name: str | int) -> None:
        self._items, self._size = np.asarray(items, np.int64), min(size, len(items))
        self._seed, self._name = seed, name
        self._restart()

    def _restart(self) -> None:
        self._dealt, self._passes, self._left = 0, 0, self._items[:0]

    def deal(self, number: int) -> Rows:
        """The items of deal *number*, from 0, ascending; it depends on nothing but that number."""
        if number < self._dealt:
            self._restart()
        while self._dealt < number:
            self._next()
        return np.sort(self._next())

    def _next(self) -> Rows:
        self._dealt += 1
        chosen, self._left = self._left[: self._size], self._left[self._size :]
        short = self._size - len(chosen)
        if not short:
            return chosen
        shuffled = stream(self._seed, *self._name, self._passes).permutation(self._items)
        self._passes += 1
        more = shuffled[~np.isin(shuffled, chosen)][:short]
        self._left = shuffled[~np.isin(shuffled, more)]
        return np.concatenate([chosen, more])


class Batches:
    """Draws of all steps: instances in turn, and within each its queries and its subsets in turn.

    Args:
        queries: for each instance, the rows of its queries that may be drawn.
        subsets: for each instance, the numbers of its subsets that may be drawn.
        queries_per_step: most queries in a draw.
        subsets_per_step: most subsets in a draw; or for each instance its own number.
        seed: root seed.
    """

    def __init__(
        self,
        queries: Sequence[Rows],
        subsets: Sequence[Rows],
        queries_per_step: int,
        subsets_per_step: int | Sequence[int],
        seed: int,
    ) -> None:
        most = [subsets_per_step] * len(subsets) if isinstance(subsets_per_step, int) else subsets_per_step
        self._seed, self._count = seed, len(queries)
        self._queries = [Cycle(rows, queries_per_step, seed, "queries", i) for i, rows in enumerate(queries)]
        self._subsets = [Cycle(rows, most[i], seed, "subsets", i) for i, rows in enumerate(subsets)]

    def draw(self, step: int) -> Draw:
        """What step *step* sees, from 0; it depends on nothing but that number."""
        turn, place = divmod(step, self._count)
        instance = int(stream(self._seed, "instances", turn).permutation(self._count)[place])
        return Draw(instance, self._queries[instance].deal(turn), self._subsets[instance].deal(turn))

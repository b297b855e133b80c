"""Random examples like the named ones."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from airrep.arrays import Rows
from airrep.corpus.corpus import Example

NEAR = 20
"""Others, nearest in length, of which one is drawn for a named row."""
ENOUGH = 5
"""Others of a source, for each named row of it, from which on they are drawn within the source."""
ANY = ""
"""Stands for all sources together."""


class Matching:
    """Draws for each named example a random other one: of its source, if that has enough, and about as long."""

    def __init__(self, named: Sequence[Example], others: Sequence[Example]) -> None:
        """Sort the others by length.

        Args:
            named: the examples to match.
            others: those to draw from; one that says what a named example says is never drawn.
        """
        texts = {one.content_hash for one in named}
        self._lengths = np.array([_length(one) for one in others])
        order = np.argsort(self._lengths, kind="stable")
        allowed = order[[others[row].content_hash not in texts for row in order]]
        sources = np.array([others[row].source or ANY for row in allowed], dtype=object)
        counts = Counter(one.source or ANY for one in named)
        self._rows = {ANY: allowed}
        for source, count in counts.items():
            rows = allowed[sources == source]
            if source != ANY and len(rows) >= ENOUGH * count:
                self._rows[source] = rows
        self._wanted = [(_length(one), source if (source := one.source or ANY) in self._rows else ANY) for one in named]

    @property
    def enough(self) -> bool:
        """Whether draws can differ: there are others for more than all of the named examples."""
        return len(self._rows[ANY]) > len(self._wanted)

    @property
    def overlap(self) -> float:
        """Share of what is drawn from that one draw takes, mean over the named examples."""
        taken = Counter(source for _, source in self._wanted)
        return float(np.mean([taken[source] / len(self._rows[source]) for _, source in self._wanted]))

    def draw(self, generator: np.random.Generator) -> Rows:
        """Rows of the others, ascending, as many as there are named examples."""
        free, drawn = np.ones(len(self._lengths), bool), []
        for length, source in self._wanted:
            of_source = self._rows[source][free[self._rows[source]]]
            left = of_source if len(of_source) else self._rows[ANY][free[self._rows[ANY]]]
            place = int(np.searchsorted(self._lengths[left], length)) - NEAR // 2
            first = max(0, min(place, len(left) - NEAR))
            drawn.append(int(generator.choice(left[first : first + NEAR])))
            free[drawn[-1]] = False
        return np.sort(np.array(drawn, np.int64))


def _length(example: Example) -> int:
    return len(example.prompt) + len(example.response)

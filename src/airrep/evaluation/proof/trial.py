"""The fine-tunes of a proof: contexts, named rows, random rows like them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from airrep.arrays import Rows
from airrep.corpus.corpus import Corpus, Example
from airrep.labels.plan import SamplingSettings, SubsetPlan, open_plan, write_plan
from airrep.runtime.seeding import stream

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
        """True if draws can differ: there are more other examples than named ones."""
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


WHOLE, WITHOUT_NAMED, WITHOUT_RANDOM = range(3)
"""Subsets of each repeat: context, named and random rows; less the named ones; less the random ones."""


@dataclass(frozen=True)
class Trial:
    """Subsets to fine-tune on, and queries to ask after it.

    The train corpus has the others twice, and the named rows last. A context is drawn from the first copy, random rows
    from the second. So they lie behind the context, as the named rows do: less the one or the other, a fine-tune has
    the same context at the same places of the same order, and the named rows where the other has the random ones.
    """

    named: tuple[Example, ...]
    others: tuple[Example, ...]
    asked: tuple[Example, ...]
    context: int
    """Examples of each context, at most."""
    seed: int

    @property
    def train(self) -> Corpus:
        """The train corpus of the fine-tunes."""
        return numbered((*self.others, *self.others, *self.named))

    @property
    def queries(self) -> Corpus:
        """The query corpus."""
        return numbered(self.asked)

    @property
    def sized(self) -> int:
        """Examples that each context has."""
        return min(self.context, len(self.others) - len(self.named))

    def plan(self, out: Path, repeats: int) -> SubsetPlan:
        """Write the subsets of so many repeats; a repeat does not depend on how many there are."""
        m, k, matching = len(self.others), len(self.named), Matching(self.named, self.others)
        train: list[Rows] = []
        members: list[Rows] = []
        for repeat in range(repeats):
            random = matching.draw(stream(self.seed, "prove", "random", repeat))
            left = np.setdiff1d(np.arange(m), random)
            context = stream(self.seed, "prove", "context", repeat).choice(left, self.sized, replace=False)
            train.append(np.concatenate([np.sort(context), m + random, 2 * m + np.arange(k)]))
            places = np.arange(self.sized + 2 * k)
            cut = self.sized + k
            members += [places, places[:cut], np.concatenate([places[: self.sized], places[cut:]])]
        request = {
            "train": self.train.fingerprint,
            "queries": self.queries.fingerprint,
            "settings": SamplingSettings(
                kind="paired",
                instances=repeats,
                train_count=None,
                query_count=None,
                subsets=3,
                size=self.sized + k,
                seed=self.seed,
            ).model_dump(mode="json"),
        }
        rows = {"train": train, "queries": [np.arange(len(self.asked))] * repeats, "members": members}
        write_plan(out, request, rows, replace=True)
        return open_plan(out)


def numbered(examples: Sequence[Example]) -> Corpus:
    """A corpus of examples of which several may have one id."""
    return Corpus.from_examples(replace(one, id=str(number)) for number, one in enumerate(examples))

"""The fine-tunes of a proof: contexts, named rows, random rows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from airrep.arrays import Rows
from airrep.corpus.corpus import Corpus, Example
from airrep.evaluation.proof.matching import Matching
from airrep.labels.plan import SamplingSettings, SubsetPlan, open_plan, write_plan
from airrep.runtime.seeding import stream

WHOLE, WITHOUT_NAMED, WITHOUT_RANDOM = range(3)
"""Subsets of each repeat: context, named and random rows; less the named ones; less the random ones."""


@dataclass(frozen=True)
class Trial:
    """What is fine-tuned on, and what is asked after it.

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

"""The fine-tunes of a proof, their effects over repeats, and the verdict."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from airrep.answers.proof import Effect, Effects, Verdict
from airrep.arrays import Rows
from airrep.corpus.corpus import Corpus, Example
from airrep.evaluation.statistics.labels import REMEDY, Moved
from airrep.evaluation.statistics.means import CONFIDENCE
from airrep.labels.plan import SamplingSettings, SubsetPlan, open_plan, write_plan
from airrep.runtime.seeding import stream
from airrep.shapes import Float

NEAR = 20
"""Others, nearest in length, of which one is drawn for a named row."""
ENOUGH = 5
"""Others of a source, for each named row of it, from which on they are drawn within the source."""
ANY = ""
"""Stands for all sources together."""


class Matching:
    """Draws for each named example a random other one: of its source, if that has enough, and about as long."""

    def __init__(self, named: Sequence[Example], others: Sequence[Example]) -> None:
        """Sort the others by length; one that says what a named example says is never drawn."""
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

    @cached_property
    def train(self) -> Corpus:
        return _numbered((*self.others, *self.others, *self.named))

    @cached_property
    def queries(self) -> Corpus:
        return _numbered(self.asked)

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
        counts = {"instances": repeats, "train_count": None, "query_count": None, "subsets": 3, "size": self.sized + k}
        settings = SamplingSettings.of({"kind": "paired", **counts, "seed": self.seed}).model_dump(mode="json")
        request = {"train": self.train.fingerprint, "queries": self.queries.fingerprint, "settings": settings}
        rows = {"train": train, "queries": [np.arange(len(self.asked))] * repeats, "members": members}
        write_plan(out, request, rows, replace=True)
        return open_plan(out)


def _numbered(examples: Sequence[Example]) -> Corpus:
    """A corpus of examples of which several may have one id."""
    return Corpus.from_examples(replace(one, id=str(number)) for number, one in enumerate(examples))


PLAIN = 0.05
"""Nats per token from which on two digits are told, below three."""


def effects_of(losses: Float[np.ndarray, "n 3"], overlap: float) -> Effects:
    """Effects on one number, from its values after the fine-tunes of each repeat.

    Were the named rows nothing but another random set, the mean d̄ of the n differences of a repeat would have the
    variance σ² (1 + 1/n): that of the set itself, which is the same in all repeats, and that of the mean. So the
    interval of the difference is d̄ ± t s √(1 + 1/n), Student's t with n − 1 degrees of freedom: that of one further
    draw, not that of a mean, which any set would leave in the end. *overlap* is the share of the others that a random
    set takes: sets of few others are alike, and vary less by 1 − that. Subsets are in the order of :data:`WHOLE`.
    """
    named = losses[:, WITHOUT_NAMED] - losses[:, WHOLE]
    random = losses[:, WITHOUT_RANDOM] - losses[:, WHOLE]
    difference = losses[:, WITHOUT_NAMED] - losses[:, WITHOUT_RANDOM]
    n = len(losses)
    of_set = float(np.sqrt((1 + 1 / n) / (1 - overlap)))
    return Effects(_around(named, n**-0.5), _around(random, of_set), _around(difference, of_set))


def _around(values: Float[np.ndarray, " n"], factor: float) -> Effect:
    """The mean, and so many deviations times Student's t on both sides."""
    from scipy import stats

    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)) * float(np.std(values, ddof=1)) * factor
    mean = float(np.mean(values))
    return Effect(mean, mean - half, mean + half)


def verdict_of(effects: Effects, moved: Moved) -> Verdict:
    """Conclude from the effects, and tell if the fine-tunes moved the answers' losses at all."""
    if effects.difference.low > 0 and effects.without_named.low > 0:
        return "taught"
    if effects.difference.high < 0 and effects.without_named.high < 0:
        return "held back"
    return "not moved" if moved.hardly else "not shown"


def sentence_of(
    verdict: Verdict, loss: Effects, contrast: Effects | None, rows: int, answers: int, moved: Moved
) -> str:
    """The verdict in words."""
    these = "this row" if rows == 1 else f"these {rows:,} rows"
    random = "1 random row" if rows == 1 else f"{rows:,} random rows"
    answer = "the answer's loss" if answers == 1 else f"the loss of the {answers:,} answers"
    told = (
        f"Without {these} {answer} {_changes(loss.without_named)}; without {random} it {_changes(loss.without_random)}"
    )
    it = "it" if answers == 1 else "them"
    if contrast is not None:
        it += " in place of the better"
        verb = "lose" if contrast.without_named.value >= 0 else "gain"
        falls = f"the answer {verb}s" if answers == 1 else f"the {answers:,} answers {verb}"
        told = (
            f"Without {these} {falls} {_number(contrast.without_named, told=True)} against the better "
            f"one{'s' * (answers > 1)}; without {random} {_number(contrast.without_random)} (the loss by itself "
            f"{_changes(loss.without_named)}; {_number(loss.without_random)})"
        )
    which = "this row" if rows == 1 else "these rows"
    end = {
        "taught": f"{which} taught {it}",
        "held back": f"{which} kept the model from {it}",
        "not shown": f"that is no more than random rows do, so it is not shown that {which} taught {it}",
        "not moved": (
            f"nothing is shown, since the fine-tunes hardly moved the loss at all ({moved.before:.2f} before, "
            f"{moved.after:.2f} after). {REMEDY.rstrip('.')}"
        ),
    }[verdict]
    return f"{told}: {end}."


def _changes(effect: Effect) -> str:
    return f"{'rises' if effect.value >= 0 else 'falls'} by {_number(effect, told=True)}"


def _number(effect: Effect, *, told: bool = False) -> str:
    """A value with its ends; a fall that was *told* is a positive number, with its ends turned likewise."""
    value, low, high = effect.value, effect.low, effect.high
    if told and value < 0:
        value, low, high = -value, -high, -low
    digits = 2 if max(abs(value), abs(low), abs(high)) >= PLAIN else 3
    return f"{value:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"

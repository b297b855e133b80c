"""Choose from a ranking: diverse, within quotas, within a budget of tokens."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from airrep.arrays import DenseFeatures, Rows, SparseFeatures, unit_rows, whole_number
from airrep.errors import ConfigError
from airrep.index.rows import IndexRows
from airrep.scoring.topk import Selection
from airrep.sparse import beside

NUMBERS = 2**28
"""Features of candidates that are held at most, 1 GiB of float32."""
CANDIDATES = 10
"""Rows of best rank that are candidates, times the number wanted."""
FIRST = 1000
"""Picks for which they are read at first, where more can come later."""


@dataclass(frozen=True)
class Limits:
    """Wishes beside the best ranks."""

    diversity: float = 0.0
    """0 to 1: how much being like what is chosen already counts against the rank."""
    quotas: Mapping[str, int] = field(default_factory=dict)
    """At most so many of a value of the field; values without are free."""
    each: int | None = None
    """At most so many of every value that has no quota of its own; examples without the field count as one value."""
    tokens: int | None = None
    """At most so many tokens in all."""

    def __post_init__(self) -> None:
        if not isinstance(self.diversity, int | float | np.number) or not 0 <= self.diversity < 1:
            raise ConfigError(f"select: diversity is {self.diversity}; expected 0 or more, below 1. Change it.")
        for what, most in (*((f"quota of '{name}'", most) for name, most in self.quotas.items()), ("most", self.each)):
            if most is not None:
                whole_number(f"select: {what}", most)
        if self.tokens is not None:
            whole_number("select: tokens", self.tokens)
        low = next((name for name, most in self.quotas.items() if most < 0), None)
        if low is not None or (self.each is not None and self.each < 0):
            named = f"the quota of '{low}'" if low is not None else "the quota of each value"
            raise ConfigError(f"select: {named} is below 0; expected 0 or more. Change it.")
        if self.tokens is not None and self.tokens < 1:
            raise ConfigError(f"select: the budget is {self.tokens} tokens; expected 1 or more. Change it.")

    def most(self, value: str | None) -> float:
        """How many of a value may be chosen."""
        own = None if value is None else self.quotas.get(value)
        return own if own is not None else float("inf") if self.each is None else self.each

    def reach(self, values: Sequence[str | None]) -> int:
        """How many of some examples may be chosen at most."""
        return int(sum(min(count, self.most(value)) for value, count in Counter(values).items()))


class ChosenRow(NamedTuple):
    """One chosen row."""

    place: int
    """Its place in the ranking, from 0."""
    redundancy: float
    """Greatest cosine with a row that was chosen before, at least 0."""


def value_of(places: np.ndarray, rows: int) -> np.ndarray:
    """Value of each place in a ranking of some rows: 1 for the first, down to 0 with its logarithm."""
    values: np.ndarray = 1 - np.log1p(places) / np.log1p(rows)
    return values


class Chooser:
    """Chooses greedily, by (1 − λ)·value − λ·redundancy, among the candidates, which are the rows of best rank.

    The value of place p in the ranking of n rows is 1 − log(1 + p) / log(1 + n). Where quotas leave no candidate, there
    are twice as many; without diversity the choice does not depend on their number.
    """

    def __init__(
        self,
        ranked: Callable[[int], Selection],
        count: int,
        index: IndexRows,
        limits: Limits,
        values: Callable[[Rows], Sequence[str | None]],
        tokens: Callable[[Rows], Sequence[int]],
        channels: Sequence[str] | None = None,
    ) -> None:
        """Arguments: the first rows of the ranking, and the number of all; then what tells of rows.

        *channels* are those by which examples are alike; all when None.
        """
        self._ranked, self._count, self._index, self._limits = ranked, count, index, limits
        self._values_of, self._tokens_of, self._channels = values, tokens, channels
        self.ranking: Selection
        """The candidates, in order of rank, with their reasons, once :meth:`choose` has looked at some."""
        self.rows: Rows = np.empty(0, np.int64)
        self.tokens: list[int] = []
        """Their tokens, where there is a budget."""
        self._values: list[str | None] = []
        self._units: DenseFeatures | SparseFeatures | None = None
        self._redundancy = np.empty(0)
        self._open = np.empty(0, bool)
        self._chosen: list[ChosenRow] = []
        self._used = 0
        self._taken: Counter[str | None] = Counter()

    def choose(self, count: int) -> list[ChosenRow]:
        """So many rows, or fewer where the next one does not fit into the budget."""
        # By rank alone more candidates can come later; a budget without a count may allow as many as there are rows.
        first = count if self._limits.diversity else min(count, FIRST)
        self._grow(min(self._count, CANDIDATES * first))
        while len(self._chosen) < count:
            if not self._open.any():
                self._grow(min(self._count, 2 * len(self.rows)))
            elif not self._take(self._best()):
                break
        return self._chosen

    def _best(self) -> int:
        """The best candidate; of equal ones the first in rank."""
        values = value_of(np.arange(len(self.rows)), self._count)
        scores = (1 - self._limits.diversity) * values - self._limits.diversity * self._redundancy
        scores[~self._open] = -np.inf
        return int(np.argmax(scores))

    def _take(self, place: int) -> bool:
        """Choose a candidate; false if it does not fit into the budget."""
        if self._limits.tokens is not None and self._used + self.tokens[place] > self._limits.tokens:
            return False
        self._chosen.append(ChosenRow(place, float(self._redundancy[place])))
        self._used += self.tokens[place] if self.tokens else 0
        self._open[place] = False
        value = self._values[place] if self._values else None
        self._taken[value] += 1
        if self._values and self._taken[value] >= self._limits.most(value):
            self._open &= np.array([other != value for other in self._values])
        if self._units is not None:
            alike = _products(self._units, self._units[[place]])[:, 0]
            np.maximum(self._redundancy, alike, out=self._redundancy)
        return True

    def _grow(self, count: int) -> None:
        """Take so many candidates in all."""
        before = len(self.rows)
        self.ranking = self._ranked(count)
        self.rows = self.ranking.rows
        new = self.rows[before:]
        self._redundancy = np.append(self._redundancy, np.zeros(len(new)))
        is_open = np.ones(len(new), bool)
        if self._limits.quotas or self._limits.each is not None:
            found = self._values_of(new)
            is_open = np.array([self._taken[value] < self._limits.most(value) for value in found], bool)
            self._values += found
        if self._limits.tokens is not None:
            self.tokens += self._tokens_of(new)
        self._open = np.append(self._open, is_open)
        if self._limits.diversity:
            self._units = _unit_features(self._index, self.rows, self._channels)
            if self._chosen and len(new):
                chosen = self._units[[one.place for one in self._chosen]]
                alike = _products(self._units[before:], chosen).max(axis=1)
                self._redundancy[before:] = np.maximum(alike, 0)


def _products(units: DenseFeatures | SparseFeatures, others: DenseFeatures | SparseFeatures) -> np.ndarray:
    left: Any = units  # both are of one kind
    return np.asarray(left @ others.T)


def _unit_features(index: IndexRows, rows: Rows, channels: Sequence[str] | None) -> DenseFeatures | SparseFeatures:
    """Stored features of rows, brought to length 1: the dense ones, or the sparse ones where there are no dense."""
    some = [one for one in index.channels if one.kind != "none" and (channels is None or one.name in channels)]
    if not some:
        raise ConfigError(
            f"select: {index.method} keeps no features, so it cannot tell which examples are alike. Leave diversity "
            "out, or use an index of another method."
        )
    dense = [one for one in some if one.kind == "dense"]
    width = sum(one.dimension for one in dense)
    if len(rows) * width > NUMBERS:
        raise ConfigError(
            f"select: {len(rows):,} candidates of {width:,} features each are too many for diversity. "
            "Ask for fewer examples with --count, or choose among fewer with --where."
        )
    parts: list[Any] = list(index.features(rows, [one.name for one in dense or some]).values())
    return unit_rows(np.concatenate(parts, axis=1)) if dense else unit_rows(beside(parts))

"""Methods that score training examples as they pass, and keep no features of them."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from airrep.arrays import Encoded, Rows
from airrep.attributors.base import Attributor, OnRows, SeveralMethods
from airrep.corpus.corpus import Example
from airrep.scoring.asked import Asked, Kept, ScoresAsked
from airrep.scoring.blocks import Block, Span
from airrep.shapes import Float32


class QueryScorer(Protocol):
    """Influence scores of training examples for some queries, ``(n, q)``."""

    def __call__(self, train: Sequence[Example], on_rows: OnRows | None = None, /) -> Float32[np.ndarray, "n q"]: ...


class DirectAttributor(Attributor):
    """A method whose features of training examples are too large to keep: it scores examples as they pass.

    An index keeps nothing of them. It has all examples scored when a query is asked about for the first time.
    """

    @property
    def symmetric(self) -> bool:
        return False

    @abstractmethod
    def score(
        self, train: Sequence[Example], queries: Sequence[Example], on_rows: OnRows | None = None
    ) -> Float32[np.ndarray, "n q"]:
        """Influence scores of training examples for queries, higher = more helpful.

        A score depends on the two examples alone (and on what :meth:`fit` learnt). *on_rows* is told how many more
        training examples are done.
        """

    def scorers(self, queries: Sequence[Example]) -> Iterator[tuple[slice, QueryScorer]]:
        """Queries in parts, each with what scores training examples for it as :meth:`score` does, batch after batch.

        What a method takes of queries, such as their gradients, is held while one part is scored.
        """
        yield slice(0, len(queries)), lambda train, on_rows=None: self.score(train, queries, on_rows)

    def encode(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> Encoded:
        """Nothing."""
        if on_rows is not None:
            on_rows(len(examples))
        return {self.name: None}

    def ask(
        self, queries: Sequence[Example], kept: Kept, on_rows: OnRows | None = None, channel: str | None = None
    ) -> Asked:
        """Scores of all examples, which are computed here unless they are known."""
        found = ScoresAsked(self, queries, kept, channel or self.name, self.pooling())
        found.values  # noqa: B018 - what it takes is told as it is computed
        if on_rows is not None:
            on_rows(len(queries))
        return found


class RecentScores:
    """Scores of examples for the queries that were asked about last, by channel.

    Those of the last question are there whatever their size; of older ones as many as *most* numbers allow.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: Mapping[tuple[str, str], np.ndarray] = {}  # never changed, so that what reads it needs no lock

    def of(
        self, channel: str, queries: Sequence[Example], score: Callable[[list[Example]], np.ndarray]
    ) -> Float32[np.ndarray, "q n"]:
        """Those of some queries; *score* gives ``(q, n)`` for those that are not held."""
        asked = {(channel, one.reading_hash): one for one in queries}
        held = self._held
        found = {key: held[key] for key in asked if key in held}
        missing = {key: one for key, one in asked.items() if key not in found}
        if missing:
            found |= zip(missing, np.ascontiguousarray(score(list(missing.values()))), strict=True)
        if found:
            others = {key: own for key, own in held.items() if key not in asked}
            numbers = sum(len(own) for own in (*others.values(), *found.values()))
            while others and numbers > self._most:
                numbers -= len(others.pop(next(iter(others))))
            self._held = {**others, **found}
        rows = [found[channel, one.reading_hash] for one in queries]
        return np.stack(rows) if rows else np.empty((0, 0), np.float32)


class InMemory:
    """Features of examples, or their scores' parts, kept in memory."""

    def __init__(self, encoded: Encoded, examples: Sequence[Example] | None, held: RecentScores | None = None) -> None:
        """*examples* are read by methods that keep no features; their scores stay in *held*, where there is one."""
        rows = next((part.shape[0] for part in encoded.values() if part is not None), None)
        count = len(examples or ()) if rows is None else rows
        self.encoded, self.examples, self.spans = encoded, examples, [Span(0, count)]
        self._held = held or RecentScores(0)

    @classmethod
    def of(cls, method: Attributor, examples: Sequence[Example]) -> "InMemory":
        """Return what a method keeps of examples."""
        return cls(method.encode(examples), examples)

    def taken(self, rows: Rows) -> "InMemory":
        """Some of the examples."""
        encoded = {name: None if part is None else part[rows] for name, part in self.encoded.items()}
        return InMemory(encoded, self.examples and [self.examples[row] for row in rows.tolist()])

    def blocks(self, channel: str) -> Sequence[Block]:
        """Features of a channel."""
        features = self.encoded[channel]
        assert features is not None
        return [Block(0, features)]

    @property
    def live(self) -> None:
        """None was deleted."""
        return None

    def scores(self, channel: str, method: Any, queries: Sequence[Example], rows: Rows | None = None) -> np.ndarray:
        """Scores ``(q, n)`` by a method that keeps no features; of all, or of some rows."""
        assert self.examples is not None
        if rows is not None:
            return np.asarray(method.score([self.examples[row] for row in rows.tolist()], queries)).T
        examples = self.examples
        return self._held.of(channel, queries, lambda some: method.score(examples, some).T)


def is_direct(attributor: Attributor, *, counted: bool = False) -> bool:
    """Tell whether a method, or a channel of it, keeps no features; *counted*: one whose scores count."""
    if not isinstance(attributor, SeveralMethods):
        return isinstance(attributor, DirectAttributor)
    parts = zip(attributor.parts, attributor.counted, strict=True)
    return any(isinstance(part, DirectAttributor) and (counts or not counted) for part, counts in parts)

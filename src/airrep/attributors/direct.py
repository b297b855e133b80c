"""Methods that score training examples directly and store no features of them."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from airrep.arrays import Encoded, Rows
from airrep.attributors.base import Attributor, OnRows, counted_parts, parts_of
from airrep.corpus.corpus import Example
from airrep.scoring.asked import Asked, Kept, ScoresAsked
from airrep.scoring.blocks import Block, Span
from airrep.shapes import Float32


class QueryScorer(Protocol):
    """A function that returns influence scores of training examples for some queries, ``(n, q)``."""

    def __call__(self, train: Sequence[Example], on_rows: OnRows | None = None, /) -> Float32[np.ndarray, "n q"]: ...


class DirectAttributor(Attributor):
    """A method whose features of training examples are too large to store, so that it scores examples directly.

    An index stores nothing for it. All examples are read and scored at the first question with a query.
    """

    symmetric = False

    @abstractmethod
    def score(
        self, train: Sequence[Example], queries: Sequence[Example], on_rows: OnRows | None = None
    ) -> Float32[np.ndarray, "n q"]:
        """Influence scores of training examples for queries, higher = more helpful.

        A score depends on the two examples alone (and on what :meth:`fit` learnt). *on_rows* is called with the number
        of further training examples that are done.
        """

    def scorers(self, queries: Sequence[Example]) -> Iterator[tuple[slice, QueryScorer]]:
        """Yield slices of the queries, each with a scorer that is called as :meth:`score` is, batch after batch.

        Whatever a method computes from queries, such as their gradients, is in memory for one slice at a time.
        """
        yield slice(0, len(queries)), lambda train, on_rows=None: self.score(train, queries, on_rows)

    def encode(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> Encoded:
        """Return None as the features (DataError: the loss of the fine-tune cannot use an example)."""
        self.factors(examples)
        if on_rows is not None:
            on_rows(len(examples))
        return {self.name: None}

    def ask(
        self, queries: Sequence[Example], kept: Kept, on_rows: OnRows | None = None, channel: str | None = None
    ) -> Asked:
        """Return the scores of all examples; scores that are not known yet are computed here."""
        found = ScoresAsked(self, queries, kept, channel or self.name, self.pooling())
        found.values  # noqa: B018 - computed now, so that on_rows follows the work
        if on_rows is not None:
            on_rows(len(queries))
        return found


class RecentScores:
    """Scores of all examples for the latest queries, by channel.

    Scores of the last call are always kept; scores of older queries only while all together are at most *most* numbers.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: Mapping[tuple[str, str], np.ndarray] = {}  # replaced, never changed, so that readers need no lock

    def of(
        self, channel: str, queries: Sequence[Example], score: Callable[[list[Example]], np.ndarray]
    ) -> Float32[np.ndarray, "q n"]:
        """Return the scores for some queries; *score* computes ``(q, n)`` for the queries that are not kept."""
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
    """Features of some examples in memory, in place of those that an index stores."""

    live = None
    """No example was deleted."""

    def __init__(self, encoded: Encoded, examples: Sequence[Example] | None, held: RecentScores | None = None) -> None:
        """Take features by channel; *examples* are for methods without features, whose scores *held* remembers."""
        rows = next((part.shape[0] for part in encoded.values() if part is not None), None)
        count = len(examples or ()) if rows is None else rows
        self.encoded, self.examples, self.spans = encoded, examples, [Span(0, count)]
        self._held = held or RecentScores(0)

    @classmethod
    def of(cls, method: Attributor, examples: Sequence[Example]) -> "InMemory":
        """Encode examples with a method."""
        return cls(method.encode(examples), examples)

    def taken(self, rows: Rows) -> "InMemory":
        """Return some of the examples, without remembered scores."""
        encoded = {name: None if part is None else part[rows] for name, part in self.encoded.items()}
        return InMemory(encoded, self.examples and [self.examples[row] for row in rows.tolist()])

    def blocks(self, channel: str) -> Sequence[Block]:
        """Return the features of a channel as one block."""
        features = self.encoded[channel]
        assert features is not None
        return [Block(0, features)]

    def scores(self, channel: str, method: Any, queries: Sequence[Example], rows: Rows | None = None) -> np.ndarray:
        """Return scores ``(q, n)`` by a method that stores no features, of all examples or of some rows."""
        assert self.examples is not None
        if rows is not None:
            return np.asarray(method.score([self.examples[row] for row in rows.tolist()], queries)).T
        examples = self.examples
        return self._held.of(channel, queries, lambda some: method.score(examples, some).T)


def is_direct(attributor: Attributor, *, counted: bool = False) -> bool:
    """Return whether a method, or one of its channels, stores no features; *counted* skips channels of weight 0."""
    parts = counted_parts(attributor) if counted else parts_of(attributor)
    return any(isinstance(part, DirectAttributor) for part in parts)

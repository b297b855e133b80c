"""Methods that score training examples as they pass, and keep no features of them."""

from abc import abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from airrep.arrays import Features, MixedFeatures, SparseFeatures
from airrep.attributors.base import Attributor, OnRows, SeveralMethods
from airrep.corpus.corpus import Example
from airrep.errors import ConfigError
from airrep.shapes import Float32
from airrep.sparse import SparseRows

COLUMNS = 2**24
"""Different queries that one attributor can be asked about."""

Key = TypeVar("Key", bound=Hashable)


class QueryScorer(Protocol):
    """Influence scores of training examples for some queries, ``(n, q)``."""

    def __call__(self, train: Sequence[Example], on_rows: OnRows | None = None, /) -> Float32[np.ndarray, "n q"]: ...


class DirectAttributor(Attributor):
    """A method whose features of training examples are too large to keep: it scores examples as they pass.

    Its features are columns of scores, one for each query: φ_query(x) = e_x, and φ_train(z) = Σ_x s(x, z) e_x over the
    queries x that were asked about. An index keeps none of these numbers; it has them computed when a query is asked
    about for the first time (:class:`airrep.index.direct.DirectScores`). So all that scores examples and groups of them
    works as with any other method.
    """

    @property
    def symmetric(self) -> bool:
        return False

    @abstractmethod
    def score(
        self, train: Sequence[Example], queries: Sequence[Example], on_rows: OnRows | None = None
    ) -> Float32[np.ndarray, "n q"]:
        """Influence scores of training examples for queries, higher = more helpful.

        A score depends on the two examples alone (and on what :meth:`fit` learnt).

        Args:
            train: training examples.
            queries: queries.
            on_rows: called with how many more training examples are done.

        Raises:
            NotFittedError: the method learns from the training corpus and has not seen it.
        """

    def scorers(self, queries: Sequence[Example]) -> Iterator[tuple[slice, QueryScorer]]:
        """Queries in parts, each with what scores training examples for it as :meth:`score` does, batch after batch.

        What a method takes of queries, such as their gradients, is held while one part is scored.
        """
        yield slice(0, len(queries)), lambda train, on_rows=None: self.score(train, queries, on_rows)

    def column(self, query: Example) -> int:
        """The feature that stands for a query's texts: their number in the order in which queries were asked about."""
        known: dict[str, int] = self.__dict__.setdefault("_columns", {})
        found = known.setdefault(query.reading_hash, len(known))
        if found >= COLUMNS:
            raise ConfigError(f"{self.name}: was asked about {COLUMNS:,} queries. Open the index again.")
        return found

    def encode_train(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> SparseFeatures:
        """No number of any example, ``(rows, COLUMNS)``."""
        if on_rows is not None:
            on_rows(len(examples))
        return SparseRows.empty(len(examples), COLUMNS)

    def encode_queries(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> SparseFeatures:
        """A 1 in the column of each query, ``(rows, COLUMNS)``."""
        if on_rows is not None:
            on_rows(len(examples))
        columns = np.array([self.column(one) for one in examples], np.int32)
        ones = np.ones(len(columns), np.float32)
        return SparseRows(ones, columns, np.arange(len(columns) + 1), (len(columns), COLUMNS))


class RecentColumns(Generic[Key]):
    """Columns of scores of the queries that were asked about last, all of the same length.

    Those of the last question are there whatever their size; of older ones as many as *most* numbers allow.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.columns: Mapping[Key, np.ndarray] = {}
        """All of them, the last ones last; never changed, so that what reads them needs no lock."""

    def known(self, keys: Iterable[Key]) -> dict[Key, np.ndarray]:
        """Those of some keys that are here."""
        columns = self.columns
        return {key: columns[key] for key in keys if key in columns}

    def add(self, asked: Mapping[Key, np.ndarray]) -> None:
        """Take all columns of a question, known ones as well."""
        if asked:
            others = [(key, own) for key, own in self.columns.items() if key not in asked]
            room = self._most // max(1, len(next(iter(asked.values())))) - len(asked)
            self.columns = {**dict(others[max(0, len(others) - room) :] if room > 0 else ()), **asked}


class DirectPart(NamedTuple):
    """A direct method, and where its columns stand in the sparse features."""

    method: DirectAttributor
    start: int
    counted: bool = True
    """Whether its scores count; otherwise nobody need compute them."""


def direct_parts(attributor: Attributor) -> tuple[DirectPart, ...]:
    """The direct methods of an attributor: itself, or its channels; most have none."""
    if isinstance(attributor, DirectAttributor):
        return (DirectPart(attributor, 0),)
    if not isinstance(attributor, SeveralMethods) or not any(isinstance(p, DirectAttributor) for p in attributor.parts):
        return ()
    found, start = [], 0
    for part, counted in zip(attributor.parts, attributor.counted, strict=True):
        features = part.encode_train([])
        if isinstance(part, DirectAttributor):
            found.append(DirectPart(part, start, counted))
        start += 0 if isinstance(features, np.ndarray) else features.shape[1]
    return tuple(found)


def encode_both(
    attributor: Attributor, train: Sequence[Example], queries: Sequence[Example]
) -> tuple[Features, Features]:
    """Features of training examples and of queries, whose inner products are the scores of direct methods too."""
    rows, asked = attributor.encode_train(train), attributor.encode_queries(queries)
    for part in filter(attrgetter("counted"), direct_parts(attributor)):
        columns, scores = scored_columns(part, train, queries)
        rows = with_columns(rows, columns, scores)
    return rows, asked


def scored_columns(
    part: DirectPart, train: Sequence[Example], queries: Iterable[Example], on_rows: OnRows | None = None
) -> tuple[np.ndarray, Float32[np.ndarray, "n q"]]:
    """Columns of different queries, ascending, and the scores of training examples for them."""
    unique = {part.start + part.method.column(one): one for one in queries}
    columns = np.array(sorted(unique), np.int64)
    return columns, part.method.score(train, [unique[column] for column in columns.tolist()], on_rows)


def with_columns(features: Features, columns: np.ndarray, scores: np.ndarray) -> Features:
    """Sparse features, with numbers in columns where they have none."""
    if isinstance(features, MixedFeatures):
        joined = with_columns(features.sparse, columns, scores)
        assert isinstance(joined, SparseRows)
        return MixedFeatures(features.dense, joined, features.factors)
    assert isinstance(features, SparseRows)
    return (features + SparseRows.full(scores, columns, features.shape[1])).astype(np.float32)

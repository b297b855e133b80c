"""Kinds of results of asking an index: top examples, group scores, what-ifs."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, overload

import numpy as np

from airrep.arrays import GroupScores
from airrep.corpus.corpus import Example
from airrep.errors import ConfigError
from airrep.index.frames import Tabular
from airrep.index.results.forms import (
    Form,
    GroupForm,
    NamedGroup,
    QueryChange,
    QueryHits,
    QueryScores,
    TopForm,
    WhatIfForm,
    json_of,
)
from airrep.index.results.hits import Hits
from airrep.index.results.provenance import HARMFUL, HELPFUL, Provenance
from airrep.index.results.summary import Summary, summarise, with_summary
from airrep.runtime.artifacts.digests import canonical_json
from airrep.runtime.artifacts.making import new_artifact
from airrep.runtime.publishing.files import write_file

RESULTS = "results.json"


class Result(Tabular, ABC):
    """What all results share: a JSON form, and writing it as an artifact."""

    kind: ClassVar[str]
    provenance: Provenance

    @abstractmethod
    def _form(self) -> Form:
        """The result query by query, as it is written."""

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON values; the layout is in docs/formats.md."""
        return json_of(self._form())

    def save(self, out: str | Path, *, replace: bool = False) -> Path:
        """Write the result as an artifact that `airrep report` reads.

        Raises:
            ArtifactError: *out* exists and *replace* is false, or it cannot be written.
        """
        path = Path(out)
        with new_artifact(path, self.kind, {"provenance": asdict(self.provenance)}, replace=replace) as folder:
            write_file(folder / RESULTS, canonical_json(self.to_dict()))
        return path

    write = save
    """Earlier name of :meth:`save`."""


@dataclass(frozen=True, repr=False)
class TopResult(Result, Sequence[Hits]):
    """The top training examples of each of several queries.

    Example:
        >>> result = index.top(queries, k=3)
        >>> len(result), [len(hits) for hits in result]
        (5, [3, 3, 3, 3, 3])
    """

    queries: tuple[Hits, ...]
    provenance: Provenance
    least: bool = False
    kind: ClassVar[str] = "top"

    @overload
    def __getitem__(self, position: int) -> Hits: ...
    @overload
    def __getitem__(self, position: slice) -> "TopResult": ...
    def __getitem__(self, position: int | slice) -> "Hits | TopResult":
        if isinstance(position, slice):
            return replace(self, queries=self.queries[position])
        return self.queries[position]

    def __len__(self) -> int:
        return len(self.queries)

    def in_common(self) -> Summary:
        """What the queries have in common: their first examples, and the sources, labels and openings of these.

        Example:
            >>> index.top(queries, k=3).in_common().queries
            5
        """
        return summarise(self.queries, least=self.least)

    def to_dict(self) -> dict[str, Any]:
        return with_summary(super().to_dict(), self.in_common())

    def rows(self) -> Iterator[dict[str, Any]]:
        for hits in self.queries:
            for row in hits.rows():
                yield {"query": hits.query.id, **row}

    def summary(self) -> str:
        longest = max((len(hits) for hits in self.queries), default=0)
        return f"{len(self):,} queries, {longest} examples each, {HARMFUL if self.least else HELPFUL}"

    def _form(self) -> TopForm:
        rows = tuple(QueryHits(hits.query, hits.hits, hits.better, hits.verdict) for hits in self.queries)
        return TopForm("top", self.provenance, HARMFUL if self.least else HELPFUL, rows)


@dataclass(frozen=True, eq=False, repr=False)
class GroupResult(Result):
    """Group scores: ``scores[i, j]`` is how much group j helps query i; higher = more helpful.

    Example:
        >>> result = index.group_scores(queries, by="label")
        >>> result.names, result.scores.shape
        (('label 0', 'label 1', 'label 2'), (5, 3))
    """

    queries: tuple[Example, ...]
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    scores: GroupScores
    provenance: Provenance
    channels: dict[str, GroupScores] | None = None
    """What each channel gave, ``(q, m)`` each, where that was asked for; their sum is the scores."""
    better: tuple[Example, ...] | None = None
    """The better answers, of contrasts."""
    kind: ClassVar[str] = "group"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.scores, dtype=dtype, copy=copy)

    def ranked(self, query: int) -> list[tuple[str, float]]:
        """Names and scores of the groups for one query, most helpful first; ties keep the groups' order.

        Raises:
            ConfigError: there is no query of this number.
        """
        if not -len(self.queries) <= query < len(self.queries):
            raise ConfigError(f"query {query}: there are {len(self.queries)}; expected a number from 0 on. Correct it.")
        order = np.argsort(-self.scores[query], kind="stable")
        return [(self.names[group], float(self.scores[query, group])) for group in order]

    def rows(self) -> Iterator[dict[str, Any]]:
        for i, query in enumerate(self.queries):
            for j, (name, size) in enumerate(zip(self.names, self.sizes, strict=True)):
                parts = {f"from {one}": float(part[i, j]) for one, part in (self.channels or {}).items()}
                yield {"query": query.id, "group": name, "size": size, "score": float(self.scores[i, j]), **parts}

    def summary(self) -> str:
        return f"{len(self.queries):,} queries × {len(self.names):,} groups; higher = more helpful"

    def _form(self) -> GroupForm:
        groups = map(NamedGroup, self.names, self.sizes)
        rows = (
            QueryScores(query, tuple(self.scores[i].tolist()), _channels_of(self.channels, i), other)
            for i, (query, other) in enumerate(_pairs(self.queries, self.better))
        )
        return GroupForm("group", self.provenance, tuple(groups), tuple(rows))


@dataclass(frozen=True, eq=False, repr=False)
class WhatIfResult(Result):
    """How the group score of the corpus changes when part of it is left out.

    ``change = after - before``, one value for each query: below 0, what was removed had been helping.

    Example:
        >>> result = index.what_if(queries, remove='source == "forum"')
        >>> result.removed, result.change.shape
        (20, (5,))
    """

    queries: tuple[Example, ...]
    before: np.ndarray
    after: np.ndarray
    removed: int
    kept: int
    provenance: Provenance
    channels: dict[str, np.ndarray] | None = None
    """The change of each channel, ``(q,)`` each, where that was asked for; their sum is the change."""
    removal: str | None = None
    """What was left out, in words, such as ``without source == "forum"``; None in results of earlier versions."""
    better: tuple[Example, ...] | None = None
    """The better answers, of contrasts."""
    kind: ClassVar[str] = "what-if"

    @property
    def change(self) -> np.ndarray:
        """``after - before``, ``(q,)``; float64, as the two are, since little may be left of them."""
        difference: np.ndarray = self.after - self.before
        return difference

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.change, dtype=dtype, copy=copy)

    def rows(self) -> Iterator[dict[str, Any]]:
        for i, query in enumerate(self.queries):
            numbers = {"change": self.change[i], "before": self.before[i], "after": self.after[i]}
            parts = {f"from {one}": float(part[i]) for one, part in (self.channels or {}).items()}
            yield {"query": query.id, **{name: float(value) for name, value in numbers.items()}, **parts}

    def summary(self) -> str:
        return (
            f"{len(self.queries):,} queries, {self.removed:,} examples removed, {self.kept:,} kept; change below 0: "
            "they had been helping"
        )

    def _form(self) -> WhatIfForm:
        numbers = zip(self.queries, self.change.tolist(), self.before.tolist(), self.after.tolist(), strict=True)
        others = [other for _, other in _pairs(self.queries, self.better)]
        rows = (QueryChange(*row, _changes_of(self.channels, i), others[i]) for i, row in enumerate(numbers))
        return WhatIfForm("what-if", self.provenance, self.removed, self.kept, tuple(rows), self.removal)


def _pairs(queries: Sequence[Example], better: Sequence[Example] | None) -> Iterator[tuple[Example, Example | None]]:
    """Each query, and the better answer to it if there is one."""
    others: Sequence[Example | None] = better or [None] * len(queries)
    return zip(queries, others, strict=True)


def _channels_of(channels: Mapping[str, np.ndarray] | None, query: int) -> dict[str, tuple[float, ...]] | None:
    return None if channels is None else {name: tuple(part[query].tolist()) for name, part in channels.items()}


def _changes_of(channels: Mapping[str, np.ndarray] | None, query: int) -> dict[str, float] | None:
    return None if channels is None else {name: float(part[query]) for name, part in channels.items()}

"""Kinds of index results: top examples, group scores, what-ifs."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Self, TypeVar, overload

import numpy as np
from pydantic import BeforeValidator, Field, PlainSerializer

from airrep.arrays import GroupScores
from airrep.corpus.corpus import Example
from airrep.errors import ConfigError, DataError, many
from airrep.index.results.hits import Hit, Hits, Record
from airrep.index.results.result import HARMFUL, HELPFUL, Numbers, Origin, Provenance, Result, Sparing, Tabular, form_of

FIRST = 20
"""Number of first examples over all queries whose sources, labels and openings are counted."""
OPENING = 3
"""Number of words in a response's opening."""


@dataclass(frozen=True)
class Shared:
    """Number of the first examples that share a source, label or opening."""

    name: str
    examples: int


@dataclass(frozen=True)
class CommonExample:
    """A training example in the rankings of some of the queries."""

    row: int
    example: Record
    queries: int
    """Number of queries whose rankings hold the example."""
    best: int
    """The example's best rank."""
    mean: float
    """Mean over these queries of the example's deviations, or of its scores if deviations are not known."""


@dataclass(frozen=True)
class Summary:
    """Properties that the first examples of several queries share."""

    queries: int
    examples: int
    """Number of different examples in all rankings together."""
    first: tuple[CommonExample, ...]
    """The first :data:`FIRST` examples: in most rankings, then of the greatest mean (the least, for harmful ones)."""
    sources: tuple[Shared, ...]
    """Sources of the first examples, the most frequent first; examples without a source are not counted."""
    labels: tuple[Shared, ...]
    """Labels of the first examples."""
    openings: tuple[Shared, ...]
    """First words that at least two of the first examples' responses share."""


def summarise(rankings: Sequence[Iterable[Hit]], *, least: bool = False) -> Summary:
    """Summarise what the rankings of several queries have in common; *least*: they hold the most harmful examples."""
    found: defaultdict[int, list[Hit]] = defaultdict(list)
    for ranking in rankings:
        for hit in ranking:
            found[hit.row].append(hit)
    direction, common = 1 if least else -1, []
    for row, hits in sorted(found.items()):
        values = [hit.score if hit.deviations is None else hit.deviations for hit in hits]
        mean, best = sum(values) / len(values), min(hit.rank for hit in hits)
        common.append(CommonExample(row, hits[0].example, len(hits), best, mean))
    first = sorted(common, key=lambda one: (-one.queries, direction * one.mean))[:FIRST]
    sources, labels = (_counted(getattr(one.example, name) for one in first) for name in ("source", "label"))
    openings = [one for one in _counted(_opening(one.example.response) for one in first) if one.examples > 1]
    return Summary(len(rankings), len(common), tuple(first), sources, labels, tuple(openings))


def _opening(response: str) -> str | None:
    words = response[:200].split()  # not the whole response: it may have megabytes
    return " ".join(words[:OPENING]) if len(words) >= OPENING else None


def _counted(names: Iterable[str | None]) -> tuple[Shared, ...]:
    counts = Counter(name for name in names if name is not None)
    return tuple(Shared(*pair) for pair in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


T = TypeVar("T")


def _is_least(order: Any) -> Any:
    """Turn the order's name in JSON into :attr:`TopResult.least`; other values stay, and validation refuses them."""
    return {HARMFUL: True, HELPFUL: False}.get(order, order) if isinstance(order, str) else order


@dataclass(frozen=True, repr=False)
class TopResult(Tabular, Result, Sequence[Hits]):
    """The top training examples of each of several queries.

    Example:
        >>> result = index.top(queries, k=3)
        >>> len(result), [len(hits) for hits in result]
        (5, [3, 3, 3, 3, 3])
    """

    queries: tuple[Annotated[Hits, Sparing], ...]
    provenance: Origin
    least: Annotated[
        bool,
        Field(alias="order"),
        BeforeValidator(_is_least),
        PlainSerializer(lambda least: HARMFUL if least else HELPFUL),
    ]
    kind: ClassVar[str] = "top"

    def __post_init__(self) -> None:
        told = (replace(hits, provenance=self.provenance, least=self.least) for hits in self.queries)
        object.__setattr__(self, "queries", tuple(told))

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

    @property
    def entries(self) -> tuple[Hits, ...]:
        """Results by query."""
        return self.queries

    def in_common(self) -> Summary:
        """Summarise what the queries have in common: first examples, with their sources, labels and openings.

        Example:
            >>> index.top(queries, k=3).in_common().queries
            5
        """
        return summarise(self.queries, least=self.least)

    def to_dict(self) -> dict[str, Any]:
        values = super().to_dict()
        common = {"in_common": form_of(Summary).dump_python(self.in_common(), mode="json")} if len(self) > 1 else {}
        return values | common

    def rows(self) -> Iterator[dict[str, Any]]:
        for hits in self.queries:
            for row in hits.rows():
                yield {"query": hits.query.id, **row}

    def summary(self) -> str:
        longest = max((len(hits) for hits in self.queries), default=0)
        sign = HARMFUL if self.least else HELPFUL
        return f"{many(len(self), 'query', 'queries')}, {many(longest, 'example')} each, {sign}"


class _OfQueries(Tabular, Result):
    """A result that has an entry for each query."""

    entries: Sequence[Any]

    @property
    def queries(self) -> tuple[Example, ...]:
        """The queries."""
        return tuple(entry.query for entry in self.entries)

    @property
    def better(self) -> tuple[Example, ...] | None:
        """The better answers of contrasts; None if a query has none."""
        found = tuple(entry.better for entry in self.entries if entry.better is not None)
        return found if found and len(found) == len(self.entries) else None


@dataclass(frozen=True, eq=False)
class QueryScores:
    """The group scores of one query, in the order of the groups."""

    query: Record
    scores: Numbers
    channels: dict[str, Numbers] | None = None
    """Each channel's part of each group's score."""
    better: Record | None = None


@dataclass(frozen=True)
class NamedGroup:
    """A group and its number of examples."""

    name: str
    size: int


@dataclass(frozen=True, eq=False, repr=False)
class GroupResult(_OfQueries):
    """Group scores: ``scores[i, j]`` is how much group j helps query i; higher = more helpful.

    Example:
        >>> result = index.group_scores(queries, by="label")
        >>> result.names, result.scores.shape
        (('label 0', 'label 1', 'label 2'), (5, 3))
    """

    groups: tuple[NamedGroup, ...]
    entries: Annotated[tuple[Annotated[QueryScores, Sparing], ...], Field(alias="queries")]
    """Results by query."""
    provenance: Origin
    kind: ClassVar[str] = "group"

    def __post_init__(self) -> None:
        if any(len(entry.scores) != len(self.groups) for entry in self.entries):
            raise DataError("there must be one score for each group.")
        _check_channels(self.entries)
        if any(len(part) != len(self.groups) for one in self.entries for part in (one.channels or {}).values()):
            raise DataError("each channel (method) must have one score for each group.")

    @classmethod
    def of(
        cls,
        queries: Sequence[Example],
        names: Sequence[str],
        sizes: Sequence[int],
        scores: GroupScores,
        provenance: Provenance,
        channels: Mapping[str, GroupScores] | None = None,
        better: Sequence[Example] | None = None,
    ) -> Self:
        """Make a result of arrays ``(q, m)``: scores and, if requested, each channel's part of them."""
        entries = (
            QueryScores(query, row, _at(channels, i, np.asarray), other)
            for i, (query, row, other) in enumerate(_each(queries, scores, better))
        )
        return cls(tuple(map(NamedGroup, names, sizes)), tuple(entries), provenance)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the groups."""
        return tuple(group.name for group in self.groups)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Examples in each group."""
        return tuple(group.size for group in self.groups)

    @cached_property
    def scores(self) -> GroupScores:
        """Scores, ``(q, m)``."""
        return self._stacked([entry.scores for entry in self.entries])

    @cached_property
    def channels(self) -> dict[str, GroupScores] | None:
        """Each channel's part of the scores, ``(q, m)``; the parts add up to the scores. None unless requested."""
        told = [entry.channels for entry in self.entries if entry.channels is not None]
        return {name: self._stacked([one[name] for one in told]) for name in told[0]} if told else None

    def _stacked(self, rows: Sequence[np.ndarray]) -> GroupScores:
        return np.stack(rows) if rows else np.zeros((0, len(self.groups)), np.float32)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.scores, dtype=dtype, copy=copy)

    def ranked(self, query: int) -> list[tuple[str, float]]:
        """Names and scores of the groups for one query, most helpful first; ties keep the groups' order.

        Raises:
            ConfigError: there is no query of this number.
        """
        if not -len(self.queries) <= query < len(self.queries):
            held = many(len(self.queries), "query", "queries")
            raise ConfigError(f"query {query}: does not exist. The result has {held}, numbered from 0.")
        order = np.argsort(-self.scores[query], kind="stable")
        return [(self.names[group], float(self.scores[query, group])) for group in order]

    def rows(self) -> Iterator[dict[str, Any]]:
        for one in self.entries:
            for j, group in enumerate(self.groups):
                parts = {f"from {name}": float(part[j]) for name, part in (one.channels or {}).items()}
                numbers = {"group": group.name, "size": group.size, "score": float(one.scores[j])}
                yield {"query": one.query.id, **numbers, **parts}

    def summary(self) -> str:
        return (
            f"{many(len(self.queries), 'query', 'queries')} × {many(len(self.names), 'group')}; higher = more helpful"
        )


@dataclass(frozen=True)
class QueryChange:
    """The group score of the corpus for one query before and after a removal."""

    query: Record
    change: float
    before: float
    after: float
    channels: dict[str, float] | None = None
    """The change of each channel."""
    better: Record | None = None


@dataclass(frozen=True, eq=False, repr=False)
class WhatIfResult(_OfQueries):
    """How the group score of the corpus changes when part of the corpus is left out.

    ``change = after - before``, one value for each query: below 0, the data would teach the answer less without the
    removed examples.

    Example:
        >>> result = index.what_if(queries, remove='source == "forum"')
        >>> result.removed, result.change.shape
        (20, (5,))
    """

    removed: int
    kept: int
    entries: Annotated[tuple[Annotated[QueryChange, Sparing], ...], Field(alias="queries")]
    """Results by query."""
    provenance: Origin
    removal: str | None = None
    """The part that was left out, in words (``without source == "forum"``); None in results of earlier versions."""
    kind: ClassVar[str] = "what-if"

    def __post_init__(self) -> None:
        _check_channels(self.entries)

    @classmethod
    def of(
        cls,
        queries: Sequence[Example],
        before: np.ndarray,
        after: np.ndarray,
        removed: int,
        kept: int,
        provenance: Provenance,
        channels: Mapping[str, np.ndarray] | None = None,
        removal: str | None = None,
        better: Sequence[Example] | None = None,
    ) -> Self:
        """Make a result of arrays ``(q,)``: scores before and after and, if requested, the change of each channel."""
        numbers = zip((after - before).tolist(), before.tolist(), after.tolist(), strict=True)
        entries = (
            QueryChange(query, *row, _at(channels, i, float), other)
            for i, (query, row, other) in enumerate(_each(queries, list(numbers), better))
        )
        return cls(removed, kept, tuple(entries), provenance, removal)

    @property
    def before(self) -> np.ndarray:
        """Scores before, ``(q,)`` float64."""
        return np.array([entry.before for entry in self.entries], np.float64)

    @property
    def after(self) -> np.ndarray:
        """Scores after, ``(q,)`` float64."""
        return np.array([entry.after for entry in self.entries], np.float64)

    @property
    def change(self) -> np.ndarray:
        """``after - before``, ``(q,)`` float64, as the difference may be small."""
        return np.array([entry.change for entry in self.entries], np.float64)

    @property
    def channels(self) -> dict[str, np.ndarray] | None:
        """The change of each channel, ``(q,)``; these add up to the change. None unless requested."""
        told = [entry.channels for entry in self.entries if entry.channels is not None]
        return {name: np.array([one[name] for one in told], np.float64) for name in told[0]} if told else None

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.change, dtype=dtype, copy=copy)

    def rows(self) -> Iterator[dict[str, Any]]:
        for one in self.entries:
            parts = {f"from {name}": part for name, part in (one.channels or {}).items()}
            numbers = {"change": one.change, "before": one.before, "after": one.after}
            yield {"query": one.query.id, **numbers, **parts}

    def summary(self) -> str:
        return (
            f"{many(len(self.queries), 'query', 'queries')}, {many(self.removed, 'example')} removed, {self.kept:,} "
            "kept; below 0: without the removed examples, the data would teach the answer less"
        )


def effect_text(change: float, *, better: bool) -> str:
    """Say what a change of the group score predicts; *better*: scores contrast the answer with a better one.

    It holds for pools that sum and for pools that take a mean, where a score also rises without examples that help
    less than the rest.
    """
    if not change:
        return "no change is predicted"
    compared = ", compared with the better one" if better else ""
    return f"without these examples, the data would teach the answer {'less' if change < 0 else 'more'}{compared}"


def _each(
    queries: Sequence[Example], rows: Iterable[T], better: Sequence[Example] | None
) -> Iterator[tuple[Example, T, Example | None]]:
    """Pair each query with its row, and with its better answer if there is one."""
    others: Sequence[Example | None] = better or [None] * len(queries)
    return zip(queries, rows, others, strict=True)


def _at(channels: Mapping[str, np.ndarray] | None, query: int, made: Callable[[Any], T]) -> dict[str, T] | None:
    return None if channels is None else {name: made(part[query]) for name, part in channels.items()}


def _check_channels(entries: Sequence[QueryScores] | Sequence[QueryChange]) -> None:
    """Raise DataError if not all queries have the same channels."""
    if len({None if entry.channels is None else tuple(entry.channels) for entry in entries}) > 1:
        raise DataError("all queries must have scores of the same channels (methods).")

"""Examples, sources, labels and openings that rankings of several queries share."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from pydantic import TypeAdapter

from airrep.corpus.corpus import Example
from airrep.index.results.hits import Record

FIRST = 20
"""Examples that are first over all queries, whose sources, labels and openings are counted."""
OPENING = 3
"""Words of a response that are its opening."""


class Ranked(Protocol):
    """A training example in a ranking for a query."""

    @property
    def rank(self) -> int:
        """1 = first."""

    @property
    def row(self) -> int:
        """Its row in the index."""

    @property
    def score(self) -> float:
        """Its score for the query."""

    @property
    def deviations(self) -> float | None:
        """The score in deviations from the mean of all; None where that is not known."""

    @property
    def example(self) -> Example:
        """The example."""


@dataclass(frozen=True)
class Shared:
    """How many of the first examples have one source, label or opening."""

    name: str
    examples: int


@dataclass(frozen=True)
class CommonExample:
    """A training example in the rankings of some of the queries."""

    row: int
    example: Record
    queries: int
    """Of how many queries it is among the first."""
    best: int
    """Its best rank."""
    mean: float
    """Mean over these queries of its deviations, or of its scores where those are not known."""


@dataclass(frozen=True)
class Summary:
    """What several queries have in common."""

    queries: int
    examples: int
    """Different examples in all rankings together."""
    first: tuple[CommonExample, ...]
    """The first :data:`FIRST` over all queries: those of most queries, then of the greatest mean."""
    sources: tuple[Shared, ...]
    """Sources of these, most examples first; without a source none."""
    labels: tuple[Shared, ...]
    """Their labels."""
    openings: tuple[Shared, ...]
    """The first words of their responses, of those that two or more have."""


def summarise(rankings: Sequence[Iterable[Ranked]], *, least: bool = False) -> Summary:
    """What rankings have in common.

    Args:
        rankings: the ranking of each query.
        least: whether low scores are the strong ones.
    """
    found: defaultdict[int, list[Ranked]] = defaultdict(list)
    for ranking in rankings:
        for hit in ranking:
            found[hit.row].append(hit)
    direction = 1 if least else -1
    common = [_common(row, hits) for row, hits in sorted(found.items())]
    first = sorted(common, key=lambda one: (-one.queries, direction * one.mean))[:FIRST]
    sources, labels = (_counted(getattr(one.example, name) for one in first) for name in ("source", "label"))
    openings = [one for one in _counted(_opening(one.example.response) for one in first) if one.examples > 1]
    return Summary(len(rankings), len(common), tuple(first), sources, labels, tuple(openings))


def _common(row: int, hits: Sequence[Ranked]) -> CommonExample:
    values = [hit.score if hit.deviations is None else hit.deviations for hit in hits]
    return CommonExample(row, hits[0].example, len(hits), min(hit.rank for hit in hits), sum(values) / len(values))


def _opening(response: str) -> str | None:
    words = response[:200].split()  # not all of it: it may be megabytes
    return " ".join(words[:OPENING]) if len(words) >= OPENING else None


def _counted(names: Iterable[str | None]) -> tuple[Shared, ...]:
    counts = Counter(name for name in names if name is not None)
    return tuple(Shared(*pair) for pair in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


def with_summary(values: dict[str, Any], summary: Summary) -> dict[str, Any]:
    """The JSON values of a result, with what its queries have in common where there are several."""
    return values if summary.queries < 2 else {**values, "in_common": _adapter().dump_python(summary, mode="json")}


@cache
def _adapter() -> TypeAdapter[Summary]:
    return TypeAdapter(Summary)

"""Hits: training examples in a ranking for a query."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias, overload

from pydantic import BeforeValidator, PlainSerializer

from airrep.corpus.corpus import Example
from airrep.corpus.records import RESERVED
from airrep.index.frames import Tabular, shortened
from airrep.index.results.provenance import HARMFUL, HELPFUL, Provenance
from airrep.index.results.verdict import Verdict
from airrep.index.why import Why


def _fields_of(record: Any) -> Any:
    """A record as the fields of an example, whose metadata stands beside them (:meth:`Example.to_dict`)."""
    if not isinstance(record, Mapping):
        return record
    own = {name: record[name] for name in RESERVED if name in record}
    plain = {name: value for name, value in record.items() if name not in (*RESERVED, PLACE)}
    nested = own.get("metadata")
    metadata = {**plain, **nested} if isinstance(nested, Mapping) else plain
    return {"id": None, **own, "metadata": metadata, "place": record.get(PLACE)}


def record_of(example: Example) -> dict[str, Any]:
    """An example as a record, with the place that it was read from; a field of that name stands in its metadata."""
    record = example.to_dict()
    if example.place is None:
        return record
    if PLACE in record:
        record["metadata"] = {**record.get("metadata", {}), PLACE: record[PLACE]}
    return {**record, PLACE: example.place}


PLACE = "read_from"
"""Key of a record for the place in its file."""
Record: TypeAlias = Annotated[Example, BeforeValidator(_fields_of), PlainSerializer(record_of)]
"""An example that is written as a record."""


@dataclass(frozen=True)
class Hit:
    """One training example in a ranking for a query.

    Example:
        >>> hit = index.top("answer 14", k=1)[0]
        >>> hit.rank, hit.example.response
        (1, 'answer 14')
    """

    rank: int
    """1 = first."""
    score: float
    """Influence score; higher = more helpful."""
    row: int
    """Row number in the index."""
    example: Record
    why: Why | None = None
    """What makes up the score, where that was asked for."""
    deviations: float | None = None
    """How far the score lies above the mean of all examples, in deviations of their scores; None where not asked for
    (:func:`airrep.answers.verdicts.verdict.judged_top`)."""


FIELDS = ("id", "prompt", "response", "label", "source")


def fields_of(example: Example) -> dict[str, Any]:
    """The fields of a training example in a row of a result."""
    return {name: getattr(example, name) for name in FIELDS}


@dataclass(frozen=True, repr=False)
class Hits(Tabular, Sequence[Hit]):
    """The first training examples of one query, best first (or most harmful first, if ``least``)."""

    query: Example
    hits: tuple[Hit, ...]
    provenance: Provenance
    least: bool = False
    better: Example | None = None
    """The better answer, of a contrast."""
    verdict: Verdict | None = None
    """Whether any of it stands out, where that was judged (:func:`airrep.answers.verdicts.verdict.judged_top`)."""

    @overload
    def __getitem__(self, position: int) -> Hit: ...
    @overload
    def __getitem__(self, position: slice) -> tuple[Hit, ...]: ...
    def __getitem__(self, position: int | slice) -> Hit | tuple[Hit, ...]:
        return self.hits[position]

    def __len__(self) -> int:
        return len(self.hits)

    def rows(self) -> Iterator[dict[str, Any]]:
        for hit in self.hits:
            parts = {} if hit.why is None else {f"from {name}": part for name, part in hit.why.channels.items()}
            yield {"rank": hit.rank, "score": hit.score, "row": hit.row, **fields_of(hit.example), **parts}

    def summary(self) -> str:
        order = HARMFUL if self.least else HELPFUL
        return f"{len(self)} examples for {shortened(self.query.response, 40)!r}, {order}"

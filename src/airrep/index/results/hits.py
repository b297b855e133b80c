"""Hits: training examples in a ranking, and the verdict on the answer."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias, overload

from pydantic import BeforeValidator, Field, PlainSerializer

from airrep.corpus.corpus import Example
from airrep.corpus.places import Span
from airrep.corpus.records import RESERVED
from airrep.errors import many
from airrep.index.results.result import HARMFUL, HELPFUL, NOWHERE, Provenance, Sparing, Tabular, shortened
from airrep.index.why import Why


def _fields_of(record: Any) -> Any:
    """Turn a record of :func:`record_of` into the fields of an example; other keys become metadata."""
    if not isinstance(record, Mapping):
        return record
    own = {name: record[name] for name in RESERVED if name in record}
    plain = {name: value for name, value in record.items() if name not in (*RESERVED, PLACE)}
    nested = own.get("metadata")
    metadata = {**plain, **nested} if isinstance(nested, Mapping) else plain
    return {"id": None, **own, "metadata": metadata, "place": record.get(PLACE)}


def record_of(example: Example) -> dict[str, Any]:
    """Turn an example into a record with the place that it was read from; metadata of that name are nested."""
    record = example.to_dict()
    if example.place is None:
        return record
    if PLACE in record:
        record["metadata"] = {**record.get("metadata", {}), PLACE: record[PLACE]}
    return {**record, PLACE: example.place}


PLACE = "read_from"
"""Key of a record for the file and line that the example was read from."""
Record: TypeAlias = Annotated[Example, BeforeValidator(_fields_of), PlainSerializer(record_of)]
"""An example that is serialised as a flat record."""


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
    why: Annotated[Why, Sparing] | None = None
    """Parts of the score; None unless they were requested."""
    deviations: float | None = None
    """Standard deviations by which the score lies above the mean of the ranked examples; None if not measured, as by
    :meth:`airrep.Index.top` (:func:`airrep.answers.verdict.top` measures them)."""


@dataclass(frozen=True)
class CopyPlace:
    """A place of the training data that holds words of an answer."""

    row: int
    """Row number in the index."""
    place: Span
    """Field and characters of the example."""


@dataclass(frozen=True)
class Copied:
    """Words of an answer that stand in training examples one after another, as they do in the answer."""

    text: str
    """The words as the answer has them, in one line."""
    words: int
    query: Span
    """Characters of the answer that hold the words."""
    examples: int
    """How many examples hold the words."""
    places: tuple[CopyPlace, ...]
    """The first place in each of the first examples, by row; at most 20."""


Kind: TypeAlias = Literal["stands out", "weak", "nothing"]


@dataclass(frozen=True)
class Verdict:
    """Verdict on an answer: does anything in the data stand out as what taught it?

    The share of a training example is what the example teaches of the answer, as a part of what a copy of the answer
    would teach: 0 for the mean example, 1 for a copy. With a better answer, the share is the lesser of this number and
    the same number for the contrast, so that an example with a great share teaches the answer more than the better
    answer. The nearest example is the one with the greatest share.
    """

    kind: Kind
    """``"stands out"`` (chance below 1 %), ``"weak"`` (below 5 %), or ``"nothing"``: nothing here taught this."""
    chance: float
    """Chance, from 0 to 1, that the nearest example to an answer that nothing taught has at least this share."""
    share: float
    """Share of the nearest example."""
    deviations: float
    """Standard deviations by which the score, or contrast, of the nearest example lies above the mean of all."""
    row: int
    """Row number of the nearest example in the index."""
    rows: int
    """Number of examples whose share is at least 0.7 times the greatest; no more than 100 are counted."""
    text: str
    """The verdict in words."""


FIELDS = ("id", "prompt", "response", "label", "source")


def fields_of(example: Example) -> dict[str, Any]:
    """Return the fields of a training example for a row of a result."""
    return {name: getattr(example, name) for name in FIELDS}


@dataclass(frozen=True, repr=False)
class Hits(Tabular, Sequence[Hit]):
    """The first training examples of one query, best first (or most harmful first, if ``least``)."""

    query: Record
    hits: tuple[Annotated[Hit, Sparing], ...]
    provenance: Annotated[Provenance, Field(exclude=True)] = NOWHERE
    """Provenance of the whole result."""
    least: Annotated[bool, Field(exclude=True)] = False
    better: Record | None = None
    """The better answer; None without a contrast."""
    verdict: Verdict | None = None
    """Verdict on the answer; None if it was not judged, as :func:`airrep.top` does."""
    copied: tuple[Copied, ...] | None = None
    """Longest stretches of the answer that training examples hold word for word; None unless requested with reasons."""

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
            far = {} if hit.deviations is None else {"deviations": hit.deviations}
            yield {"rank": hit.rank, "score": hit.score, **far, "row": hit.row, **fields_of(hit.example), **parts}

    def summary(self) -> str:
        order = HARMFUL if self.least else HELPFUL
        return f"{many(len(self), 'example')} for {shortened(self.query.response, 40)!r}, {order}"

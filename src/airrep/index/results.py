"""Results of asking an index: written, read, with method, pool, sign, units."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias, overload

import numpy as np
from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationError,
    WrapSerializer,
)

from airrep.arrays import GroupScores
from airrep.corpus.corpus import Example
from airrep.corpus.records import RESERVED
from airrep.errors import ArtifactError, DataError
from airrep.index.frames import Tabular, shortened
from airrep.index.why import Why
from airrep.runtime.artifacts.checks import as_written, read_json
from airrep.runtime.artifacts.digests import canonical_json
from airrep.runtime.artifacts.making import new_artifact
from airrep.runtime.artifacts.manifests import read_manifest
from airrep.runtime.artifacts.urls import fetched
from airrep.runtime.publishing.files import write_file
from airrep.scoring.pooling import pooling_text

RESULTS = "results.json"
REMOVAL = "increase of the query's loss if the group were removed"
"""What an order-k score measures."""
HELPFUL: Final = "most helpful first"
HARMFUL: Final = "most harmful first"


def _fields_of(record: Any) -> Any:
    """A record as the fields of an example, whose metadata stands beside them (:meth:`Example.to_dict`)."""
    if not isinstance(record, Mapping):
        return record
    own = {name: record[name] for name in RESERVED if name in record}
    plain = {name: value for name, value in record.items() if name not in RESERVED}
    nested = own.get("metadata")
    return {"id": None, **own, "metadata": {**plain, **nested} if isinstance(nested, Mapping) else plain}


Record: TypeAlias = Annotated[Example, BeforeValidator(_fields_of), PlainSerializer(Example.to_dict)]
"""An example that is written as a record."""


_LATER = ("why", "channels")
"""Not written where there are none, so that results stay as they were."""


def _without_none(value: Any, write: SerializerFunctionWrapHandler) -> Any:
    """What is told with `why` alone is not written without it, as it never was."""
    return {name: part for name, part in write(value).items() if part is not None or name not in _LATER}


_Sparing = WrapSerializer(_without_none)


def order_in_words(least: bool, scores: Iterable[float]) -> str:
    """Which end of a ranking it is; the lowest scores harm nobody if they are above 0."""
    if not least:
        return "most helpful"
    return "most harmful" if min(scores, default=-1.0) < 0 else "least helpful"


@dataclass(frozen=True)
class Provenance:
    """Where scores come from, and how to read them."""

    method: str
    """The attribution method."""
    index: str
    """Fingerprint of the index that was asked, with the weights of its channels if others were given."""
    pool: str | None = None
    """How the members' scores make a group score; None for scores of single examples."""
    temperature: float | None = None
    """Of attention, the larger the flatter; None for other pools."""
    units: str = "inner product of features"
    """What a score measures."""
    sign: str = "higher = more helpful"
    """Which way is up."""
    caution: str = ""
    """What readers should be told of the method; empty if nothing."""

    @property
    def pooling(self) -> str:
        """The pool, and the temperature if it is not 1; empty for scores of single examples."""
        return pooling_text(self.pool, self.temperature)


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


def fields_of(example: Example) -> dict[str, Any]:
    """The fields of a training example in a row of a result."""
    own = {"id": example.id, "prompt": example.prompt, "response": example.response}
    return {**own, "label": example.label, "source": example.source}


@dataclass(frozen=True, repr=False)
class Hits(Tabular, Sequence[Hit]):
    """The first training examples of one query, best first (or most harmful first, if ``least``)."""

    query: Example
    hits: tuple[Hit, ...]
    provenance: Provenance
    least: bool = False

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


class Result(Tabular, ABC):
    """What all results share: a JSON form, and writing it as an artifact."""

    kind: ClassVar[str]
    provenance: Provenance

    @abstractmethod
    def _form(self) -> "Form":
        """The result query by query, as it is written."""

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON values; the layout is in docs/formats.md."""
        values: dict[str, Any] = _FORMS.dump_python(self._form(), mode="json")
        return values

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

    def rows(self) -> Iterator[dict[str, Any]]:
        for hits in self.queries:
            for row in hits.rows():
                yield {"query": hits.query.id, **row}

    def summary(self) -> str:
        longest = max((len(hits) for hits in self.queries), default=0)
        return f"{len(self):,} queries, {longest} examples each, {HARMFUL if self.least else HELPFUL}"

    def _form(self) -> "TopForm":
        rows = tuple(QueryHits(hits.query, hits.hits) for hits in self.queries)
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
    kind: ClassVar[str] = "group"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.scores, dtype=dtype, copy=copy)

    def ranked(self, query: int) -> list[tuple[str, float]]:
        """Names and scores of the groups for one query, most helpful first; ties keep the groups' order."""
        order = np.argsort(-self.scores[query], kind="stable")
        return [(self.names[group], float(self.scores[query, group])) for group in order]

    def rows(self) -> Iterator[dict[str, Any]]:
        for i, query in enumerate(self.queries):
            for j, (name, size) in enumerate(zip(self.names, self.sizes, strict=True)):
                parts = {f"from {one}": float(part[i, j]) for one, part in (self.channels or {}).items()}
                yield {"query": query.id, "group": name, "size": size, "score": float(self.scores[i, j]), **parts}

    def summary(self) -> str:
        return f"{len(self.queries):,} queries × {len(self.names):,} groups; higher = more helpful"

    def _form(self) -> "GroupForm":
        groups = map(NamedGroup, self.names, self.sizes)
        rows = (
            QueryScores(query, tuple(self.scores[i].tolist()), _channels_of(self.channels, i))
            for i, query in enumerate(self.queries)
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

    def _form(self) -> "WhatIfForm":
        numbers = zip(self.queries, self.change.tolist(), self.before.tolist(), self.after.tolist(), strict=True)
        rows = (QueryChange(*row, _changes_of(self.channels, place)) for place, row in enumerate(numbers))
        return WhatIfForm("what-if", self.provenance, self.removed, self.kept, tuple(rows), self.removal)


def _channels_of(channels: Mapping[str, np.ndarray] | None, query: int) -> dict[str, tuple[float, ...]] | None:
    return None if channels is None else {name: tuple(part[query].tolist()) for name, part in channels.items()}


def _changes_of(channels: Mapping[str, np.ndarray] | None, query: int) -> dict[str, float] | None:
    return None if channels is None else {name: float(part[query]) for name, part in channels.items()}


@dataclass(frozen=True)
class QueryHits:
    """The hits of one query."""

    query: Record
    hits: tuple[Annotated[Hit, _Sparing], ...]


@dataclass(frozen=True)
class QueryScores:
    """The group scores of one query, in the order of the groups."""

    query: Record
    scores: tuple[float, ...]
    channels: dict[str, tuple[float, ...]] | None = None
    """What each channel gave to each group."""


@dataclass(frozen=True)
class QueryChange:
    """The group score of the corpus for one query before and after a removal."""

    query: Record
    change: float
    before: float
    after: float
    channels: dict[str, float] | None = None
    """The change of each channel."""


@dataclass(frozen=True)
class NamedGroup:
    """A group and its number of examples."""

    name: str
    size: int


def _told(provenance: Any) -> Any:
    # the defaults are for results that are being made: one that is read must tell them
    return {"units": None, "sign": None, **provenance} if isinstance(provenance, Mapping) else provenance


_Origin: TypeAlias = Annotated[Provenance, BeforeValidator(_told)]


class _Form:
    """Rules for a form and what it holds: when read, other keys are passed over, NaN and infinity refused."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(allow_inf_nan=False, ser_json_inf_nan="constants")


@dataclass(frozen=True)
class TopForm(_Form):
    """The JSON form of a TopResult."""

    kind: Literal["top"]
    provenance: _Origin
    order: Literal["most helpful first", "most harmful first"]
    queries: tuple[QueryHits, ...]

    def result(self) -> TopResult:
        """What it is the form of."""
        least = self.order == HARMFUL
        rows = (Hits(row.query, row.hits, self.provenance, least) for row in self.queries)
        return TopResult(tuple(rows), self.provenance, least)


@dataclass(frozen=True)
class GroupForm(_Form):
    """The JSON form of a GroupResult."""

    kind: Literal["group"]
    provenance: _Origin
    groups: tuple[NamedGroup, ...]
    queries: tuple[Annotated[QueryScores, _Sparing], ...]

    def result(self) -> GroupResult:
        """What it is the form of."""
        queries, groups = tuple(row.query for row in self.queries), self.groups
        names, sizes = tuple(group.name for group in groups), tuple(group.size for group in groups)
        scores = _array([row.scores for row in self.queries]).reshape(len(queries), len(groups))
        channels = _columns_of(self.queries, (len(queries), len(groups)))
        return GroupResult(queries, names, sizes, scores, self.provenance, channels)


@dataclass(frozen=True)
class WhatIfForm(_Form):
    """The JSON form of a WhatIfResult."""

    kind: Literal["what-if"]
    provenance: _Origin
    removed: int
    kept: int
    queries: tuple[Annotated[QueryChange, _Sparing], ...]
    removal: str | None = None

    def result(self) -> WhatIfResult:
        """What it is the form of."""
        queries = tuple(row.query for row in self.queries)
        before, after = (_array([getattr(row, when) for row in self.queries]) for when in ("before", "after"))
        channels = _columns_of(self.queries, (len(queries),))
        return WhatIfResult(queries, before, after, self.removed, self.kept, self.provenance, channels, self.removal)


def _columns_of(
    rows: Sequence[QueryScores] | Sequence[QueryChange], shape: tuple[int, ...]
) -> dict[str, np.ndarray] | None:
    """What each channel has of all queries; None where channels are not told."""
    told: list[Mapping[str, Any]] = [row.channels for row in rows if row.channels is not None]
    if not told:
        return None
    return {name: _array([one[name] for one in told]).reshape(shape) for name in told[0]}


def _array(values: Sequence[float] | Sequence[Sequence[float]]) -> np.ndarray:
    """float32, as scores are, unless numbers from elsewhere would lose digits."""
    exact = np.array(values, np.float64)
    with np.errstate(over="ignore"):
        scores = exact.astype(np.float32)
    return scores if np.array_equal(scores, exact) else exact


Form: TypeAlias = TopForm | GroupForm | WhatIfForm
_FORMS: TypeAdapter[Form] = TypeAdapter(Annotated[Form, Field(discriminator="kind")])


def first_problem(error: ValidationError) -> str:
    """Where the first value that does not fit stands, and what is wrong with it."""
    problem = error.errors()[0]
    where = ".".join(str(part) for part in problem["loc"]) or "the whole"
    return f"{where}: {problem['msg'].lower()}"


def read_form(value: Mapping[str, Any], name: str) -> Form:
    """Check the JSON form of a result; *name* says which one it is.

    Raises:
        DataError: something is missing, not finite, or of another type.
    """
    try:
        form = _FORMS.validate_python(value)
    except ValidationError as error:
        raise DataError(
            f"{name} is not the JSON form of a run of top, group or what-if: {first_problem(error)}. "
            "Give what to_dict() or read_result() returns."
        ) from error
    if isinstance(form, GroupForm) and any(len(row.scores) != len(form.groups) for row in form.queries):
        raise DataError(f"{name} has scores for other groups than it names. Run it again.")
    if not _same_channels(form):
        raise DataError(f"{name} tells channels of some scores alone, or others of each. Run it again.")
    return form


def _same_channels(form: Form) -> bool:
    """Whether all queries of groups and what-ifs tell the same channels, of all groups."""
    if isinstance(form, TopForm):
        return True
    named = {None if row.channels is None else tuple(row.channels) for row in form.queries}
    if isinstance(form, WhatIfForm):
        return len(named) <= 1
    parts = (part for row in form.queries for part in (row.channels or {}).values())
    return len(named) <= 1 and all(len(part) == len(form.groups) for part in parts)


def read_result(path: str | Path) -> TopResult | GroupResult | WhatIfResult:
    """Read a result that was written as an artifact, after checking its bytes.

    Raises:
        ArtifactError: not a result, unfinished or altered.
        DataError: it lacks something, or holds what a result cannot.

    Example:
        >>> path = index.top(queries, k=3).save("runs/hits")
        >>> len(airrep.read_result("runs/hits"))
        5
    """
    folder = fetched(path)
    manifest = read_manifest(folder)
    if manifest["kind"] not in (TopResult.kind, GroupResult.kind, WhatIfResult.kind):
        raise ArtifactError(
            f"{folder}: is of kind '{manifest['kind']}'; expected a run of `airrep top`, `group` or `what-if` "
            "made with --out (or, for a report, an evaluation, comparison, plan or diagnosis). Give the path of that."
        )
    value = read_json(folder, manifest, RESULTS)
    with as_written(folder):
        return read_form(value, f"{folder}:").result()

"""JSON forms of results, checked when they are read."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationError,
    WrapSerializer,
)

from airrep.errors import DataError
from airrep.index.results.hits import Hit, Record
from airrep.index.results.provenance import Provenance
from airrep.index.results.verdict import Verdict

_LATER = ("why", "channels", "better", "verdict", "deviations")
"""Not written where there are none, so that results stay as they were."""


def _without_none(value: Any, write: SerializerFunctionWrapHandler) -> Any:
    """What is told with `why` alone is not written without it, as it never was."""
    return {name: part for name, part in write(value).items() if part is not None or name not in _LATER}


_Sparing = WrapSerializer(_without_none)


@dataclass(frozen=True)
class QueryHits:
    """The hits of one query."""

    query: Record
    hits: tuple[Annotated[Hit, _Sparing], ...]
    better: Record | None = None
    """The better answer, of a contrast."""
    verdict: Verdict | None = None
    """Whether any of it stands out, where that was judged."""


@dataclass(frozen=True)
class QueryScores:
    """The group scores of one query, in the order of the groups."""

    query: Record
    scores: tuple[float, ...]
    channels: dict[str, tuple[float, ...]] | None = None
    """What each channel gave to each group."""
    better: Record | None = None


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
    queries: tuple[Annotated[QueryHits, _Sparing], ...]


@dataclass(frozen=True)
class GroupForm(_Form):
    """The JSON form of a GroupResult."""

    kind: Literal["group"]
    provenance: _Origin
    groups: tuple[NamedGroup, ...]
    queries: tuple[Annotated[QueryScores, _Sparing], ...]


@dataclass(frozen=True)
class WhatIfForm(_Form):
    """The JSON form of a WhatIfResult."""

    kind: Literal["what-if"]
    provenance: _Origin
    removed: int
    kept: int
    queries: tuple[Annotated[QueryChange, _Sparing], ...]
    removal: str | None = None


Form: TypeAlias = TopForm | GroupForm | WhatIfForm


@cache
def _forms() -> TypeAdapter[Form]:
    """Checks and writes forms; made when it is first needed, as it takes longer than many answers."""
    return TypeAdapter(Annotated[Form, Field(discriminator="kind")])


def json_of(form: Form) -> dict[str, Any]:
    """The JSON values of a form."""
    values: dict[str, Any] = _forms().dump_python(form, mode="json")
    return values


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
        form = _forms().validate_python(value)
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

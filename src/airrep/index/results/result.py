"""The base of results and answers: a class writes and reads its JSON."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Self, TypeAlias

import numpy as np
from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    GetPydanticSchema,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationError,
    WrapSerializer,
)

from airrep.errors import DataError
from airrep.index.results.frames import Shown
from airrep.index.results.made import Made
from airrep.runtime.artifacts.making import fetched, new_artifact
from airrep.runtime.artifacts.manifests import as_written, canonical_json, read_json, read_manifest
from airrep.runtime.publishing import write_file
from airrep.scoring.pooling import pooling_text

REMOVAL = "increase of the query's loss if the group were removed"
"""What an order-k score measures."""
ZERO = "every score is 0: the query shares nothing with any example"
HELPFUL: Final = "most helpful first"
HARMFUL: Final = "most harmful first"


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
    rows: int | None = None
    """How many examples were ranked; None where none were, and in results of earlier versions."""
    made: Made | None = field(default=None, compare=False)
    """What the index was made of, and by what; None in results of earlier versions."""

    @property
    def pooling(self) -> str:
        """The pool, and the temperature if it is not 1; empty for scores of single examples."""
        return pooling_text(self.pool, self.temperature)

    def entry(self) -> dict[str, Any]:
        """The entry of a manifest: all but what the index was made of."""
        told = asdict(self)
        del told["made"]
        return told


NOWHERE = Provenance("", "")
"""Provenance of what belongs to no result yet."""


RESULTS = "results.json"
_LATER = ("why", "channels", "better", "verdict", "deviations", "copied", "tokens")


def _without_none(value: Any, write: SerializerFunctionWrapHandler) -> Any:
    return {name: part for name, part in write(value).items() if part is not None or name not in _LATER}


Sparing = WrapSerializer(_without_none)
"""Leaves out of the JSON what was not asked for: reasons, better answers, verdicts, deviations."""


def _told(provenance: Any) -> Any:
    return {"units": None, "sign": None, **provenance} if isinstance(provenance, Mapping) else provenance


Origin: TypeAlias = Annotated[Provenance, BeforeValidator(_told)]
"""A provenance that must say its units and sign where it is read: their defaults are for results being made."""


def _array(values: tuple[float, ...]) -> np.ndarray:
    exact = np.array(values, np.float64)
    with np.errstate(over="ignore"):
        scores = exact.astype(np.float32)
    return scores if np.array_equal(scores, exact) else exact


Numbers: TypeAlias = Annotated[
    np.ndarray,
    GetPydanticSchema(lambda _, handler: handler(tuple[float, ...])),
    AfterValidator(_array),
    PlainSerializer(np.ndarray.tolist),
]
"""A list of numbers in JSON; float32, as scores are, unless numbers from elsewhere would lose digits."""


class Result(Shown):
    """What was asked of an index, a frozen dataclass: its JSON has the kind, and the fields of the class."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(allow_inf_nan=False, ser_json_inf_nan="constants")
    kind: ClassVar[str]
    provenance: Provenance

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON values; docs/formats.md has the layout."""
        values: dict[str, Any] = _form(type(self)).dump_python(self, mode="json", by_alias=True)
        if values["provenance"]["made"] is None:
            del values["provenance"]["made"]
        return {"kind": self.kind, **values}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any], name: str) -> Self:
        """Read what :meth:`to_dict` gave; *name* says which result it is.

        Raises:
            DataError: something is missing, not finite, or of another type.
        """
        try:
            found: Self = _form(cls).validate_python(value)
        except ValidationError as error:
            raise DataError(
                f"{name}: is not the JSON of {cls.kind}: {first_problem(error)}. Give what to_dict() returns, or run "
                "it again."
            ) from error
        return found

    def save(self, out: str | Path, *, replace: bool = False) -> Path:
        """Write the result as an artifact that `airrep report` reads.

        Raises:
            ArtifactError: *out* exists and *replace* is false, or it cannot be written.
        """
        path = Path(out)
        with new_artifact(path, self.kind, {"provenance": self.provenance.entry()}, replace=replace) as folder:
            write_file(folder / RESULTS, canonical_json(self.to_dict()))
        return path

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a result of this kind that was written as an artifact, after checking its bytes.

        Raises:
            ArtifactError: another kind, unfinished or altered.
            DataError: it lacks something, or holds what such a result cannot.
        """
        folder = fetched(path)
        value = read_json(folder, read_manifest(folder, cls.kind), RESULTS)
        with as_written(folder):
            return cls.from_dict(value, str(folder))


@cache
def _form(kind: type[Result]) -> TypeAdapter[Any]:
    """Made when it is first needed, as it takes longer than many answers."""
    return TypeAdapter(kind)


def first_problem(error: ValidationError) -> str:
    """Where the first value that does not fit stands, and what is wrong with it."""
    problem = error.errors()[0]
    where = ".".join(str(part) for part in problem["loc"]) or "the whole"
    return f"{where}: {problem['msg'].lower().removeprefix('value error, ')}"

"""The base of results and answers: rows and tables, JSON, where they come from."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from itertools import accumulate, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Self, TypeAlias

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

from airrep.corpus.schemas.conversations import from_last_message
from airrep.errors import DataError, need
from airrep.runtime.artifacts import as_written, canonical_json, fetched, new_artifact, read_json, read_manifest
from airrep.runtime.publishing import write_file
from airrep.scoring.pooling import pooling_text

if TYPE_CHECKING:
    import pandas as pd


ROWS_SHOWN = 20
"""Most rows of a table in a notebook; :meth:`Shown.to_pandas` has all."""
LONGEST = 120
"""Most characters of a text in a notebook table."""


class Shown(ABC):
    """A result that can be shown as a table: its text form is one line, its notebook form a short table."""

    columns: ClassVar[tuple[str, ...]] = ()
    """Column names, for results that may have no rows."""

    @abstractmethod
    def _records(self) -> Iterator[dict[str, Any]]:
        """Yield rows of plain values; all have the same names."""

    @abstractmethod
    def summary(self) -> str:
        """Return what the result holds, in one line."""

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the rows as dicts."""
        return list(self._records())

    def to_pandas(self) -> "pd.DataFrame":
        """Return the rows as a data frame.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        need("to_pandas", "pandas", "pandas")
        import pandas as pd

        rows = self.to_dicts()
        return pd.DataFrame(rows) if rows else pd.DataFrame(columns=list(self.columns))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.summary()})"

    def _repr_html_(self) -> str:
        from html import escape

        shown = list(islice(self._records(), ROWS_SHOWN + 1))
        names = list(shown[0]) if shown else []
        head = "".join(f"<th>{escape(name)}</th>" for name in names)
        lines = (f"<tr>{''.join(map(_cell, row, row.values()))}</tr>" for row in shown[:ROWS_SHOWN])
        more = "<p>… and more: <code>to_pandas()</code></p>" if len(shown) > ROWS_SHOWN else ""
        title = f"<p>{escape(type(self).__name__)}: {escape(self.summary())}</p>"
        return f"{title}<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>{more}"


class Tabular(Shown):
    """A result with an iterator over its rows."""

    @abstractmethod
    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield rows of plain values; all have the same names."""

    def _records(self) -> Iterator[dict[str, Any]]:
        return self.rows()


def _cell(name: str, value: Any) -> str:
    from html import escape

    if isinstance(value, float):
        return f'<td style="text-align: right">{value:+.4g}</td>'
    text = "" if value is None else str(value)
    return f"<td>{escape(shortened(from_last_message(text, LONGEST) if name == 'prompt' else text))}</td>"


def printable(text: str) -> str:
    """Replace characters that control a terminal or change the direction of writing."""
    kept = "\N{ZERO WIDTH JOINER}"  # joins the parts of one emoji
    return "".join(c if c.isprintable() or c in kept else "\N{REPLACEMENT CHARACTER}" for c in text)


def shortened(text: str, longest: int = LONGEST) -> str:
    """Return a text on one line, cut to *longest* characters, safe to print."""
    line = printable(" ".join(text[: 4 * longest].split()))  # not the whole text: it may have megabytes
    return line if len(line) <= longest and len(text) <= 4 * longest else line[: longest - 1] + "…"


_MODELS = ("lm", "base", "encoder")
"""Settings that name a model."""


@dataclass(frozen=True)
class CorpusPart:
    """Data that an index was built from, or that were appended."""

    fingerprint: str
    """SHA-256 over all rows (:attr:`airrep.Corpus.fingerprint`); of several appends, a digest of their fingerprints."""
    rows: int
    appends: int = 1


@dataclass(frozen=True)
class Made:
    """Origin of an index: its data, model and method."""

    corpora: tuple[CorpusPart, ...]
    """The corpus that the index was built from, then the appended data."""
    attributor: str
    """Fingerprint of everything that features depend on: settings, and the files of models."""
    airrep: str
    """Version of the package that wrote the index."""
    hub: tuple[str, ...] = ()
    """Data sets of the Hub among the data, as ``owner/name@commit``; empty if none was recorded."""
    models: dict[str, str] = field(default_factory=dict)
    """Models as the settings name them; keys are the setting, or the setting and the channel."""
    channels: tuple[str, ...] = ()
    """Channels with their weights."""

    def corpus_of(self, row: int) -> str | None:
        """Return the fingerprint of the corpus that has a row; None if several appends may have it."""
        ends = list(accumulate(part.rows for part in self.corpora))
        if row < ends[0]:
            return self.corpora[0].fingerprint
        known = len(self.corpora) == 2 and self.corpora[1].appends == 1 and row < ends[1]
        return self.corpora[1].fingerprint if known else None


def made_of(manifest: Mapping[str, Any], asked: Iterable[Any] | None = None) -> Made:
    """Read the origin from an index's manifest; *asked* are the channels in use, if they differ from the build's."""
    settings = manifest["settings"]
    channels = settings.get("channels") or []
    named = [("", settings), *((f" of {one['name'] or one['method']}", one["settings"]) for one in channels)]
    weighed = ((one["name"] or one["method"], one["weight"]) for one in channels)
    if asked is not None:
        weighed = ((one.title, one.weight) for one in asked)
    return Made(
        corpora=tuple(
            CorpusPart(one["fingerprint"], one["rows"], one.get("appends", 1)) for one in manifest["corpora"]
        ),
        attributor=manifest["attributor"],
        airrep=str(manifest["packages"].get("airrep", "")),
        hub=tuple(map(str, manifest.get("reading", {}).get("hub", ()))),
        models={f"{name}{of}": one for of, own in named for name in _MODELS if isinstance(one := own.get(name), str)},
        channels=tuple(f"{name} × {weight:g}" for name, weight in weighed),
    )


REMOVAL = "increase of the query's loss if the group were removed"
"""Unit of an order-k score."""
ZERO = "every score is 0: the query shares nothing with any example"
HELPFUL: Final = "most helpful first"
HARMFUL: Final = "most harmful first"


def order_in_words(least: bool, scores: Iterable[float]) -> str:
    """Name the end of a ranking; low scores are only "least helpful" if none is below 0."""
    if not least:
        return "most helpful"
    return "most harmful" if min(scores, default=-1.0) < 0 else "least helpful"


@dataclass(frozen=True)
class Provenance:
    """Where scores come from, and how to read them."""

    method: str
    """The attribution method."""
    index: str
    """Fingerprint of the index, including the channels' weights if they differ from the build's."""
    pool: str | None = None
    """How members' scores are pooled into a group score; None for scores of single examples."""
    temperature: float | None = None
    """Temperature of attention, the larger the flatter; None for other pools."""
    units: str = "inner product of features"
    """Unit of a score."""
    sign: str = "higher = more helpful"
    """Meaning of the sign."""
    caution: str = ""
    """Caution about the method for readers; empty if there is none."""
    rows: int | None = None
    """Number of examples that were ranked; None without a ranking, and in results of earlier versions."""
    made: Made | None = field(default=None, compare=False)
    """Origin of the index; None in results of earlier versions."""

    @property
    def pooling(self) -> str:
        """The pool, and the temperature if it is not 1; empty for scores of single examples."""
        return pooling_text(self.pool, self.temperature)

    def entry(self) -> dict[str, Any]:
        """Return the entry of a manifest: all fields but :attr:`made`."""
        told = asdict(self)
        del told["made"]
        return told


NOWHERE = Provenance("", "")
"""Placeholder for hits that do not belong to a result yet."""

RESULTS = "results.json"
_LATER = ("why", "channels", "better", "verdict", "deviations", "copied", "tokens")


def _without_none(value: Any, write: SerializerFunctionWrapHandler) -> Any:
    return {name: part for name, part in write(value).items() if part is not None or name not in _LATER}


Sparing = WrapSerializer(_without_none)
"""Leaves optional fields that are None out of the JSON: reasons, better answers, verdicts, deviations."""


def _told(provenance: Any) -> Any:
    return {"units": None, "sign": None, **provenance} if isinstance(provenance, Mapping) else provenance


Origin: TypeAlias = Annotated[Provenance, BeforeValidator(_told)]
"""A provenance that must have units and sign when it is read: the defaults are only for new results."""


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
"""An array that is a list of numbers in JSON; read as float32, like scores, unless this would lose digits."""


class Result(Shown):
    """A result of an index, a frozen dataclass; its JSON has the kind, and the fields of the class."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(allow_inf_nan=False, ser_json_inf_nan="constants")
    kind: ClassVar[str]
    provenance: Provenance

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values; docs/formats.md has the layout."""
        values: dict[str, Any] = form_of(type(self)).dump_python(self, mode="json", by_alias=True)
        if values["provenance"]["made"] is None:
            del values["provenance"]["made"]
        return {"kind": self.kind, **values}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any], name: str) -> Self:
        """Read a result from the output of :meth:`to_dict`; errors call the result *name*.

        Raises:
            DataError: something is missing, not finite, or of another type.
        """
        try:
            found: Self = form_of(cls).validate_python(value)
        except ValidationError as error:
            raise DataError(
                f"{name}: is not a valid result of kind {cls.kind}: {first_problem(error)}. Pass the output of "
                "to_dict(), or make the result again."
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
            ArtifactError: the artifact is of another kind, unfinished or altered.
            DataError: a field is missing or invalid.
        """
        folder = fetched(path)
        value = read_json(folder, read_manifest(folder, cls.kind), RESULTS)
        with as_written(folder):
            return cls.from_dict(value, str(folder))


PREDICTION = "Scores are predictions of what fine-tuning does, not proof of it."
"""Note that accompanies answers."""


class Answer(Result):
    """An answer to one question; docs/answers.md has the layout of its JSON."""

    note: ClassVar[str] = PREDICTION
    """Note that accompanies the answer."""

    def summary(self) -> str:
        shown = []
        for name in (one.name for one in fields(self)):  # type: ignore[arg-type]
            value = getattr(self, name)
            if isinstance(value, tuple | dict):
                shown.append(f"{len(value):,} {name}")
            elif isinstance(value, str | int):
                shown.append(f"{name}={value!r}")
        return ", ".join(shown)


@cache
def form_of(kind: type) -> TypeAdapter[Any]:
    """Make the type adapter of a class on first use: that takes longer than many answers."""
    return TypeAdapter(kind)


def first_problem(error: ValidationError) -> str:
    """Describe where the first invalid value stands, and what is wrong."""
    problem = error.errors()[0]
    where = ".".join(str(part) for part in problem["loc"])
    return f"{where}{': ' * bool(where)}{problem['msg'].lower().removeprefix('value error, ')}"

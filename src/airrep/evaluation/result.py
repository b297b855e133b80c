"""Evaluations: rows with values per query, intervals and differences; written and read."""

import io
import json
import shlex
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter
from safetensors.numpy import load, save

from airrep.errors import ArtifactError, DataError, many
from airrep.evaluation.statistics.means import Difference, Interval
from airrep.index.results.result import Shown
from airrep.runtime.artifacts import (
    as_written,
    canonical_json,
    fetched,
    new_artifact,
    partial_path,
    read_json,
    read_manifest,
    real_path,
)
from airrep.runtime.publishing import write_file
from airrep.runtime.stage import Stage

RESULT, QUERIES, MATRICES = "result.json", "queries.parquet", "scores.safetensors"
ANSWERS = "answers"
"""Folder of finished answers beside an unfinished evaluation; an evaluation that lacks some answers keeps it."""
Measure: TypeAlias = Literal["lds", "loo", "classify", "select", "drop", "trace"]
"""Spearman over subsets; Spearman over removals; accuracy of the top-1 label; unigram F1 after fine-tuning; rise of the
loss without the top examples; reciprocal rank of an example that taught a fact."""
RESUMED = ("select", "drop", "trace")
"""Measures that keep results of fine-tunes beside an unfinished evaluation."""
FEW_QUERIES = 10
"""With fewer queries, p-values over subsets are too small; in simulations of equal methods they hold from here on."""


class Kept(Shown):
    """A result that is written as an artifact, whose ``result.json`` is its :meth:`to_dict`."""

    kind: ClassVar[str]
    command: str
    """The command line that made it, or empty."""
    request: Mapping[str, Any]
    """JSON values that decide all the rest: fingerprints of indexes and labels, settings; no names."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return a JSON object, without the request."""

    @abstractmethod
    def _manifest(self) -> dict[str, Any]:
        """Values of the manifest beside the request."""

    def _files(self) -> dict[str, bytes]:
        return {RESULT: canonical_json(self.to_dict())}

    def save(self, path: str | Path, *, replace: bool = False) -> Path:
        """Write the result as an artifact, and return its path as it was given.

        ArtifactError: something is there already, or it cannot be written.
        """
        return self._save(path, replace=replace)

    def _save(self, path: str | Path, *, replace: bool, keep: Sequence[str] = ()) -> Path:
        content = {**self._manifest(), "request": dict(self.request)}
        with new_artifact(Path(path), self.kind, content, replace=replace, keep=keep) as out:
            for name, data in self._files().items():
                write_file(out / name, data)
        return Path(path)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read what :meth:`save` wrote; every byte is checked.

        ArtifactError: nothing there, unfinished, altered, or of another kind.
        """
        folder = fetched(path)
        manifest = read_manifest(folder, cls.kind)
        value = read_json(folder, manifest, RESULT)
        with as_written(folder):
            return cls._of(folder, value, manifest)

    @classmethod
    def _of(cls, _: Path, value: Mapping[str, Any], manifest: Mapping[str, Any]) -> Self:
        return TypeAdapter(cls).validate_python({**value, "request": manifest["request"]})

    @classmethod
    def find(cls, path: str | Path, request: Mapping[str, Any]) -> Self | None:
        """Return the finished result of a request; None if nothing is there; errors as in `Stage.finished`."""
        made = f"{'an' if cls.kind[0] in 'aeiou' else 'a'} {cls.kind} made"
        return None if Stage(path, cls.kind, made, request).finished() is None else cls.read(path)


def as_json(value: Any) -> Any:
    """Return a value as it comes back from JSON: tuples are lists."""
    return json.loads(json.dumps(value))


class Cost(NamedTuple):
    """Measured cost of an index."""

    bytes_per_example: float
    """Bytes of the stored features."""
    seconds_per_example: float | None
    """Process CPU time of encoding one training example; None where it was not recorded."""
    clock: bool = False
    """True if the seconds are wall time, because an accelerator encoded. Older results do not record it."""


@dataclass(frozen=True, eq=False)
class Row:
    """One index, or another competitor, under one measure."""

    name: str
    """Unique in the evaluation."""
    method: str
    value: float
    """Mean over what counts; a fraction, multiplied by 100 only when shown."""
    interval: tuple[float, float]
    """95 % interval of the value."""
    per_query: np.ndarray
    """``(q,)`` float64, NaN where a query was left out."""
    pool: str | None = None
    temperature: float | None = None
    """Temperature of attention; None for other pools."""
    difference: Difference | None = None
    """Value minus the first row's value, paired; None for the first row."""
    cost: Cost | None = None
    caution: str = ""
    """Warning to readers; empty if none."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """JSON values that only this measure has."""

    @property
    def dropped(self) -> int:
        """Queries that were left out."""
        return int(np.isnan(self.per_query).sum())

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON object, without the values per query."""
        told = {name: value for name, value in vars(self).items() if name not in ("per_query", "difference")}
        gap, cost = (one and one._asdict() for one in (self.difference, self.cost))
        told |= {"minus_first": gap, "cost": cost, "dropped": self.dropped, "more": dict(self.more)}
        return as_json(told)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any], per_query: np.ndarray) -> Self:
        """Make a row from :meth:`to_dict`'s object and its values per query."""
        gap, cost = value["minus_first"], value["cost"]
        return cls(
            **{name: value[name] for name in ("name", "method", "pool", "temperature", "value", "caution", "more")},
            interval=Interval(*value["interval"]),
            per_query=per_query,
            difference=gap and Difference(gap["value"], Interval(*gap["interval"]), gap["p_value"]),
            cost=cost and Cost(**cost),
        )


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation(Kept):
    """Several rows judged on the same queries.

    Raises:
        DataError: two rows of one name, or values that do not fit the queries.

    Example:
        >>> found = airrep.classify([("tfidf", index)], queries)
        >>> found.best.name
        'tfidf'
    """

    kind = "evaluation"
    measure: Measure
    rows: tuple[Row, ...]
    queries: tuple[tuple[str, str], ...]
    """Instance and id of each query."""
    subject: str
    """Digest of what was judged on: queries, subsets and losses. Rows of equal subjects can be paired."""
    ceiling: float | None = None
    """Value that a perfect predictor would reach; None where it is not known."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """JSON values that hold for all rows: instances, subsets, chance level, settings."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """The user's tags, such as role=tasks; reports group by these."""
    command: str = ""
    request: Mapping[str, Any] = field(default_factory=dict)
    matrices: Mapping[str, np.ndarray] = field(default_factory=dict)
    """For measures over subsets: ``losses/INSTANCE`` and ``NUMBER/INSTANCE``, the group scores of row NUMBER,
    ``(q, m)``, from which rows of several evaluations are paired."""

    def __post_init__(self) -> None:
        check_names([row.name for row in self.rows])
        for row in self.rows:
            if row.per_query.shape != (len(self.queries),):
                raise DataError(
                    f"evaluation: the result of {row.name} has values of shape {row.per_query.shape}, but there are "
                    f"{many(len(self.queries), 'query', 'queries')}. Give one value for each query."
                )

    def _records(self) -> Iterator[dict[str, Any]]:
        for row in self.rows:
            gap = row.difference
            yield {
                "name": row.name,
                "method": row.method,
                "pool": row.pool,
                self.measure: row.value,
                **dict(zip(("low", "high"), row.interval, strict=True)),
                "minus first": gap and gap.value,
                "p": gap and gap.p_value,
                "queries left out": row.dropped,
                "caution": row.caution,
            }

    def summary(self) -> str:
        best = f"{self.best.name} {100 * self.best.value:.1f}"
        queries, rows = many(len(self.queries), "query", "queries"), many(len(self.rows), "row")
        return f"{self.measure} × 100 on {queries}, {rows}, the best: {best}"

    @property
    def distinct_queries(self) -> int:
        """Number of different queries; several instances may share queries."""
        return int(self.facts.get("distinct_queries", len(self.queries)))

    @property
    def best(self) -> Row:
        """Row with the highest value; the first if several tie."""
        return max(self.rows, key=lambda row: row.value)

    @property
    def complete(self) -> bool:
        """True if all fine-tunes succeeded."""
        return not self.facts.get("failed")

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON object, without values per query and matrices."""
        own = {name: getattr(self, name) for name in ("measure", "subject", "ceiling", "command")}
        kept = {"facts": dict(self.facts), "tags": dict(self.tags), "query_count": len(self.queries)}
        return {**own, **kept, "rows": [row.to_dict() for row in self.rows]}

    def save(self, path: str | Path, *, replace: bool = False) -> Path:
        """Write the evaluation as an artifact; if it is not complete, it keeps its answers for the next run.

        Returns:
            The path, as it was given.

        Raises:
            ArtifactError: something is there already, be it the answers of an unfinished `select`, or it cannot be
                written.
        """
        if self.measure not in RESUMED and not replace:  # measures in RESUMED write where their own answers are
            check_no_answers(path)
        return self._save(path, replace=replace, keep=() if self.complete else (ANSWERS,))

    def _manifest(self) -> dict[str, Any]:
        shown = {f"{self.measure} × 100 of {row.name}": f"{100 * row.value:+.1f}" for row in self.rows}
        tags = {name: str(value) for name, value in self.tags.items()}
        return {"measure": self.measure, "provenance": {"command": self.command, **tags, **shown}}

    def _files(self) -> dict[str, bytes]:
        matrices = {name: np.ascontiguousarray(matrix) for name, matrix in self.matrices.items()}
        return {**super()._files(), QUERIES: self._parquet(), **({MATRICES: save(matrices)} if matrices else {})}

    def _parquet(self) -> bytes:
        """Write one line for each query, one column for each row."""
        keys = [pa.array([key[place] for key in self.queries], pa.string()) for place in (0, 1)]
        values = [pa.array(row.per_query, from_pandas=True) for row in self.rows]
        names = ["instance", "query", *(f"row {number}" for number in range(len(self.rows)))]
        buffer = io.BytesIO()
        pq.write_table(pa.table([*keys, *values], names=names), buffer)
        return buffer.getvalue()

    @classmethod
    def _of(cls, folder: Path, value: Mapping[str, Any], manifest: Mapping[str, Any]) -> Self:
        if "rows" not in value:
            raise ArtifactError(f"{folder}: was written by an older airrep. Run its command again with --replace.")
        table = pq.read_table(folder / QUERIES)
        columns = [table.column(f"row {number}").to_numpy() for number in range(len(value["rows"]))]
        keys = zip(*(table.column(name).to_pylist() for name in ("instance", "query")), strict=True)
        return cls(
            **{name: value[name] for name in ("measure", "subject", "ceiling", "facts", "tags", "command")},
            request=manifest["request"],
            rows=tuple(Row.from_dict(row, values) for row, values in zip(value["rows"], columns, strict=True)),
            queries=tuple(keys),
            matrices=load((folder / MATRICES).read_bytes()) if MATRICES in manifest["files"] else {},
        )


def check_names(names: Sequence[str]) -> None:
    """Refuse two rows of one name, before any work (DataError)."""
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"evaluation: two rows are called '{twice}'. Give each row its own name: NAME=INDEX.")


def check_no_answers(path: str | Path) -> None:
    """Refuse to write where an unfinished selection keeps its answers (ArtifactError)."""
    unfinished = partial_path(real_path(path))
    if any(unfinished.glob(f"{ANSWERS}/*")):
        raise ArtifactError(
            f"{path}: an unfinished evaluation keeps the LM's answers in {unfinished}. To finish it, repeat the "
            "command that started it; otherwise give another --out, or pass --replace."
        )


def caution_on(queries: int) -> str:
    """Return a caution if there are few different queries; empty if there are enough."""
    caution = "with so few queries, the result may not hold for others, whatever intervals and p-values say"
    return caution if queries < FEW_QUERIES else ""


def command_line(arguments: Sequence[str]) -> str:
    """Return the command that was typed, quoted for a shell."""
    return shlex.join(["airrep", *arguments])

"""Picked training examples, each with the reason; written as JSON lines."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar, overload

from airrep.corpus.corpus import Example
from airrep.errors import ArtifactError
from airrep.index.frames import Tabular
from airrep.index.results.hits import fields_of
from airrep.index.results.result import Provenance
from airrep.runtime.remote.outputs import is_taken, write_output
from airrep.runtime.remote.places import url_of

REASON = "selected_by"


@dataclass(frozen=True)
class Picked:
    """One training example that was picked, by rank or by chance."""

    reasons: ClassVar[tuple[str, ...]]
    """Fields of the reason, in the order of the file."""

    example: Example
    row: int
    """Row number in the index."""

    def to_dict(self) -> dict[str, Any]:
        """The example, with the reason under ``selected_by``; reads back as a training example."""
        reasons = {name: getattr(self, name) for name in self.reasons}
        return {**self.example.to_dict(), REASON: {name: told for name, told in reasons.items() if told is not None}}


@dataclass(frozen=True)
class Pick(Picked):
    """One training example that was picked by its rank, with the reason."""

    reasons = ("query", "rank", "score", "row", "redundancy", "tokens")

    rank: int
    """Its best rank over the queries; 1 = the most helpful of all for that query."""
    query: str
    """Id of the first query that ranks it so."""
    score: float
    """Its influence score on that query; higher = more helpful."""
    redundancy: float | None = None
    """Greatest cosine with an example that was picked before; None where diversity was not asked for."""
    tokens: int | None = None
    """Its tokens; None without a budget."""


@dataclass(frozen=True)
class Draw(Picked):
    """One training example that was drawn by its importance weight."""

    reasons = ("draw", "log_weight", "seed", "row")

    draw: int
    """Number of the draw; 1 = the first."""
    log_weight: float
    """Log of how much likelier the queries make it than the training corpus does."""
    seed: int
    """Seed of the draws."""


AnyPick = TypeVar("AnyPick", bound=Picked)


@dataclass(frozen=True, repr=False)
class SelectionResult(Tabular, Sequence[AnyPick], Generic[AnyPick]):
    """Training examples picked by min-rank, the best first; or drawn by weight, the first draw first."""

    picks: tuple[AnyPick, ...]
    provenance: Provenance

    @overload
    def __getitem__(self, position: int) -> AnyPick: ...
    @overload
    def __getitem__(self, position: slice) -> tuple[AnyPick, ...]: ...
    def __getitem__(self, position: int | slice) -> AnyPick | tuple[AnyPick, ...]:
        return self.picks[position]

    def __len__(self) -> int:
        return len(self.picks)

    def rows(self) -> Iterator[dict[str, Any]]:
        for pick in self.picks:
            yield {**fields_of(pick.example), **{name: getattr(pick, name) for name in pick.reasons}}

    def summary(self) -> str:
        return f"{len(self):,} examples"

    def to_dict(self) -> dict[str, Any]:
        """The picks and where they come from, as JSON values."""
        return {"provenance": asdict(self.provenance), "picks": [pick.to_dict() for pick in self.picks]}

    def save(self, out: str | Path, *, replace: bool = False) -> Path:
        """Write the examples as JSON lines, the reason of each under ``selected_by``.

        Raises:
            ArtifactError: *out* exists and *replace* is false, or it cannot be written.
        """
        path = Path(out)
        check_selection(path, replace=replace)
        write_output(path, (f"{json.dumps(pick.to_dict(), ensure_ascii=False)}\n".encode() for pick in self.picks))
        return path

    write = save
    """Earlier name of :meth:`save`."""


def check_selection(path: Path, *, replace: bool) -> None:
    """As :func:`check_writable`, of JSON lines: refuses the name of another format, which could not be read again."""
    if path.suffix.lower() in (".parquet", ".csv", ".tsv", ".json", ".gz", ".zst", ".arrow"):
        name = f"{path.stem.partition('.')[0]}.jsonl"
        raise ArtifactError(f"{path}: a selection is written as JSON lines; expected a name such as {name}. Give that.")
    check_writable(path, replace=replace)


def check_writable(path: Path, *, replace: bool) -> None:
    """Refuse, before any work, a path that exists unless *replace* is true, and any directory (ArtifactError)."""
    if path.is_dir() or (not replace and is_taken(path)):
        raise ArtifactError(
            f"{url_of(path) or path}: exists already; nothing is overwritten. Give another path, or pass --replace."
        )

"""Picking training data from an index, with the reasons."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np

from airrep.artifacts import write_file, writing
from airrep.attributors.base import OnProgress
from airrep.corpus import Example
from airrep.errors import ArtifactError
from airrep.index import Index, Queries
from airrep.results import Provenance
from airrep.selection import min_rank

REASON = "selected_by"


@dataclass(frozen=True)
class Pick:
    """One training example that was picked, and why."""

    example: Example
    row: int
    """Row number in the index."""
    rank: int
    """Its best rank over the queries; 1 = the most helpful of all for that query."""
    query: str
    """Id of the first query that ranks it so."""
    score: float
    """Its influence score on that query; higher = more helpful."""

    def to_dict(self) -> dict[str, Any]:
        """The example, with the reason under ``selected_by``; reads back as a training example."""
        reason = {"query": self.query, "rank": self.rank, "score": self.score, "row": self.row}
        return {**self.example.to_dict(), REASON: reason}


@dataclass(frozen=True)
class SelectionResult(Sequence[Pick]):
    """Training examples picked by min-rank, the best first."""

    picks: tuple[Pick, ...]
    provenance: Provenance

    @overload
    def __getitem__(self, position: int) -> Pick: ...
    @overload
    def __getitem__(self, position: slice) -> tuple[Pick, ...]: ...
    def __getitem__(self, position: int | slice) -> Pick | tuple[Pick, ...]:
        return self.picks[position]

    def __len__(self) -> int:
        return len(self.picks)

    def to_dict(self) -> dict[str, Any]:
        """The picks and where they come from, as JSON values."""
        return {"provenance": asdict(self.provenance), "picks": [pick.to_dict() for pick in self.picks]}

    def write(self, out: str | Path, *, replace: bool = False) -> Path:
        """Write the examples as JSON lines, the reason of each under ``selected_by``.

        Raises:
            ArtifactError: *out* exists and *replace* is false, or it cannot be written.
        """
        path = Path(out)
        check_writable(path, replace=replace)
        lines = (json.dumps(pick.to_dict(), ensure_ascii=False) for pick in self.picks)
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, "".join(f"{line}\n" for line in lines).encode())
        return path


def check_writable(path: Path, *, replace: bool) -> None:
    """Check, before any work, that a selection may be written.

    Raises:
        ArtifactError: *path* exists and *replace* is false, or it is a directory.
    """
    if path.is_dir() or (path.exists() and not replace):
        raise ArtifactError(f"{path}: exists already; nothing is overwritten. Give another path, or pass --replace.")


def select(
    index: Index,
    queries: Queries,
    count: int,
    *,
    where: str | None = None,
    drop_duplicates: bool = False,
    progress: OnProgress | None = None,
) -> SelectionResult:
    """Pick the training examples that some query ranks highest (min-rank).

    A training example's value is its best rank over the queries. Picks are ordered by that rank, then by the first
    query that gives it.

    Args:
        index: the index to pick from.
        queries: what the picked data should help with.
        count: how many.
        where: a filter; only examples that fulfil it are ranked.
        drop_duplicates: of examples with equal texts rank only the first.
        progress: told about encoded queries.

    Raises:
        ConfigError: *count* is not between 1 and the number of examples to choose from, or a bad filter.
    """
    keys = _content_keys(index) if drop_duplicates else None
    keep = index.mask(where)
    found = min_rank(index.encode_queries(queries, progress), index.blocks, count, keep, skip_duplicates=keys)
    ids = [query.id for query in queries]
    columns = (found.rows.tolist(), found.ranks.tolist(), found.queries.tolist(), found.scores.tolist())
    picks = (
        Pick(index.example(row), row, rank, ids[query], score) for row, rank, query, score in zip(*columns, strict=True)
    )
    return SelectionResult(tuple(picks), index.provenance())


def _content_keys(index: Index) -> np.ndarray:
    hashes = [example.content_hash for shard in index.shards for example in shard.examples]
    return np.array([int(value, 16) for value in hashes], dtype=np.uint64)

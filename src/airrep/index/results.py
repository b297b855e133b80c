"""Results that know their method, pool, sign, units and index."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, overload

import numpy as np

from airrep.arrays import GroupScores
from airrep.corpus.corpus import Example
from airrep.errors import ArtifactError
from airrep.runtime.artifacts import canonical_json, check_digests, new_artifact, read_manifest, write_file
from airrep.scoring.pooling import pooling_text

RESULTS = "results.json"
REMOVAL = "increase of the query's loss if the group were removed"
"""What an order-k score measures."""


@dataclass(frozen=True)
class Provenance:
    """Where scores come from, and how to read them."""

    method: str
    """The attribution method."""
    index: str
    """Fingerprint of the index that was asked."""
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
    """One training example in a ranking for a query."""

    rank: int
    """1 = first."""
    score: float
    """Influence score; higher = more helpful."""
    row: int
    """Row number in the index."""
    example: Example


@dataclass(frozen=True)
class Hits(Sequence[Hit]):
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


class Result(ABC):
    """What all results share: a JSON form, and writing it as an artifact."""

    kind: ClassVar[str]
    provenance: Provenance

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON values; the layout is in docs/formats.md."""
        return {"kind": self.kind, "provenance": asdict(self.provenance), **self._content()}

    @abstractmethod
    def _content(self) -> dict[str, Any]:
        """What the kind of result adds to the JSON form."""

    def write(self, out: str | Path, *, replace: bool = False) -> Path:
        """Write the result as an artifact that `airrep report` reads.

        Raises:
            ArtifactError: *out* exists and *replace* is false, or it cannot be written.
        """
        path = Path(out)
        with new_artifact(path, self.kind, {"provenance": asdict(self.provenance)}, replace=replace) as folder:
            write_file(folder / RESULTS, canonical_json(self.to_dict()))
        return path


@dataclass(frozen=True)
class TopResult(Result, Sequence[Hits]):
    """The top training examples of each of several queries."""

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

    def __iter__(self) -> Iterator[Hits]:
        return iter(self.queries)

    def _content(self) -> dict[str, Any]:
        return {
            "order": "most harmful first" if self.least else "most helpful first",
            "queries": [
                {"query": hits.query.to_dict(), "hits": [_hit_dict(hit) for hit in hits]} for hits in self.queries
            ],
        }


def _hit_dict(hit: Hit) -> dict[str, Any]:
    return {"rank": hit.rank, "score": hit.score, "row": hit.row, "example": hit.example.to_dict()}


@dataclass(frozen=True, eq=False)
class GroupResult(Result):
    """Group scores: ``scores[i, j]`` is how much group j helps query i; higher = more helpful."""

    queries: tuple[Example, ...]
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    scores: GroupScores
    provenance: Provenance
    kind: ClassVar[str] = "group"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.scores, dtype=dtype, copy=copy)

    def ranked(self, query: int) -> list[tuple[str, float]]:
        """Names and scores of the groups for one query, most helpful first; ties keep the groups' order."""
        order = np.argsort(-self.scores[query], kind="stable")
        return [(self.names[group], float(self.scores[query, group])) for group in order]

    def _content(self) -> dict[str, Any]:
        return {
            "groups": [{"name": name, "size": size} for name, size in zip(self.names, self.sizes, strict=True)],
            "queries": [
                {"query": query.to_dict(), "scores": [float(score) for score in row]}
                for query, row in zip(self.queries, self.scores, strict=True)
            ],
        }


@dataclass(frozen=True, eq=False)
class WhatIfResult(Result):
    """How the group score of the corpus changes when part of it is left out.

    ``change = after - before``, one value for each query: below 0, what was removed had been helping.
    """

    queries: tuple[Example, ...]
    before: np.ndarray
    after: np.ndarray
    removed: int
    kept: int
    provenance: Provenance
    kind: ClassVar[str] = "what-if"

    @property
    def change(self) -> np.ndarray:
        """``after - before``, float32 ``(q,)``."""
        difference: np.ndarray = self.after - self.before
        return difference

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.change, dtype=dtype, copy=copy)

    def _content(self) -> dict[str, Any]:
        values = zip(self.queries, self.change, self.before, self.after, strict=True)
        return {
            "removed": self.removed,
            "kept": self.kept,
            "queries": [
                {"query": query.to_dict(), "change": float(change), "before": float(before), "after": float(after)}
                for query, change, before, after in values
            ],
        }


def read_result(path: str | Path) -> Mapping[str, Any]:
    """Read the JSON form of a result that was written as an artifact, after checking its bytes.

    Raises:
        ArtifactError: not a result, unfinished or altered.
    """
    folder = Path(path)
    manifest = read_manifest(folder)
    if manifest["kind"] not in (TopResult.kind, GroupResult.kind, WhatIfResult.kind):
        raise ArtifactError(
            f"{folder}: is of kind '{manifest['kind']}'; expected a run of `airrep top`, `group` or `what-if` "
            "made with --out (or, for a report, an evaluation, comparison, plan or diagnosis). Give the path of that."
        )
    check_digests(folder, manifest["files"])
    result: Mapping[str, Any] = json.loads((folder / RESULTS).read_bytes())
    return result

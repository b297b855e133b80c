"""Pick training data from an index, by min-rank or weight, with the reasons."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar, overload

import numpy as np

from airrep.attributors.base import OnProgress
from airrep.attributors.text.lexical import DsirAttributor
from airrep.corpus.corpus import Example
from airrep.corpus.inputs import as_examples
from airrep.errors import ArtifactError, ConfigError
from airrep.index.frames import Tabular
from airrep.index.index import Index, Queries
from airrep.index.results import Provenance, fields_of
from airrep.runtime.artifacts import write_file, writing
from airrep.runtime.seeding import stream
from airrep.scoring.min_rank import first_of_each, gumbel_top_k, min_rank
from airrep.scoring.scores import score_blocks

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
        return {**self.example.to_dict(), REASON: {name: getattr(self, name) for name in self.reasons}}


@dataclass(frozen=True)
class Pick(Picked):
    """One training example that was picked by its rank, with the reason."""

    reasons = ("query", "rank", "score", "row")

    rank: int
    """Its best rank over the queries; 1 = the most helpful of all for that query."""
    query: str
    """Id of the first query that ranks it so."""
    score: float
    """Its influence score on that query; higher = more helpful."""


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
        check_writable(path, replace=replace)
        lines = (json.dumps(pick.to_dict(), ensure_ascii=False) for pick in self.picks)
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, "".join(f"{line}\n" for line in lines).encode())
        return path

    write = save
    """Earlier name of :meth:`save`."""


def check_writable(path: Path, *, replace: bool) -> None:
    """Refuse, before any work, a path that exists unless *replace* is true, and any directory (ArtifactError)."""
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
) -> SelectionResult[Pick]:
    """Pick the training examples that some query ranks highest (min-rank).

    A training example's value is its best rank over the queries. Picks are ordered by that rank, then by the first
    query that gives it.

    Args:
        index: the index to pick from.
        queries: examples that the picked data should help with.
        count: how many.
        where: a filter; only examples that fulfil it are ranked.
        drop_duplicates: of examples with equal texts rank only the first.
        progress: called with the number of encoded queries.

    Raises:
        ConfigError: *count* is not between 1 and the number of examples to choose from, or a bad filter.
    """
    keys = _content_keys(index) if drop_duplicates else None
    keep = index.mask(where)
    asked = as_examples(queries)
    found = min_rank(index.encode_queries(asked, progress), index.blocks, count, keep, skip_duplicates=keys)
    ids = [query.id for query in asked]
    columns = (found.rows.tolist(), found.ranks.tolist(), found.queries.tolist(), found.scores.tolist())
    picks = (
        Pick(index.example(row), row, rank, ids[query], score) for row, rank, query, score in zip(*columns, strict=True)
    )
    return SelectionResult(tuple(picks), index.provenance())


def resample(
    index: Index,
    queries: Queries,
    count: int,
    *,
    seed: int = 0,
    where: str | None = None,
    drop_duplicates: bool = False,
) -> SelectionResult[Draw]:
    """Draw training examples by their importance weight for all queries together (DSIR).

    The weight of z is Π p_queries(g) / p_train(g) over its n-grams g. Examples are drawn one after another, without
    replacement, each with a chance in proportion to its weight.

    Args:
        index: an index of the method ``dsir``.
        queries: examples of what is wanted.
        count: how many.
        seed: seed of the draws.
        where: a filter; only examples that fulfil it are drawn.
        drop_duplicates: of examples with equal texts draw only the first.

    Raises:
        ConfigError: the index has no importance weights, *count* is not between 1 and the number of examples to
            choose from, or a bad filter.
        DataError: the queries have no words.
    """
    weights = _log_weights(index, queries)
    keep = index.mask(where)
    if drop_duplicates:
        keep = first_of_each(_content_keys(index), keep, index.rows)
    rows = gumbel_top_k(np.where(keep, weights, -np.inf), count, stream(seed, "resample")).tolist()
    draws = (Draw(index.example(row), row, draw, float(weights[row]), seed) for draw, row in enumerate(rows, start=1))
    return SelectionResult(tuple(draws), index.provenance())


def _log_weights(index: Index, queries: Queries) -> np.ndarray:
    """Log importance weights of all rows for all queries together, ``(n,)``."""
    attributor = index.attributor
    if not isinstance(attributor, DsirAttributor):
        raise ConfigError(
            f"{index.path}: method '{index.method}' has no importance weights to draw by; expected an index of the "
            "method dsir. Build one, or pick by rank."
        )
    target = attributor.encode_target(as_examples(queries))
    return np.concatenate([scores[0] for _, scores in score_blocks(target, index.blocks)])


def _content_keys(index: Index) -> np.ndarray:
    hashes = [example.content_hash for shard in index.shards for example in shard.examples]
    return np.array([int(value, 16) for value in hashes], dtype=np.uint64)

"""LDS of indexes on labelled instances, side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from airrep.arrays import Features, GroupScores, Rows
from airrep.artifacts import canonical_json, clear, new_artifact
from airrep.errors import ConfigError, DataError
from airrep.groups import Groups
from airrep.groupscores import group_scores
from airrep.held_out import HeldOutDifference, HeldOutLds, compare_held_out, held_out_lds, scales
from airrep.index import Index
from airrep.labelled import LabelledInstance
from airrep.metrics import RESAMPLES, lds, noise_ceiling
from airrep.pooling import Pooling, PoolLike

KIND = "evaluation"
RESULT = "result.json"
SAMPLE = 1000
"""Rows of an index that tell how widely its scores spread."""


@dataclass(frozen=True)
class LdsRow:
    """One index."""

    index: str
    """Its path."""
    method: str
    pool: str
    temperature: float | None
    """Of attention; None for other pools."""
    lds: HeldOutLds
    dropped: int
    """Queries left out, as their scores or losses are constant, in all instances."""
    difference: HeldOutDifference | None
    """How much more it reaches than the first index; None for the first."""
    caution: str
    """What readers should be told; empty if nothing."""

    def to_dict(self) -> dict[str, Any]:
        """A JSON object."""
        own = {name: getattr(self, name) for name in ("index", "method", "pool", "temperature", "dropped", "caution")}
        gap = None if self.difference is None else self.difference.to_dict()
        return {**own, "lds": self.lds.to_dict(), "minus_first": gap}


@dataclass(frozen=True)
class LdsTable:
    """LDS of several indexes on the same queries and subsets."""

    rows: tuple[LdsRow, ...]
    ceiling: float | None
    """LDS of a perfect predictor of the mean losses; None where no instance has several seeds."""
    instances: tuple[str, ...]
    tuned_on: tuple[str, ...]
    """Instances that temperatures were chosen on; none if they were given."""

    @property
    def best(self) -> LdsRow:
        """The row with the highest LDS; the first of equals."""
        return max(self.rows, key=lambda row: row.lds.value)

    def to_dict(self) -> dict[str, Any]:
        """A JSON object."""
        rows = [row.to_dict() for row in self.rows]
        tuned = list(self.tuned_on)
        return {"ceiling": self.ceiling, "instances": list(self.instances), "tuned_on": tuned, "methods": rows}

    def write(self, path: str | Path, *, replace: bool = False) -> None:
        """Write the table as an artifact.

        Raises:
            ArtifactError: something is there already, or it cannot be written.
        """
        shown = {f"LDS × 100 of {row.index}": f"{100 * row.lds.value:+.1f}" for row in self.rows}
        content = {"measure": "lds", "provenance": {"instances": ", ".join(self.instances), **shown}}
        with new_artifact(Path(path), KIND, content, replace=replace) as folder:
            clear(folder)
            (folder / RESULT).write_bytes(canonical_json(self.to_dict()))


def evaluate_lds(
    indexes: Sequence[Index],
    instances: Sequence[LabelledInstance],
    pool: PoolLike | None = None,
    temperature: float = 1.0,
    *,
    tune: Sequence[LabelledInstance] = (),
    resamples: int = RESAMPLES,
) -> LdsTable:
    """LDS of each index's group scores on labelled subsets: mean over queries of Spearman(f(x, S_j), −ℓ_j(x)).

    An index may hold any corpus that contains the train pools; their examples are found by content. Queries are
    encoded by the index's method.

    Args:
        indexes: the first is the one that the others are compared with.
        instances: queries, subsets and losses to judge by.
        pool: of all indexes; each method's own when None.
        temperature: of attention.
        tune: other instances; each index whose pool is attention takes the temperature of the highest LDS on these,
            among those that bring the deviation of its scores to 1/8 to 8.
        resamples: bootstrap draws behind each interval.

    Raises:
        ConfigError: no index, no instance, both a temperature and instances to tune on, one to judge by among these, or
            a pool that does not fit.
        DataError: an index lacks an example of a train pool, or scores that are not finite or all constant.
    """
    if not indexes or not instances:
        raise ConfigError("evaluate: expected at least one index and one labelled instance. Name some.")
    _check_tuning(temperature, instances, tune)
    rows: list[LdsRow] = []
    first: list[GroupScores] = []
    for index in indexes:
        pooling = index.attributor.pooling(pool, temperature)
        finder = RowFinder(index, [*instances, *tune])
        if tune and pooling.kind == "attention":
            pooling = _best_temperature(finder, tune, pooling)
        scores = [finder.score(instance, pooling) for instance in instances]
        judged = held_out_lds(scores, instances, resamples)
        gap = compare_held_out(scores, first, instances, resamples) if first else None
        rows.append(_row(index, instances, pooling, scores, judged, gap))
        first = first or scores
    names, tuned = (tuple(instance.name for instance in part) for part in (instances, tune))
    return LdsTable(tuple(rows), _ceiling(instances), names, tuned)


def _check_tuning(temperature: float, instances: Sequence[LabelledInstance], tune: Sequence[LabelledInstance]) -> None:
    if temperature != 1 and tune:
        raise ConfigError("evaluate: expected a temperature or instances to tune it on, not both. Choose one.")
    judged = {instance.name for instance in instances}
    both = next((instance.name for instance in tune if instance.name in judged), None)
    if both is not None:
        raise ConfigError(f"instance {both}: is to be judged by, so it cannot be tuned on. Tune on another one.")


class RowFinder:
    """Where the examples of some instances are in an index, by their texts; the index is read once."""

    def __init__(self, index: Index, instances: Sequence[LabelledInstance]) -> None:
        """Look for the examples that are in some subset."""
        self.index = index
        self._used = {id(instance): np.unique(instance.subsets.rows) for instance in instances}
        wanted = (instance.train.take(self._used[id(instance)]) for instance in instances)
        self._rows: dict[str, list[int]] = {example.content_hash: [] for corpus in wanted for example in corpus}
        for shard in index.shards:
            for row, example in enumerate(shard.examples, shard.start):
                if index.live[row] and (rows := self._rows.get(example.content_hash)) is not None:
                    rows.append(row)

    def score(self, instance: LabelledInstance, pool: PoolLike, queries: Features | None = None) -> GroupScores:
        """Group scores of an instance's subsets, ``(q, m)``; higher = more helpful.

        Raises:
            DataError: the index lacks an example of the train pool.
        """
        asked = self.index.encode_queries(instance.queries) if queries is None else queries
        return group_scores(asked, self.index.blocks, self.subsets(instance), pool, examples=len(instance.train))

    def subsets(self, instance: LabelledInstance) -> Groups:
        """The subsets as rows of the index; the second copy of a text is the second copy there.

        Raises:
            DataError: an example is not there, or was deleted.
        """
        used, rows = self._used[id(instance)], np.full(len(instance.train), -1, np.int64)
        met: dict[str, int] = {}
        for place, example in zip(used.tolist(), instance.train.take(used), strict=True):
            copy, known = met.get(example.content_hash, 0), self._rows[example.content_hash]
            rows[place] = known[copy] if copy < len(known) else -1
            met[example.content_hash] = copy + 1
        self._check(instance, used[rows[used] < 0])
        return Groups(instance.subsets.names, rows[instance.subsets.rows], instance.subsets.offsets)

    def _check(self, instance: LabelledInstance, missing: Rows) -> None:
        if len(missing):
            raise DataError(
                f'{self.index.path}: lacks the example "{instance.train[int(missing[0])].id}" of the train pool of '
                f"instance {instance.name}, and {len(missing) - 1:,} more; expected all that are in some subset. "
                "Index the data of the labels."
            )


def _row(
    index: Index,
    instances: Sequence[LabelledInstance],
    pooling: Pooling,
    scores: Sequence[GroupScores],
    judged: HeldOutLds,
    difference: HeldOutDifference | None,
) -> LdsRow:
    parts = zip(scores, instances, strict=True)
    sizes = [size for instance in instances for size in instance.subsets.sizes.tolist()]
    attributor, trained = index.attributor, index.attributor.trained_groups
    more = "" if trained is None else trained.caution(sizes, str(pooling))
    return LdsRow(
        index=str(index.path),
        method=index.method,
        pool=pooling.text,
        temperature=pooling.temperature if pooling.kind == "attention" else None,
        lds=judged,
        dropped=sum(lds(found, instance.losses, resamples=0).dropped for found, instance in parts),
        difference=difference,
        caution=" ".join(filter(None, (attributor.caution, more))),
    )


def _best_temperature(finder: RowFinder, tune: Sequence[LabelledInstance], pooling: Pooling) -> Pooling:
    """The pool with the temperature of the highest LDS; the first of equals."""
    asked = [finder.index.encode_queries(instance.queries) for instance in tune]
    tried = [Pooling.parse(pooling.text, 1 / factor) for factor in scales(_sample(finder.index), asked[0])]

    def value(one: Pooling) -> float:
        found = (finder.score(instance, one, queries) for instance, queries in zip(tune, asked, strict=True))
        values = [lds(f, instance.losses, resamples=0).value for f, instance in zip(found, tune, strict=True)]
        return float(np.mean(values))

    return max(tried, key=value)


def _sample(index: Index) -> Features:
    """Features of the first rows, float32."""
    features: Features = index.blocks[0].features[:SAMPLE].astype(np.float32)
    return features


def _ceiling(instances: Sequence[LabelledInstance]) -> float | None:
    """Mean noise ceiling of the instances that have several seeds."""
    found = [noise_ceiling(one.by_seed, averaged=len(one.by_seed)) for one in instances if one.by_seed is not None]
    return float(np.mean(found)) if found else None

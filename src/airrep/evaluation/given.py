"""Read indexes, instances and evaluations from arguments; training pools of indexes."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from airrep.arrays import Mask, Rows
from airrep.corpus.corpus import Corpus
from airrep.corpus.fields import field_values
from airrep.errors import ConfigError, DataError, many, need
from airrep.evaluation.result import Cost, Evaluation
from airrep.index.index import Index
from airrep.labels.labels import LabelledInstance, distinct
from airrep.runtime.metering import index_cost, stored_bytes_per_example

T = TypeVar("T", Index, Evaluation)
Named: TypeAlias = Sequence[tuple[str, Index]]
"""Indexes with the names of their rows."""
IndexesLike: TypeAlias = Any
"""Several indexes or their paths, each with its name as a pair ``(name, index)`` or alone; or one, alone."""
InstancesLike: TypeAlias = Any
"""Several :class:`LabelledInstance`, or one."""
EvaluationsLike: TypeAlias = Any
"""Several evaluations or their paths, each with its name as a pair ``(name, evaluation)`` or alone; or one, alone."""


def named_indexes(
    indexes: IndexesLike, where: str, names: Sequence[str] | str | None = None
) -> list[tuple[str, Index]]:
    """Return indexes with the names of their rows: *names*, the names in pairs, or their paths.

    ConfigError: something else is given, or not one name for each. ArtifactError: a path holds no index.
    """
    found = [(name or str(one.path), one) for name, one in _named(indexes, Index, Index, where, "index")]
    if names is None:
        return found
    chosen = [names] if isinstance(names, str) else list(names)
    if len(chosen) != len(found):
        raise ConfigError(
            f"{where}: {many(len(chosen), 'name')} for {many(len(found), 'index', 'indexes')}. "
            "Give one name for each index."
        )
    return [(name, index) for name, (_, index) in zip(chosen, found, strict=True)]


def named_evaluations(runs: EvaluationsLike) -> list[tuple[str, Evaluation]]:
    """Return evaluations with names for errors: the names in pairs, paths, or numbers; errors as for indexes."""
    found = _named(runs, Evaluation, Evaluation.read, "compare", "evaluation")
    return [(name or f"evaluation {number}", run) for number, (name, run) in enumerate(found, 1)]


def labelled_instances(instances: InstancesLike, where: str) -> list[LabelledInstance]:
    """Return labelled instances as a list (ConfigError: something else, or two with one name or content)."""
    expected = "labelled instances: airrep.open(PATH).instances(TRAIN)"
    found = _several(instances, LabelledInstance, f"{where}: instances", expected)
    for one in found:
        if not isinstance(one, LabelledInstance):
            raise _wrong(f"{where}: instances", "holds", one, expected)
    names = [one.name for one in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:  # results are kept, and compared, by the names
        distinct(found)  # has a better message for an instance that was given twice
        raise ConfigError(
            f"{where}: two instances (train/query splits) have the name {twice}. Rename one of them in "
            "Python before you pass them: dataclasses.replace(instance, name=f'a/{instance.name}')."
        )
    return found


def _named(
    given: Any, kind: type[T], read: Callable[[str | Path], T], where: str, what: str
) -> Iterator[tuple[str, T]]:
    """Yield each object with the name in its pair, or its path; without either, the name is empty."""
    need(f"airrep {where}", "evaluation", "scipy")
    several = "indexes" if kind is Index else "runs"
    expected = f"{'indexes' if kind is Index else 'evaluations'}, their paths, or pairs (name, {what})"
    for each in _several(given, kind, f"{where}: {several}", expected):
        pair = isinstance(each, tuple) and len(each) == 2 and isinstance(each[0], str)
        name, one = each if pair else ("", each)
        path = isinstance(one, str | Path)
        found = read(one) if path else one
        if not isinstance(found, kind):
            raise _wrong(f"{where}: {several}", "holds", found, expected)
        yield name or (str(one) if path else ""), found


def _several(given: Any, kind: type, where: str, expected: str) -> list[Any]:
    """Make a list of an argument; one object of *kind*, or a path, becomes a list of one."""
    if isinstance(given, (kind, str, Path)):
        return [given]
    if isinstance(given, Mapping) or not isinstance(given, Iterable):
        raise _wrong(where, "is", given, expected)
    return list(given)


def _wrong(where: str, verb: str, found: Any, expected: str) -> ConfigError:
    return ConfigError(f"{where} {verb} a {type(found).__name__}; must be a list of {expected}.")


@dataclass(frozen=True, eq=False)
class TrainingPool:
    """The examples of an index that may be ranked, with the value of one field."""

    hashes: np.ndarray
    """``(n,)`` content hashes of all rows, deleted ones too."""
    values: tuple[str | None, ...]
    """``(n,)`` values of the field; None where an example lacks it."""
    keep: Mask
    """``(n,)`` True if a row may be ranked."""

    @classmethod
    def of(cls, indexes: Named, by: str, where: str | None = None) -> list[Self]:
        """Read the texts and one field of each index.

        ConfigError: a bad filter, or no example has the field. DataError: indexes of different data.
        """
        pools = [cls._of(index, by, where) for _, index in indexes]
        first = pools[0]
        for (name, _), pool in zip(indexes, pools, strict=True):
            if pool.fingerprint != first.fingerprint:
                raise DataError(
                    f"{name} and {indexes[0][0]} cannot be compared: their texts or classes differ "
                    f"({len(pool.order):,} and {len(first.order):,} examples). Build both from the same data."
                )
        return pools

    @classmethod
    def _of(cls, index: Index, by: str, where: str | None) -> Self:
        parts = [shard.examples for shard in index.shards]
        values = field_values((part.table for part in parts), by, index.fields)
        return cls(np.concatenate([part.content_hashes for part in parts]), tuple(values), index.mask(where))

    @cached_property
    def order(self) -> Rows:
        """Rows that may be ranked, by content hash, then by row: pools with equal texts have them in equal order."""
        kept = np.flatnonzero(self.keep)
        return kept[np.argsort(self.hashes[kept], kind="stable")]

    @cached_property
    def fingerprint(self) -> str:
        """64 hex digits over texts and field of the examples that may be ranked, whatever their order."""
        pairs = zip(self.hashes[self.order].tolist(), (self.values[row] for row in self.order.tolist()), strict=True)
        lines = sorted(f"{text.decode()} {value!r}" for text, value in pairs)
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def rows_in(self, other: Self, rows: np.ndarray) -> np.ndarray:
        """Return the rows of *other*, a pool of the same texts, that have the texts of *rows*, which has any shape."""
        same = np.empty(len(self.hashes), np.int64)
        same[self.order] = other.order  # both orders have the same text at each place
        return same[rows]

    def copies(self, hashes: np.ndarray) -> np.ndarray:
        """Count the examples that may be ranked and have the texts of *hashes*, ``(q,)``."""
        known = self.hashes[self.order]  # sorted, so that a search finds both ends of the copies
        return np.searchsorted(known, hashes, "right") - np.searchsorted(known, hashes, "left")


def all_rows(index: Index) -> Corpus:
    """Return the examples of all rows of an index, deleted ones too."""
    return Corpus(pa.concat_tables([shard.examples.table for shard in index.shards]))


def cost_of(index: Index) -> Cost:
    """Return bytes of the features on disk, including codes for quick searches, and seconds if recorded."""
    recorded = index_cost(index.path, index.manifest)
    if recorded is None:
        return Cost(stored_bytes_per_example(index.manifest), None)
    return Cost(recorded.bytes_per_example, recorded.seconds_per_example, recorded.by_clock)

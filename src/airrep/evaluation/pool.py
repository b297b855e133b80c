"""Texts, classes and storage costs of the examples in an index."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self, TypeAlias

import numpy as np

from airrep.arrays import Mask, Rows
from airrep.corpus.fields import field_values
from airrep.errors import DataError
from airrep.evaluation.result import Cost
from airrep.index.index import Index
from airrep.runtime.metering import index_cost, stored_bytes_per_example

Named: TypeAlias = Sequence[tuple[str, Index]]
"""Indexes with the names of their rows."""


@dataclass(frozen=True, eq=False)
class TrainingPool:
    """The examples of an index that may be ranked, with the value of one field."""

    hashes: np.ndarray
    """``(n,)`` content hashes of all rows, deleted ones too."""
    values: tuple[str | None, ...]
    """``(n,)`` values of the field; None where an example lacks it."""
    keep: Mask
    """``(n,)`` whether a row may be ranked."""

    @classmethod
    def of(cls, index: Index, by: str, where: str | None = None) -> Self:
        """Read the texts and one field of an index (ConfigError: a bad filter, or no example has the field)."""
        parts = [shard.examples for shard in index.shards]
        values = field_values((part.table for part in parts), by, index.fields)
        return cls(np.concatenate([part.content_hashes for part in parts]), tuple(values), index.mask(where))

    @cached_property
    def order(self) -> Rows:
        """Rows that may be ranked, by content hash, copies by row: pools of the same texts have equal orders."""
        kept = np.flatnonzero(self.keep)
        ordered: Rows = kept[np.argsort(self.hashes[kept], kind="stable")]
        return ordered

    @cached_property
    def fingerprint(self) -> str:
        """64 hex digits over texts and field of the examples that may be ranked, whatever their order."""
        pairs = zip(self.hashes[self.order].tolist(), (self.values[row] for row in self.order.tolist()), strict=True)
        lines = sorted(f"{text.decode()} {value!r}" for text, value in pairs)
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def copies(self, hashes: np.ndarray) -> np.ndarray:
        """Number of examples that may be ranked with each of some texts, ``(q,)``."""
        known = self.hashes[self.order]  # sorted, so that a search finds both ends of the copies
        found: np.ndarray = np.searchsorted(known, hashes, "right") - np.searchsorted(known, hashes, "left")
        return found


def check_same_pools(names: Sequence[str], pools: Sequence[TrainingPool]) -> None:
    """Refuse to compare indexes of different data (DataError)."""
    for name, pool in zip(names, pools, strict=True):
        if pool.fingerprint != pools[0].fingerprint:
            raise DataError(
                f"{name}: holds other examples than {names[0]} ({len(pool.order):,}; there {len(pools[0].order):,}), "
                "so they cannot be compared; expected the same texts and classes. Index the same data."
            )


def cost_of(index: Index) -> Cost:
    """Bytes of the features on disk, with codes for quick searches, and seconds where recorded."""
    recorded = index_cost(index.path, index.manifest)
    if recorded is None:
        return Cost(stored_bytes_per_example(index.manifest), None)
    return Cost(recorded.bytes_per_example, recorded.seconds_per_example, recorded.by_clock)

"""Facets: values of fields with their counts, and the rows that have them."""

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from airrep.arrays import Mask, Rows
from airrep.corpus.fields import TEXT_FIELDS, field_values
from airrep.errors import ConfigError
from airrep.index.rows import IndexRows
from airrep.scoring.groups import NO_LABEL, Groups

MOST_VALUES = 500
"""Values of a field that is a facet, at most: ids and texts are none."""
MOST_FIELDS = 12
"""Fields of the metadata that are looked at."""
MASKS = 8
"""Filters whose rows are kept."""

Choices = Mapping[str, Sequence[str]]
"""Fields, and the values of which one is wanted."""


class Facet(NamedTuple):
    """A field whose values can be chosen."""

    names: tuple[str, ...]
    """Its values as text, in order of first appearance."""
    codes: np.ndarray
    """``(rows,)`` int16: which value each row has, deleted rows too."""

    def members(self, values: Sequence[str]) -> Mask:
        """Which rows have one of the values, ``(rows,)``; unknown values have none."""
        chosen = np.array([name in set(values) for name in self.names], dtype=bool)
        mask: Mask = chosen[self.codes]
        return mask

    def counts(self, mask: Mask) -> list[int]:
        """How many rows of a mask have each value."""
        found: list[int] = np.bincount(self.codes[mask], minlength=len(self.names)).tolist()
        return found


class Facets:
    """Facets of an index: two bytes for each row and field, read when they are first asked for."""

    def __init__(self, index: IndexRows) -> None:
        self._index = index
        self._reading = threading.Lock()
        self._facets: dict[str, Facet | None] = {}
        self._masks: OrderedDict[str, Mask] = OrderedDict()

    @property
    def fields(self) -> tuple[str, ...]:
        """Fields that may be facets."""
        return ("source", "label", *self._index.fields[:MOST_FIELDS])

    def facet(self, name: str) -> Facet:
        """One facet.

        Raises:
            ConfigError: no such field, or one with too many values.
        """
        if name not in self.fields:
            raise ConfigError(f"field '{name}': is none of the facets. Choose one of {', '.join(self.fields)}.")
        found = self._found(name)
        if found is None:
            raise ConfigError(f"field '{name}': has more than {MOST_VALUES} values. Choose another field.")
        return found

    def _found(self, name: str) -> Facet | None:
        with self._reading:
            if name not in self._facets:
                self._facets[name] = _read_facet(self._index, name)
            return self._facets[name]

    def mask(self, where: str | None, choices: Choices, *, but: str | None = None) -> Mask:
        """Which rows fulfil a filter and all choices (but those of one field), and are not deleted."""
        mask = self._filtered(where)
        for name, values in choices.items():
            if values and name != but:
                mask = mask & self.facet(name).members(values)
        return mask

    def _filtered(self, where: str | None) -> Mask:
        if not where or where.isspace():
            return self._index.live
        with self._reading:
            found = self._masks.pop(where, None)
            if found is None:
                found = self._index.mask(where)
            self._masks[where] = found
            while len(self._masks) > MASKS:
                self._masks.popitem(last=False)
            return found

    def counts(self, where: str | None, choices: Choices) -> list[dict[str, Any]]:
        """Fields with their values, most frequent first, each with its count under the filters of the other fields."""
        told = []
        for name in self.fields:
            facet = self._found(name)
            if facet is None or facet.names == (NO_LABEL,):
                continue
            counts = facet.counts(self.mask(where, choices, but=name))
            pairs = sorted(zip(facet.names, counts, strict=True), key=lambda pair: -pair[1])
            told.append({"name": name, "values": [{"value": value, "count": count} for value, count in pairs]})
        return told

    def groups(self, name: str) -> Groups:
        """The values of a field as groups of the rows that are not deleted."""
        facet = self.facet(name)
        rows: Rows = np.flatnonzero(self._index.live)
        codes = facet.codes[rows]
        counts = np.bincount(codes, minlength=len(facet.names))
        names = tuple(value for value, count in zip(facet.names, counts, strict=True) if count)
        ends = np.concatenate([[0], np.cumsum(counts[counts > 0])])
        return Groups(names, rows[np.argsort(codes, kind="stable")], ends)


def _read_facet(index: IndexRows, name: str) -> Facet | None:
    """The facet of a field; None if it has too many values."""
    numbers: dict[str, int] = {}
    codes = np.empty(index.rows, dtype=np.int16)
    for shard in index.shards:
        found, own = _coded(shard.examples.table, name, index.fields)
        values = [NO_LABEL if value is None else value for value in found]
        for value in values:
            numbers.setdefault(value, len(numbers))
        if len(numbers) > MOST_VALUES:
            return None
        codes[shard.start : shard.start + shard.rows] = np.array([numbers[value] for value in values], np.int16)[own]
    return Facet(tuple(numbers), codes)


def _coded(table: Any, name: str, known: Sequence[str]) -> tuple[list[str | None], Rows]:
    """The different values of a field in one shard, and for each row which it has."""
    if name in TEXT_FIELDS:
        column = table[name].combine_chunks().dictionary_encode(null_encoding="encode")
        return column.dictionary.to_pylist(), column.indices.to_numpy().astype(np.int64)
    numbers: dict[str | None, int] = {}
    own = [numbers.setdefault(value, len(numbers)) for value in field_values(table, name, known)]
    return list(numbers), np.array(own, np.int64)

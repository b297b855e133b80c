"""Facets: fields with few values, the counts of these values, and their rows."""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from airrep.answers.likeness.clusters import CLUSTER, find_clusters, groups_of
from airrep.arrays import Mask, Rows
from airrep.corpus.fields import (
    TEXT_FIELDS,
    Column,
    Comparisons,
    Field,
    distinct_values,
    read_fields,
    shown_apart,
    shown_value,
    value_kinds,
    with_parts,
)
from airrep.corpus.filters import Filter, compile_filter
from airrep.errors import ConfigError, has, near
from airrep.index.rows import IndexRows
from airrep.scoring.groups import NO_LABEL, Groups

MOST_VALUES = 500
"""Most values of a facet; fields with more, such as ids and texts, are not facets."""
MOST_FIELDS = 12
"""Most metadata fields that become facets."""
LOOKED_AT = 1000
"""Rows whose metadata are searched for parts of objects."""
MASKS = 8
"""Filters whose masks are cached."""

Choices = Mapping[str, Sequence[str]]
"""Chosen values by field; a row must have one of them in each field."""


class Facet(NamedTuple):
    """A field whose values can be chosen."""

    names: tuple[str, ...]
    """Values as text, in order of first appearance."""
    codes: np.ndarray
    """``(rows,)`` int16: number of each row's value, deleted rows included."""
    values: tuple[Any, ...] | None
    """Values as stored; None if they have several types, or for clusters."""

    def members(self, values: Sequence[str]) -> Mask:
        """Return the mask of rows with one of the values, ``(rows,)``; unknown values have no rows."""
        return np.array([name in set(values) for name in self.names], dtype=bool)[self.codes]

    def counts(self, mask: Mask) -> list[int]:
        """Return the number of rows in a mask for each value."""
        return np.bincount(self.codes[mask], minlength=len(self.names)).tolist()


class Facets:
    """Facets of an index, read at their first use; they take two bytes for each row and field."""

    def __init__(self, index: IndexRows) -> None:
        self._index = index
        self._reading = threading.Lock()
        self._facets: dict[str, Facet | None] = {}
        self._kept = lru_cache(MASKS)(self._filtered)

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """Fields that may be facets; an object in the metadata of the first rows is replaced by its parts."""
        first = self._index.shards[0].examples.table.slice(0, LOOKED_AT)
        found = dict.fromkeys(("source", "label", *with_parts(first, self._index.fields)[:MOST_FIELDS]))
        return (*found, CLUSTER) if self._may_cluster and CLUSTER not in found else tuple(found)

    @property
    def shown(self) -> list[str]:
        """The fields without those that have too many values."""
        self.prepare()
        return [name for name in self.fields if self._facets.get(name, name) is not None]

    @cached_property
    def _may_cluster(self) -> bool:
        """True if examples can be clustered: the index has vectors, and scikit-learn is installed."""
        dense = any(one.kind == "dense" for one in self._index.channels)
        return dense and CLUSTER not in self._index.fields and has("sklearn")

    def prepare(self) -> None:
        """Read all facets except clusters; for a million rows this takes some seconds."""
        with self._reading:
            if not self._facets:
                own = [name for name in self.fields if name != CLUSTER or not self._may_cluster]
                self._facets = read_facets(self._index, own)

    def facet(self, name: str) -> Facet:
        """Return a facet (ConfigError: the field does not exist, or has too many values)."""
        if name not in self.fields:
            known = ", ".join(self.shown)
            raise ConfigError(f"field '{name}': cannot be shown here. The fields are {known}. {near(name, self.shown)}")
        self.prepare()
        if name == CLUSTER and self._may_cluster:
            with self._reading:
                if CLUSTER not in self._facets:
                    clusters = find_clusters(self._index)
                    self._facets[CLUSTER] = Facet(clusters.names, clusters.codes, None)
        found = self._facets[name]
        if found is None:
            raise ConfigError(f"field '{name}': has more than {MOST_VALUES} values. Choose another field.")
        return found

    def mask(self, where: str | None, choices: Choices, *, but: str | None = None) -> Mask:
        """Return the mask of rows that match a filter and all choices (except in field *but*) and are not deleted."""
        mask = self._index.live if not where or where.isspace() else self._kept(where)
        for name, values in choices.items():
            if values and name != but:
                mask = mask & self.facet(name).members(values)
        return mask

    def _filtered(self, where: str) -> Mask:
        found = self._by_facets(compile_filter(where))
        return self._index.mask(where) if found is None else found

    def _by_facets(self, chosen: Filter) -> Mask | None:
        """Return the mask of a filter from facets alone; None if one of its fields is not a facet."""
        self.prepare()
        columns: dict[Field, Column] = {}
        compared = Comparisons()
        for field in chosen.fields:
            facet = self._facets.get(field.name)
            exact = "." in field.name and field.path  # an exact key with a dot, but the facet may be an object's part
            if facet is None or facet.values is None or exact or field.nested != (field.name not in TEXT_FIELDS):
                return None
            columns[field] = _column(field, facet, compared)
        mask: Mask = chosen.of(columns) & self._index.live
        compared.check()
        return mask

    def counts(self, where: str | None, choices: Choices) -> list[dict[str, Any]]:
        """Return fields with values, most frequent first, counted under the filter and the other fields' choices."""
        self.prepare()
        told = []
        for name, facet in self._facets.items():
            if facet is None or facet.names == (NO_LABEL,):
                continue
            counts = facet.counts(self.mask(where, choices, but=name))
            pairs = sorted(zip(facet.names, counts, strict=True), key=lambda pair: -pair[1])
            told.append({"name": name, "values": [{"value": value, "count": count} for value, count in pairs]})
        return told

    def groups(self, name: str) -> Groups:
        """Return the values of a field as groups of rows, without deleted rows."""
        facet = self.facet(name)
        return groups_of(facet.names, facet.codes, self._index)


class _Values:
    """Collects the values of a field and numbers them in order of appearance."""

    def __init__(self, rows: int) -> None:
        self.numbers: dict[tuple[bool, str], int] = {}
        self.codes = np.empty(rows, dtype=np.int16)
        self._stored: list[Any] = []
        self._alike = True

    def number(self, value: Any) -> int:
        text = NO_LABEL if value is None else str(shown_value(value))
        apart = isinstance(value, str) and text != NO_LABEL  # the text "1" differs from the number 1
        number = self.numbers.setdefault((apart, text), len(self.numbers))
        if number == len(self._stored):
            self._stored.append(value)
        self._alike &= type(self._stored[number]) is type(value)
        return number

    def facet(self) -> Facet:
        """Return the facet of all collected values."""
        alike = self._alike and len(value_kinds(self._stored)) <= 1
        show = shown_apart(self._stored)
        names = tuple(NO_LABEL if value is None else str(show(value)) for value in self._stored)
        return Facet(names, self.codes, tuple(self._stored) if alike else None)


def read_facets(index: IndexRows, fields: Sequence[str]) -> dict[str, Facet | None]:
    """Return the facet of each field, or None for too many values, parsing the metadata once for all fields."""
    found = {name: _Values(index.rows) for name in fields}
    for shard in index.shards:
        part = slice(shard.start, shard.start + shard.rows)
        for name, values, own in _coded(shard.examples.table, [name for name in fields if name in found]):
            field = found[name]
            numbers = np.array([field.number(value) for value in values], np.int64)
            if len(field.numbers) > MOST_VALUES:
                del found[name]
            else:
                field.codes[part] = numbers[own]
    return {name: found[name].facet() if name in found else None for name in fields}


def _coded(table: Any, fields: Sequence[str]) -> Iterator[tuple[str, list[Any], Rows]]:
    """Yield for each field its distinct values in one shard and, ``(rows,)``, the number of each row's value."""
    for name in fields:
        if name in TEXT_FIELDS:
            column = table[name].combine_chunks().dictionary_encode(null_encoding="encode")
            yield name, column.dictionary.to_pylist(), np.from_dlpack(column.indices).astype(np.int64)
    nested = [name for name in fields if name not in TEXT_FIELDS]
    if nested:
        for name, (values, own) in zip(nested, distinct_values(table, nested), strict=True):
            yield name, values, own


def _column(field: Field, facet: Facet, compared: Comparisons) -> Column:
    values = facet.values or ()
    texts = [json.dumps({field.name: value}) for value in values] if field.nested else list(values)
    table = pa.table({"metadata" if field.nested else field.name: pa.array(texts, pa.large_string())})
    different = read_fields(table, [field], (), compared)[field]
    return lambda test, literal: np.asarray(different(test, literal)[facet.codes])

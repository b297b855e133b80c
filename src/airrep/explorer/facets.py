"""Facets: values of fields with their counts, and the rows that have them."""

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
"""Values of a field that is a facet, at most: ids and texts are none."""
MOST_FIELDS = 12
"""Fields of the metadata that are looked at."""
LOOKED_AT = 1000
"""Rows whose metadata are looked at for parts of objects."""
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
    values: tuple[Any, ...] | None
    """The values as they are stored; None where values of unlike types look alike or stand beside each other."""

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
        self._kept = lru_cache(MASKS)(self._filtered)

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """Fields that may be facets; of objects in the metadata, as the first rows have them, their parts."""
        first = self._index.shards[0].examples.table.slice(0, LOOKED_AT)
        found = dict.fromkeys(("source", "label", *with_parts(first, self._index.fields)[:MOST_FIELDS]))
        return (*found, CLUSTER) if self._may_cluster and CLUSTER not in found else tuple(found)

    @cached_property
    def _may_cluster(self) -> bool:
        """Tell whether examples can be clustered: by vectors, with scikit-learn."""
        dense = any(one.kind == "dense" for one in self._index.channels)
        return dense and CLUSTER not in self._index.fields and has("sklearn")

    def prepare(self) -> None:
        """Read all facets: the metadata of a million rows take some seconds."""
        with self._reading:
            if not self._facets:
                own = [name for name in self.fields if name != CLUSTER or not self._may_cluster]
                self._facets = read_facets(self._index, own)

    def facet(self, name: str) -> Facet:
        """One facet; ConfigError where there is no such field, or it has too many values."""
        if name not in self.fields:
            known = ", ".join(self.fields)
            raise ConfigError(
                f"field '{name}': cannot be shown here. The fields are {known}. {near(name, self.fields)}"
            )
        self.prepare()
        if name == CLUSTER and self._may_cluster:
            self._cluster()
        found = self._facets[name]
        if found is None:
            raise ConfigError(f"field '{name}': has more than {MOST_VALUES} values. Choose another field.")
        return found

    def _cluster(self) -> None:
        """Add the clusters, the first time that they are asked for."""
        with self._reading:
            if CLUSTER not in self._facets:
                found = find_clusters(self._index)
                self._facets[CLUSTER] = Facet(found.names, found.codes, None)

    def mask(self, where: str | None, choices: Choices, *, but: str | None = None) -> Mask:
        """Which rows fulfil a filter and all choices (but those of one field), and are not deleted."""
        mask = self._index.live if not where or where.isspace() else self._kept(where)
        for name, values in choices.items():
            if values and name != but:
                mask = mask & self.facet(name).members(values)
        return mask

    def _filtered(self, where: str) -> Mask:
        found = self._by_facets(compile_filter(where))
        return self._index.mask(where) if found is None else found

    def _by_facets(self, chosen: Filter) -> Mask | None:
        """Rows that fulfil a filter, from the values of facets alone; None where one of its fields is no facet."""
        self.prepare()
        columns: dict[Field, Column] = {}
        compared = Comparisons()
        for field in chosen.fields:
            facet = self._facets.get(field.name)
            exact = "." in field.name and field.path  # a key with a dot, where the facet may be a part of an object
            if facet is None or facet.values is None or exact or field.nested != (field.name not in TEXT_FIELDS):
                return None
            columns[field] = _column(field, facet, compared)
        mask: Mask = chosen.of(columns) & self._index.live
        compared.check()
        return mask

    def counts(self, where: str | None, choices: Choices) -> list[dict[str, Any]]:
        """Fields with their values, most frequent first, each with its count under the filters of the other fields."""
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
        """The values of a field as groups of the rows that are not deleted."""
        facet = self.facet(name)
        return groups_of(facet.names, facet.codes, self._index)


class _Values:
    """Values of a field as they come, numbered by their text."""

    def __init__(self, rows: int) -> None:
        self.numbers: dict[tuple[bool, str], int] = {}
        self.codes = np.empty(rows, dtype=np.int16)
        self._stored: list[Any] = []
        self._alike = True

    def number(self, value: Any) -> int:
        """The number of a value."""
        text = NO_LABEL if value is None else str(shown_value(value))
        apart = isinstance(value, str) and text != NO_LABEL  # the text "1" is another value than the number
        number = self.numbers.setdefault((apart, text), len(self.numbers))
        if number == len(self._stored):
            self._stored.append(value)
        self._alike &= type(self._stored[number]) is type(value)
        return number

    def facet(self) -> Facet:
        """All of them."""
        alike = self._alike and len(value_kinds(self._stored)) <= 1
        show = shown_apart(self._stored)
        names = tuple(NO_LABEL if value is None else str(show(value)) for value in self._stored)
        return Facet(names, self.codes, tuple(self._stored) if alike else None)


def read_facets(index: IndexRows, fields: Sequence[str]) -> dict[str, Facet | None]:
    """The facet of each field; None where it has too many values. The metadata are parsed once for all of them."""
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
    """Different values of each field in one shard, and for each row which it has."""
    for name in fields:
        if name in TEXT_FIELDS:
            column = table[name].combine_chunks().dictionary_encode(null_encoding="encode")
            yield name, column.dictionary.to_pylist(), column.indices.to_numpy().astype(np.int64)
    nested = [name for name in fields if name not in TEXT_FIELDS]
    if nested:
        for name, (values, own) in zip(nested, distinct_values(table, nested), strict=True):
            yield name, values, own


def _column(field: Field, facet: Facet, compared: Comparisons) -> Column:
    """The values of a facet as a column."""
    values = facet.values or ()
    texts = [json.dumps({field.name: value}) for value in values] if field.nested else list(values)
    table = pa.table({"metadata" if field.nested else field.name: pa.array(texts, pa.large_string())})
    different = read_fields(table, [field], (), compared)[field]
    return lambda test, literal: np.asarray(different(test, literal)[facet.codes])

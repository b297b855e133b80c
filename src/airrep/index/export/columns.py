"""Columns of an exported index: examples, metadata, vectors; piece by piece."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from airrep.arrays import Mask
from airrep.corpus.fields import TEXT_FIELDS
from airrep.index.rows import IndexRows
from airrep.index.shards import KeptChannel, Shard

PIECE_ROWS = 4096
"""At most so many rows are in memory at once."""
PIECE_NUMBERS = 2**21
"""And at most so many numbers of their vectors, 8 MiB of float32."""
MOST_FIELDS = 500
"""Metadata fields that get a column each; of more, all are JSON in one column."""
ROW, TEXT, VECTOR, METADATA, CHAT = "row", "text", "vector", "metadata", "chat"
"""Names of columns beside those of an example."""
_EXACT = 2**53
"""Largest whole number that a float holds exactly, beside which none is lost in a column of floats."""
_LARGEST = 2**63 - 1
_compute: Any = pyarrow.compute  # its type stubs refuse large_string


@dataclass(frozen=True)
class ExportedColumns:
    """What is exported of an index: its live rows that fulfil a filter, as batches of one schema.

    Columns are ``row``, the text fields of examples, ``chat`` (JSON) where some have one, ``text`` (prompt and
    response) if asked for, one for each metadata field, and ``vector``, the dense features in float32, where there are
    some and they are asked for.
    """

    index: IndexRows
    keep: Mask
    """Rows to export."""
    text: bool = False
    vectors: bool = True
    dots: bool = True
    """Whether names of columns may have dots."""

    @property
    def rows(self) -> int:
        """How many rows are exported."""
        return int(np.count_nonzero(self.keep))

    @cached_property
    def width(self) -> int:
        """Dense features of a row; 0 where there are none, or none are asked for."""
        return sum(one.dimension for one in self._dense) if self.vectors else 0

    @property
    def _dense(self) -> list[KeptChannel]:
        return [one for one in self.index.channels if one.kind == "dense"]

    @cached_property
    def chats(self) -> bool:
        """Whether an example has messages, or a form, that its texts do not tell."""
        return any(shard.examples.table[CHAT].null_count < shard.rows for shard in self._shards())

    @cached_property
    def metadata(self) -> Mapping[str, tuple[str, pa.DataType]]:
        """Name and type of the column of each metadata field; empty where they are too many."""
        fields = self.index.fields
        if len(fields) > MOST_FIELDS:
            return {}
        kinds: dict[str, set[str]] = {name: set() for name in fields}
        for shard in self._shards():
            for text in _compute.unique(shard.examples.table[METADATA]).to_pylist():
                for name, value in json.loads(text or "{}").items():
                    kinds.setdefault(name, set()).add(_kind(value))
        names = _column_names(fields, self.dots)
        return {name: (names[name], _type_of(kinds[name])) for name in fields}

    @cached_property
    def schema(self) -> pa.Schema:
        """Names and types of all columns."""
        columns: list[tuple[str, pa.DataType]] = [(ROW, pa.int64())]
        columns += [(name, pa.large_string()) for name in TEXT_FIELDS]
        columns += [(CHAT, pa.large_string())] if self.chats else []
        columns += [(TEXT, pa.large_string())] if self.text else []
        columns += list(self.metadata.values())
        columns += [] if self.metadata or not self.index.fields else [(METADATA, pa.large_string())]
        columns += [(VECTOR, pa.list_(pa.float32(), self.width))] if self.width else []
        return pa.schema(columns)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, some at a time, in the order of the index."""
        step = max(1, min(PIECE_ROWS, PIECE_NUMBERS // max(self.width, 1)))
        for shard in self._shards():
            wanted = np.flatnonzero(self.keep[shard.start : shard.start + shard.rows])
            for first in range(0, len(wanted), step):
                yield self._batch(shard, wanted[first : first + step])

    def _shards(self) -> Iterator[Shard]:
        """The shards, each opened anew, so that what was mapped of one is let go with it."""
        return (replace(shard) for shard in self.index.shards)

    def _batch(self, shard: Shard, rows: np.ndarray) -> pa.RecordBatch:
        table = shard.examples.table.take(pa.array(rows))
        columns: list[Any] = [pa.array(rows + shard.start, pa.int64())]
        columns += [_whole(table[name]) for name in TEXT_FIELDS]
        columns += [_whole(table[CHAT])] if self.chats else []
        columns += [_joined(table)] if self.text else []
        columns += self._metadata_of(table)
        if self.width:
            parts = [shard.block(one.name).dense()[rows] for one in self._dense]
            numbers = np.concatenate(parts, axis=1, dtype=np.float32).reshape(-1)
            columns.append(pa.FixedSizeListArray.from_arrays(pa.array(numbers), self.width))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _metadata_of(self, table: pa.Table) -> Iterator[Any]:
        if not self.metadata:
            yield from [_whole(table[METADATA])] if self.index.fields else []
            return
        known: dict[str, dict[str, Any]] = {}  # rows of one source often have equal metadata
        records = []
        for text in (text or "{}" for text in table[METADATA].to_pylist()):
            if text not in known:
                known[text] = json.loads(text)
            records.append(known[text])
        for name, (_, kind) in self.metadata.items():
            yield pa.array(_values(records, name, kind), kind)


def _whole(column: Any) -> Any:
    """A column of a table as one array."""
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _joined(table: pa.Table) -> Any:
    """Prompt and response as one text."""
    between = pa.scalar("\n\n", pa.large_string())
    return _compute.binary_join_element_wise(_whole(table["prompt"]), _whole(table["response"]), between)


def _values(records: Sequence[Mapping[str, Any]], name: str, kind: pa.DataType) -> list[Any]:
    """The values of one field, None where a record has none; those of several types as JSON texts."""
    values = [record.get(name) for record in records]
    if kind != pa.large_string():
        return values
    return [
        value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in values
    ]


def _kind(value: object) -> str:
    """Type of a JSON value, as far as columns tell types apart."""
    if value is None:
        return "null"
    if isinstance(value, bool):  # before numbers, as Python's True is an int
        return "bool"
    if isinstance(value, int):
        return "int" if abs(value) <= _EXACT else "large" if abs(value) <= _LARGEST else "other"
    return "float" if isinstance(value, float) else "other"


def _type_of(kinds: Iterable[str]) -> pa.DataType:
    """Type of a column whose values are of these kinds; text where no other type holds all."""
    found = set(kinds) - {"null"}
    if found == {"bool"}:
        return pa.bool_()
    if found and found <= {"int", "large"}:
        return pa.int64()
    return pa.float64() if found and found <= {"int", "float"} else pa.large_string()


def _column_names(fields: Sequence[str], dots: bool) -> dict[str, str]:
    """A column's name for each metadata field: its own, unless that is taken, be it in other case."""
    taken = {name.casefold() for name in (ROW, *TEXT_FIELDS, CHAT, TEXT, VECTOR, METADATA)}
    names = {}
    for field in fields:
        plain = field if dots else field.replace(".", "_")
        name = plain if plain and plain.casefold() not in taken else f"{METADATA}_{plain}"
        while name.casefold() in taken:
            name += "_"
        taken.add(name.casefold())
        names[field] = name
    return names

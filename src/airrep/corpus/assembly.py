"""Records assembled into a corpus table, with unique ids."""

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from airrep.arrays import Mask, Rows
from airrep.corpus.records import Fields, Source
from airrep.corpus.table import COLUMNS, SCHEMA, id_codes, repeats, take
from airrep.corpus.values import content_hash
from airrep.errors import DataError

_compute: Any = pyarrow.compute  # its type stubs refuse large_string
_CHUNK_ROWS = 8192
_CHUNK_CHARACTERS = 1 << 22
_MESSAGES_KEPT = 20


@dataclass(frozen=True, slots=True)
class Skipped:
    """How many records were left out as invalid, and why the first 20 were."""

    count: int = 0
    messages: tuple[str, ...] = ()

    def add(self, message: str) -> "Skipped":
        """Return the same with one more record."""
        kept = self.messages if len(self.messages) >= _MESSAGES_KEPT else (*self.messages, message)
        return Skipped(self.count + 1, kept)


class _Builder:
    """Rows gathered in lists and turned into arrow arrays chunk by chunk."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self._rows: list[tuple[str | None, ...]] = []
        self._characters = 0
        self.numbers = array("q")
        self.hashes = array("q")
        self.made = array("b")

    def add(self, number: int, fields: Fields) -> None:
        """Add one record; without an id it gets the hash of its texts."""
        prompt, response, given, label, source, metadata = fields
        key = given or content_hash(prompt, response)
        self.numbers.append(number)
        self.hashes.append(hash(key))
        self.made.append(given is None)
        self._rows.append((key, prompt, response, label, source, metadata))
        self._characters += len(prompt) + len(response)
        if len(self._rows) >= _CHUNK_ROWS or self._characters >= _CHUNK_CHARACTERS:
            self._flush()

    def _flush(self) -> None:
        columns = zip(*self._rows, strict=True) if self._rows else ([] for _ in COLUMNS)
        pool = pa.system_memory_pool()  # the default one keeps much of what it frees
        arrays = [pa.array(column, pa.large_string(), memory_pool=pool) for column in columns]
        self._batches.append(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))
        self._rows, self._characters = [], 0

    def table(self) -> pa.Table:
        """Return all rows added."""
        self._flush()
        return pa.Table.from_batches(self._batches, SCHEMA)


def build_table(
    source: Source, parse: Callable[[object], Fields], *, skip_invalid: bool = False
) -> tuple[pa.Table, Skipped]:
    """Return the table of a source's records and what was left out.

    Raises:
        DataError: a record is not valid, or two have the same id; the message starts with the place. With
            ``skip_invalid`` such records are left out instead (of two with the same id, the later).
    """
    builder, skipped = _Builder(), Skipped()
    for number, record in source.records:
        try:
            if isinstance(record, DataError):
                raise record
            fields = parse(record)
        except DataError as error:
            message = f"{source.place(number)}: {error}"
            if not skip_invalid:
                raise DataError(message) from None
            skipped = skipped.add(message)
        else:
            builder.add(number, fields)
    table = builder.table()
    hashes = np.frombuffer(builder.hashes, np.int64)
    hashes.sort()
    if not (hashes[1:] == hashes[:-1]).any():
        return table, skipped
    table = _number_equal_texts(table, np.array(builder.made, bool))
    return _without_repeats(table, source, np.array(builder.numbers), skipped, skip_invalid)


def _number_equal_texts(table: pa.Table, made: Mask) -> pa.Table:
    """Append ``-2``, ``-3`` … to the ids made from texts that occur again, in row order."""
    ids = table["id"]
    if not made.any() or not len(repeats(ids)[0]):
        return table
    rows = np.flatnonzero(made)
    codes = id_codes(ids)[rows]
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    occurrence = np.empty(len(rows), np.int64)
    occurrence[order] = np.arange(len(rows)) - np.repeat(starts, np.diff(np.r_[starts, len(rows)])) + 1
    count = np.ones(len(table), np.int64)
    count[rows] = occurrence
    texts = pa.array(count).cast(pa.large_string())
    suffixed = _compute.binary_join_element_wise(ids, texts, pa.scalar("-", pa.large_string()))
    return table.set_column(0, "id", _compute.if_else(pa.array(count > 1), suffixed, ids))


def _without_repeats(
    table: pa.Table, source: Source, numbers: Rows, skipped: Skipped, skip_invalid: bool
) -> tuple[pa.Table, Skipped]:
    """Refuse, or leave out, rows whose id an earlier row has."""
    later, first = repeats(table["id"])
    for row, earlier in zip(later.tolist(), first.tolist(), strict=True):
        message = (
            f'{source.place(numbers[row])}: the id "{table["id"][row].as_py()}" is already that of '
            f"{source.unit} {numbers[earlier]}; unique ids are expected. Change one, or leave the ids out"
        )
        if not skip_invalid:
            raise DataError(message)
        skipped = skipped.add(message)
    if not len(later):
        return table, skipped
    keep = np.ones(len(table), bool)
    keep[later] = False
    return take(table, np.flatnonzero(keep)), skipped

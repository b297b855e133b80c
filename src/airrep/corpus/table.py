"""The table behind a corpus: builds, checks, slices and hashes it."""

import hashlib
import json
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from airrep.arrays import Mask, Rows, compute
from airrep.corpus.records import TOLD, Fields, content_hash, encode_chat, encode_metadata_text
from airrep.corpus.sources.textformats import RecordSource
from airrep.errors import DataError

if TYPE_CHECKING:
    Column = pa.ChunkedArray[Any]
else:
    Column = pa.ChunkedArray

COLUMNS = ("id", "prompt", "response", "label", "source", "metadata", "chat", "place")
"""Columns of a corpus table, in order; ``place`` is where a row was read from, such as ``train.jsonl:12``."""
PLACE = COLUMNS[-1]
_FEW = 64
"""At most this many rows are sliced one by one, which avoids the import of :mod:`pyarrow.compute`."""
_LATER = COLUMNS[-2:]
"""Columns that a table may lack where they are empty; earlier versions did not have them."""
_REQUIRED = COLUMNS[:3]
_NOT_BLANK = ("id", "response")
SCHEMA = pa.schema([(column, pa.large_string()) for column in COLUMNS])
"""Schema of a corpus table: every column is large_string; label, source, metadata, chat and place may be null."""

_CHUNK_ROWS = 8192
_CHUNK_CHARACTERS = 1 << 22
_MESSAGES_KEPT = 20
SKIPPING = ". To leave such records out, read them (airrep.read_corpus) with skip_invalid=True."
"""End of the error for a record that may be the only bad one."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """Number of invalid records that were left out, and the error messages of the first 20."""

    count: int = 0
    messages: tuple[str, ...] = ()

    def add(self, message: str) -> "Skipped":
        """Return a copy that counts one more record."""
        kept = self.messages if len(self.messages) >= _MESSAGES_KEPT else (*self.messages, message)
        return Skipped(self.count + 1, kept)


def build_table(
    source: RecordSource, parse: Callable[[object], tuple[str, list[Fields], int]], *, skip_invalid: bool = False
) -> tuple[pa.Table, Skipped, dict[str, int], int]:
    """Return the table of a source's records, the invalid records left out, and the number of records in each form.

    The last number counts assistant turns that are not examples.

    A record that is not valid, or has the id of an earlier record, raises DataError or, if *skip_invalid*, is left out.
    """
    skipped, forms, batches, earlier = Skipped(), Counter[str](), list[pa.RecordBatch](), 0
    rows, characters = list[tuple[str | None, ...]](), 0
    numbers, hashes, made = array("q"), array("q"), array("b")
    for number, record in source.records:
        try:
            if isinstance(record, DataError):
                raise record
            form, found, turns = parse(record)
        except DataError as error:
            message = f"{source.place(number)}: {error}"
            if not skip_invalid:
                # A first record that is read wrongly may need another option: all records may be like it.
                advised = record is error or (forms and source.unit != "example")
                raise DataError(message.rstrip(".") + SKIPPING if advised else message) from None
            skipped = skipped.add(message)
            continue
        forms[form] += 1
        earlier += turns
        for prompt, response, given, *others in found:
            key = given or content_hash(prompt, response)
            numbers.append(number)
            hashes.append(hash(key))  # 8 bytes an id; the ids themselves are compared only if two hashes are equal
            made.append(given is None)
            rows.append((key, prompt, response, *others, source.short_place(number)))
            characters += len(prompt) + len(response)
            if len(rows) >= _CHUNK_ROWS or characters >= _CHUNK_CHARACTERS:
                batches.append(_batch_of(rows))
                rows, characters = [], 0
    table = pa.Table.from_batches([*batches, _batch_of(rows)], SCHEMA)
    known = np.frombuffer(hashes, np.int64)
    known.sort()
    if (known[1:] == known[:-1]).any():
        table = _number_equal_texts(table, np.array(made, bool))
        table, skipped = _without_repeats(table, source, np.array(numbers), skipped, skip_invalid)
    return table, skipped, dict(forms), earlier


def _batch_of(rows: Sequence[Sequence[str | None]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else ([] for _ in COLUMNS)
    return pa.RecordBatch.from_arrays(list(map(_texts, columns)), schema=SCHEMA)


def _texts(values: Sequence[str | None]) -> Any:
    """Make an Arrow array of texts without ``pa.array``, which would import pandas, which takes half a second."""
    encoded = [b"" if text is None else text.encode() for text in values]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    known = np.packbits(np.array([text is not None for text in values], bool), bitorder="little")
    buffers: list[Any] = [pa.py_buffer(part) for part in (known.data, offsets.data, b"".join(encoded))]
    return pa.Array.from_buffers(pa.large_string(), len(values), buffers)


def _places(rows: Rows) -> Any:
    """Make an Arrow array of row numbers, without importing pandas."""
    buffers: list[Any] = [None, pa.py_buffer(np.ascontiguousarray(rows, np.int64).data)]
    return pa.Array.from_buffers(pa.int64(), len(rows), buffers)


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
    suffixed = compute.binary_join_element_wise(ids, texts, pa.scalar("-", pa.large_string()))
    return table.set_column(0, "id", compute.if_else(pa.array(count > 1), suffixed, ids))


def _without_repeats(
    table: pa.Table, source: RecordSource, numbers: Rows, skipped: Skipped, skip_invalid: bool
) -> tuple[pa.Table, Skipped]:
    """Refuse or, if *skip_invalid*, leave out rows whose id an earlier row has."""
    later, first = repeats(table["id"])
    for row, earlier in zip(later.tolist(), first.tolist(), strict=True):
        message = (
            f'{source.place(numbers[row])}: the id "{table["id"][row].as_py()}" is also the id of '
            f"{source.number(numbers[earlier])}, but ids must be unique. Change one of them, or remove the ids."
        )
        if not skip_invalid:
            raise DataError(message)
        skipped = skipped.add(message)
    if not len(later):
        return table, skipped
    keep = np.ones(len(table), bool)
    keep[later] = False
    return take(table, np.flatnonzero(keep)), skipped


def checked_table(table: pa.Table) -> pa.Table:
    """Return a table with all corpus columns in order, checked; DataError names the first bad row, from 1 on."""
    unknown = [column for column in table.column_names if column not in COLUMNS]
    missing = [column for column in _REQUIRED if column not in table.column_names]
    if unknown or missing:
        wrong = f"no column {missing[0]!r}" if missing else f"an unknown column {unknown[0]!r}"
        raise DataError(
            f"corpus table: has {wrong}. Its columns must be {', '.join(COLUMNS)}. Use Corpus.from_records for other "
            "data."
        )
    result = pa.Table.from_arrays([_checked_column(table, column) for column in COLUMNS], schema=SCHEMA)
    later, first = repeats(result["id"])
    if len(later):
        raise DataError(
            f"corpus table: row {later[0] + 1}: has the same id as row {first[0] + 1}, but ids must be unique."
        )
    return result


def _checked_column(table: pa.Table, column: str) -> Column:
    """Return one column as valid large_string, all null if it is missing."""
    if column not in table.column_names:
        return pa.chunked_array([pa.nulls(len(table), pa.large_string())])
    try:
        values = table[column].cast(pa.large_string())
        values.validate(full=True)
    except pa.ArrowException as error:
        raise DataError(f"corpus table: column {column!r}: {error}; UTF-8 text is expected.") from None
    if column == "metadata":  # as canonical JSON
        distinct = values.unique()
        canonical = [text if text is None else encode_metadata_text(text) for text in distinct.to_pylist()]
        if canonical == distinct.to_pylist():
            return values
        return compute.take(pa.array(canonical, pa.large_string()), compute.index_in(values, distinct))
    if column == "chat":
        for row, chat in enumerate(values.to_pylist(), 1) if values.null_count < len(values) else ():
            try:
                if chat is not None:
                    encode_chat(json.loads(chat))
            except (ValueError, DataError) as error:
                raise DataError(f"corpus table: row {row}: the column chat is not valid: {error}") from None
        return values
    wrong = compute.fill_null(compute.match_substring(values, "\0"), False)
    if column in _REQUIRED:
        wrong = compute.or_(wrong, values.is_null())
    if column in _NOT_BLANK:
        blank = compute.equal(compute.utf8_length(compute.utf8_trim_whitespace(values)), 0)
        wrong = compute.or_(wrong, compute.fill_null(blank, True))
    row = compute.index(wrong, True).as_py()
    if row >= 0:
        raise DataError(f"corpus table: row {row + 1}: {column} is null, blank or holds NUL; text is expected.")
    return values


def with_all_columns(table: pa.Table) -> pa.Table:
    """Add the columns ``chat`` and ``place`` to a table that lacks them because they are empty."""
    for column in _LATER:
        if table.column_names == list(COLUMNS[: COLUMNS.index(column)]):
            table = table.append_column(SCHEMA.field(column), pa.nulls(len(table), pa.large_string()))
    return table


def take(table: pa.Table, rows: Rows) -> pa.Table:
    """Return the given rows in the given order, copying no others."""
    # Arrow would first join all chunks of a column; this takes each batch's rows, then restores the order.
    batches = table.to_batches()
    ends = np.cumsum([batch.num_rows for batch in batches], dtype=np.int64)
    batch_of = np.searchsorted(ends, rows, side="right")
    if 0 < len(rows) <= _FEW:
        places = zip(rows.tolist(), batch_of.tolist(), strict=True)
        found = [batches[number].slice(row - int(ends[number]) + batches[number].num_rows, 1) for row, number in places]
        return pa.Table.from_batches(found, table.schema).combine_chunks()
    order = np.argsort(batch_of, kind="stable")
    pieces = []
    for part in np.split(order, np.flatnonzero(np.diff(batch_of[order])) + 1):
        if len(part):
            number = batch_of[part[0]]
            local = rows[part] - (ends[number] - batches[number].num_rows)
            pieces.append(batches[number].take(_places(local)))
    taken = pa.Table.from_batches(pieces, table.schema).combine_chunks()
    return taken if (np.diff(order) > 0).all() else taken.take(_places(np.argsort(order)))


def table_digest(table: pa.Table) -> str:
    """Return SHA-256 (64 hex digits) over the rows in order, independent of how they are chunked.

    The hash covers the format's name, the number of rows, and for each column SHA-256 over all lengths in bytes
    (int64, little-endian, −1 for null) and SHA-256 over all UTF-8 bytes. Lengths and bytes together determine
    every row. A chat that the texts determine counts as null. The column ``chat`` is hashed only if it has values, so
    that corpora without chats keep the digests of earlier versions. The column ``place`` is not hashed.
    """
    total = hashlib.sha256(f"airrep corpus 1\n{table.num_rows}\n".encode())
    told, nothing, empty = _texts([TOLD, None, ""])  # pa.scalar and to_numpy would import pandas too
    chats = compute.if_else(compute.equal(table["chat"], told), nothing, table["chat"])
    columns = [table[column] for column in COLUMNS[: -len(_LATER)]]
    for values in columns if chats.null_count == len(chats) else [*columns, chats]:
        lengths, texts = hashlib.sha256(), hashlib.sha256()
        for chunk in filter(len, values.chunks):
            # A null may have bytes in the buffer that are not part of the row.
            filled = compute.fill_null(chunk, empty) if chunk.null_count else chunk
            _, offsets_buffer, data = filled.buffers()
            offsets = np.frombuffer(offsets_buffer, np.int64)[filled.offset : filled.offset + len(filled) + 1]
            sizes = np.diff(offsets)
            if chunk.null_count:
                sizes[np.from_dlpack(chunk.is_null().cast(pa.uint8())).view(bool)] = -1
            lengths.update(sizes.astype("<i8").data)
            if data is not None:
                texts.update(memoryview(data)[offsets[0] : offsets[-1]])
        total.update(lengths.digest() + texts.digest())
    return total.hexdigest()


def repeats(ids: Column) -> tuple[Rows, Rows]:
    """Return the rows whose id an earlier row has, in order, and for each the first row with that id."""
    if compute.count_distinct(ids, mode="all").as_py() == len(ids):  # the usual case, at a fraction of the cost
        return np.empty(0, np.int64), np.empty(0, np.int64)
    codes = id_codes(ids)
    _, first = np.unique(codes, return_index=True)
    first_row = first[codes]
    later = np.flatnonzero(first_row != np.arange(len(codes)))
    return later, first_row[later]


def id_codes(ids: Column) -> Rows:
    """Return one number for each row, equal for equal ids; the numbers start at 0 and have no gaps."""
    chunks: list[Any] = ids.dictionary_encode().chunks
    parts = [np.from_dlpack(chunk.indices) for chunk in chunks]
    return np.concatenate(parts).astype(np.int64) if parts else np.empty(0, np.int64)

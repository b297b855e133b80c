"""The table behind a corpus: checked, taken from, digested."""

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from airrep.arrays import Rows
from airrep.corpus.values import encode_metadata_text
from airrep.errors import DataError

if TYPE_CHECKING:
    from hashlib import _Hash

    Column = pa.ChunkedArray[Any]
else:
    Column = pa.ChunkedArray

_compute: Any = pyarrow.compute  # its type stubs refuse large_string

COLUMNS = ("id", "prompt", "response", "label", "source", "metadata")
"""Columns of a corpus table, in order."""

SCHEMA = pa.schema([(column, pa.large_string()) for column in COLUMNS])
"""Schema of a corpus table: every column is large_string; label, source and metadata may be null."""


def repeats(ids: Column) -> tuple[Rows, Rows]:
    """Return the rows whose id an earlier row has, in order, and for each the first row with that id."""
    if _compute.count_distinct(ids, mode="all").as_py() == len(ids):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    codes = id_codes(ids)
    _, first = np.unique(codes, return_index=True)
    first_row = first[codes]
    later = np.flatnonzero(first_row != np.arange(len(codes)))
    return later, first_row[later]


def id_codes(ids: Column) -> Rows:
    """Return one number for each row, equal where the ids are equal, from 0 on without gaps."""
    chunks: list[Any] = ids.dictionary_encode().chunks
    parts = [chunk.indices.to_numpy() for chunk in chunks]
    return np.concatenate(parts).astype(np.int64) if parts else np.empty(0, np.int64)


def checked_table(table: pa.Table) -> pa.Table:
    """Return ``table`` as a corpus table: columns in order and as large_string, metadata as canonical JSON.

    Columns label, source and metadata may be missing.

    Raises:
        DataError: a column is missing or unknown, a text is null or blank, holds NUL or is not UTF-8, two ids
            are equal, or metadata is not a JSON object. The message names the first such row, from 1 on.
    """
    unknown = [column for column in table.column_names if column not in COLUMNS]
    missing = [column for column in COLUMNS[:3] if column not in table.column_names]
    if unknown or missing:
        wrong = f"no column {missing[0]!r}" if missing else f"an unknown column {unknown[0]!r}"
        raise DataError(f"corpus table: has {wrong}; expected {', '.join(COLUMNS)}. Use Corpus.from_records")
    columns = [_checked_column(table, column) for column in COLUMNS]
    result = pa.Table.from_arrays(columns, schema=SCHEMA)
    later, first = repeats(result["id"])
    if len(later):
        raise DataError(f"corpus table: row {later[0] + 1}: has the id of row {first[0] + 1}; unique ids are expected")
    return result


def _checked_column(table: pa.Table, column: str) -> Column:
    """Return one column as valid large_string."""
    if column not in table.column_names:
        return pa.chunked_array([pa.nulls(len(table), pa.large_string())])
    try:
        values = table[column].cast(pa.large_string())
        values.validate(full=True)
    except pa.ArrowException as error:
        raise DataError(f"corpus table: column {column!r}: {error}; UTF-8 text is expected") from None
    if column == "metadata":
        return _canonical(values)
    wrong = _compute.fill_null(_compute.match_substring(values, "\0"), False)
    if column in COLUMNS[:3]:
        blank = _compute.equal(_compute.utf8_length(_compute.utf8_trim_whitespace(values)), 0)
        wrong = _compute.or_(wrong, _compute.fill_null(blank, True))
    row = _compute.index(wrong, True).as_py()
    if row >= 0:
        raise DataError(f"corpus table: row {row + 1}: {column} is null, blank or holds NUL; text is expected")
    return values


def _canonical(metadata: Any) -> Column:
    """Return a column of JSON objects as canonical JSON."""
    distinct = metadata.unique()
    canonical = [text if text is None else encode_metadata_text(text) for text in distinct.to_pylist()]
    if canonical == distinct.to_pylist():
        same: Column = metadata
        return same
    changed: Column = _compute.take(pa.array(canonical, pa.large_string()), _compute.index_in(metadata, distinct))
    return changed


def take(table: pa.Table, rows: Rows) -> pa.Table:
    """Return the given rows in the given order; copies those rows only, whatever the chunks of ``table``."""
    batches = table.to_batches()
    ends = np.cumsum([batch.num_rows for batch in batches], dtype=np.int64)
    batch_of = np.searchsorted(ends, rows, side="right")
    order = np.argsort(batch_of, kind="stable")
    pieces = []
    for part in np.split(order, np.flatnonzero(np.diff(batch_of[order])) + 1):
        if len(part):
            number = batch_of[part[0]]
            local = rows[part] - (ends[number] - batches[number].num_rows)
            pieces.append(batches[number].take(pa.array(local)))
    taken = pa.Table.from_batches(pieces, table.schema).combine_chunks()
    return taken if (np.diff(order) > 0).all() else taken.take(np.argsort(order))


def digest(table: pa.Table) -> str:
    """Return SHA-256 (64 hex digits) over the rows in order, whatever their chunks.

    Hashed are the format's name, the number of rows, and for each column SHA-256 over all lengths in bytes
    (int64, little-endian, −1 for null) and SHA-256 over all UTF-8 bytes. Lengths and bytes together give back
    every row.
    """
    total = hashlib.sha256(f"airrep corpus 1\n{table.num_rows}\n".encode())
    for column in COLUMNS:
        lengths, texts = hashlib.sha256(), hashlib.sha256()
        for chunk in table[column].chunks:
            _update(lengths, texts, chunk)
        total.update(lengths.digest() + texts.digest())
    return total.hexdigest()


def _update(lengths: "_Hash", texts: "_Hash", chunk: Any) -> None:
    """Add one chunk of a column to its two hashes."""
    if not len(chunk):
        return
    filled = _compute.fill_null(chunk, "") if chunk.null_count else chunk
    _, offsets_buffer, data = filled.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64)[filled.offset : filled.offset + len(filled) + 1]
    sizes = np.diff(offsets)
    if chunk.null_count:
        sizes[chunk.is_null().to_numpy(zero_copy_only=False)] = -1
    lengths.update(sizes.astype("<i8").data)
    if data is not None:
        texts.update(memoryview(data)[offsets[0] : offsets[-1]])

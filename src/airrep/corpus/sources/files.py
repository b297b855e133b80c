"""The reader for each kind of file, by its suffix."""

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import IO, Any, Literal, TypeAlias, cast

import pyarrow as pa

from airrep.corpus.schemas.values import conversion, wide_encoding
from airrep.corpus.sources.tables import BATCH_ROWS, pieces, rows_of
from airrep.corpus.sources.textformats import (
    Numbered,
    RecordSource,
    check_columns,
    csv_records,
    json_array,
    json_lines,
    text_lines,
    too_long,
)
from airrep.errors import DataError, first_line
from airrep.runtime.remote.storage import RemoteData

_COMPRESSIONS: dict[str, Literal["gzip", "zstd"]] = {".gz": "gzip", ".zst": "zstd"}
Place: TypeAlias = Path | RemoteData
"""A place that data are read from."""
_READ_SIZE = 1 << 20
_LARGEST_UNPACKED = 1 << 30
"""Bytes of a file of a table that is compressed once more."""
_ARROW_FILE = b"ARROW1"
"""First bytes of an Arrow file; an Arrow stream lacks them."""

LONGEST_LINE = 64
"""MiB that one line, or one record that spans lines, may have, unless another limit is given."""


def reader_of(path: PurePath | RemoteData) -> Callable[[Place, int], Numbered] | None:
    """Return what reads a file, by its suffix; None if the suffix is not known."""
    return _READERS.get(unpacked(path).suffix.lower())


def open_file(path: Place, longest: int = LONGEST_LINE) -> RecordSource:
    """Return the records of a file, of at most *longest* MiB each where it is a text."""
    read = reader_of(path)
    if read is None:
        known = ", ".join(_READERS)
        raise DataError(f"{path}: the suffix is not known; expected {known}, alone or with .gz or .zst. Rename it")
    return RecordSource(str(path), "line" if read in (_jsonl, _json, _csv) else "row", read(path, longest << 20))


def open_input(longest: int = LONGEST_LINE) -> RecordSource:
    """Return the records of standard input, which are JSON lines, decompressed."""
    return RecordSource("-", "line", json_lines(sys.stdin.buffer, longest << 20))


def open_text(path: Place, longest: int = LONGEST_LINE) -> RecordSource:
    """Return a file of plain text as one record, with the name of the file as its id."""
    return RecordSource(str(path), "record", _text(path, longest << 20))


def unpacked(path: PurePath | RemoteData) -> PurePath | RemoteData:
    """Return a path without the suffix of its compression."""
    return path.with_suffix("") if path.suffix.lower() in _COMPRESSIONS else path


@contextmanager
def _opened(path: Place) -> Iterator[IO[bytes]]:
    """Open a file, decompressed; what the system says against it becomes a DataError."""
    compression = _COMPRESSIONS.get(path.suffix.lower())
    try:
        with path.open("rb", buffering=_READ_SIZE) if isinstance(path, Path) else path.open() as stream:
            if compression is None:
                yield stream
                return
            with pa.input_stream(cast(io.IOBase, stream), compression=compression) as raw:
                yield io.BufferedReader(cast(io.RawIOBase, raw), _READ_SIZE)
    except OSError as error:
        reason = error.strerror or str(error)
        if isinstance(error, PermissionError):
            raise DataError(f"{path}: cannot be read ({reason}). Correct its permissions") from None
        raise DataError(
            f"{path}: cannot be read to its end ({reason}); a whole file is expected. Download or copy it again"
        ) from None


@contextmanager
def _opened_utf8(path: Place) -> Iterator[IO[bytes]]:
    """Open a file of text; UTF-16 and UTF-32, which would be an error in each line, are refused."""
    with _opened(path) as stream:
        start = stream.peek(4)[:4] if isinstance(stream, io.BufferedReader) else b""
        if (encoding := wide_encoding(start)) is not None:
            raise DataError(
                f"{path}: is {encoding}, as its first bytes tell; UTF-8 is expected. {conversion(encoding)}"
            )
        yield stream


@contextmanager
def _opened_text(path: Place) -> Iterator[io.TextIOWrapper]:
    """Open a file as UTF-8 text; bytes that are not UTF-8 become surrogates, which no record may hold."""
    with _opened_utf8(path) as stream:
        yield io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="\n")


def _jsonl(path: Place, longest: int) -> Numbered:
    with _opened_utf8(path) as stream:
        yield from json_lines(stream, longest)


def _json(path: Place, longest: int) -> Numbered:
    with _opened_text(path) as stream:
        yield from json_array(stream, str(path), longest)


def _csv(path: Place, longest: int) -> Numbered:
    delimiter = "\t" if unpacked(path).suffix.lower() == ".tsv" else ","
    with _opened_text(path) as stream:
        yield from csv_records(text_lines(stream, str(path), longest), str(path), delimiter, longest)


@contextmanager
def _opened_table(path: Place, kind: str) -> Iterator[Any]:
    """Open a file of Arrow's values, which are read from any place in it; a damaged one becomes a DataError."""
    with _opened(path) as stream:
        try:
            yield pa.BufferReader(_in_memory(path, stream)) if path.suffix.lower() in _COMPRESSIONS else stream
        except pa.ArrowException as error:
            raise DataError(
                f"{path}: cannot be read as {kind} ({first_line(error)}); a whole file is expected. Download or copy "
                "it again"
            ) from None


def _parquet(path: Place, longest: int) -> Numbered:  # noqa: ARG001
    import pyarrow.parquet as pq

    with _opened_table(path, "Parquet") as stream, pq.ParquetFile(stream, pre_buffer=False) as file:
        check_columns(file.schema_arrow.names, str(path))
        yield from rows_of(file.iter_batches(BATCH_ROWS))


def _arrow(path: Place, longest: int) -> Numbered:  # noqa: ARG001
    """Yield the rows of Arrow's own format, as a file (Feather) or a stream."""
    with _opened_table(path, "Arrow") as stream:
        is_file = stream.read(len(_ARROW_FILE)) == _ARROW_FILE
        stream.seek(0)
        opened: Any = pa.ipc.open_file(stream) if is_file else pa.ipc.open_stream(stream)
        check_columns(opened.schema.names, str(path))
        batches = map(opened.get_batch, range(opened.num_record_batches)) if is_file else opened
        yield from rows_of(part for batch in batches for part in pieces(batch))


def _in_memory(path: Place, stream: IO[bytes]) -> bytes:
    """Decompress a table's file into memory: its format is read from the end."""
    found = io.BytesIO()
    while piece := stream.read(_READ_SIZE):
        if found.tell() + len(piece) > _LARGEST_UNPACKED:
            raise DataError(
                f"{path}: is a table of more than {_LARGEST_UNPACKED >> 20:,} MiB, compressed once more, which memory "
                "would have to hold whole. Decompress the file first: its format is compressed by itself"
            )
        found.write(piece)
    return found.getvalue()


def _text(path: Place, longest: int) -> Numbered:
    """Yield the whole file as one record."""
    with _opened_text(path) as stream:
        text = stream.read(longest + 1)
    yield 1, {"id": path.name, "text": text} if len(text) <= longest else too_long(longest)


_READERS: dict[str, Callable[[Place, int], Numbered]] = {
    ".jsonl": _jsonl,
    ".ndjson": _jsonl,
    ".json": _json,
    ".csv": _csv,
    ".tsv": _csv,
    ".parquet": _parquet,
    ".arrow": _arrow,
    ".feather": _arrow,
}

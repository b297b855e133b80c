"""Opens data at a path, URL or Hub id: files by suffix, folders, datasets."""

import io
import os
import re
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path, PurePath
from typing import IO, Any, Literal, TypeAlias, cast

import pyarrow as pa

from airrep.corpus.schemas.values import conversion, wide_encoding
from airrep.corpus.sources.tables import BATCH_ROWS, LANCE, SAVED, open_hub, open_lance, open_saved, pieces, rows_of
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
from airrep.errors import ConfigError, DataError, escaped, first_line, near_path
from airrep.runtime.artifacts import fetched, is_made
from airrep.runtime.remote.places import path_of, url_of
from airrep.runtime.remote.storage import RemoteData

_COMPRESSIONS: dict[str, Literal["gzip", "zstd"]] = {".gz": "gzip", ".zst": "zstd"}
Place: TypeAlias = Path | RemoteData
"""A local path or a remote URL to read data from."""
_READ_SIZE = 1 << 20
_LARGEST_UNPACKED = 1 << 30
"""Largest unpacked size, in bytes, of a Parquet or Arrow file with a further suffix .gz or .zst."""
_ARROW_FILE = b"ARROW1"
"""First bytes of an Arrow file; an Arrow stream lacks them."""
LONGEST_LINE = 64
"""Default limit, in MiB, of one line, or of one record that spans lines."""
LONGEST_NAME = 80
"""Characters that an error message shows of a path that does not exist."""
_TEXTS = (".txt", ".md")
_NO_DATA = ("dataset_infos.json", "dataset_info.json", "dataset_dict.json", "state.json")
"""JSON files that describe a dataset and hold no records."""
_SPLIT = re.compile(r"(?:^|[-_./])(train|test|validation|valid|val|dev|eval)(?=[-_./]|$)", re.IGNORECASE)
_SHARD = re.compile(r"[-_.]?\d+(-of-\d+)?$")


def open_source(
    path: str | PathLike[str], split: str | None = None, config: str | None = None, longest: int = LONGEST_LINE
) -> RecordSource:
    """Return the records at a path, URL or Hub id (file, folder, dataset), or of standard input for the path "-".

    A damaged file raises DataError only when its records are read.
    """
    url, name = url_of(path), str(path)
    place: Place = path_of(path) if url is None else RemoteData(url)
    if name == "-":
        return RecordSource("-", "line", json_lines(sys.stdin.buffer, longest << 20))
    if not name.strip():
        raise DataError(
            "data: the path is empty. Give a file, a folder or a Hub id. If a shell variable holds the path, check "
            "that it is set."
        )
    try:
        there = place.exists()
    except OSError as error:  # a folder that may not be entered
        raise DataError(f"{name[:100]}: cannot be accessed: {error.strerror}. Check the path.") from error
    if not there:
        if not isinstance(place, Path):
            raise DataError(f"{place}: no such file or folder. Check the URL.")
        if _may_be_hub_id(name):
            return open_hub(name, config, split)
        shown = escaped(name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…")
        text = reader_of(place) is None and (" " in name or "/" not in name)
        typed = " To ask about a text, use --prompt and --response, or in Python Example(prompt, response)." * text
        raise DataError(f"{shown}: no such file or folder. {near_path(place, f'Check the path.{typed}')}")
    if config is not None:
        raise ConfigError(
            f"{url or name}: config={config!r} was given, but only datasets on the Hub have configs. Leave out config."
        )
    is_folder = place.is_dir()
    if is_folder and isinstance(place, Path) and is_made(place):
        raise DataError(f"{name}: is a directory that airrep wrote, not data. Give the data that it was made from.")
    is_lance = is_folder and (place / LANCE).is_dir()
    if is_folder and not is_lance:
        is_saved = any((place / one).exists() for one in SAVED)
        return open_saved(_local(place), split) if is_saved else open_folder(place, split, longest)
    if split is not None:
        what = "a Lance dataset" if is_lance else "a file"
        raise ConfigError(f"{url or name}: split={split!r} was given, but {what} has no splits. Leave out split.")
    return open_lance(_local(place)) if is_lance else open_file(place, longest)


def _local(place: Place) -> Path:
    """Return a local path; a folder at a URL is downloaded."""
    return place if isinstance(place, Path) else fetched(str(place), loose=True)


def _may_be_hub_id(name: str) -> bool:
    """Return True for "org/name", unless it looks like a missing data file or its first part is a local folder."""
    # A missing file in an existing folder was mistyped; the Hub should not be asked for it.
    if re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", name) is None:
        return False
    return reader_of(Path(name)) is None and not Path(name).parent.exists()


def open_folder(folder: Place, split: str | None = None, longest: int = LONGEST_LINE) -> RecordSource:
    """Return the records of all data files below a folder, in order of their names, or else of its text files.

    If the file names contain several splits, one is read, by default "train". With several file names, a record
    without a source gets its file's name as source.
    """
    known, others = _files(folder)
    files = _of_split(folder, known, split)
    others += [(path, "belongs to another split") for path in sorted(set(known) - set(files))]
    apart = tuple(f"{_inside(path, folder)}: {why}" for path, why in others)
    names = [_name(_inside(file, folder)) for file in files]
    opened: list[tuple[int, RecordSource]] = []

    def records() -> Iterator[tuple[int, object]]:
        before, told = 0, len(set(names)) > 1
        for file, name in zip(files, names, strict=True):
            is_text = _is_text(file)
            opened.append((before, (open_text if is_text else open_file)(file, longest)))
            number = 0
            for number, record in opened[-1][1].records:
                if not isinstance(record, Mapping):
                    yield before + number, record
                elif is_text:
                    yield before + number, {**record, "id": _inside(file, folder).as_posix()}
                else:
                    named = told and record.get("source") is None
                    yield before + number, {**record, "source": name} if named else record
            before += number

    def place(number: int) -> str:
        before, source = opened[bisect_right(opened, number - 1, key=lambda part: part[0]) - 1]
        return source.place(number - before)

    return RecordSource(str(folder), "record", records(), place, apart)


def _files(folder: Place) -> tuple[list[Place], list[tuple[Place, str]]]:
    """Return the files below a folder that are read, and the others, each with the reason why it is not read."""
    found = sorted(
        path
        for path in (_below(folder) if isinstance(folder, Path) else folder.files())
        if path.name not in _NO_DATA and not any(part.startswith(".") for part in _inside(path, folder).parts)
    )
    data, texts = [path for path in found if reader_of(path) is not None], [path for path in found if _is_text(path)]
    chosen = data or texts
    others = [(path, "is a text file beside data files, which it probably describes") for path in texts if data]
    others += [(path, "its suffix is not known") for path in found if reader_of(path) is None and not _is_text(path)]
    if not chosen:
        raise DataError(
            f"{folder}: holds no data files. Give a data file, a folder of data files, or a folder that "
            "datasets.save_to_disk wrote."
        )
    return chosen, others


def _below(folder: Path) -> Iterator[Path]:
    """Yield files below a folder, also in linked folders, each folder once; skip directories that airrep wrote."""
    seen: set[tuple[int, int]] = set()
    for here, inner, names in os.walk(folder, followlinks=True):
        place, status = Path(here), Path(here).stat()
        known = (status.st_dev, status.st_ino) in seen
        seen.add((status.st_dev, status.st_ino))
        if known or (place != folder and is_made(place)):
            inner.clear()
            continue
        yield from (place / name for name in names if (place / name).is_file())


def _inside(path: Place, folder: Place) -> PurePath:
    assert isinstance(path, Path) == isinstance(folder, Path)
    return path.relative_to(cast(Any, folder))


def _is_text(path: PurePath | RemoteData) -> bool:
    return unpacked(path).suffix.lower() in _TEXTS


def _of_split(folder: Place, files: list[Place], split: str | None) -> list[Place]:
    """Return the files of one split; without *split*, all files unless their names contain several splits."""
    found = [_SPLIT.search(str(_bare(_inside(path, folder)))) for path in files]
    splits = [match[1].lower() for match in found if match is not None]
    all_tell = len(splits) == len(files)
    if split is None and (not all_tell or len(set(splits)) == 1):
        return files
    chosen = split or "train"
    if not all_tell or chosen not in splits:
        has, do = f"has the splits {', '.join(sorted(set(splits)))}", "Set split to one of these"
        if not all_tell:
            has, do = "its file names contain no split", "Leave out split"
        raise DataError(f"{folder}: {has}, so split {chosen!r} cannot be read. {do}, or give a single file.")
    return [path for path, name in zip(files, splits, strict=True) if name == chosen]


def _bare(path: PurePath) -> PurePath:
    """Return a path without the suffixes for format and compression."""
    while path.suffix.lower() in (".gz", ".zst") or reader_of(path) is not None or _is_text(path):
        path = path.with_suffix("")
    return path


def _name(path: PurePath) -> str:
    """Return a file's name without suffixes and shard number ("train-00001-of-00008.jsonl" gives "train")."""
    bare = _bare(path)
    return (bare.parent / (_SHARD.sub("", bare.name) or bare.name)).as_posix()


def reader_of(path: PurePath | RemoteData) -> Callable[[Place, int], Numbered] | None:
    """Return the function that reads a file, by its suffix; None if the suffix is unknown."""
    return _READERS.get(unpacked(path).suffix.lower())


def open_file(path: Place, longest: int = LONGEST_LINE) -> RecordSource:
    """Return the records of a file; in a text format each has at most *longest* MiB."""
    read = reader_of(path)
    if read is None:
        known = ", ".join(_READERS)
        raise DataError(
            f"{path}: the suffix is not known. It must be {known}, alone or followed by .gz or .zst. Rename the file."
        )
    return RecordSource(str(path), "line" if read in (_jsonl, _json, _csv) else "row", read(path, longest << 20))


def open_text(path: Place, longest: int = LONGEST_LINE) -> RecordSource:
    """Return a plain text file as one record, with the file's name as its id."""
    return RecordSource(str(path), "record", _text(path, longest << 20))


def unpacked(path: PurePath | RemoteData) -> PurePath | RemoteData:
    """Return a path without its suffix .gz or .zst."""
    return path.with_suffix("") if path.suffix.lower() in _COMPRESSIONS else path


@contextmanager
def _opened(path: Place) -> Iterator[IO[bytes]]:
    """Open a file, decompressing it if needed; an OSError becomes a DataError."""
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
            raise DataError(f"{path}: cannot be read ({reason}). Correct its permissions.") from None
        raise DataError(f"{path}: cannot be read to its end ({reason}). Download or copy it again.") from None


@contextmanager
def _opened_utf8(path: Place) -> Iterator[IO[bytes]]:
    """Open a text file as bytes; refuse UTF-16 and UTF-32, which would give one error for each line."""
    with _opened(path) as stream:
        start = stream.peek(4)[:4] if isinstance(stream, io.BufferedReader) else b""
        if (encoding := wide_encoding(start)) is not None:
            raise DataError(f"{path}: is encoded as {encoding}, but must be UTF-8. {conversion(encoding)}")
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
    """Open a Parquet or Arrow file for random access; errors of a damaged file become DataErrors."""
    with _opened(path) as stream:
        try:
            yield pa.BufferReader(_in_memory(path, stream)) if path.suffix.lower() in _COMPRESSIONS else stream
        except pa.ArrowException as error:
            raise DataError(
                f"{path}: cannot be read as {kind} ({first_line(error)}). It may be incomplete: download or copy it "
                "again."
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
    """Decompress a table file into memory, because its format needs random access."""
    found = io.BytesIO()
    while piece := stream.read(_READ_SIZE):
        if found.tell() + len(piece) > _LARGEST_UNPACKED:
            raise DataError(
                f"{path}: has more than {_LARGEST_UNPACKED >> 20:,} MiB when decompressed, too much to decompress in "
                "memory. Decompress the file on disk first, for example with gunzip."
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

"""The reader for each kind of file, by its suffix; Parquet, datasets, the Hub."""

import importlib
import io
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import IO, Any, Literal, cast

import pyarrow as pa
import pyarrow.parquet as pq

from airrep.corpus.records import RecordSource
from airrep.corpus.textformats import Numbered, csv_records, json_array, json_lines
from airrep.errors import ConfigError, DataError, MissingExtraError

_COMPRESSIONS: dict[str, Literal["gzip", "zstd"]] = {".gz": "gzip", ".zst": "zstd"}
_BATCH_ROWS = 2048
_READ_SIZE = 1 << 20


def open_source(path: str | PathLike[str], split: str | None = None) -> RecordSource:
    """Return the records of a file, a folder saved by ``datasets``, or a dataset of the Hub.

    A damaged file raises its DataError while its records are read, not here.
    """
    place, name = Path(path), str(path)
    if place.is_dir():
        return RecordSource(name, "row", _saved_dataset(place, split))
    if not place.exists():
        if _may_be_hub_id(name):
            return RecordSource(name, "row", _hub_dataset(name, split))
        raise DataError(f"{name}: no such file or folder; a data file is expected. Check the path")
    read = _reader(place)
    if split is not None:
        raise ConfigError(f"{name}: split={split!r} is given for a file; only datasets have splits. Leave it out")
    return RecordSource(name, "row" if read is _parquet else "line", read(place))


def _bare(path: Path) -> Path:
    """Return a path without the suffix of its compression."""
    return path.with_suffix("") if path.suffix.lower() in _COMPRESSIONS else path


def _reader(path: Path) -> Callable[[Path], Numbered]:
    """Return what reads a file, by its suffix."""
    read = _READERS.get(_bare(path).suffix.lower())
    if read is None:
        known = ", ".join(_READERS)
        raise DataError(f"{path}: the suffix is not known; expected {known}, alone or with .gz or .zst. Rename it")
    return read


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a file, decompressed; what the system says against it becomes a DataError."""
    compression = _COMPRESSIONS.get(path.suffix.lower())
    try:
        if compression is None:
            with path.open("rb", buffering=_READ_SIZE) as stream:
                yield stream
        else:
            with pa.input_stream(str(path), compression=compression) as raw:
                yield io.BufferedReader(cast(io.RawIOBase, raw), _READ_SIZE)
    except OSError as error:
        reason = error.strerror or str(error)
        raise DataError(
            f"{path}: cannot be read to its end ({reason}); a whole file is expected. Get it anew"
        ) from None


@contextmanager
def _opened_text(path: Path) -> Iterator[io.TextIOWrapper]:
    """Open a file as UTF-8 text; bytes that are not UTF-8 become surrogates, which no record may hold."""
    with _opened(path) as stream:
        yield io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="\n")


def _jsonl(path: Path) -> Numbered:
    with _opened(path) as lines:
        yield from json_lines(lines)


def _json(path: Path) -> Numbered:
    with _opened_text(path) as stream:
        yield from json_array(stream, str(path))


def _csv(path: Path) -> Numbered:
    delimiter = "\t" if _bare(path).suffix.lower() == ".tsv" else ","
    with _opened_text(path) as lines:
        yield from csv_records(lines, str(path), delimiter)


def _parquet(path: Path) -> Numbered:
    with _opened(path) as stream:
        # Parquet is read from its end: what is compressed once more must lie in memory whole.
        whole = pa.BufferReader(stream.read()) if path.suffix.lower() in _COMPRESSIONS else path
        try:
            with pq.ParquetFile(whole, pre_buffer=False) as file:
                yield from _rows(file.iter_batches(_BATCH_ROWS))
        except (pa.ArrowException, UnicodeDecodeError) as error:
            reason = str(error).splitlines()[0]
            raise DataError(
                f"{path}: cannot be read as Parquet ({reason}); a whole file is expected. Get it anew"
            ) from None


def _rows(batches: "Iterator[pa.RecordBatch] | Iterator[pa.Table]") -> Numbered:
    """Yield the rows of arrow batches, from 1 on."""
    return enumerate((row for batch in batches for row in batch.to_pylist()), 1)


_READERS: dict[str, Callable[[Path], Numbered]] = {
    ".jsonl": _jsonl,
    ".ndjson": _jsonl,
    ".json": _json,
    ".csv": _csv,
    ".tsv": _csv,
    ".parquet": _parquet,
}


def _may_be_hub_id(name: str) -> bool:
    """Tell "org/name" from a path that is merely missing: a data file's, or inside a folder that is there."""
    # A missing file in a folder that is there was mistyped: nobody wants the Hub to be asked for it.
    if re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", name) is None:
        return False
    return _bare(Path(name)).suffix.lower() not in _READERS and not Path(name).parent.exists()


def _datasets() -> Any:
    """Import the package ``datasets``."""
    try:
        return importlib.import_module("datasets")
    except ImportError:
        raise MissingExtraError("reading a Hugging Face dataset", "datasets") from None


def _saved_dataset(folder: Path, split: str | None) -> Numbered:
    """Yield the rows of a folder saved by ``datasets``, with splits or without."""
    splits = _saved_splits(folder)
    if splits is None and split is not None:
        raise ConfigError(f"{folder}: split={split!r} is given, but the folder has no splits. Leave it out")
    chosen = split or "train"
    if splits is not None and chosen not in splits:
        raise DataError(f"{folder}: has no split {chosen!r}; it has {', '.join(splits)}. Choose one with split")
    try:
        dataset = _datasets().load_from_disk(str(folder if splits is None else folder / chosen))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder}: cannot be read as a saved dataset ({error}); a whole one is expected") from None
    return _dataset_rows(dataset)


def _saved_splits(folder: Path) -> list[str] | None:
    """Return the splits of a saved dataset, or None if it is a single one."""
    try:
        return [str(split) for split in json.loads((folder / "dataset_dict.json").read_text())["splits"]]
    except FileNotFoundError:
        pass
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{folder}: dataset_dict.json cannot be read ({error}); the list of splits is expected"
        ) from None
    if not (folder / "dataset_info.json").exists():
        raise DataError(
            f"{folder}: is a folder, but not a dataset; a data file or a folder written by "
            "datasets.save_to_disk is expected. Name a file inside it"
        )
    return None


def _hub_dataset(name: str, split: str | None) -> Numbered:
    """Yield the rows of a dataset of the Hub."""
    chosen = split or "train"
    try:
        dataset = _datasets().load_dataset(name, split=chosen)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"{name}: no such file, and the Hub dataset's split {chosen!r} cannot be loaded ({reason}). "
            "Check the path, the name or the split"
        ) from None
    return _dataset_rows(dataset)


def _dataset_rows(dataset: Any) -> Numbered:
    """Yield the rows of a dataset as it is stored, images and sounds undecoded."""
    return _rows(dataset.with_format("arrow").iter(_BATCH_ROWS))

"""Reads rows of Arrow tables, datasets and Lance as JSON values."""

import importlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from airrep.corpus.schemas.values import plain
from airrep.corpus.sources.textformats import Numbered, RecordSource, json_value
from airrep.errors import ConfigError, DataError, first_line, need

BATCH_ROWS = 2048
"""Rows that are held as Python objects at once."""
Batch: TypeAlias = pa.RecordBatch | pa.Table
_Decode: TypeAlias = Callable[[Any], Any]
"""Function that converts a pyarrow value to a JSON value; it is never called with None."""
_UNREADABLE = (ValueError, OverflowError, TypeError)
"""Errors of pyarrow and of decoders for values that Python or JSON cannot hold."""


def rows_of(batches: Iterable[Batch]) -> Numbered:
    """Yield the rows of Arrow batches, numbered from 1 on."""
    return enumerate(chain.from_iterable(map(table_rows, batches)), 1)


def pieces(batch: Batch) -> Iterator[Batch]:
    """Yield a table in slices of at most :data:`BATCH_ROWS` rows."""
    return (batch.slice(start, BATCH_ROWS) for start in range(0, batch.num_rows, BATCH_ROWS))


def table_rows(batch: Batch, features: Mapping[str, Any] | None = None) -> Iterator[dict[str, Any] | DataError]:
    """Yield the rows of a table; a DataError in place of a row with a value that cannot be read.

    JSON text is parsed, UUIDs and Decimals become text, maps become objects, and class numbers become class names.
    *features* are those of ``datasets``, by default from the table's metadata.
    """
    told = _features(batch.schema) if features is None else features
    decoders = [_decoder(field, told.get(field.name)) for field in batch.schema]
    names, arrays = batch.schema.names, batch.columns
    try:
        columns = list(map(_values, arrays, decoders))
    except _UNREADABLE:  # read row by row to find the bad row
        return (_row(names, arrays, decoders, number) for number in range(batch.num_rows))
    return (dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True))


def _row(names: list[str], arrays: list[Any], decoders: list[_Decode | None], at: int) -> dict[str, Any] | DataError:
    """Return one row, or the error that names the bad column."""
    row: dict[str, Any] = {}
    for name, array, decode in zip(names, arrays, decoders, strict=True):
        try:
            (row[name],) = _values(array.slice(at, 1), decode)
        except _UNREADABLE as error:
            return DataError(
                f'the column "{name}" holds a value that cannot be read ({first_line(error)}). Use text, numbers, '
                "dates or JSON, or remove the column."
            )
    return row


def _values(array: Any, decode: _Decode | None) -> list[Any]:
    """Return the values of a column as JSON values."""
    values: list[Any] = array.to_pylist()
    return values if decode is None else [None if value is None else decode(value) for value in values]


def _features(schema: pa.Schema) -> Mapping[str, Any]:
    """Return the features of columns that ``datasets`` wrote into a schema; empty if it wrote none."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
    except (KeyError, ValueError, TypeError):
        return {}
    return features if isinstance(features, Mapping) else {}


def _decoder(field: Any, feature: Any) -> _Decode | None:
    """Return the decoder of a column or of a part of it; None if its values are already JSON values."""
    kind, told = field.type, field.metadata or {}
    extension = getattr(kind, "extension_name", "") or told.get(b"ARROW:extension:name", b"").decode()
    if extension == "arrow.json" or (_is(feature, "Json") and pa.types.is_string(kind)):
        return json_value
    if extension == "pandas.period":
        return _of_period(json.loads(told[b"ARROW:extension:metadata"])["freq"] if told else kind.freq)
    if extension == "arrow.uuid" or pa.types.is_decimal(kind):
        return plain
    if _is(feature, "ClassLabel") and pa.types.is_integer(kind):
        return _of_class(feature["names"])
    inner = feature.get("feature") if _is(feature, "List", "LargeList", "Sequence") else feature
    inner = feature[0] if isinstance(feature, list) and feature else inner
    if pa.types.is_map(kind):
        return _of_map(kind, inner)
    if pa.types.is_struct(kind):
        return _of_struct(kind, inner)
    if hasattr(kind, "value_field"):
        decode = _decoder(kind.value_field, inner)
        return None if decode is None else lambda values: [None if one is None else decode(one) for one in values]
    held = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else getattr(kind, "value_type", None)
    return None if held is None else _decoder(field.with_type(held).remove_metadata(), feature)


def _is(feature: Any, *names: str) -> bool:
    """Return True if a feature of ``datasets`` has one of these types."""
    return isinstance(feature, Mapping) and feature.get("_type") in names


def _of_struct(kind: Any, feature: Any) -> _Decode | None:
    """Return a decoder of the parts of objects that need decoding; None if no part does."""
    parts = feature if isinstance(feature, Mapping) else {}
    found = {part.name: _decoder(part, parts.get(part.name)) for part in kind}
    needed = {name: decode for name, decode in found.items() if decode is not None}

    def decode(value: dict[str, Any]) -> dict[str, Any]:
        return {**value, **{key: use(value[key]) for key, use in needed.items() if value[key] is not None}}

    return decode if needed else None


def _of_map(kind: Any, feature: Any) -> _Decode:
    """Return a decoder of maps: key-value pairs become an object with text keys."""
    of_key, of_item = _decoder(kind.key_field, None) or _key, _decoder(kind.item_field, feature)

    def decode(pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
        keys = [_key(of_key(key)) for key, _ in pairs]
        if len(set(keys)) < len(keys):
            twice = next(key for key in keys if keys.count(key) > 1)
            raise ValueError(f'a map has the key "{twice}" twice; remove one of the two')
        items = (item if item is None or of_item is None else of_item(item) for _, item in pairs)
        return dict(zip(keys, items, strict=True))

    return decode


def _key(key: object) -> str:
    """Return a map's key as text, as JSON would write it."""
    return key if isinstance(key, str) else json.dumps(key, default=plain).strip('"')


def _of_class(names: list[str]) -> _Decode:
    """Return a decoder of class numbers to names; -1, which ``datasets`` uses for no class, becomes None."""

    def decode(number: int) -> str | None:
        if not -1 <= number < len(names):
            raise ValueError(f"class {number} does not exist. Use -1 (no class) to {len(names) - 1}")
        return None if number == -1 else names[number]

    return decode


def _of_period(freq: str) -> _Decode:
    """Return a decoder of pandas periods, which Arrow holds as numbers since 1970, to text."""
    need("reading periods of pandas", "pandas", "pandas")
    import pandas as pd

    return lambda number: str(pd.Period(ordinal=number, freq=freq))


SAVED = ("dataset_dict.json", "dataset_info.json")
"""Files that identify a folder written by ``datasets``: one with splits, or one without."""
LANCE = "_versions"
"""Folder that identifies a Lance dataset."""


def open_lance(folder: Path) -> RecordSource:
    """Return the rows of the newest version of a Lance dataset."""

    def batches() -> Iterator[Batch]:
        need(f"{folder}: reading a Lance dataset", "lance", "lance")
        lance: Any = importlib.import_module("lance")
        try:
            for batch in lance.dataset(str(folder)).to_batches(batch_size=BATCH_ROWS):
                yield from pieces(batch)
        except (OSError, ValueError) as error:
            raise DataError(
                f"{folder}: cannot be read as Lance ({first_line(error)}). It may be incomplete: download or copy it "
                "again."
            ) from None

    return RecordSource(str(folder), "row", rows_of(batches()))


def object_rows(data: Any) -> Iterable[Any]:
    """Return the rows of a ``Dataset`` as JSON values; return other data, or one with a custom transform, unchanged."""
    form = getattr(data, "format", None) if hasattr(data, "with_format") else None
    streamed = form is None and hasattr(data, "with_format") and getattr(data, "features", None)
    if not streamed and (form is None or form["type"] == "custom"):
        return data
    return chain.from_iterable(map(table_rows, _arrow(data).iter(BATCH_ROWS)))


def _datasets(reading: str) -> Any:
    """Import the package ``datasets`` for *reading* something, which an error message names."""
    need(reading, "datasets", "datasets")
    return importlib.import_module("datasets")


def open_saved(folder: Path, split: str | None = None) -> RecordSource:
    """Return the rows of a folder saved by ``datasets``, with splits or without."""
    splits = _saved_splits(folder)
    if splits is None and split is not None:
        raise ConfigError(f"{folder}: split={split!r} was given, but the folder has no splits. Leave out split.")
    chosen = split or "train"
    if splits is not None and chosen not in splits:
        raise DataError(f"{folder}: has no split {chosen!r}; it has {', '.join(splits)}. Set split to one of these.")
    try:
        dataset = _datasets(f"reading the saved dataset {folder}").load_from_disk(
            str(folder if splits is None else folder / chosen)
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{folder}: cannot be read as a saved dataset ({error}). It may be incomplete: save or copy it again."
        ) from None
    return RecordSource(str(folder), "row", rows_of(_arrow(dataset).iter(BATCH_ROWS)), hub=_commit(dataset))


def _saved_splits(folder: Path) -> list[str] | None:
    try:
        return [str(split) for split in json.loads((folder / "dataset_dict.json").read_text())["splits"]]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{folder}: dataset_dict.json, which lists the splits, cannot be read ({error}). Save or copy the dataset "
            "again."
        ) from None


def open_hub(name: str, config: str | None = None, split: str | None = None) -> RecordSource:
    """Return the rows of one split of a dataset on the Hub, by default "train"."""
    chosen = split or "train"
    try:
        dataset = _datasets(
            f"{name}: is not a file or folder here, and reading it from the Hugging Face Hub"
        ).load_dataset(name, config, split=chosen)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        which = f"split {chosen!r}" if config is None else f"split {chosen!r} of config {config!r}"
        raise DataError(
            f"{name}: no such file, and {which} of the Hub dataset with this name cannot be loaded ({reason}). Check "
            "the path, the name, config or split."
        ) from None
    return RecordSource(name, "row", rows_of(_arrow(dataset).iter(BATCH_ROWS)), hub=_commit(dataset))


_PINNED = re.compile(r"hf://datasets/([\w-][\w.-]*/[\w-][\w.-]*@[0-9a-f]{40})/")


def _commit(dataset: Any) -> str | None:
    """Return ``owner/name@commit`` of a Hub data set, read from its files' addresses; None unless there is just one."""
    files = getattr(getattr(dataset, "info", None), "download_checksums", None) or ()
    found = {match[1] if (match := _PINNED.match(str(file))) else None for file in files}
    return found.pop() if len(found) == 1 else None


def _arrow(dataset: Any) -> Any:
    """Return a dataset that yields Arrow tables of its selected columns, with images and audio not decoded."""
    form = getattr(dataset, "format", None)
    return dataset.with_format("arrow") if form is None else dataset.with_format("arrow", columns=form["columns"])

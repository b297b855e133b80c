"""Rows of Arrow tables with the values that JSON has."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, TypeAlias

import pyarrow as pa

from airrep.corpus.schemas.values import plain
from airrep.corpus.sources.textformats import Numbered, json_value
from airrep.errors import DataError, need

BATCH_ROWS = 2048
"""Rows that are held as Python objects at once."""
Batch: TypeAlias = pa.RecordBatch | pa.Table
_Decode: TypeAlias = Callable[[Any], Any]
"""Makes of a value of pyarrow one that JSON has; never of None."""
_UNREADABLE = (ValueError, OverflowError, TypeError)
"""What pyarrow and decoding raise for a value that Python or JSON has not."""


def rows_of(batches: Iterable[Batch]) -> Numbered:
    """Yield the rows of arrow batches, from 1 on."""
    return enumerate(chain.from_iterable(map(table_rows, batches)), 1)


def pieces(batch: Batch) -> Iterator[Batch]:
    """Yield a table in parts of :data:`BATCH_ROWS` rows."""
    return (batch.slice(start, BATCH_ROWS) for start in range(0, batch.num_rows, BATCH_ROWS))


def table_rows(batch: Batch, features: Mapping[str, Any] | None = None) -> Iterator[dict[str, Any] | DataError]:
    """Yield the rows of a table or a part of one; a DataError for one with a value that cannot be read.

    Texts of JSON become what they say, UUIDs and Decimals texts, maps objects, labels of a class its names.

    Args:
        batch: the rows.
        features: of the columns, as ``datasets`` writes them; by default those in the metadata of the table.
    """
    fields = list(batch.schema)
    told = _features(batch.schema) if features is None else features
    decoders = [_decoder(field, told.get(field.name)) for field in fields]
    names, arrays = batch.schema.names, batch.columns
    try:
        columns = list(map(_values, arrays, decoders))
    except _UNREADABLE:  # which row it is can be told row by row alone
        return (_row(names, arrays, decoders, number) for number in range(batch.num_rows))
    return (dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True))


def _row(
    names: list[str], arrays: list[Any], decoders: list[_Decode | None], number: int
) -> dict[str, Any] | DataError:
    """One row, or the error that names its column."""
    row: dict[str, Any] = {}
    for name, array, decode in zip(names, arrays, decoders, strict=True):
        try:
            (row[name],) = _values(array.slice(number, 1), decode)
        except _UNREADABLE as error:
            reason = str(error).splitlines()[0]
            return DataError(
                f'the column "{name}" holds a value that cannot be read ({reason}); ordinary texts, numbers, dates '
                "and JSON are expected. Drop the column or write it as text"
            )
    return row


def _values(array: Any, decode: _Decode | None) -> list[Any]:
    """The values of a column, which JSON has."""
    values: list[Any] = array.to_pylist()
    return values if decode is None else [None if value is None else decode(value) for value in values]


def _features(schema: pa.Schema) -> Mapping[str, Any]:
    """The features of the columns that ``datasets`` noted in a schema; none if it did not write it."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
    except (KeyError, ValueError, TypeError):
        return {}
    return features if isinstance(features, Mapping) else {}


def _decoder(field: Any, feature: Any) -> _Decode | None:
    """What decodes the values of a column or of a part of it; None if they are JSON values already."""
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
    return _of_parts(field, feature)


def _is(feature: Any, name: str) -> bool:
    """Whether a feature of ``datasets`` is of a type."""
    return isinstance(feature, Mapping) and feature.get("_type") == name


def _of_parts(field: Any, feature: Any) -> _Decode | None:
    """What decodes values that have parts or are held as another type; None if no part needs it."""
    kind = field.type
    if pa.types.is_map(kind):
        return _of_map(kind, _inner(feature))
    if pa.types.is_struct(kind):
        return _of_struct(kind, _inner(feature))
    if hasattr(kind, "value_field"):
        return _of_list(kind.value_field, _inner(feature))
    held = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else getattr(kind, "value_type", None)
    return None if held is None else _decoder(field.with_type(held).remove_metadata(), feature)


def _inner(feature: Any) -> Any:
    """The feature of a list's elements; any other as it is."""
    if isinstance(feature, list) and feature:
        return feature[0]
    is_list = any(_is(feature, name) for name in ("List", "LargeList", "Sequence"))
    return feature["feature"] if is_list else feature


def _of_list(element: Any, feature: Any) -> _Decode | None:
    decode = _decoder(element, feature)
    return None if decode is None else lambda values: [None if value is None else decode(value) for value in values]


def _of_struct(kind: Any, feature: Any) -> _Decode | None:
    """Decodes those parts of objects that need it."""
    parts = feature if isinstance(feature, Mapping) else {}
    found = {part.name: _decoder(part, parts.get(part.name)) for part in kind}
    needed = {name: decode for name, decode in found.items() if decode is not None}

    def decode(value: dict[str, Any]) -> dict[str, Any]:
        return {**value, **{key: use(value[key]) for key, use in needed.items() if value[key] is not None}}

    return decode if needed else None


def _of_map(kind: Any, feature: Any) -> _Decode:
    """Makes objects of pairs, whose keys become texts."""
    of_key, of_item = _decoder(kind.key_field, None) or _key, _decoder(kind.item_field, feature)

    def decode(pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
        keys = [_key(of_key(key)) for key, _ in pairs]
        if len(set(keys)) < len(keys):
            raise ValueError("a key stands twice in one map")
        items = (item if item is None or of_item is None else of_item(item) for _, item in pairs)
        return dict(zip(keys, items, strict=True))

    return decode


def _key(key: object) -> str:
    """A key of a map as JSON writes it."""
    return key if isinstance(key, str) else json.dumps(key, default=plain).strip('"')


def _of_class(names: list[str]) -> _Decode:
    """Makes names of the numbers of classes; -1 is, for ``datasets``, an example without one."""

    def decode(number: int) -> str | None:
        if not -1 <= number < len(names):
            raise ValueError(f"the class {number}, of {len(names)}")
        return None if number == -1 else names[number]

    return decode


def _of_period(freq: str) -> _Decode:
    """Makes texts of periods of pandas, which Arrow holds as numbers since 1970."""
    need("reading periods of pandas", "pandas", "pandas")
    import pandas as pd

    return lambda number: str(pd.Period(ordinal=number, freq=freq))

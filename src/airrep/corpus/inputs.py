"""Turns what callers pass (paths, records, tables, texts) into a corpus."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from airrep.corpus.corpus import (
    Corpus,
    Example,
    asked,
    given_id,
    have_spans,
    of_answers,
    plain_example,
    read_corpus,
    with_spans,
)
from airrep.corpus.sources.files import reader_of
from airrep.corpus.sources.tables import object_rows, pieces, table_rows
from airrep.corpus.sources.textformats import check_columns
from airrep.errors import ConfigError, DataError, first_line

CorpusLike: TypeAlias = Any
"""A path, a :class:`Corpus`, a Hugging Face ``Dataset``, a table of pandas, polars, DuckDB or pyarrow, a dict of
columns, or several examples as :class:`Example` objects or dicts. The alias is Any because types of optional packages
cannot be named here."""
QueriesLike: TypeAlias = Any
"""A ``CorpusLike``, one example, one dict, or texts (responses to an empty prompt). Give a file as a ``Path``."""
EXPECTED = "a Path, a Corpus, a Dataset, a table, or a list of examples or dicts"
NAMES_SHOWN = 80
LONGEST_NAME = 1024
"""A text of this many characters or more is not taken for a file name."""


def as_corpus(
    data: CorpusLike, where: str = "train", options: Mapping[str, Any] | None = None, *, spanned: bool = False
) -> Corpus:
    """Return data as a corpus: a path, a ``Dataset``, a table or a dict of columns, examples, or records (dicts).

    *where* names the data in errors; *options* are those of :func:`airrep.read_corpus`, unused for examples.
    With *spanned*, examples may have spans.
    DataError: a record is not valid, a file cannot be read, or an example has a span without *spanned*.
    ConfigError: the data are of another type.
    """
    found = _as_corpus(data, where, options or {})
    if have_spans(found) and not spanned:
        first = next(one for one in found if one.span is not None)
        raise DataError(f"{where}: example '{first.id}' has a span, but only queries may have spans. Remove the span.")
    return found


def _as_corpus(data: CorpusLike, where: str, options: Mapping[str, Any]) -> Corpus:
    if isinstance(data, Corpus):
        return data
    if isinstance(data, str | PathLike):
        return read_corpus(data, **options)
    items = [data] if isinstance(data, Example) else _items(data, where)
    if items and all(isinstance(item, Example) for item in items):
        return Corpus.from_examples(items)
    records: list[Any] = [_record(item, where) for item in items]
    for record, item in zip(records, items, strict=True):
        if isinstance(item, Example) and given_id(item) is None and isinstance(record, dict):
            del record["id"]  # the id is a hash of the texts; the corpus makes it again and numbers repeated texts
    return Corpus.from_records(records, **options)


def as_records(data: CorpusLike) -> Sequence[Mapping[str, Any] | DataError]:
    """Return the records of data in memory; a DataError stands in place of a record that could not be read."""
    return [_record(item, "data") for item in _items(data, "data")]


def as_examples(
    queries: QueriesLike, where: str = "queries", options: Mapping[str, Any] | None = None
) -> Corpus | tuple[Example, ...]:
    """Return queries as examples, each as a corpus would hold it; ids may repeat. *options* as in :func:`as_corpus`.

    The field ``span`` of a record becomes the span of its example. Only answers count, also where a trainer learns all.

    ConfigError: there are no queries, they have another type, or a text names a file. DataError: a record is not valid.
    """
    found: Corpus | tuple[Example, ...]
    if isinstance(queries, Example):
        found = (queries,)
    elif isinstance(queries, str):
        found = (_text(queries, where),)
    elif isinstance(queries, Corpus | PathLike | Mapping):
        found = with_spans(as_corpus(queries, where, options, spanned=True))
    else:
        items = _items(queries, where)
        if all(isinstance(item, str | Example) for item in items):
            found = tuple(_text(item, where) if isinstance(item, str) else item for item in items)
        else:
            found = with_spans(as_corpus(items, where, options, spanned=True))
    if len(found) == 0:
        raise ConfigError(f"{where}: is empty. Pass at least one example.")
    if isinstance(found, Corpus):
        return of_answers(found)
    checked = []
    for number, example in enumerate(found):
        try:
            checked.append(plain_example(asked(example) if example.chat else example))
            if not f"{example.prompt}{example.response}".strip():
                raise DataError("prompt and response are blank. Give the text of an answer.")
        except DataError as error:
            raise DataError(f"{where if is_one(queries) else f'{where}[{number}]'}: {error}") from None
    return tuple(checked)


def given_or_typed(queries: QueriesLike | None, prompt: str | None, response: str | None) -> QueriesLike:
    """Return *queries*, or the query with *prompt* and *response*. ConfigError: both, neither, or a blank response."""
    if queries is not None and (prompt is not None or response is not None):
        raise ConfigError(
            "queries: cannot be combined with prompt or response. Pass queries, or prompt and response, but not both."
        )
    if queries is None and response is None:
        raise ConfigError("queries: nothing was given. Pass queries, or prompt and response.")
    if response is None:
        return queries
    if not response.strip():
        raise ConfigError("queries: the response is blank. Pass the text that the model gave.")
    return replace(_text(response, "queries"), prompt=prompt or "", id="query")


def is_one(queries: QueriesLike) -> bool:
    """Return True for a single query; False for a list, even of one query."""
    return isinstance(queries, str | Example) or (isinstance(queries, Mapping) and not _are_columns(queries))


def _text(text: str, where: str) -> Example:
    """Return a text as the response to an empty prompt, as records with only a text are read."""
    if is_place(text):
        raise ConfigError(
            f"{where}: '{text}' is the name of a file or folder, but a plain string is read as a response. Pass "
            f"pathlib.Path({text!r}) to read the file, or airrep.Example('', {text!r}) if the response is this text."
        )
    return Example(prompt="", response=text)


def is_place(text: str) -> bool:
    """Return True if a text is probably the path of a file or folder, and not a response."""
    if len(text) >= LONGEST_NAME or "\n" in text:
        return False
    place = Path(text)
    try:
        there = place.is_file() or ("/" in text and place.is_dir())
    except (OSError, ValueError):  # a name that is too long or not valid
        return False
    return there or (" " not in text and reader_of(place) is not None)


def _are_columns(data: Mapping[Any, Any]) -> bool:
    """Return True if all values are lists of equal length; lists that hold objects are one record's messages."""
    columns = list(data.values())
    if not columns or not all(isinstance(column, list | tuple | np.ndarray) for column in columns):
        return False
    return len(set(map(len, columns))) == 1 and not any(isinstance(one, Mapping) for part in columns for one in part)


def _items(data: Any, where: str) -> list[Any]:
    """Return the examples or records of a list, dataset, table, dict of columns, or single mapping."""
    if isinstance(data, Mapping):
        parts = [name for name, part in data.items() if hasattr(part, "column_names")]
        if parts:
            raise ConfigError(
                f"{where}: has several splits ({', '.join(map(str, parts))}). Pass one of them, such as "
                f"data[{parts[0]!r}]."
            )
        columns = _are_columns(data)  # the form of ``dataset[:5]``
        return [dict(zip(data, row, strict=True)) for row in zip(*data.values(), strict=True)] if columns else [data]
    if isinstance(data, bytes) or not (isinstance(data, Iterable) or hasattr(data, "__arrow_c_stream__")):
        raise ConfigError(f"{where}: is of type {type(data).__name__}, but must be {EXPECTED}.")
    if hasattr(data, "to_frame") or isinstance(data, pa.Array | pa.ChunkedArray):
        raise ConfigError(
            f"{where}: is a single column or row (type {type(data).__name__}). Pass list(column) for the texts of "
            f"queries, row.to_dict() for one record, or {EXPECTED}."
        )
    if hasattr(data, "__arrow_c_stream__") and not isinstance(data, Sequence):
        return _rows(data, where)
    return list(object_rows(data))


def _rows(data: Any, where: str) -> list[Any]:
    """Return the records of a table of pandas, polars, DuckDB or pyarrow."""
    names = getattr(data, "column_names", getattr(data, "columns", ()))
    check_columns([str(name) for name in names], where)
    try:
        table = data if isinstance(data, pa.Table) else pa.table(data)
    except (pa.ArrowException, OverflowError) as error:  # pandas lets a column hold values of several types
        raise DataError(
            f"{where}: a column holds values of several types ({first_line(error)}), but each column must have one "
            "type. Convert the column, or pass data.to_dict('records')."
        ) from None
    index = [name for name in table.column_names if name.startswith("__index_level_")]  # pandas' own row names
    duckdb = type(data).__name__ == "DuckDBPyRelation"
    told = dict(zip(names, map(_feature, data.types), strict=True)) if duckdb else None
    return [row for part in pieces(table.drop_columns(index)) for row in table_rows(part, told)]


def _feature(kind: Any) -> Any:
    """Return a DuckDB type as a feature of ``datasets``, because Arrow sees DuckDB's JSON as plain text."""
    if str(kind) == "JSON":
        return {"_type": "Json"}
    if kind.id == "struct":
        return {name: _feature(part) for name, part in kind.children}
    if kind.id in ("list", "array", "map"):
        return {"_type": "List", "feature": _feature(kind.children[kind.id == "map"][1])}
    return None


def _record(item: Any, where: str) -> Mapping[str, Any] | DataError:
    """Return an item as a record, or the DataError that a table has in place of one; refuse other types."""
    if isinstance(item, DataError):
        return item
    if isinstance(item, Example):
        return item.to_dict()
    if isinstance(item, str):  # probably a list of file names
        shown = item if len(item) <= NAMES_SHOWN else item[:NAMES_SHOWN] + "…"
        raise DataError(f"{where}: holds the text {shown!r}, but must hold dicts. Pass dicts, or the path of one file.")
    if not isinstance(item, Mapping):
        raise ConfigError(f"{where}: holds a value of type {type(item).__name__}. It must be {EXPECTED}.")
    return item

"""The rows that are named: ids, rows, a filter, or a file of them."""

import json
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from airrep.arrays import Rows
from airrep.errors import ConfigError, DataError
from airrep.index.index import Index
from airrep.index.results.result import RESULTS
from airrep.index.rows import RowsLike
from airrep.runtime.artifacts.names import MANIFEST

LEFT_OVER = 2
"""Others that there must be for each named row, so that random rows differ from repeat to repeat."""


def named_rows(index: Index, rows: RowsLike | PathLike[str]) -> Rows:
    """Rows of an index, ascending, each once.

    Args:
        index: the index.
        rows: as :meth:`airrep.index.rows.IndexRows.check_rows` takes them; or the path of a file that names them.

    Raises:
        ConfigError: there are none, one does not exist, or too many are named for others to compare with.
        DataError: a file that cannot be read.
    """
    found = _of_file(index, Path(rows)) if isinstance(rows, PathLike) else index.check_rows(rows)
    if not len(found):
        raise ConfigError("prove: no rows are named; expected one at least. Name some by id, by a filter or in a file.")
    gone = found[~index.live[found]]
    if len(gone):
        raise ConfigError(f"{index.path}: row {gone[0]} was deleted. Leave it out, or add the example again.")
    named = np.unique(found)
    others = len(index) - len(named)
    if others < LEFT_OVER * len(named):
        raise ConfigError(
            f"prove: {len(named):,} of {len(index):,} examples are named, so {others:,} are left; expected "
            f"{LEFT_OVER * len(named):,} or more, since as many random ones are left out to compare with. Name fewer."
        )
    return named


def _of_file(index: Index, path: Path) -> Rows:
    """Rows that a file names: JSON lines with ids or rows, or a result of `top` or `explain` as JSON or as --out."""
    file = path / RESULTS if (path / MANIFEST).is_file() else path
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path}: cannot be read as a list of rows ({type(error).__name__}); expected JSON lines with an id each, "
            "or a result of `airrep top`. Name such a file."
        ) from None
    ids = list(dict.fromkeys(one for value in _values(text, path) for one in _ids_of(*value)))
    if not ids:
        raise ConfigError(f"{path}: names no rows; expected an id in each line, or hits. Name some.")
    return index.rows_of(ids)


def _values(text: str, path: Path) -> Iterator[tuple[Any, str]]:
    """Each JSON value of a file with its place: one of many lines, or one on each line."""
    whole = _json(text)
    if whole is not None:
        yield from ((one, str(path)) for one in (whole if isinstance(whole, list) else [whole]))
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield _json(line), f"{path}, line {number}"


def _json(text: str) -> Any:
    """A JSON value; None for another text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _ids_of(value: Any, where: str) -> Iterator[str]:
    """The id that a value is, or that of a record; those of all hits of a result. What a page keeps is not named."""
    if isinstance(value, str):
        yield value
        return
    if not isinstance(value, Mapping):
        raise DataError(f"{where}: is no JSON object; expected one with an id. Correct it.")
    if "id" in value:
        if not isinstance(value["id"], str):
            raise DataError(f"{where}: its id is {value['id']!r}; expected text. Correct it.")
        if value.get("decision") != "keep":
            yield value["id"]
        return
    found = list(_examples_in(value))
    if not found:
        raise DataError(
            f"{where}: has no id and no hits; expected one of both. Give what `airrep top --json`, `airrep select` or "
            "the page wrote."
        )
    yield from found


def _examples_in(value: Any) -> Iterator[str]:
    """Ids of the training examples anywhere in a result: they stand under ``example``."""
    if isinstance(value, Mapping):
        example = value.get("example")
        if isinstance(example, Mapping) and isinstance(example.get("id"), str):
            yield example["id"]
        for part in value.values():
            yield from _examples_in(part)
    elif isinstance(value, list):
        for part in value:
            yield from _examples_in(part)

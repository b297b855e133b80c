"""Fields of a corpus table, each compared with literals row by row.

A field is a column of texts (id, prompt, response, label, source) or a key of the metadata; ``meta.lang`` is the part
``lang`` of the object ``meta``, unless there is a key ``meta.lang``. A field may instead have a path of keys, in which
dots have no meaning. A row that lacks the field has the value None, which equals nothing but None.
"""

import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from airrep.arrays import Mask, Rows, compute
from airrep.errors import ConfigError, check_unicode, near

Scalar: TypeAlias = str | int | float | bool | None
"""A literal that a field may be compared with."""

TEXT_FIELDS = ("id", "prompt", "response", "label", "source")
"""Fields that are columns of a corpus table; any other name is a key of the metadata."""

TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}
"""Comparisons by their names in pyarrow, beside "equal"."""

EXACT = 2.0**53
"""Floats below it hold every whole number."""
_KEYS_LISTED = 20
_NO_PART = '{}: there is no field "{}" in any example. Check the name.'
_NO_TEXT = "{}: no example has a {}. Compare another field{}."
_MISSING = object()
_encode = json.JSONEncoder(ensure_ascii=False).encode


@dataclass(frozen=True, slots=True)
class Field:
    """A field: its name, whether it is in the metadata, and where the expression names it (for error messages)."""

    name: str
    nested: bool
    where: str
    path: tuple[str, ...] = ()
    """Keys from the outermost object inwards, in which dots have no meaning; if empty, ``name`` is split at dots."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Top-level keys of the metadata that may be the field or hold it."""
        return self.path[:1] or tuple(keys_of(self.name))

    def of(self, record: Mapping[str, Any]) -> Any:
        """Return the field's value in a metadata object; None if it is missing."""
        if not self.path:
            return part_of(record, self.name)
        value: Any = record
        for key in self.path:
            value = value.get(key) if isinstance(value, Mapping) else None
        return value


Column: TypeAlias = Callable[[str, Any], Mask]
"""Function of a test and a literal that returns the mask of rows whose value passes: "equal", one of :data:`TESTS`,
"in" (several literals) or "contains" (a part of a text or list). ConfigError: text is compared with another type."""


class Comparisons:
    """Types of metadata fields, and of the literals compared with them, in all parts of a table.

    A value never equals a literal of another type. A literal of a type that no value of its field has is an error.
    """

    def __init__(self) -> None:
        self.held: dict[Field, set[str]] = {}
        self.asked: dict[tuple[Field, frozenset[str]], Scalar] = {}
        self.known: set[Field] = set()
        """Fields that are keys in parts of the corpus outside these tables."""
        self.texts: dict[Field, bool] = {}
        """Columns of texts that are compared with a text: True if a row has one."""
        self.keys: set[str] = set()
        """Keys of the metadata, to be named where a column of texts is empty."""

    def check(self) -> None:
        """Raise ConfigError for a field that no row has, or a literal whose type its field never has."""
        for field, some in self.texts.items():
            if not some:
                listed = f", such as {', '.join(sorted(self.keys)[:_KEYS_LISTED])}" if self.keys else ""
                raise ConfigError(_NO_TEXT.format(field.where, field.name, listed))
        for field, held in self.held.items():
            may_be_part = len(field.path) > 1 if field.path else "." in field.name
            if may_be_part and not held and field not in self.known:
                raise ConfigError(_NO_PART.format(field.where, field.name))
        for (field, kinds), literal in self.asked.items():
            held = self.held.get(field, set())
            if held and not held & kinds:
                raise ConfigError(
                    f"{field.where}: {field.name} holds {', '.join(sorted(held))} and is compared with {literal!r}. "
                    "Compare it with a value of the same type."
                )


def read_fields(
    table: pa.Table, fields: Iterable[Field], known: Iterable[str], compared: Comparisons
) -> Mapping[Field, Column]:
    """Return each field's :data:`Column`; ConfigError for one that is in no row and not in *known* (metadata keys)."""
    wanted, known = list(fields), frozenset(known)
    compared.known.update(one for one in wanted if len(one.path) < 2 and (one.path or (one.name,))[0] in known)
    compared.keys.update(known)
    columns = {field: _text_column(table[field.name], field, compared) for field in wanted if not field.nested}
    nested = [field for field in wanted if field.nested]
    if nested:
        records, codes = _distinct(table["metadata"])
        _check_known(records, nested, known, len(codes))
        for field in nested:
            columns[field] = _json_column([field.of(record) for record in records], codes, field, compared)
    return columns


def field_values(
    tables: Iterable[pa.Table], name: str, known: Iterable[str] = (), *, quoted: bool = False, where: str = "field"
) -> list[str | None]:
    """Return one field of every row of some tables as text; see :meth:`airrep.corpus.corpus.Corpus.values`.

    With *quoted*, a text that looks like another value of the field (text "1" beside the number 1) is in quotes.
    Error messages begin with *where*.
    """
    if name in TEXT_FIELDS:
        return [text for table in tables for text in table[name].to_pylist()]
    parts: list[tuple[list[Any], Rows]] = []
    known = frozenset(known)
    for table in tables:
        records, codes = _distinct(table["metadata"])
        _check_known(records, [Field(name, True, where)], known, len(codes))
        parts.append(([part_of(record, name) for record in records], codes))
    distinct = [value for values, codes in parts if len(codes) for value in values]
    if "." in name and name not in known and distinct and all(value is None for value in distinct):
        raise ConfigError(_NO_PART.format(where, name))
    show = shown_apart(distinct) if quoted else shown_value
    found: list[str | None] = []
    for values, codes in parts:
        shown = [show(value) for value in values]
        found.extend(shown[code] for code in codes.tolist())
    return found


def shown_apart(values: Sequence[Any]) -> Callable[[Any], str | None]:
    """Show a field's values as :func:`shown_value` does, but quote a text that looks like another value."""
    alike = {shown_value(value) for value in values if not isinstance(value, str)}
    for text in sorted({value for value in values if isinstance(value, str)}, key=len):
        if text in alike:
            alike.add(_encode(text))  # the quoted form is longer, so a text equal to it comes later in this loop
    return lambda value: _encode(value) if isinstance(value, str) and value in alike else shown_value(value)


def part_of(record: Mapping[str, Any], name: str, missing: Any = None) -> Any:
    """Return the value of a key or of a part of nested objects: "meta.lang" of ``{"meta": {"lang": "en"}}`` is "en".

    The longest key that the name begins with wins, if its object has the rest of the name.
    """
    for key in keys_of(name):
        if key not in record:
            continue
        inner = record[key]
        if key == name:
            return inner
        if isinstance(inner, Mapping):
            found = part_of(inner, name[len(key) + 1 :], _MISSING)
            if found is not _MISSING:
                return found
    return missing


def keys_of(name: str) -> Iterator[str]:
    """Yield a name and its beginnings up to each dot, longest first: "a.b.c", "a.b", "a"."""
    yield name
    while "." in name:
        name = name.rpartition(".")[0]
        yield name


def distinct_values(table: pa.Table, names: Sequence[str]) -> Iterator[tuple[list[Any], Rows]]:
    """Yield for each metadata field a list of JSON values and, ``(rows,)``, the index of each row's value in it."""
    records, codes = _distinct(table["metadata"])
    for name in names:
        yield [part_of(record, name) for record in records], codes


def with_parts(table: pa.Table, names: Iterable[str]) -> list[str]:
    """Return the names of metadata fields, each object replaced by the names of its parts, such as "meta.lang"."""
    records, _ = _distinct(table["metadata"])
    found: dict[str, None] = {}
    for name in names:
        values = [record[name] for record in records if name in record]
        found |= dict.fromkeys(inner for value in values for inner in _leaves(name, value)) or {name: None}
    return list(found)


def _leaves(name: str, value: Any) -> Iterator[str]:
    """Yield the dotted names of all values in an object; for any other value, *name*."""
    if not isinstance(value, Mapping):
        yield name
        return
    for key, inner in value.items():
        yield from _leaves(f"{name}.{key}", inner)


def shown_value(value: Any) -> str | None:
    """Return a metadata value as text: text unchanged, None as None, other values as JSON; 1.0 equals 1, and is "1"."""
    value = int(value) if isinstance(value, float) and value.is_integer() and abs(value) < EXACT else value
    return value if value is None or isinstance(value, str) else _encode(value)


def value_kinds(values: Iterable[Any]) -> set[str]:
    """Return the types of JSON values in words, without that of null."""
    return {_kind(value) for value in values} - {"nothing"}


def _distinct(metadata: Any) -> tuple[list[dict[str, Any]], Rows]:
    """Return the distinct metadata objects, and the index of each row's object."""
    # Rows of one source often have equal metadata: each text is parsed once.
    chunks = metadata.dictionary_encode(null_encoding="encode").chunks
    texts: list[str | None] = chunks[0].dictionary.to_pylist() if chunks else []
    codes = [np.from_dlpack(chunk.indices) for chunk in chunks]  # to_numpy would import pandas
    rows = np.concatenate(codes) if codes else np.empty(0)
    return [{} if text is None else json.loads(text) for text in texts], rows.astype(np.int64)


def _check_known(records: list[dict[str, Any]], fields: list[Field], known: Iterable[str], rows: int) -> None:
    """Raise ConfigError for a field that is neither in a record nor *known*; accept all fields if there are no rows."""
    found = sorted({key for record in records for key in record}.union(known))
    for field in fields:
        if rows and not set(found).intersection(field.keys):
            more = f" and {len(found) - _KEYS_LISTED} more" if len(found) > _KEYS_LISTED else ""
            listed = ", ".join([*TEXT_FIELDS, *found[:_KEYS_LISTED]]) + more
            meant = near(field.name, [*TEXT_FIELDS, *found], "")
            wrong = f'{field.where}: there is no field "{field.name}". The fields are {listed}.'
            raise ConfigError(f"{wrong} {meant}" if meant else wrong)


def _text_column(column: Any, field: Field, compared: Comparisons) -> Column:
    """Return the :data:`Column` of a column of texts, which compare by code point; null is None."""

    def text(literal: Scalar) -> str:
        if not isinstance(literal, str):
            raise ConfigError(
                f"{field.where}: {field.name} holds text and is compared with {literal!r}; text is expected. Write "
                f'"{literal}".'
            )
        check_unicode(f"{field.where}: the text", literal)
        if len(column):
            compared.texts[field] = column.null_count < len(column) or compared.texts.get(field, False)
        return literal

    def ask(test: str, literal: Any) -> Mask:
        if test == "in":
            texts = [None if one is None else text(one) for one in literal]
            found = compute.is_in(column, pa.array(texts, pa.large_string()))
        elif test == "contains":
            found = compute.match_substring(column, text(literal))
        elif literal is None:  # filters compare None by equality alone
            found = column.is_null()
        else:
            found = getattr(compute, test)(column, text(literal))
        return np.asarray(compute.fill_null(found, False).to_numpy(), bool)

    return ask


def _json_column(values: list[Any], codes: Rows, field: Field, compared: Comparisons) -> Column:
    """Return the :data:`Column` of a metadata field: row i has ``values[codes[i]]``; other types are unequal."""
    if len(codes):
        compared.held.setdefault(field, set()).update(value_kinds(values))

    def ask(test: str, literal: Any) -> Mask:
        literals = [(_kind(one), one) for one in (literal if test == "in" else [literal])]
        wanted = set(literals)
        for kind, one in literals:
            kinds = ("text", "lists") if test == "contains" else (kind,)
            if test == "contains" or one is not None:
                compared.asked.setdefault((field, frozenset(kinds)), one)

        def equals(value: Any) -> bool:
            return not isinstance(value, list | dict) and (_kind(value), value) in wanted

        def holds(value: Any) -> bool:
            if test in ("in", "equal"):
                return equals(value)
            if test != "contains":
                return _kind(value) == _kind(literal) and TESTS[test](value, literal)
            if isinstance(value, str):
                return isinstance(literal, str) and literal in value
            return isinstance(value, list) and any(map(equals, value))

        return np.fromiter(map(holds, values), bool, len(values))[codes]

    return ask


def _kind(value: object) -> str:
    if value is None:
        return "nothing"
    kinds: tuple[tuple[Any, str], ...] = (
        (str, "text"),
        (bool, "true or false"),  # before numbers, as Python's True is an int
        ((int, float), "numbers"),
        (list, "lists"),
    )
    return next((words for kind, words in kinds if isinstance(value, kind)), "objects")

"""Checks of single values of a record: texts, names, encodings, what a value is."""

import datetime
from collections.abc import Mapping
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np

from airrep.errors import DataError


def text(field: str, value: object) -> str:
    """Return ``value`` if it is text that is not blank and that UTF-8 can hold."""
    found = text_or_blank(field, value)
    if not found or found.isspace():
        raise DataError(f"{field} is blank; text is expected. Remove the record or fill it in")
    return found


def text_or_blank(field: str, value: object) -> str:
    """Return ``value`` if it is text that UTF-8 can hold."""
    if not isinstance(value, str):
        raise DataError(f"{field} is {describe(value)}; text is expected")
    return _storable(field, value)


def name(field: str, value: object) -> str:
    """Return text or a whole number as text."""
    if isinstance(value, str):
        return _storable(field, value)
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, float | np.floating) and float(value).is_integer():  # pandas makes 1.0 of 1 beside a gap
        return str(int(value))
    raise DataError(f"{field} is {describe(value)}; text or an integer is expected")


def label(value: object) -> str:
    """Return a label as text; true and false are labels too, as trl's unpaired preferences have them."""
    return str(value).lower() if isinstance(value, bool | np.bool_) else name("label", value)


def _storable(field: str, value: str) -> str:
    """Return text without NUL that UTF-8 can hold."""
    if value.isascii() and "\0" not in value:  # most texts: nothing to encode
        return value
    if "\0" in value:
        raise DataError(f"{field} holds a NUL character; plain text is expected. Remove the character")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        code = f"\\u{ord(value[error.start]):04x}"
        raise DataError(
            f"{field} holds a lone surrogate or a byte that is not UTF-8 ({code} at character "
            f"{error.start + 1}); valid Unicode is expected. {remedy_of_text(value) or 'Remove it'}"
        ) from None
    return value


def describe(value: object) -> str:
    """Return what a value is, in words for an error message."""
    kinds: tuple[tuple[Any, str], ...] = (
        (type(None), "null"),
        (bool, "true or false"),
        ((int, float, np.number), "a number"),
        (str, "text"),
        ((bytes, bytearray), "bytes"),
        ((list, tuple, np.ndarray), "a list"),
        (Mapping, "an object"),
    )
    return next((words for kind, words in kinds if isinstance(value, kind)), f"a {type(value).__name__}")


def is_missing(value: object) -> bool:
    """True if a value is NaN, NaT or pandas' NA, which stand for an empty cell."""
    if isinstance(value, float | np.floating | np.datetime64 | np.timedelta64 | Decimal):
        return bool(value != value)
    return is_of_pandas(value, "NaTType", "NAType")


def is_of_pandas(value: object, *types: str) -> bool:
    """True if a value has one of these types of pandas; does not load pandas."""
    kind = type(value)
    return kind.__name__ in types and kind.__module__.partition(".")[0] == "pandas"


def plain(value: object) -> object:
    """A date, a Decimal, a UUID, a value of NumPy or of pandas as one that JSON has.

    TypeError: it is something else, which the error says in words.
    """
    if is_missing(value):  # pandas' NaT is a date by its type
        return None
    if isinstance(value, UUID) or is_of_pandas(value, "Period"):
        return str(value)
    if isinstance(value, Decimal):
        return f"{value:f}"  # all its digits: str gives 0E-8
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(describe(value))


_STARTS = ((b"\xff\xfe\0\0", "UTF-32"), (b"\0\0\xfe\xff", "UTF-32"), (b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16"))
"""Byte order marks; that of UTF-32 begins with one of UTF-16."""
_TYPOGRAPHIC = frozenset("‘’‚“”„–—…•·€£¥¢©®™°«»‹›¡¿§¶´ª\xba²³¹¼½¾×÷±\xa0")
_WESTERN = 4
"""No more than one letter in so many has an accent in Western texts, single words aside; Cyrillic has none without."""


def wide_encoding(start: bytes) -> str | None:
    """UTF-16 or UTF-32 by a file's first four bytes; None for what may be UTF-8."""
    marked = next((name for mark, name in _STARTS if start.startswith(mark)), None)
    if marked is not None or len(start) < 4:
        return marked
    zeros = [byte == 0 for byte in start]  # of ASCII each character has a byte that is 0
    if zeros == [False, True, False, True]:
        return "UTF-16LE"
    return "UTF-16BE" if zeros == [True, False, True, False] else None


def conversion(encoding: str) -> str:
    """Remedy for a file in another encoding."""
    return f"Convert it: iconv -f {encoding} -t UTF-8 FILE > NEW"


def remedy(raw: bytes) -> str:
    """Remedy for a file whose bytes are not all UTF-8; empty if the encoding cannot be told."""
    try:
        text = raw.decode("cp1252")
    except UnicodeDecodeError:  # five bytes stand for nothing
        return ""
    beyond = [character for character in text if not character.isascii()]
    accented = sum(character.isalpha() for character in beyond)
    if any(not (character.isalpha() or character in _TYPOGRAPHIC) for character in beyond):
        return ""
    if accented > max(3, sum(map(str.isalpha, text)) // _WESTERN):
        return ""
    return f"The file is perhaps Windows-1252. {conversion('WINDOWS-1252')}"


def remedy_of_text(text: str) -> str:
    """As :func:`remedy`, of text that has surrogates for the bytes that are not UTF-8."""
    try:
        return remedy(text.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:  # other surrogates stand for no byte
        return ""

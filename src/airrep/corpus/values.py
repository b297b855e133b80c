"""Values a corpus can hold: texts, names, metadata.

Each function returns the value as it is stored, or raises DataError with what is wrong and what is expected;
the caller puts the place before it.
"""

import datetime
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from airrep.errors import DataError


def content_hash(prompt: str, response: str) -> str:
    """Return the first 16 hex digits of SHA-256 over ``prompt``, one NUL byte and ``response`` in UTF-8."""
    return hashlib.sha256(f"{prompt}\0{response}".encode()).hexdigest()[:16]


def text(field: str, value: object) -> str:
    """Return ``value`` if it is text that is not blank and that UTF-8 can hold."""
    if not isinstance(value, str):
        raise DataError(f"{field} is {describe(value)}; text is expected")
    if not value or value.isspace():
        raise DataError(f"{field} is blank; text is expected. Remove the record or fill it in")
    return value if value.isascii() and "\0" not in value else _storable(field, value)


def name(field: str, value: object) -> str:
    """Return text or an integer as text."""
    if isinstance(value, str):
        return value if value.isascii() and "\0" not in value else _storable(field, value)
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return str(value)
    raise DataError(f"{field} is {describe(value)}; text or an integer is expected")


def _storable(field: str, value: str) -> str:
    """Return text without NUL that UTF-8 can hold."""
    if "\0" in value:
        raise DataError(f"{field} holds a NUL character; plain text is expected. Remove the character")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        code = f"\\u{ord(value[error.start]):04x}"
        raise DataError(
            f"{field} holds a lone surrogate or a byte that is not UTF-8 ({code} at character "
            f"{error.start + 1}); valid Unicode is expected. Remove it"
        ) from None
    return value


def describe(value: object) -> str:
    """Return what a value is, in words for an error message."""
    kinds: tuple[tuple[Any, str], ...] = (
        (type(None), "null"),
        (bool, "true or false"),
        ((int, float, np.number), "a number"),
        (str, "text"),
        ((list, tuple, np.ndarray), "a list"),
        (Mapping, "an object"),
    )
    return next((words for kind, words in kinds if isinstance(value, kind)), f"a {type(value).__name__}")


def _plain(value: object) -> object:
    """Turn dates and NumPy values into JSON values."""
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(describe(value))


_encode: Callable[[object], str] = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_plain
).encode


def encode_metadata(metadata: Mapping[str, Any]) -> str | None:
    """Return canonical JSON: keys sorted, no spaces, top-level nulls left out; None if nothing is left."""
    values = {key: value for key, value in metadata.items() if value is not None}
    try:
        encoded = _encode(values)
        encoded.encode()
    except (TypeError, ValueError, RecursionError):
        raise DataError(_not_json(values)) from None
    return encoded if values else None


def _not_json(values: Mapping[Any, Any]) -> str:
    """Name the first column that is not JSON, and why."""
    for key, value in values.items():
        if not isinstance(key, str):
            return f"the field name {key!r} is {describe(key)}; text is expected"
        try:
            _encode({key: value}).encode()
        except UnicodeEncodeError:
            return f'field "{key}" holds a lone surrogate; valid Unicode is expected. Remove it'
        except (TypeError, ValueError, RecursionError) as error:
            return f'field "{key}" is no JSON value ({error}); JSON values are expected. Drop it or write text'
    return "the metadata is no JSON object; text as field names is expected"


def encode_metadata_text(encoded: str) -> str | None:
    """Return the canonical form of metadata that is JSON text already."""
    try:
        values = json.loads(encoded)
    except ValueError as error:
        raise DataError(f"metadata is not JSON ({error}); a JSON object is expected") from None
    if not isinstance(values, dict):
        raise DataError(f"metadata is {describe(values)}; a JSON object is expected")
    return encode_metadata(values)

"""From a raw record to the checked fields of an example."""

import datetime
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from airrep.errors import DataError

PAIRS = (("prompt", "response"), ("instruction", "output"), ("inputs", "targets"), ("question", "answer"))
"""Accepted names of prompt and response, in order of precedence; chat ``messages`` come last."""
RESERVED = ("id", "prompt", "response", "label", "source", "metadata")
"""Names that written records keep for themselves; metadata of the same name is written under ``metadata``."""
_ACCEPTED = ", ".join("/".join(pair) for pair in PAIRS) + " or messages"


class RecordSource(NamedTuple):
    """Raw records, each with the number of its line, row or record, from 1 on.

    A DataError in the place of a record is a record that could not be read.
    """

    name: str
    unit: Literal["line", "row", "record", "example"]
    records: Iterator[tuple[int, object]]

    def place(self, number: int) -> str:
        """Return where a record stands, for an error message."""
        return f"{self.name}:{number}" if self.unit == "line" else f"{self.name}: {self.unit} {number}"


class Fields(NamedTuple):
    """Fields of one record that a corpus keeps; ``metadata`` is canonical JSON text, or None if there is none."""

    prompt: str
    response: str
    id: str | None
    label: str | None
    source: str | None
    metadata: str | None


@dataclass(frozen=True, slots=True)
class Schema:
    """Names of a record's fields; None means the accepted names."""

    prompt_field: str | None = None
    response_field: str | None = None
    id_field: str | None = None
    label_field: str | None = None
    source_field: str | None = None

    def parse(self, record: object) -> Fields:
        """Return the fields of one record; a DataError does not name the record's place."""
        if not isinstance(record, dict | Mapping):
            raise DataError(f"the record is {_describe(record)}; an object with named fields is expected")
        rest = dict(record)
        prompt, response = self._texts(rest)
        key = rest.pop(self.id_field or "id", None)
        if key is None and self.id_field is not None:  # who names the field wants no ids made from texts
            raise DataError(f'the id field "{self.id_field}" is empty, null or missing; found {_names(record)}')
        label = rest.pop(self.label_field or "label", None)
        source = rest.pop(self.source_field or "source", None)
        return checked(prompt, response, key, label, source, _merged(rest) if "metadata" in rest else rest)

    def _texts(self, rest: dict[str, Any]) -> tuple[object, object]:
        """Take prompt and response out of ``rest``."""
        if self.prompt_field is not None or self.response_field is not None:
            return self._named_texts(rest)
        for prompt_key, response_key in PAIRS:
            if rest.get(prompt_key) is not None and rest.get(response_key) is not None:
                prompt, response = rest.pop(prompt_key), rest.pop(response_key)
                return (_with_input(prompt, rest) if prompt_key == "instruction" else prompt), response
        if rest.get("messages") is not None:
            return _split_messages(rest.pop("messages"))
        raise DataError(_nothing_found(rest))

    def _named_texts(self, rest: dict[str, Any]) -> tuple[object, object]:
        """Take prompt and response out of ``rest`` where the caller named one of them or both."""
        found = dict(rest)  # for the error: the prompt is out of ``rest`` when the response is looked for
        prompts = [prompt for prompt, _ in PAIRS] if self.prompt_field is None else [self.prompt_field]
        responses = [response for _, response in PAIRS] if self.response_field is None else [self.response_field]
        return _pop_first(rest, prompts, found, "prompt"), _pop_first(rest, responses, found, "response")


def _pop_first(rest: dict[str, Any], keys: list[str], found: Mapping[str, Any], what: str) -> object:
    """Take the first of ``keys`` that is there out of ``rest``."""
    for key in keys:
        if rest.get(key) is not None:
            return rest.pop(key)
    state = "empty or null" if any(key in found for key in keys) else "missing"
    wanted = " or ".join(f'"{key}"' for key in keys)
    raise DataError(f"the {what} field {wanted} is {state}; found {_names(found)}. Name the field of the {what}")


def _with_input(instruction: object, rest: dict[str, Any]) -> object:
    """Join an instruction and its input by a blank line, as Alpaca does."""
    extra = rest.pop("input", None)
    if extra is None:
        return instruction
    if not isinstance(extra, str):
        raise DataError(f"input is {_describe(extra)}; text is expected")
    if not extra or extra.isspace() or not isinstance(instruction, str):
        return instruction
    return f"{instruction}\n\n{extra}"


def _nothing_found(record: Mapping[str, Any]) -> str:
    """Say why no prompt and response were found in a record."""
    empty = [key for pair in (*PAIRS, ("messages",)) for key in pair if record.get(key, "") is None]
    if empty:
        return f"{empty[0]} is empty or null; text is expected. Remove the record or fill it in"
    ways = "Rename the fields, or name them with prompt_field and response_field"
    return f"no prompt and response; found {_names(record)}; expected {_ACCEPTED}. {ways}"


def _names(record: Mapping[str, Any]) -> str:
    """List a record's field names, at most twelve."""
    names = [str(key) for key in record]
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return (", ".join(names[:12]) or "no fields") + more


def _split_messages(messages: object) -> tuple[str, str]:
    """Return all before the last message (several as lines ``Role: content``), and that one, the assistant's."""
    if not isinstance(messages, list | tuple | np.ndarray):
        raise DataError(f"messages is {_describe(messages)}; a list of objects with role and content is expected")
    turns = [_turn(number, message) for number, message in enumerate(messages, 1)]
    if not turns:
        raise DataError("messages is an empty list; objects with role and content are expected")
    role, response = turns.pop()
    if role.lower() != "assistant":
        raise DataError(f"the last message is by {role!r}; a conversation that ends with the assistant is expected")
    if not turns:
        raise DataError("messages holds only a response; at least one message before it is expected")
    if len(turns) == 1 and turns[0][0].lower() == "user":
        return turns[0][1], response
    return "\n".join(f"{role.capitalize()}: {content}" for role, content in turns), response


def _turn(number: int, message: object) -> tuple[str, str]:
    """Return role and content of one message."""
    if not isinstance(message, Mapping):
        raise DataError(f"message {number} is {_describe(message)}; an object with role and content is expected")
    role = text(f"the role of message {number}", message.get("role"))
    return role, text(f"the content of message {number}", message.get("content"))


def _merged(rest: dict[str, Any]) -> dict[str, Any]:
    """Return a record's other columns with the keys of an object under ``metadata`` among them."""
    inner = rest["metadata"]
    if not isinstance(inner, Mapping):  # a column that happens to have this name
        return rest
    others = {key: value for key, value in rest.items() if key != "metadata"}
    twice = [str(key) for key in inner if key in others]
    if twice:
        raise DataError(f'"{twice[0]}" stands both in the record and in its metadata; one is expected. Rename one')
    return {**others, **inner}


def checked(
    prompt: object, response: object, key: object, label: object, source: object, metadata: Mapping[str, Any]
) -> Fields:
    """Return valid fields; DataError names the first that is not."""
    return Fields(
        text("prompt", prompt),
        text("response", response),
        None if key is None else text("id", name("id", key)),
        None if label is None else name("label", label),
        None if source is None else name("source", source),
        encode_metadata(metadata) if metadata else None,
    )


def text(field: str, value: object) -> str:
    """Return ``value`` if it is text that is not blank and that UTF-8 can hold."""
    if not isinstance(value, str):
        raise DataError(f"{field} is {_describe(value)}; text is expected")
    if not value or value.isspace():
        raise DataError(f"{field} is blank; text is expected. Remove the record or fill it in")
    return _storable(field, value)


def name(field: str, value: object) -> str:
    """Return text or an integer as text."""
    if isinstance(value, str):
        return _storable(field, value)
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return str(value)
    raise DataError(f"{field} is {_describe(value)}; text or an integer is expected")


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
            f"{error.start + 1}); valid Unicode is expected. Remove it"
        ) from None
    return value


def _describe(value: object) -> str:
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


def content_hash(prompt: str, response: str) -> str:
    """Return the first 16 hex digits of SHA-256 over ``prompt``, one NUL byte and ``response`` in UTF-8."""
    return hashlib.sha256(f"{prompt}\0{response}".encode()).hexdigest()[:16]


def _plain(value: object) -> object:
    """Turn dates and NumPy values into JSON values."""
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(_describe(value))


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
            return f"the field name {key!r} is {_describe(key)}; text is expected"
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
        raise DataError(f"metadata is {_describe(values)}; a JSON object is expected")
    return encode_metadata(values)

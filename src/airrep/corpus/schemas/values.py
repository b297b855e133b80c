"""Checks single values of a record: texts, names, encodings, roles, training marks."""

import datetime
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np

from airrep.errors import DataError


def text(field: str, value: object) -> str:
    """Return ``value`` if it is text that is not blank and can be stored as UTF-8; otherwise raise DataError."""
    found = text_or_blank(field, value)
    if not found or found.isspace():
        raise DataError(f"{field} is blank; text is expected. Fill in the field, or remove the record.")
    return found


def text_or_blank(field: str, value: object) -> str:
    """Return ``value`` if it is text that can be stored as UTF-8; otherwise raise DataError."""
    if not isinstance(value, str):
        raise DataError(f"{field} is {describe(value)}; text is expected.")
    return _storable(field, value)


def name(field: str, value: object) -> str:
    """Return a text, or a whole number as text; DataError for other values."""
    if isinstance(value, str):
        return _storable(field, value)
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, float | np.floating) and float(value).is_integer():  # pandas turns 1 beside an NA into 1.0
        return str(int(value))
    raise DataError(f"{field} is {describe(value)}; text or an integer is expected.")


def label(value: object) -> str:
    """Return a label as text, also true and false, which trl's unpaired preferences use as labels."""
    return str(value).lower() if isinstance(value, bool | np.bool_) else name("label", value)


def _storable(field: str, value: str) -> str:
    """Return a text; DataError if it holds NUL or cannot be encoded as UTF-8."""
    if value.isascii() and "\0" not in value:  # most texts: nothing to encode
        return value
    if "\0" in value:
        raise DataError(f"{field} holds a NUL character; plain text is expected. Remove the character.")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        code = f"\\u{ord(value[error.start]):04x}"
        raise DataError(
            f"{field} holds a lone surrogate or a byte that is not UTF-8 ({code} at character "
            f"{error.start + 1}); valid Unicode is expected. {remedy_of_text(value) or 'Remove it.'}"
        ) from None
    return value


def describe(value: object) -> str:
    """Return the kind of a value in words, for an error message."""
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
    """Return True if a value is NaN, NaT or pandas' NA, which stand for an empty cell."""
    if isinstance(value, float | np.floating | np.datetime64 | np.timedelta64 | Decimal):
        return bool(value != value)
    return is_of_pandas(value, "NaTType", "NAType")


def is_of_pandas(value: object, *types: str) -> bool:
    """Return True if a value has one of these pandas types; does not import pandas."""
    kind = type(value)
    return kind.__name__ in types and kind.__module__.partition(".")[0] == "pandas"


def plain(value: object) -> object:
    """Convert a date, Decimal, UUID, NumPy or pandas value to a JSON value; TypeError for other types."""
    if is_missing(value):  # pandas' NaT is a date by its type
        return None
    if isinstance(value, UUID) or is_of_pandas(value, "Period"):
        return str(value)
    if isinstance(value, Decimal):
        return f"{value:f}"  # all digits, where str may give 0E-8
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(describe(value))


ROLES = {
    "system": ("developer",),
    "user": ("human", "prompter"),
    "assistant": (
        *("gpt", "chatgpt", "bot", "ai", "model", "bing", "bard", "claude", "gemini", "llm", "chatbot", "chip2"),
        *("function_call", "tool_call", "tool_calls"),
    ),
    "tool": ("function", "observation", "ipython", "tool_response", "tool_result", "tool_results", "function_response"),
}
"""Each role with its other names in ShareGPT, LangChain, OASST, Gemini, Llama, ms-swift and LLaMA-Factory."""
_KNOWN = {name: role for role, names in ROLES.items() for name in (role, *names)}
WRITTEN = ("system", "developer", "user", "assistant", "tool", "function", "observation", "ipython")
"""Roles that chat templates know, which are passed to them unchanged."""
CALLS = ("function_call", "tool_call", "tool_calls")
"""Roles of messages that hold a tool call as JSON text."""

_COUNTS = (
    *("weight", "loss", "loss_weight", "loss_mask", "loss_scale", "train", "training", "trainable", "is_trainable"),
    *("train_on_turn", "compute_loss"),
)
HIDES = ("masked", "is_masked", "mask", "ignore_loss")
"""Keys whose true value excludes a message from training."""
MARKS = (*_COUNTS, *HIDES)
"""Keys of a message that say whether it is trained on, in OpenAI, ms-swift, LLaMA-Factory, verl, axolotl, Fireworks
and torchtune."""
_MARKS = frozenset(MARKS)
_OF_PARTS = ("train", "weight")
"""Keys with the same meaning in a part of a message, in axolotl."""
_NO = (False, 0)


def role_of(where: str, value: object) -> tuple[str, str]:
    """Return a message's role, and its name for chat templates; "gpt" gives "assistant", for example.

    DataError: the role is unknown. Guessing could train on a message that is not the assistant's.
    """
    given = value if isinstance(value, str) and value in _KNOWN else text(where, value).strip().lower()
    role = _KNOWN.get(given)
    if role is None:
        raise DataError(
            f"{where} is {value!r}, which is not a known role. Use one of {', '.join(ROLES)}; or remove the record."
        )
    return role, given if given in WRITTEN else role


def is_learnt(number: int, message: Mapping[str, Any]) -> bool:
    """Return True unless a mark of the message, such as ``weight`` 0 or ``masked``, excludes it from training."""
    if _MARKS.isdisjoint(message):  # nearly always
        return _some_part_is_learnt(message.get("content"))
    counted = [_truth(number, name, message[name]) for name in _COUNTS if message.get(name) is not None]
    hidden = [_truth(number, name, message[name]) for name in HIDES if message.get(name) is not None]
    return all(counted) and not any(hidden) and _some_part_is_learnt(message.get("content"))


def _some_part_is_learnt(content: object) -> bool:
    """Return True if a message has no parts, or a part that is not excluded from training."""
    if not isinstance(content, list | tuple) or not content:
        return True
    return not all(isinstance(one, Mapping) and any(one.get(name) in _NO for name in _OF_PARTS) for one in content)


def half_heeded(message: Mapping[str, Any], marks: Sequence[str] = MARKS) -> list[str]:
    """Return cautions about a message's marks, among *marks*, that airrep follows only in part."""
    weights = [message[name] for name in _COUNTS if name in marks and message.get(name) is not None]
    parts = message.get("content")
    marked = [part for part in parts if isinstance(part, Mapping)] if isinstance(parts, list | tuple) else []
    of_parts = any(part.get(name) is not None for part in marked for name in _OF_PARTS) or "train_detail" in message
    told = {
        "weights of turns other than 0 and 1 count as 1": any(
            float(one) not in (0, 1) for one in weights if str(one).strip().lower() not in ("true", "false")
        ),
        "turns with only some parts marked count as a whole": of_parts and "train" in marks,
    }
    return [words for words, holds in told.items() if holds]


def _truth(number: int, name: str, value: Any) -> bool:
    written = {"true": True, "false": False, "1": True, "0": False}
    if isinstance(value, str) and value.strip().lower() in written:
        return written[value.strip().lower()]
    try:
        return bool(float(value) != 0)
    except (TypeError, ValueError):
        raise DataError(
            f"{name} of message {number} is {describe(value)}; true, false, a number or null is expected."
        ) from None


_STARTS = ((b"\xff\xfe\0\0", "UTF-32"), (b"\0\0\xfe\xff", "UTF-32"), (b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16"))
"""Byte order marks; UTF-32 comes first because its little-endian mark begins with UTF-16's."""
_TYPOGRAPHIC = frozenset("‘’‚“”„–—…•·€£¥¢©®™°«»‹›¡¿§¶´ª\xba²³¹¼½¾×÷±\xa0")
_WESTERN = 4
"""At most one letter in this many has an accent in Western text; in Cyrillic read as Windows-1252, every letter has."""


def wide_encoding(start: bytes) -> str | None:
    """Detect UTF-16 or UTF-32 from a file's first four bytes; None if the file may be UTF-8."""
    marked = next((name for mark, name in _STARTS if start.startswith(mark)), None)
    if marked is not None or len(start) < 4:
        return marked
    zeros = [byte == 0 for byte in start]  # in UTF-16 each ASCII character has one byte that is 0
    if zeros == [False, True, False, True]:
        return "UTF-16LE"
    return "UTF-16BE" if zeros == [True, False, True, False] else None


def conversion(encoding: str) -> str:
    """Return advice to convert a file in another encoding."""
    return f"Convert it: iconv -f {encoding} -t UTF-8 FILE > NEW"


def remedy(raw: bytes) -> str:
    """Return advice for bytes that are not UTF-8; an empty text if the encoding cannot be guessed."""
    try:
        text = raw.decode("cp1252")
    except UnicodeDecodeError:  # five bytes are undefined in Windows-1252
        return ""
    beyond = [character for character in text if not character.isascii()]
    accented = sum(character.isalpha() for character in beyond)
    if any(not (character.isalpha() or character in _TYPOGRAPHIC) for character in beyond):
        return ""
    if accented > max(3, sum(map(str.isalpha, text)) // _WESTERN):
        return ""
    return f"The file is perhaps Windows-1252. {conversion('WINDOWS-1252')}"


def remedy_of_text(text: str) -> str:
    """Return :func:`remedy` for text in which surrogates stand for bytes that are not UTF-8."""
    try:
        return remedy(text.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:  # other surrogates do not stand for a byte
        return ""

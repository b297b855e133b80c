"""Reads, checks and marks spans of a response; computes tokens' shares in them."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from airrep.corpus.schemas.values import describe
from airrep.errors import ConfigError, DataError, many

Spans: TypeAlias = tuple[tuple[int, int], ...]
"""Ordered stretches of one text that do not overlap, each as (first character, character after the last)."""

FIELD = "span"
"""Field of query records, and key of a corpus's column ``chat``, that holds spans."""
OPEN, CLOSE = "[[", "]]"
"""Marks around a span in a text typed by the user."""
EXPECTED = "pairs of character positions, such as [[11, 14]], counted from 0 in the response, with the end excluded"
_TYPED = re.compile(r"\s*(\d+)\s*:\s*(\d+)\s*")
_MARKS = re.compile(r"\\(\[\[|\]\])|(\[\[)|(\]\])")
_JOINERS = "\u200d\ufe0e\ufe0f"
"""Characters that belong to the character before them: the emoji joiner and variation selectors."""


def plain_spans(value: object) -> Any:
    """Return one or several pairs as a sorted tuple; other values unchanged, for :func:`check_spans` to refuse."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if not isinstance(value, list | tuple):
        return value
    pairs = [value] if len(value) == 2 and all(isinstance(one, int) for one in value) else value
    if not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs):
        return value
    found = tuple(tuple(pair) for pair in pairs)
    return tuple(sorted(found)) if all(type(one) is int for pair in found for one in pair) else value


def check_spans(response: str, spans: object) -> Spans:
    """Return the sorted spans of a response; DataError names the first that is not valid."""
    found = plain_spans(spans)
    if not isinstance(found, tuple) or not found or not all(isinstance(pair, tuple) for pair in found):
        what = "empty" if isinstance(found, list | tuple) and not found else describe(spans)
        raise DataError(f"{FIELD} is {what}, but must be {EXPECTED}. Correct or remove it.")
    length, before = len(response), 0
    for start, stop in found:
        shown = f"{FIELD} {start}:{stop}"
        if not 0 <= start <= stop <= length:
            raise DataError(
                f"{shown} lies outside the response, which has {many(length, 'character')}. Choose START:END with 0 <= "
                f"START < END <= {length}."
            )
        if not response[start:stop].strip():
            raise DataError(f"{shown} covers no text of the response. Choose a longer span.")
        if start < before:
            raise DataError(f"{shown} overlaps the span before it. Merge the two.")
        for place in (start, stop):
            if _parts_a_character(response, place):
                sign = response[max(0, place - 1) : place + 1]
                end = "start" if place == start else "end"
                raise DataError(f"{shown} has its {end} inside the character '{sign}', at {place}. Move the {end}.")
        before = stop
    return found


def _parts_a_character(text: str, place: int) -> bool:
    """Return True if a position is inside a user-visible character: before an accent, selector or joined emoji."""
    if not 0 < place < len(text):
        return False
    sign = text[place]
    joined = sign in _JOINERS or text[place - 1] == _JOINERS[0] or "\U0001f3fb" <= sign <= "\U0001f3ff"
    return joined or unicodedata.category(sign) in ("Mn", "Mc", "Me")


def typed_spans(text: str) -> Spans:
    """Parse the value of --span: ``11:14``, or several separated by commas; ConfigError for anything else."""
    found = [_TYPED.fullmatch(part) for part in text.split(",")]
    if not all(found):
        raise ConfigError(
            f"--span {text}: must be START:END, such as 11:14, or several of them separated by commas. Characters of "
            "--response count from 0, and END is excluded."
        )
    return tuple(sorted((int(one[1]), int(one[2])) for one in found if one is not None))


def span_of_record(value: object) -> object:
    """Parse the field ``span`` of a record: pairs, or text that lists pairs, as in a cell of a table."""
    if isinstance(value, str):
        pairs = re.findall(r"\[\s*(\d+)\s*,\s*(\d+)\s*\]", value) or re.findall(r"(\d+)\s*:\s*(\d+)", value)
        return [[int(start), int(stop)] for start, stop in pairs] or value
    return plain_spans(value)


def take_marks(text: str, where: str) -> tuple[str, Spans]:
    r"""Return a text without its marks ``[[`` and ``]]``, and the spans that they marked; ``\[[`` is two brackets.

    A closing mark counts only after an opening mark, so ``x[i[0]]`` is unchanged.

    Raises:
        ConfigError: a span is not closed, or another span begins inside it.

    Example:
        >>> take_marks("It is [[108]] m long.", "--response")
        ('It is 108 m long.', ((6, 9),))
    """
    parts, spans, begun, done, length = list[str](), list[tuple[int, int]](), None, 0, 0
    for found in _MARKS.finditer(text):
        if found[3] and begun is None:
            continue
        if found[2] and begun is not None:
            raise ConfigError(
                f"{where}: a mark {OPEN} stands inside another span. Close that span with {CLOSE} first, or write "
                f"\\{OPEN} for the brackets themselves."
            )
        parts.append(text[done : found.start()])
        length, done = length + len(parts[-1]), found.end()
        if found[1]:
            parts.append(found[1])
            length += len(found[1])
        elif found[2]:
            begun = length
        elif begun is not None:
            spans.append((begun, length))
            begun = None
    if begun is not None:
        raise ConfigError(
            f"{where}: the mark {OPEN} is never closed. Write {CLOSE} at the end of the span, or \\{OPEN} for the "
            "brackets themselves."
        )
    return "".join([*parts, text[done:]]), tuple(spans)


def with_marks(text: str, spans: Sequence[tuple[int, int]] | None) -> str:
    """Return a text with marks around its spans, for display (brackets in the text are not escaped)."""
    for start, stop in reversed(spans or ()):
        text = f"{text[:start]}{OPEN}{text[start:stop]}{CLOSE}{text[stop:]}"
    return text


def as_typed(text: str, spans: Sequence[tuple[int, int]] | None) -> str:
    """Return the marked and escaped text from which :func:`take_marks` recovers the text and spans."""
    ends = sorted({0, len(text), *(place for span in spans or () for place in span)})
    opening, closing = {start for start, _ in spans or ()}, {stop for _, stop in spans or ()}
    parts = []
    for start, stop in zip(ends, [*ends[1:], len(text)], strict=True):
        marks = f"{CLOSE if start in closing else ''}{OPEN if start in opening else ''}"
        parts.append(marks + re.sub(r"\[\[|\]\]", lambda found: f"\\{found[0]}", text[start:stop]))
    return "".join(parts)


def text_of(response: str, spans: Spans) -> str:
    """Return only the text of the spans, joined by dots."""
    return " … ".join(response[start:stop].strip() for start, stop in spans)


def shares(text: str, spans: Spans, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """Return the share of each token's visible characters that lie in the spans, ``(t,)`` float64 from 0 to 1.

    A token without visible characters, such as the end of text, counts as the nearest visible character before it, or
    as the first one of the text. If spans partition a text, a token's shares add up to 1.

    Args:
        text: the text.
        spans: spans of the text.
        starts: ``(t,)``; first character of each token.
        stops: ``(t,)``; character after the last of each token.

    Example:
        >>> shares("It is 108 m", ((6, 9),), np.array([0, 2, 5, 9, 11]), np.array([2, 5, 9, 11, 11]))
        array([0., 0., 1., 0., 0.])
    """
    visible = ~np.fromiter(map(str.isspace, text), bool, len(text))
    inside = np.zeros(len(text), bool)
    for start, stop in spans:
        inside[start:stop] = True
    count, own = (np.concatenate([[0], np.cumsum(part)]) for part in (visible, visible & inside))
    letters, found = (part[stops] - part[starts] for part in (count, own))
    places = np.flatnonzero(visible)
    if not len(places):
        return np.zeros(len(starts))
    near = places[np.maximum(np.searchsorted(places, starts, side="right") - 1, 0)]
    return np.where(letters > 0, found / np.maximum(letters, 1), inside[near])


def without_span(chat: Mapping[str, Any] | None) -> tuple[Mapping[str, Any] | None, Any]:
    """Split the column ``chat`` of a corpus into an example's chat and its spans, None where missing."""
    if not isinstance(chat, Mapping) or FIELD not in chat:
        return chat, None
    rest = {name: part for name, part in chat.items() if name != FIELD}
    return rest or None, plain_spans(chat[FIELD])


def beside_chat(chat: Mapping[str, Any] | None, spans: Spans | None) -> Mapping[str, Any] | None:
    """Join chat and spans for the column ``chat``, the reverse of :func:`without_span`."""
    return chat if spans is None else {**(chat or {}), FIELD: [list(pair) for pair in spans]}

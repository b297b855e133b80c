"""Print why hits and groups score as they do."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from rich.text import Text

from airrep.cli.show.console import printable
from airrep.corpus.places import Span
from airrep.corpus.turns import last_message
from airrep.index.why import Why
from airrep.reports.tables import signed

MARK = "bold underline"
CAUSE = "same words are what the lexical part of the score saw; they need not be its cause"
BEFORE = 20
"""Characters shown before the first mark of a text that is cut."""


def has_same_words(whys: Iterable[Why | None]) -> bool:
    """Whether there are words to mark."""
    return any(why is not None and why.same_words for why in whys)


def channel_parts(channels: Mapping[str, float]) -> str:
    """What each channel gave, in one line."""
    return " · ".join(f"{printable(_cut(name, 40))} {signed(score)}" for name, score in channels.items())


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def marked(text: str, spans: Sequence[Span], length: int) -> Text:
    """A text on one line, cut to about *length* characters around its first marks.

    Of several messages the last is shown, if it has marks or none has.
    """
    begin = last_message(text, length)
    if spans and all(span.start < begin for span in spans):
        begin = 0
    first = min((span.start for span in spans if span.start >= begin), default=begin)
    start = first - BEFORE if first + BEFORE > begin + length else begin  # else the mark is seen from there on
    window = text[start : start + 4 * length]
    signs: list[tuple[str, bool]] = [("…", False), *([(" ", False)] if start == begin else [])] if start else []
    marks = _flags(spans, start, len(window))
    for sign, mark in zip(window, marks, strict=True):
        if not sign.isspace():
            signs.append((sign, mark))
        elif signs and signs[-1][0] != " ":
            signs.append((" ", mark))
    if len(signs) > length or start + len(window) < len(text):
        signs = [*signs[: length - 1], ("…", False)]
    line = Text()
    for mark, group in groupby(signs, key=lambda pair: pair[1]):
        line.append(printable("".join(sign for sign, _ in group)), style=MARK if mark else "")
    return line


def _flags(spans: Iterable[Span], start: int, count: int) -> list[bool]:
    """Whether each of *count* characters from *start* on is marked."""
    flags = [False] * count
    for span in spans:
        first, last = max(span.start - start, 0), min(span.stop - start, count)
        if first < last:  # a negative *last* would count from the end
            flags[first:last] = [True] * (last - first)
    return flags

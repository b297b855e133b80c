"""Tables for pages and terminal, and the formats of their numbers and texts."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from airrep.corpus.places import Span
from airrep.corpus.schemas.conversations import from_last_message

NOTHING = "–"
"""Text of a cell without a value."""


class Bar(NamedTuple):
    """A bar from 0 to a number; both ends in percent from the left end of the scale."""

    zero: float
    end: float


class Cell(NamedTuple):
    """One cell of a table."""

    text: str
    under: str = ""
    """A second, smaller line."""
    strong: bool = False
    mark: str = ""
    hint: str = ""
    """Text shown while the pointer is over the cell."""
    link: str = ""
    bar: Bar | None = None


class Line(NamedTuple):
    """One row of a table."""

    head: Cell
    cells: tuple[Cell, ...]
    reference: bool = False
    """True for a reference, such as a noise ceiling, instead of a method."""


@dataclass(frozen=True)
class NotedSpan(Span):
    """A span of a text that is marked with a note."""

    note: str = ""
    """Text shown while the pointer is over the span."""
    kind: str = ""
    """CSS classes of the mark, separated by spaces."""


@dataclass(frozen=True)
class Table:
    """A table with its caption, ready to be shown."""

    title: str
    columns: tuple[str, ...]
    """Headings; the first is for the heads of the lines."""
    lines: tuple[Line, ...]
    caption: str = ""
    commands: tuple[str, ...] = ()
    more: tuple["Table", ...] = ()
    """Tables shown folded below this one."""
    words: bool = False
    """True if the cells are words instead of numbers."""

    @classmethod
    def of_texts(
        cls,
        columns: Sequence[str],
        rows: Iterable[Sequence[str]],
        *,
        title: str = "",
        caption: str = "",
        commands: tuple[str, ...] = (),
    ) -> Self:
        """Return a table with plain texts as cells."""
        lines = tuple(Line(Cell(head), tuple(map(Cell, texts))) for head, *texts in rows)
        return cls(title, tuple(columns), lines, caption, commands, words=True)


def hundred(value: float | None) -> str:
    """Return a fraction × 100 to a tenth, with a true minus sign; :data:`NOTHING` for None or not finite."""
    if value is None or not math.isfinite(value):
        return NOTHING
    return true_minus(f"{100 * value:.1f}".replace("-0.0", "0.0"))


def interval(ends: Sequence[float] | None, show: Callable[[float], str] = hundred) -> str:
    """Return both ends in brackets, × 100 unless *show* formats them otherwise; empty for None."""
    return "" if ends is None else f"[{show(ends[0])}, {show(ends[1])}]"


def held_out_table(rows: Iterable[Mapping[str, Any]]) -> Table:
    """Return the table of held-out LDS × 100 of each row, a JSON object, and of the sum of methods minus the row."""

    def texts(found: Mapping[str, Any] | None, name: str) -> tuple[str, str]:
        return ("", "") if found is None else (hundred(found[name]), interval(found["interval"]))

    columns = ("method and pool", "held-out LDS × 100", "95 % interval", "sum minus it", "95 % interval")
    return Table.of_texts(
        columns, ((row["name"], *texts(row["lds"], "lds"), *texts(row["sum_minus_it"], "difference")) for row in rows)
    )


def signed(value: float) -> str:
    """Return a number with its sign and three decimals; with an exponent if these would all be 0."""
    shown = f"{value:+.3f}"
    return f"{value:+.1e}" if value and not shown.strip("+-0.") else shown


def true_minus(text: str) -> str:
    """Replace hyphens in a number's text by minus signs."""
    return text.replace("-", "−")


def three(value: float) -> str:
    """Return a number to three digits, or as a whole number from 100 on."""
    return true_minus(f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.3g}")


_SECONDS = (
    (1e-3, "µs", 1e-6),
    (1, "ms", 1e-3),
    (120, "s", 1),
    (7200, "min", 60),
    (172800, "h", 3600),
    (0, "days", 86400),
)
_BYTES = (
    (1023.5, "B", 1),
    (1023.5 * 2**10, "KiB", 2**10),
    (1023.5 * 2**20, "MiB", 2**20),
    (1023.5 * 2**30, "GiB", 2**30),
    (0, "TiB", 2**40),
)
"""Units: the value from which the next unit is used (0 for the last), the name, the size."""


def _in_units(value: float, units: Sequence[tuple[float, str, float]]) -> str:
    unit, size = next((unit, size) for limit, unit, size in units if value < limit or not limit)
    return f"{three(value / size)} {unit}"


def bytes_text(value: float) -> str:
    """Return a size to three digits, such as ``"1.5 GiB"``."""
    return _in_units(value, _BYTES)


def seconds_text(value: float) -> str:
    """Return a time to three digits in a suitable unit, such as ``"2.5 min"``."""
    return "0 s" if value < 1e-9 else _in_units(value, _SECONDS)


def p_text(value: float) -> str:
    """Return a p-value such as "p = 0.012" or "p < 0.001"."""
    return f"p {p_number(value)}" if value < 0.001 else f"p = {p_number(value)}"


def p_number(value: float) -> str:
    """Return a p-value without "p": to three decimals, or "< 0.001"."""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def span_text(values: Iterable[float | None], show: Callable[[float], str] = "{:,}".format) -> str:
    """Return "LOW to HIGH" of some values, or one text if both are shown alike; :data:`NOTHING` if all are None."""
    known = [value for value in values if value is not None]
    if not known:
        return NOTHING
    low, high = show(min(known)), show(max(known))
    return low if low == high else f"{low} to {high}"


def counted(values: Iterable[float | None], one: str, several: str) -> str:
    """Return :func:`span_text` with its noun: "1 query", "at most 1 query", "3 to 5 queries"."""
    text = span_text(values)
    return f"at most 1 {one}" if text == "0 to 1" else f"{text} {one if text == '1' else several}"


def together(queries: int) -> str:
    """Return words for all of some queries: "the query", "all 3 queries together"."""
    return "the query" if queries == 1 else f"all {queries:,} queries together"


def label_of(key: str) -> str:
    """Return a JSON key as words."""
    return key.replace("_", " ")[:1].upper() + key.replace("_", " ")[1:]


_CONTROLS = {code: 0x2400 + code for code in range(32) if code not in (0x09, 0x0A)} | {0x7F: 0x2421}
_HIDDEN = (
    *range(0x80, 0xA0),
    *(0x61C, 0x200B, 0x200E, 0x200F),
    *range(0x2028, 0x202F),
    *range(0x2060, 0x206A),
    *range(0xD800, 0xE000),  # halves of a character
    *(0xFEFF, *range(0xFFF9, 0xFFFC), 0xFFFE, 0xFFFF),
    *range(0xE0000, 0xE0080),
)
_VISIBLE = str.maketrans(_CONTROLS | {code: f"⟨U+{code:04X}⟩" for code in _HIDDEN})


def visible(text: str) -> str:
    """Return a text with visible signs for control, direction and invisible characters; lines end in LF."""
    return text.replace("\r\n", "\n").translate(_VISIBLE)


def short(text: str, length: int = 90) -> str:
    """Return the beginning of a text on one line."""
    line = " ".join(visible(text[: 2 * length]).split())
    whole = len(text) <= 2 * length and len(line) <= length
    return line if whole else line[: length - 1].rstrip() + "…"


def short_prompt(prompt: str, length: int = 90) -> str:
    """Return the beginning of a prompt on one line, or of its last message if the prompt is too long."""
    return short(from_last_message(prompt, length), length)

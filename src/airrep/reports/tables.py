"""Tables ready to be shown, and numbers as text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeGuard

import numpy as np

NOTHING = "–"
"""What stands where there is no value."""


class Cell(NamedTuple):
    """One cell of a table."""

    text: str
    under: str = ""
    """A second, smaller line."""
    strong: bool = False
    mark: str = ""
    hint: str = ""
    """Shown where a pointer rests."""


@dataclass(frozen=True)
class Line:
    """One row of a table."""

    head: Cell
    cells: tuple[Cell, ...]
    reference: bool = False
    """Whether it is something to compare with, such as a ceiling, rather than a competitor."""


@dataclass(frozen=True)
class Table:
    """A table with its caption, ready to be shown."""

    title: str
    columns: tuple[str, ...]
    """The first heads the lines."""
    lines: tuple[Line, ...]
    caption: str = ""
    commands: tuple[str, ...] = ()
    more: tuple["Table", ...] = ()
    """Tables that are folded below it."""
    words: bool = False
    """Whether its cells are words rather than numbers."""


def hundred(value: float | None) -> str:
    """A fraction × 100 to a tenth, with a true minus sign."""
    if value is None or not np.isfinite(value):
        return NOTHING
    return f"{100 * value:.1f}".replace("-0.0", "0.0").replace("-", "−")


def interval_text(interval: Sequence[float] | None) -> str:
    """Both ends × 100 in brackets; nothing where there are none."""
    return "" if interval is None else f"[{hundred(interval[0])}, {hundred(interval[1])}]"


def bytes_text(value: float) -> str:
    """A size, to three digits."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 999.5:
            return f"{three(value)} {unit}"
        value /= 1000
    return f"{three(value)} TB"


_TIMES = ((1e-3, "µs", 1e-6), (1, "ms", 1e-3), (120, "s", 1), (7200, "min", 60), (172800, "h", 3600))


def seconds_text(value: float) -> str:
    """A time, to three digits, in the unit that suits it."""
    if value == 0:
        return "0 s"
    found = ((unit, size) for limit, unit, size in _TIMES if value < limit)
    unit, size = next(found, ("days", 86400))
    return f"{three(value / size)} {unit}"


def three(value: float) -> str:
    """A number to three digits, or whole."""
    return (f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.3g}").replace("-", "−")


def p_text(value: float) -> str:
    """A p-value: to three digits, or below a thousandth."""
    return f"p {p_number(value)}" if value < 0.001 else f"p = {p_number(value)}"


def p_number(value: float) -> str:
    """A p-value without its letter."""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def span_text(low: int, high: int) -> str:
    """A range of counts, or the one that it comes down to."""
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def is_number(value: object) -> TypeGuard[float]:
    """Whether a JSON value is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def label_of(key: str) -> str:
    """A JSON key as words."""
    return key.replace("_", " ")[:1].upper() + key.replace("_", " ")[1:]

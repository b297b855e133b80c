"""Primitives of the terminal: progress, snippets, safe text."""

import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table as RichTable

from airrep.corpus.turns import from_last_message

if TYPE_CHECKING:
    from airrep.reports.tables import Cell, Table

QUIET_SECONDS = 2.0
LINE_SECONDS = 10.0
SNIPPET = 160
"""Characters of a text in a table."""

err = Console(stderr=True)


def out() -> Console:
    """The console for results; as wide as needed when they go into a file or a pipe."""
    console = Console()
    return console if console.is_terminal else Console(width=160)


class Meter:
    """Progress of rows on stderr: nothing in the first two seconds, then a bar with rate and remaining time.

    Without a terminal it prints a line every ten seconds instead.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._begun = self._shown = time.monotonic()
        self._done = 0
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, done: int, total: int | None) -> None:
        if done < self._done:  # another pass over the rows has begun, with a speed of its own
            self._begun = time.monotonic()
        self._done = done
        elapsed = time.monotonic() - self._begun
        if elapsed < QUIET_SECONDS or not done:
            return
        rate = done / elapsed
        if not err.is_terminal:
            self._line(done, total, rate)
            return
        if self._bar is None:
            self._bar = _new_bar()
            self._bar.add_task(self._what, total=total, rate="")
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=done, total=total, rate=f"{rate:,.0f} rows/s")

    def _line(self, done: int, total: int | None, rate: float) -> None:
        now = time.monotonic()
        if now - self._shown < LINE_SECONDS:
            return
        self._shown = now
        of = "" if total is None else f" of {total:,}"
        left = "" if total is None else f", {(total - done) / max(rate, 1e-9):,.0f} s left"
        err.print(f"{self._what}: {done:,}{of}, {rate:,.0f} rows/s{left}", highlight=False)


def _new_bar() -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=err)


def say(text: str) -> None:
    """Print a text as it is, but for what would steer the terminal."""
    shown = "\n".join(map(printable, text.split("\n")))
    out().print(shown, highlight=False, markup=False, soft_wrap=True)


def printable(text: str) -> str:
    """A text without characters that steer a terminal or change the direction of writing."""
    kept = "\N{ZERO WIDTH JOINER}"  # joins the parts of one emoji
    return "".join(c if c.isprintable() or c in kept else "\N{REPLACEMENT CHARACTER}" for c in text)


def snippet(text: str, length: int = SNIPPET) -> str:
    """A text on one line, cut to *length* characters, safe to print."""
    line = printable(" ".join(text[: 4 * length].split()))  # not all of the text: it may be megabytes
    return escape(line if len(line) <= length and len(text) <= 4 * length else line[: length - 1] + "…")


def prompt_snippet(prompt: str, length: int) -> str:
    """A prompt as :func:`snippet` cuts texts; of several messages that do not fit, the last."""
    return snippet(from_last_message(prompt, length), length)


def print_table(table: "Table", longest: int | None = None) -> None:
    """Print the texts of a table, whole or cut to the *longest*; those of its heading to 40 characters.

    A cell's second line is dim.
    """
    shown = RichTable(*(snippet(column, 40) for column in table.columns))
    for line in table.lines:
        shown.add_row(*(_cell_markup(cell, longest) for cell in (line.head, *line.cells)))
    out().print(shown)


def _cell_markup(cell: "Cell", longest: int | None) -> str:
    text, under = (
        escape(printable(part)) if longest is None else snippet(part, longest) for part in (cell.text, cell.under)
    )
    return f"{text}\n[dim]{under}[/]" if under else text


def print_fields(fields: Mapping[str, Any]) -> None:
    """Print names and values, one a line."""
    width = max(map(len, fields))  # names are ours, values may be anybody's
    for name, value in fields.items():
        told = escape(printable(str(value)))
        out().print(f"[bold]{printable(name):<{width}}[/]  {told}", highlight=False, soft_wrap=True)

"""Primitives of the terminal: progress, snippets, safe text."""

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from airrep.index.results.result import printable as printable
from airrep.index.results.result import shortened
from airrep.runtime.metering import METER

if TYPE_CHECKING:
    from airrep.reports.tables import Cell, Table

PIPE = 120
"""Width, in columns, of output into a file or pipe."""
SNIPPET = 160
"""Most characters of a text in a table."""

err = Console(stderr=True)


def out() -> Console:
    """Return the console for results; its width in a file or pipe is ``COLUMNS`` or a fixed default."""
    METER.close()
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPE
    return console


def say(text: str) -> None:
    """Print a text without terminal control characters."""
    shown = "\n".join(map(printable, text.split("\n")))
    out().print(shown, highlight=False, markup=False, soft_wrap=True)


def snippet(text: str, length: int = SNIPPET) -> str:
    """Return a text on one line, cut to *length* characters, safe to print."""
    return escape(shortened(text, length))


def print_table(table: "Table", longest: int | None = None) -> None:
    """Print the texts of a table, whole or cut to the *longest*; those of its heading to 40 characters.

    A cell's second line is dim.
    """
    from rich.table import Table as RichTable

    shown = RichTable(*(snippet(column, 40) for column in table.columns))
    for line in table.lines:
        shown.add_row(*(_cell_markup(cell, longest) for cell in (line.head, *line.cells)))
    out().print(shown)


def print_captioned(table: "Table", longest: int | None = None) -> None:
    """Print a table below its title and caption."""
    title = f"[bold]{escape(printable(table.title))}[/]. " if table.title else ""
    out().print(f"{title}{escape(printable(table.caption))}", highlight=False)
    print_table(table, longest)


def print_tables(tables: "Iterable[Table]", longest: int | None = None) -> None:
    """Print tables, each below its title if it has one."""
    for table in tables:
        if table.title:
            out().print(f"[bold]{snippet(table.title)}[/]", highlight=False)
        print_table(table, longest)


def _cell_markup(cell: "Cell", longest: int | None) -> str:
    whole = f"{cell.text} {cell.mark}" if cell.mark else cell.text
    text, under = (
        escape(printable(part)) if longest is None else snippet(part, longest) for part in (whole, cell.under)
    )
    text = f"[bold]{text}[/]" if cell.strong else text
    return f"{text}\n[dim]{under}[/]" if under else text


def print_fields(fields: Mapping[str, Any]) -> None:
    """Print names and values, one a line."""
    width = max(map(len, fields))  # names are ours, values may be anybody's
    for name, value in fields.items():
        told = escape(printable(str(value)))
        out().print(f"[bold]{printable(name):<{width}}[/]  {told}", highlight=False, soft_wrap=True)

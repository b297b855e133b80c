"""Print one training example of an index, whole, and its nearest ones."""

from typing import Any

from rich.text import Text

from airrep.answers.spread import top_beside_spread
from airrep.cli.show.console import out, printable
from airrep.cli.show.hits import INDENT, deviations_text, origin_parts, print_hit, print_lines, say
from airrep.corpus.corpus import Example
from airrep.errors import ConfigError
from airrep.index.index import Index
from airrep.index.results.hits import Hit, record_of
from airrep.reports.tables import signed


def neighbours(index: Index, row: int, k: int) -> list[Hit]:
    """The k examples that help an example most, as a query; it itself is left out.

    Raises:
        ConfigError: the method scores its own queries alone.
    """
    if not k:
        return []
    found = top_beside_spread(index, [index.example(row)], min(k + 1, len(index)))
    return [hit for hit in found[0] if hit.row != row][:k]


def example_to_dict(index: Index, row: int, k: int) -> dict[str, Any]:
    """An example and its neighbours as JSON values."""
    near = [
        {"score": hit.score, "deviations": hit.deviations, "row": hit.row, "example": record_of(hit.example)}
        for hit in neighbours(index, row, k)
    ]
    return {"row": row, "example": record_of(index.example(row)), "neighbours": near}


def print_example(index: Index, row: int, k: int, wide: bool = False) -> None:
    """Print an example whole, and its neighbours."""
    console, example = out(), index.example(row)
    head = " · ".join(map(printable, [*origin_parts(example, row), f"row {row}", example.id]))
    print_lines(console, Text(" ".join(head.split()), style="bold"), hang=INDENT)
    for name, value in example.metadata.items():
        print_lines(console, Text(f"{printable(name)}: {printable(str(value))}", style="dim"), hang=INDENT)
    _print_whole("prompt", example.prompt)
    _print_whole("response", example.response)
    try:
        _print_neighbours(index, example, neighbours(index, row, k), wide)
    except ConfigError as error:
        say(console, f"no neighbours: {error}")


def _print_whole(name: str, text: str) -> None:
    say(out(), name)
    for line in text.split("\n"):
        print_lines(out(), Text(printable(line.expandtabs())), INDENT)


def _print_neighbours(index: Index, example: Example, near: list[Hit], wide: bool) -> None:
    console = out()
    if near:
        print_lines(
            console, Text(f"nearest of {len(index):,} examples, asked with {printable(example.id)}", style="bold")
        )
    for rank, hit in enumerate(near, 1):
        facts = [deviations_text(hit.deviations or 0.0), *([f"score {signed(hit.score)}"] if wide else [])]
        print_hit(console, hit.example, hit.row, facts, rank=rank, of=len(index) - 1, wide=wide)

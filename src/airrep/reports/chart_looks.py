"""How figures tell methods apart, and how panels are laid out."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from airrep.evaluation.result import Row
from airrep.reports.figures import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Family(NamedTuple):
    """A kind of methods and how its bars look: told apart by hatch, in black and white too."""

    name: str
    fill: str
    hatch: str
    methods: tuple[str, ...]


FAMILIES = (
    Family("representations", "#8fb8ea", "", ("airrep", "gte", "rds", "stack")),
    Family("gradients", "#f4c7a5", "////", ("tracin", "logra", "trak", "dsdm", "less", "influence")),
    Family("others", "#ffffff", "", ()),
)
COLOURS = ("#0b5394", "#b8460e", "#00745a", "#8e3a8a", "#1a1d22", "#a37200", "#2f8fc4", "#7a7f87", "#c2185b", "#5d8a00")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", "*", "h", ">", "p")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))


def family_of(row: Row) -> Family:
    """The kind of methods that a row belongs to."""
    return next((family for family in FAMILIES if row.method in family.methods), FAMILIES[-1])


def panels_of(count: int, most: int, height: float, more: float, **shared: Any) -> "tuple[Figure, list[Axes], int]":
    """A figure of so many panels, those panels, and how many stand side by side.

    Args:
        count: of panels.
        most: side by side.
        height: of one, in inches.
        more: height of what they share, such as a legend.
        shared: what subplots takes.
    """
    across = 2 if count == 4 else min(count, most)
    deep = -(-count // across)
    figure = new_figure(deep * height + more)
    grid = figure.subplots(deep, across, squeeze=False, **shared).ravel()
    for axes in grid[count:]:
        axes.remove()
    return figure, list(grid[:count]), across


def name_axes(grid: "Sequence[Axes]", across: int, below: str, beside: str = "") -> None:
    """Names of the axes: below the last panel of each column, and beside the first of each row."""
    for place, axes in enumerate(grid):
        if place + across >= len(grid):
            axes.set_xlabel(below)
        if beside and place % across == 0:
            axes.set_ylabel(beside)


def log_ticks(axes: "Axes", text: Callable[[float], str]) -> None:
    """A tick at each power of ten across, written by *text*."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.xaxis.set_major_locator(LogLocator(10, numticks=7))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))


def look(number: int) -> dict[str, Any]:
    """Colour, marker and dashes of the line with a number; 12 markers × 4 dashes, so that no two look the same."""
    colour = COLOURS[number % len(COLOURS)]
    return {
        "color": colour,
        "marker": MARKERS[number % len(MARKERS)],
        "linestyle": DASHES[(number + number // len(MARKERS)) % len(DASHES)],
        "markersize": 5,
        "linewidth": 1.4,
        "markerfacecolor": "white" if number % 2 else colour,
    }


def line_keys(count: int) -> list[Any]:
    """Keys of the first lines for a legend."""
    from matplotlib.lines import Line2D

    return [Line2D([], [], **look(number)) for number in range(count)]

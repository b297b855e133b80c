"""Bars and curves of values, and how charts look."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from airrep.evaluation.result import Row
from airrep.planning.plan import Plan
from airrep.reports.evaluation_tables import mark_of
from airrep.reports.figures import INK, SOFT, new_figure, plain
from airrep.reports.sources import Point, ReportSource, panel_rows
from airrep.reports.tables import PAGE, is_number, three

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Family(NamedTuple):
    """A kind of methods and how its bars look: told apart by hatch, in black and white too."""

    name: str
    fill: str
    hatch: str
    methods: tuple[str, ...]


_GRADIENTS = ("tracin", "logra", "trak", "dsdm", "less", "influence", "ekfac", "readout")
FAMILIES = (
    Family("representations", "#8fb8ea", "", ("airrep", "gte", "rds", "stack")),
    Family("gradients", "#f4c7a5", "////", _GRADIENTS),
    Family("others", "#ffffff", "", ()),
)
COLOURS = ("#0b5394", "#b8460e", "#00745a", "#8e3a8a", "#1a1d22", "#a37200", "#2f8fc4", "#7a7f87", "#c2185b", "#5d8a00")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", "*", "h", ">", "p")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
BANDS = 5
"""Most lines whose intervals are drawn as bands; those of more lines are whiskers."""
WIDE = 8
"""Ratio of largest to smallest from which an axis is logarithmic."""
TIMES = {
    1e-3: "1 ms", 1e-2: "10 ms", 0.1: "100 ms", 1: "1 s", 10: "10 s", 60: "1 min", 600: "10 min", 3600: "1 h",
    36000: "10 h", 345600: "4 days", 3456000: "40 days", 31557600: "1 year",
    315576000: "10 years", 3155760000: "100 years",
}  # fmt: skip
"""Round times for an axis, by their seconds."""


def family_of(row: Row) -> Family:
    """The family of a row's method; "others" for methods in none."""
    return next((family for family in FAMILIES if row.method in family.methods), FAMILIES[-1])


def panels_of(count: int, most: int, height: float, more: float, **shared: Any) -> "tuple[Figure, list[Axes], int]":
    """A figure of *count* panels, at *most* so many side by side; the panels; and how many are side by side.

    A panel is *height* inches high; what all share, such as a legend, takes *more*.
    """
    across = 2 if count == 4 else min(count, most)  # four as a square rather than three and one
    deep = -(-count // across)
    figure = new_figure(deep * height + more)
    grid = figure.subplots(deep, across, squeeze=False, **shared).ravel()
    for axes in grid[count:]:
        axes.remove()
    return figure, list(grid[:count]), across


def name_axes(grid: "Sequence[Axes]", across: int, below: str, beside: str = "") -> None:
    """Name the axes: below the last panel of each column, and beside the first of each row."""
    for place, axes in enumerate(grid):
        if place + across >= len(grid):
            axes.set_xlabel(below)
        if beside and place % across == 0:
            axes.set_ylabel(beside)


def log_ticks(axes: "Axes", text: Callable[[float], str]) -> None:
    """Set ticks at powers of ten on the x-axis, written by *text*."""
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


def line_legend(figure: "Figure", names: Sequence[str]) -> None:
    """Name the lines below a figure."""
    from matplotlib.lines import Line2D

    keys = [Line2D([], [], **look(number)) for number in range(len(names))]
    figure.legend(keys, [plain(name, 26) for name in names], loc="outside lower center", ncols=4)


def bars(panels: Sequence[ReportSource], label: str) -> "Figure":
    """Value × 100 of each row as bars with whiskers, one panel each; rows stand in one order."""
    names = panel_rows(panels)
    figure, grid, across = panels_of(len(panels), 3, 0.85 + 0.235 * len(names), 0.35, sharey=True)
    reach = _reach([row for panel in panels for row in panel.evaluation.rows])
    for axes, panel in zip(grid, panels, strict=True):
        _bar_panel(axes, panel, names, reach)
        _references(axes, panel, reach, 34 if across < 3 else 23)
    grid[0].set_yticks(range(len(names)), [plain(name, 26) for name in names])
    grid[0].set_ylim(len(names) - 0.4, -0.6)
    name_axes(grid, across, label)
    _family_key(figure, panels)
    return figure


def _reach(rows: Sequence[Row]) -> tuple[float, float]:
    """The ends of the axis, which hold all whiskers and 0, and on the right the numbers."""
    ends = [100 * end for row in rows for end in (*row.interval, row.value)]
    low, high = min([0.0, *ends]), max([0.0, *ends])
    span = (high - low) or 1.0
    return low - (0.04 * span if low < 0 else 0), high + 0.24 * span


def _bar_panel(axes: "Axes", panel: ReportSource, names: Sequence[str], reach: tuple[float, float]) -> None:
    for place, name in enumerate(names):
        row = panel.rows.get(name)
        if row is None:
            box = {"facecolor": "white", "edgecolor": "none", "pad": 1}
            axes.text(0.02 * reach[1], place, "not run", va="center", fontsize=7.5, color=SOFT, bbox=box)
        else:
            _bar(axes, place, row, best=row.value == panel.evaluation.best.value, room=reach[1] - reach[0])
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set_xlim(*reach)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")


def _bar(axes: "Axes", place: int, row: Row, *, best: bool, room: float) -> None:
    value, (low, high), family = 100 * row.value, (100 * end for end in row.interval), family_of(row)
    axes.barh(place, value, 0.66, color=family.fill, hatch=family.hatch, edgecolor=INK, linewidth=1.4 if best else 0.6)
    axes.plot([low, high], [place, place], color=INK, linewidth=1.1)
    axes.plot([low, high], [place, place], "|", color=INK, markersize=5, markeredgewidth=1.1)
    text = " ".join(filter(None, [PAGE.hundred(row.value), mark_of(row)]))
    right = max(0.0, value, high) + 0.015 * room
    axes.text(right, place, text, va="center", fontsize=7.5, fontweight="bold" if best else "normal")


def _references(axes: "Axes", panel: ReportSource, reach: tuple[float, float], length: int) -> None:
    """Draw the heading, and noise ceiling and chance level: in words, and as broken lines where in reach."""
    known = [("noise ceiling", panel.evaluation.ceiling), ("chance", panel.evaluation.facts.get("chance"))]
    found = {name: float(value) for name, value in known if is_number(value)}
    for name, value in found.items():
        if reach[0] < 100 * value < reach[1]:
            dashes = DASHES[1 if name == "chance" else 2]
            axes.axvline(100 * value, color=INK, linewidth=0.9, linestyle=dashes, zorder=0.9)
    words = ", ".join(f"{name} {PAGE.hundred(value)}" for name, value in found.items())
    axes.text(0, 1.012, words, transform=axes.transAxes, va="bottom", fontsize=7, color=SOFT)
    axes.set_title("\n".join(plain(part, length) for part in panel.label.split(", ", 1)), pad=15 if words else 6)


def _family_key(figure: "Figure", panels: Sequence[ReportSource]) -> None:
    from matplotlib.patches import Patch

    shown = {family_of(row) for panel in panels for row in panel.evaluation.rows}
    found = [family for family in FAMILIES if family in shown]
    boxes = [Patch(facecolor=one.fill, hatch=one.hatch, edgecolor=INK, linewidth=0.6) for one in found]
    if len(found) > 1:
        figure.legend(boxes, [one.name for one in found], loc="outside lower center", ncols=len(found))


def curves(groups: Sequence[tuple[str, Sequence[Point]]], tag: str, label: str) -> "Figure":
    """Value × 100 against a numeric tag, a line for each row; one panel for each role."""
    names = panel_rows([point.source for _, points in groups for point in points])
    figure, grid, across = panels_of(len(groups), 2, 2.6, 0.25 + 0.2 * -(-len(names) // 4))
    for axes, (heading, points) in zip(grid, groups, strict=True):
        _curve_panel(axes, points, names)
        axes.set_title(plain(heading, 34))
    name_axes(grid, across, plain(tag.replace("_", " "), 60), label)
    line_legend(figure, names)
    return figure


def _curve_panel(axes: "Axes", points: Sequence[Point], names: Sequence[str]) -> None:
    places = [point.at for point in points]
    wide = min(places) > 0 and max(places) / min(places) >= WIDE
    for number, name in enumerate(names):
        rows = [(at, source.rows[name]) for at, source in points if name in source.rows]
        if rows:
            _curve(axes, rows, number, len(names), wide=wide)
    if wide:
        axes.set_xscale("log")
    if len(places) == 1:
        axes.set_xlim(places[0] - 1, places[0] + 1)
    _place_ticks(axes, places)


def _curve(axes: "Axes", rows: Sequence[tuple[float, Row]], number: int, count: int, *, wide: bool) -> None:
    colour = look(number)["color"]
    at = np.array([place for place, _ in rows])
    middle, low, high = 100 * np.array([(row.value, *row.interval) for _, row in rows]).T
    if count <= BANDS and len(at) > 1:
        axes.fill_between(at, low, high, color=colour, alpha=0.14, linewidth=0)
    else:
        at = _dodge(at, number, count, wide=wide)
        axes.vlines(at, low, high, color=colour, linewidth=0.8, alpha=0.7)
    axes.plot(at, middle, **look(number))


def _dodge(at: np.ndarray, number: int, count: int, *, wide: bool) -> np.ndarray:
    """Move points a little to the side, so that whiskers of several lines do not cover each other."""
    aside = (number - (count - 1) / 2) / count
    if wide:
        return np.asarray(at * 1.12**aside)
    return np.asarray(at + aside * 0.04 * ((at.max() - at.min()) or 1.0))


def _place_ticks(axes: "Axes", places: Sequence[float]) -> None:
    """Set ticks at the values themselves where there are few, and none between."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: three(value)))
    if len(places) <= 7:
        axes.xaxis.set_major_locator(FixedLocator(list(places)))
        axes.xaxis.set_minor_locator(NullLocator())


def plan_lines(plan: Plan) -> "Figure":
    """Total CPU time of each method against examples processed; crossovers are marked."""
    figure = new_figure(3.6 + 0.2 * -(-len(plan.methods) // 4))
    axes = figure.subplots()
    crossings = [cross.examples for cross in plan.crossovers if cross.examples]
    most = max([1e6, 10.0 * (plan.corpus or 0), *(10 * at for at in crossings)])
    at = np.geomspace(100, most, 200)
    for number, method in enumerate(plan.methods):
        axes.fill_between(at, *method.ends(at), color=look(number)["color"], alpha=0.12, linewidth=0)
        axes.plot(at, method.seconds(at), markevery=(8 + 3 * number, 40), **look(number))
    axes.set(xscale="log", yscale="log", xlim=(100, most), xlabel="examples processed", ylabel="CPU time in all")
    log_ticks(axes, lambda value: f"{value:,.0f}")
    _time_ticks(axes)
    _mark_crossings(axes, plan)
    line_legend(figure, [method.name for method in plan.methods])
    return figure


def _time_ticks(axes: "Axes") -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axes.yaxis.set_major_locator(FixedLocator(list(TIMES)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: TIMES.get(value, "")))


def _mark_crossings(axes: "Axes", plan: Plan) -> None:
    """Draw a dotted line down from each crossing, and its number of examples, on a level of its own."""
    methods = {method.name: method for method in plan.methods}
    found = [
        (cross.examples, cross.method, "" if cross.interval else " (uncertain)")
        for cross in plan.crossovers
        if cross.examples and cross.method in methods
    ]
    low, high = axes.get_ylim()  # as it is now: the lines below would stretch it
    for place, (examples, name, doubt) in enumerate(sorted(found)):
        height, level = methods[name].seconds(examples), 1.04 + 0.055 * place
        axes.plot([examples, examples], [low, height], color=INK, linewidth=0.9, linestyle=DASHES[2])
        axes.plot([examples], [height], "o", color="white", markeredgecolor=INK, markersize=7, zorder=5)
        _flag(axes, examples, level, f"{examples:,.0f} examples: {plain(name, 20)}{doubt}")
    axes.set_ylim(low, high)


def _flag(axes: "Axes", at: float, level: float, text: str) -> None:
    """Words above the panel, and a thin line from there down into it."""
    above: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "annotation_clip": False}
    right_half = at > np.prod(axes.get_xlim()) ** 0.5  # the middle of a logarithmic axis
    shift, ha = (-3, "right") if right_half else (3, "left")
    axes.annotate(text, (at, level), (shift, 0), textcoords="offset points", ha=ha, va="center", fontsize=7.5, **above)
    arrow = {"arrowstyle": "-", "linewidth": 0.7, "color": INK, "linestyle": "-"}
    axes.annotate("", (at, 1.0), (at, level + 0.02), textcoords=above["xycoords"], arrowprops=arrow, **above)

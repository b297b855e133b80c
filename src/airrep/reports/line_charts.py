"""Curves of values, and of predicted costs."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from airrep.evaluation.result import Row
from airrep.planning.plan_record import Plan
from airrep.reports.chart_looks import DASHES, line_keys, log_ticks, look, name_axes, panels_of
from airrep.reports.figures import INK, new_figure, plain
from airrep.reports.sources import Panel, Point, row_names
from airrep.reports.tables import three

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


BANDS = 5
"""Most lines whose intervals are drawn as bands; those of more lines are whiskers."""
WIDE = 8
"""Ratio of largest to smallest from which an axis is logarithmic."""


def curves(groups: Sequence[tuple[str, Sequence[Point]]], tag: str, label: str) -> "Figure":
    """Value × 100 against a numeric tag, a line for each row; one panel for each role."""
    names = row_names([Panel("", point.source) for _, points in groups for point in points])
    figure, grid, across = panels_of(len(groups), 2, 2.6, 0.25 + 0.2 * -(-len(names) // 4))
    for axes, (heading, points) in zip(grid, groups, strict=True):
        _curve_panel(axes, points, names)
        axes.set_title(plain(heading, 34))
    name_axes(grid, across, plain(tag.replace("_", " "), 60), label)
    figure.legend(line_keys(len(names)), [plain(name, 26) for name in names], loc="outside lower center", ncols=4)
    return figure


def _curve_panel(axes: "Axes", points: Sequence[Point], names: Sequence[str]) -> None:
    places = [point.at for point in points]
    wide = min(places) > 0 and max(places) / min(places) >= WIDE
    for number, name in enumerate(names):
        rows = [(at, row) for at, source in points if (row := Panel("", source).row(name)) is not None]
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
    middle, low, high = (100 * np.array([pick(row) for _, row in rows]) for pick in PICKS)
    if count <= BANDS and len(at) > 1:
        axes.fill_between(at, low, high, color=colour, alpha=0.14, linewidth=0)
    else:
        at = _dodge(at, number, count, wide=wide)
        axes.vlines(at, low, high, color=colour, linewidth=0.8, alpha=0.7)
    axes.plot(at, middle, **look(number))


PICKS: tuple[Callable[[Row], float], ...] = (
    lambda row: row.value,
    lambda row: row.interval[0],
    lambda row: row.interval[1],
)


def _dodge(at: np.ndarray, number: int, count: int, *, wide: bool) -> np.ndarray:
    """Move points a little to the side, so that whiskers of several lines do not cover each other."""
    aside = (number - (count - 1) / 2) / count
    if wide:
        return np.asarray(at * 1.12**aside)
    return np.asarray(at + aside * 0.04 * ((at.max() - at.min()) or 1.0))


def _place_ticks(axes: "Axes", places: Sequence[float]) -> None:
    """Ticks at the values themselves where there are few, and none between."""
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
    names = [plain(method.name, 26) for method in plan.methods]
    figure.legend(line_keys(len(names)), names, loc="outside lower center", ncols=4)
    return figure


TIMES = {
    1e-3: "1 ms", 1e-2: "10 ms", 0.1: "100 ms", 1: "1 s", 10: "10 s", 60: "1 min", 600: "10 min", 3600: "1 h",
    36000: "10 h", 345600: "4 days", 3456000: "40 days", 31557600: "1 year",
    315576000: "10 years", 3155760000: "100 years",
}  # fmt: skip
"""Round times for an axis, by their seconds."""


def _time_ticks(axes: "Axes") -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axes.yaxis.set_major_locator(FixedLocator(list(TIMES)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: TIMES.get(value, "")))


def _mark_crossings(axes: "Axes", plan: Plan) -> None:
    """A dotted line down from each crossing, and how many examples that is, each on a level of its own."""
    methods = {method.name: method for method in plan.methods}
    found = [
        (cross.examples, cross.method, "" if cross.interval else " (uncertain)")
        for cross in plan.crossovers
        if cross.examples and cross.method in methods
    ]
    low, high = axes.get_ylim()
    for place, (examples, name, doubt) in enumerate(sorted(found)):
        height, level = methods[name].seconds(examples), 1.04 + 0.055 * place
        axes.plot([examples, examples], [low, height], color=INK, linewidth=0.9, linestyle=DASHES[2])
        axes.plot([examples], [height], "o", color="white", markeredgecolor=INK, markersize=7, zorder=5)
        _flag(axes, examples, level, f"{examples:,.0f} examples: {plain(name, 20)}{doubt}")
    axes.set_ylim(low, high)


def _flag(axes: "Axes", at: float, level: float, text: str) -> None:
    """Words above the panel, and a thin line from there down into it."""
    at_side: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "annotation_clip": False}
    left = at > np.prod(axes.get_xlim()) ** 0.5
    axes.annotate(
        text,
        (at, level),
        xytext=(-3 if left else 3, 0),
        textcoords="offset points",
        ha="right" if left else "left",
        va="center",
        fontsize=7.5,
        **at_side,
    )
    axes.annotate(
        "",
        (at, 1.0),
        xytext=(at, level + 0.02),
        textcoords=("data", "axes fraction"),
        **at_side,
        arrowprops={"arrowstyle": "-", "linewidth": 0.7, "color": INK, "linestyle": "-"},
    )

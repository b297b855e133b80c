"""Bars of values with whiskers, one panel each."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from airrep.evaluation.result import Row
from airrep.reports.chart_looks import DASHES, FAMILIES, family_of, name_axes, panels_of
from airrep.reports.evaluation_tables import mark_of
from airrep.reports.figures import INK, SOFT, plain
from airrep.reports.sources import Panel, row_names
from airrep.reports.tables import hundred, is_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def bars(panels: Sequence[Panel], label: str) -> "Figure":
    """Value × 100 of each row as bars with whiskers, one panel each; rows stand in one order."""
    names = row_names(panels)
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
    """The ends of the axis: all whiskers, 0, and room for the numbers."""
    ends = [100 * end for row in rows for end in (*row.interval, row.value)]
    low, high = min([0.0, *ends]), max([0.0, *ends])
    span = (high - low) or 1.0
    return low - (0.04 * span if low < 0 else 0), high + 0.24 * span


def _bar_panel(axes: "Axes", panel: Panel, names: Sequence[str], reach: tuple[float, float]) -> None:
    for place, name in enumerate(names):
        row = panel.row(name)
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
    text = " ".join(filter(None, [hundred(row.value), mark_of(row)]))
    right = max(0.0, value, high) + 0.015 * room
    axes.text(right, place, text, va="center", fontsize=7.5, fontweight="bold" if best else "normal")


def _references(axes: "Axes", panel: Panel, reach: tuple[float, float], length: int) -> None:
    """The heading, and below it noise ceiling and chance level: in words, and as broken lines where in reach."""
    known = [("noise ceiling", panel.evaluation.ceiling), ("chance", panel.evaluation.facts.get("chance"))]
    found = {name: float(value) for name, value in known if is_number(value)}
    for name, value in found.items():
        if reach[0] < 100 * value < reach[1]:
            dashes = DASHES[1 if name == "chance" else 2]
            axes.axvline(100 * value, color=INK, linewidth=0.9, linestyle=dashes, zorder=0.9)
    words = ", ".join(f"{name} {hundred(value)}" for name, value in found.items())
    axes.text(0, 1.012, words, transform=axes.transAxes, va="bottom", fontsize=7, color=SOFT)
    axes.set_title("\n".join(plain(part, length) for part in panel.label.split(", ", 1)), pad=15 if words else 6)


def _family_key(figure: "Figure", panels: Sequence[Panel]) -> None:
    from matplotlib.patches import Patch

    shown = {family_of(row) for panel in panels for row in panel.evaluation.rows}
    found = [family for family in FAMILIES if family in shown]
    boxes = [Patch(facecolor=one.fill, hatch=one.hatch, edgecolor=INK, linewidth=0.6) for one in found]
    if len(found) > 1:
        figure.legend(boxes, [one.name for one in found], loc="outside lower center", ncols=len(found))

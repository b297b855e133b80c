"""A chart of values against cost and storage, every point named."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from airrep.evaluation.result import Row
from airrep.reports.charts import family_of, log_ticks, name_axes, panels_of
from airrep.reports.evaluation_tables import BY_CLOCK
from airrep.reports.figures import INK, plain
from airrep.reports.sources import ReportSource
from airrep.reports.tables import bytes_text, seconds_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TURNS = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))
"""Directions in which a name is tried from its marker."""
FAR = (0, 8, 16, 26, 38)
"""Pixels by which a name is tried to be moved away."""


def cost_scatter(panels: Sequence[ReportSource], label: str) -> "Figure":
    """Value × 100 against the seconds for one example; the larger a marker, the more storage.

    Names of rows whose seconds are those by the clock say so. Each panel has a row whose time is known.
    """
    figure, grid, across = panels_of(len(panels), 2, 2.75, 0.5)
    for axes, panel in zip(grid, panels, strict=True):
        _scatter_panel(axes, timed(panel))
        axes.set_title(plain(panel.label, 34))
    unit = "Seconds for one training example" if by_clock(panels) else "CPU time for one training example"
    name_axes(grid, across, unit, label)
    _size_key(figure, panels)
    figure.draw_without_rendering()  # a name's place depends on where the panels come to stand
    for axes, panel in zip(grid, panels, strict=True):
        _name_points(axes, timed(panel))
    return figure


def by_clock(panels: Sequence[ReportSource]) -> bool:
    """Whether some seconds are wall-clock time, not process CPU time."""
    return any(row.cost is not None and row.cost.clock for panel in panels for row in timed(panel))


def timed(panel: ReportSource) -> list[Row]:
    """The rows whose time is known."""
    return [row for row in panel.evaluation.rows if row.cost is not None and (row.cost.seconds_per_example or 0) > 0]


def _spot(row: Row) -> tuple[float, float, float]:
    """Place of a row: seconds, value × 100, and the diameter of its marker in points."""
    if row.cost is None or row.cost.seconds_per_example is None:
        return math.nan, math.nan, math.nan
    return row.cost.seconds_per_example, 100 * row.value, _diameter(row.cost.bytes_per_example)


def _diameter(size: float) -> float:
    """Diameter of a marker in points: 4 up to 100 bytes, 2.5 more for each factor of 10, at most 18."""
    return float(np.clip(4 + 2.5 * (math.log10(max(size, 1.0)) - 2), 4, 18))


def _scatter_panel(axes: "Axes", rows: Sequence[Row]) -> None:
    for row in sorted(rows, key=lambda row: -_spot(row)[2]):  # small markers on top of large ones
        x, y, size = _spot(row)
        low, high = (100 * end for end in row.interval)
        axes.plot([x, x], [low, high], color=INK, linewidth=0.9, zorder=2)
        face = family_of(row).fill
        axes.plot(
            [x], [y], "o", markersize=size, color=face, markeredgecolor=INK, markeredgewidth=0.9, alpha=0.85, zorder=3
        )
    times = [_spot(row)[0] for row in rows]
    axes.set_xscale("log")
    axes.set_xlim(min(times) / 4, max(times) * 6)
    axes.margins(y=0.12)
    log_ticks(axes, seconds_text)


def _size_key(figure: "Figure", panels: Sequence[ReportSource]) -> None:
    from matplotlib.lines import Line2D

    sizes = [row.cost.bytes_per_example for panel in panels for row in timed(panel) if row.cost is not None]
    low, high = (round(math.log(max(end(sizes), 1.0), 8)) for end in (min, max))
    step = max(1, -(-(high - low) // 4))
    # powers of 8 are whole numbers of bytes, KiB and MiB
    marks = [8.0**power for power in range(max(low, 2), max(high, 2) + 1, step)]
    look: dict[str, Any] = {"marker": "o", "linestyle": "", "color": "#e6e8eb", "markeredgecolor": INK}
    dots = [Line2D([], [], markersize=_diameter(size), **look) for size in marks]
    texts = [f"storage per example: {bytes_text(size)}" if size == marks[0] else bytes_text(size) for size in marks]
    figure.legend(dots, texts, loc="outside lower center", ncols=len(marks))


def _name_points(axes: "Axes", rows: Sequence[Row]) -> None:
    """Write each name where it covers neither a marker nor another name, as near as there is room."""
    from matplotlib.transforms import Bbox

    scale = axes.figure.dpi / 72
    spots = {row.name: (*axes.transData.transform(_spot(row)[:2]), _spot(row)[2] * scale / 2) for row in rows}
    taken = [Bbox([[x - r, y - r], [x + r, y + r]]) for x, y, r in spots.values()]
    taken += [_whisker(axes, row) for row in rows]
    for row in sorted(rows, key=lambda row: -row.value):
        x, y, radius = spots[row.name]
        text = plain(row.name, 22) + (f", {BY_CLOCK}" if row.cost is not None and row.cost.clock else "")
        width, height = _extent(axes, text)
        boxes = [_box(x, y, radius + 3 * scale, width, height, turn, far) for far in FAR for turn in TURNS]
        inside = [box for box in boxes if _within(axes, box)] or boxes  # in order: nearest first
        others = [spot for name, spot in spots.items() if name != row.name]
        best = min(
            inside,
            key=lambda box: (
                sum(_overlap(box, other) for other in taken),
                _is_by_another(box, spots[row.name], others),
                inside.index(box),
            ),
        )
        taken.append(best)
        _write_name(axes, text, best, spots[row.name], line=_is_by_another(best, spots[row.name], others))


def _whisker(axes: "Axes", row: Row) -> Any:
    from matplotlib.transforms import Bbox

    seconds = _spot(row)[0]
    (x, low), (_, high) = (axes.transData.transform((seconds, 100 * end)) for end in row.interval)
    return Bbox([[x - 1, low], [x + 1, high]])


def _extent(axes: "Axes", text: str) -> tuple[float, float]:
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    box = TextPath((0, 0), text, size=7.5, prop=FontProperties(family="DejaVu Sans")).get_extents()
    scale = axes.figure.dpi / 72
    return box.width * scale, 7.5 * scale


def _box(x: float, y: float, gap: float, width: float, height: float, turn: tuple[int, int], far: float) -> Any:
    from matplotlib.transforms import Bbox

    across, up = turn
    left = x + across * (gap + far) - (width if across < 0 else width / 2 if across == 0 else 0)
    low = y + up * (gap + far) - (height if up < 0 else height / 2 if up == 0 else 0)
    return Bbox.from_bounds(left, low, width, height)


def _within(axes: "Axes", box: Any) -> bool:
    frame = axes.bbox
    return bool(box.x0 >= frame.x0 and box.x1 <= frame.x1 and box.y0 >= frame.y0 and box.y1 <= frame.y1)


def _overlap(one: Any, other: Any) -> float:
    wide = min(one.x1, other.x1) - max(one.x0, other.x0)
    tall = min(one.y1, other.y1) - max(one.y0, other.y0)
    return float(max(wide, 0) * max(tall, 0))


def _is_by_another(box: Any, own: tuple[float, float, float], others: Sequence[tuple[float, float, float]]) -> bool:
    """Whether some other marker is about as near to a name as its own."""
    return any(_gap(box, other) < _gap(box, own) + 6 for other in others)


def _gap(box: Any, spot: tuple[float, float, float]) -> float:
    """Pixels between a box and a marker."""
    x, y, radius = spot
    return math.dist(_nearest(box, x, y), (x, y)) - radius


def _nearest(box: Any, x: float, y: float) -> tuple[float, float]:
    """The point of a box that is nearest to another."""
    return min(max(x, box.x0), box.x1), min(max(y, box.y0), box.y1)


def _write_name(axes: "Axes", text: str, box: Any, spot: tuple[float, float, float], *, line: bool) -> None:
    """Write a name, with a thin line to its marker where that is far, or where *line* asks for one."""
    x, y, radius = spot
    inverse = axes.transData.inverted()
    left, middle = inverse.transform((box.x0, box.y0 + box.height / 2)).tolist()
    axes.text(left, middle, text, fontsize=7.5, va="center", ha="left", zorder=5)
    near = _nearest(box, x, y)
    if line or math.dist(near, (x, y)) > radius + 8:
        ends = np.array([inverse.transform(near), inverse.transform((x, y))])
        axes.plot(ends[:, 0], ends[:, 1], color=INK, linewidth=0.6, zorder=4)
        axes.plot(ends[1:, 0], ends[1:, 1], "o", color=INK, markersize=2, zorder=4)

"""Draws the charts of reports as plain SVG: bars, curves, costs."""

import math
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any, NamedTuple

from airrep.evaluation.result import Row
from airrep.reports.evaluation_tables import BY_CLOCK, mark_of
from airrep.reports.sources import Point, ReportSource, panel_rows
from airrep.reports.tables import bytes_text, hundred, seconds_text, short, three, visible
from airrep.runtime.tracking import is_number

INK, SOFT, GRID = "#1a1d22", "#59616d", "#d4d8de"
COLOURS = ("#0b5394", "#b8460e", "#00745a", "#8e3a8a", "#1a1d22", "#a37200", "#2f8fc4", "#7a7f87", "#c2185b", "#5d8a00")
DASHES = ("", "7 2", "2 2", "8 2 2 2")
WIDTH, SIZE, ROW = 740, 11.5, 20
"""Pixels: width of a chart, font size, and distance between bars."""
BANDS = 5
"""With at most this many lines, intervals are drawn as bands, else as whiskers."""
WIDE = 8
"""Least ratio of largest to smallest value for a logarithmic axis."""


class Family(NamedTuple):
    """A group of methods and the fill of its bars, which differs without colour too."""

    name: str
    fill: str
    methods: tuple[str, ...]


_GRADIENTS = ("tracin", "logra", "trak", "dsdm", "less", "metagradient", "influence", "ekfac", "readout")
FAMILIES = (
    Family("representations", "#8fb8ea", ("airrep", "gte", "rds", "stack")),
    Family("gradients", "url(#hatch)", _GRADIENTS),
    Family("others", "#ffffff", ()),
)


class Chart(NamedTuple):
    """A drawing and its height."""

    height: float
    parts: list[str]

    def svg(self, name: str, title: str, description: str) -> str:
        """Return an SVG element for a page or file; *name* begins its ids, the texts are for screen readers."""
        hatch = (
            '<pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
            f'<rect width="6" height="6" fill="#f4c7a5"/><path d="M0 0V6" stroke="{INK}" stroke-width="1.4"/></pattern>'
        )
        content = "".join(["<defs>", hatch, "</defs>", *self.parts]).replace("#hatch", f"#{name}-hatch")
        content = content.replace('id="hatch"', f'id="{name}-hatch"')
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height:g}" width="{WIDTH}" '
            f'height="{self.height:g}" role="img" aria-label="{escape(visible(title))}" class="drawing" '
            f'font-family="system-ui, sans-serif" font-size="{SIZE}" fill="{INK}"><desc>{_safe(description)}</desc>'
            f'<rect width="100%" height="100%" fill="#ffffff"/>{content}</svg>'
        )


class Axis(NamedTuple):
    """The range of one axis, from its low end to its high one."""

    low: float
    high: float
    log: bool = False

    def part(self, value: float) -> float:
        """Return the position of a value: 0 at the low end, 1 at the high end."""
        ends = (self.low, self.high, value)
        low, high, at = map(math.log, ends) if self.log else ends
        return (at - low) / ((high - low) or 1.0)

    def ticks(self) -> list[float]:
        """Return about five round values within the range."""
        if self.log:
            powers = range(math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9) + 1)
            return [10.0**power for power in powers[:: max(1, -(-len(powers) // 7))]]
        rough = (self.high - self.low) / 6 or 1.0
        unit = 10 ** math.floor(math.log10(rough))
        step = unit * next(times for times in (1, 2, 5, 10) if times * unit >= rough * (1 - 1e-9))
        first = math.ceil(self.low / step - 1e-9)
        return [step * number for number in range(first, math.floor(self.high / step + 1e-9) + 1)]


class Panel(NamedTuple):
    """A part of a chart with its own axes; positions are in pixels."""

    left: float
    top: float
    width: float
    height: float
    across: Axis
    up: Axis

    def x(self, value: float) -> float:
        """Pixels from the left of the chart."""
        return self.left + self.width * self.across.part(value)

    def y(self, value: float) -> float:
        """Pixels from its top."""
        return self.top + self.height * (1 - self.up.part(value))

    def frame(self, title: str, below: str, beside: str, show: Callable[[float], str], **ticks: Any) -> list[str]:
        """Draw grid, ticks, axis names and title; *ticks* may give values with texts for either axis."""
        bottom, parts = self.top + self.height, []
        for value, words in ticks.get("across") or [(one, show(one)) for one in self.across.ticks()]:
            parts += [_line(self.x(value), self.top, self.x(value), bottom, GRID, 0.8)]
            parts += [_text(self.x(value), bottom + 15, words, "middle", fill=SOFT)]
        for value, words in ticks.get("up") or [(one, three(one)) for one in self.up.ticks()]:
            parts += [_line(self.left, self.y(value), self.left + self.width, self.y(value), GRID, 0.8)]
            parts += [_text(self.left - 6, self.y(value) + 4, words, "end", fill=SOFT)]
        parts += [
            _line(self.left, bottom, self.left + self.width, bottom),
            _line(self.left, self.top, self.left, bottom),
        ]
        parts += [_text(self.left + self.width / 2, bottom + 32, below, "middle")]
        parts += [_text(self.left - 46, self.top - 8, beside, fill=SOFT)] if beside else []
        place = self.left + (_wide(beside) - 30 if beside else 0)
        return [
            *parts,
            _text(max(self.left, place), self.top - 8, _cut(title, self.width - (70 if beside else 0)), bold=True),
        ]


def _safe(text: str) -> str:
    return escape(visible(text), quote=False)


def _wide(text: str) -> float:
    return SIZE * sum(1.0 if unicodedata.east_asian_width(sign) in "WF" else 0.57 for sign in text)


def _cut(text: str, width: float) -> str:
    return short(text, max(4, int(width / (0.57 * SIZE))))


def _text(x: float, y: float, words: str, anchor: str = "start", *, bold: bool = False, fill: str = INK) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}"{weight}>{_safe(words)}</text>'


def _line(
    x: float, y: float, to_x: float, to_y: float, colour: str = INK, width: float = 1.0, dash: str = "", fade: float = 1
) -> str:
    return _path([(x, y), (to_x, to_y)], colour, width, dash, fade)


def _path(places: Iterable[tuple[float, float]], colour: str, width: float, dash: str = "", fade: float = 1) -> str:
    shown = f' stroke-dasharray="{dash}"' if dash else ""
    shown += f' opacity="{fade}"' if fade < 1 else ""
    return f'<path d="{_moves(places)}" fill="none" stroke="{colour}" stroke-width="{width:g}"{shown}/>'


def _moves(places: Iterable[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)


def _band(panel: Panel, at: Sequence[float], low: Sequence[float], high: Sequence[float], number: int) -> str:
    places = [
        (panel.x(x), panel.y(y)) for x, y in [*zip(at, high, strict=True), *reversed(list(zip(at, low, strict=True)))]
    ]
    return f'<path d="{_moves(places)}Z" fill="{COLOURS[number % len(COLOURS)]}" opacity="0.14"/>'


_SHAPES = (
    "", "M-1-1H1V1H-1Z", "M0-1.2L1.1.9H-1.1Z", "M0-1.3L1.3 0 0 1.3-1.3 0Z", "M0 1.2L1.1-.9H-1.1Z",
    "M-.45-1.2H.45V-.45H1.2V.45H.45V1.2H-.45V.45H-1.2V-.45H-.45Z",
)  # fmt: skip
"""Outlines of markers about 0; the first is a circle."""


def _marker(number: int, x: float, y: float) -> str:
    """The marker of the row with a number: 6 shapes, filled or hollow, and 10 colours, so that 60 look unlike."""
    colour = COLOURS[number % len(COLOURS)]
    fill, shape = ("#ffffff" if number // len(_SHAPES) % 2 else colour), _SHAPES[number % len(_SHAPES)]
    look = f'fill="{fill}" stroke="{colour}"'
    if not shape:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" {look} stroke-width="1.4"/>'
    moved = f"translate({x:.1f} {y:.1f}) scale(3.5)"
    return f'<path d="{shape}" transform="{moved}" {look} stroke-width="0.40"/>'


def _legend(names: Sequence[str], top: float, *, lines: bool) -> list[str]:
    """Name the markers, and the lines through them, four in a row."""
    parts, step = [], WIDTH / 4
    for number, name in enumerate(names):
        x, y = 20 + step * (number % 4), top + 18 * (number // 4)
        dash, colour = DASHES[number % len(DASHES)], COLOURS[number % len(COLOURS)]
        parts += [_line(x - 12, y - 4, x + 12, y - 4, colour, 1.4, dash)] if lines else []
        parts += [_marker(number, x, y - 4), _text(x + 17, y, _cut(name, step - 36))]
    return parts


def _legend_height(names: Sequence[str]) -> int:
    return 10 + 18 * -(-len(names) // 4)


def _places(
    count: int, most: int, height: float, *, left: float, top: float
) -> tuple[list[tuple[float, float, float, float]], float]:
    """Return left, top, width and height of each panel, *most* of them side by side, and the lower end of the last."""
    across = 2 if count == 4 else min(count, most)  # four as a square rather than three and one
    step, deep = WIDTH / across, height + top + 44
    places = [(step * (n % across) + left, deep * (n // across) + top, step - left - 16, height) for n in range(count)]
    return places, deep * -(-count // across)


def bars(panels: Sequence[ReportSource], label: str) -> Chart:
    """Value × 100 of each row as bars with whiskers, one panel each; rows stand in one order."""
    names, rows = panel_rows(panels), [row for panel in panels for row in panel.evaluation.rows]
    left = min(175.0, 14 + max((_wide(name) for name in names), default=0))
    places, height = _places(len(panels), 2, ROW * len(names), left=left, top=44)
    parts: list[str] = []
    for place, panel in zip(places, panels, strict=True):
        drawn = Panel(*place, _reach(rows), Axis(len(names), 0))
        parts += drawn.frame(
            panel.label, label, "", three, up=[(n + 0.5, _cut(one, left - 10)) for n, one in enumerate(names)]
        )
        parts += _references(drawn, panel)
        for number, name in enumerate(names):
            parts += _bar(drawn, number + 0.5, panel.rows.get(name), panel.evaluation.best)
    return Chart(height + 24, [*parts, *_family_key(rows, height + 14)])


def _reach(rows: Sequence[Row]) -> Axis:
    """The axis that holds all whiskers and 0, and on the right the numbers."""
    ends = [0.0, *(100 * end for row in rows for end in (*row.interval, row.value))]
    span = (max(ends) - min(ends)) or 1.0
    return Axis(min(ends) - (0.04 * span if min(ends) < 0 else 0), max(ends) + 0.28 * span)


def family_of(row: Row) -> Family:
    """The family of a row's method; "others" for methods in none."""
    return next((family for family in FAMILIES if row.method in family.methods), FAMILIES[-1])


def _bar(panel: Panel, place: float, row: Row | None, best: Row) -> list[str]:
    y = panel.y(place)
    if row is None:
        return [_text(panel.x(0) + 4, y + 4, "not run", fill=SOFT)]
    value, low, high = (100 * one for one in (row.value, *row.interval))
    start, width = min(panel.x(0), panel.x(value)), abs(panel.x(value) - panel.x(0))
    bold = row.value == best.value
    words = " ".join(filter(None, [hundred(row.value), mark_of(row)]))
    box = f'x="{start:.1f}" y="{y - 7:.1f}" width="{width:.1f}" height="14" stroke-width="{1.6 if bold else 0.7}"'
    return [
        f'<rect {box} fill="{family_of(row).fill}" stroke="{INK}"/>',
        _whisker(panel, low, high, y),
        _text(panel.x(max(0.0, value, high)) + 5, y + 4, words, bold=bold),
    ]


def _whisker(panel: Panel, low: float, high: float, y: float) -> str:
    start, end = panel.x(low), panel.x(high)
    caps = "".join(f"M{x:.1f} {y - 3:.1f}v6" for x in (start, end))
    return f'<path d="M{start:.1f} {y:.1f}H{end:.1f}{caps}" stroke="{INK}" stroke-width="1.1" fill="none"/>'


def _references(panel: Panel, source: ReportSource) -> list[str]:
    """Noise ceiling and chance: in words above the bars, and as broken lines where in reach."""
    known = {"noise ceiling": source.evaluation.ceiling, "chance": source.evaluation.facts.get("chance")}
    found = {name: float(value) for name, value in known.items() if is_number(value)}
    words = ", ".join(f"{name} {hundred(value)}" for name, value in found.items())
    parts = [_text(panel.left, panel.top - 24, words, fill=SOFT)] if words else []
    for name, value in found.items():
        if panel.across.low < 100 * value < panel.across.high:
            x = panel.x(100 * value)
            parts.append(_line(x, panel.top, x, panel.top + panel.height, INK, 1, DASHES[1 if name == "chance" else 2]))
    return [*parts, _line(panel.x(0), panel.top, panel.x(0), panel.top + panel.height)]


def _family_key(rows: Sequence[Row], y: float) -> list[str]:
    found, parts = [family for family in FAMILIES if family in {family_of(row) for row in rows}], []
    for number, family in enumerate(found if len(found) > 1 else ()):
        box = f'<rect x="{14 + 150 * number}" y="{y - 10}" width="18" height="12" fill="{family.fill}" stroke="{INK}"/>'
        parts += [box, _text(38 + 150 * number, y, family.name)]
    return parts


def _fitting(rows: Iterable[Row]) -> Axis:
    """Return an axis for the intervals of rows × 100, with a margin."""
    ends = [100 * end for row in rows for end in (*row.interval, row.value)]
    room = 0.08 * ((max(ends) - min(ends)) or 1.0)
    return Axis(min(ends) - room, max(ends) + room)


def curves(groups: Sequence[tuple[str, Sequence[Point]]], tag: str, label: str) -> Chart:
    """Draw value × 100 against a numeric tag, with a line for each row and a panel for each group."""
    names = panel_rows([point.source for _, points in groups for point in points])
    places, height = _places(len(groups), 2, 190, left=52, top=30)
    parts: list[str] = []
    for place, (heading, points) in zip(places, groups, strict=True):
        at = [point.at for point in points]
        rows = [row for point in points for row in point.source.evaluation.rows]
        panel = Panel(*place, _along(at), _fitting(rows))
        few = {"across": [(one, three(one)) for one in at]} if len(at) <= 7 else {}
        parts += panel.frame(heading, tag.replace("_", " "), label, three, **few)
        for number, name in enumerate(names):
            own = [(point.at, point.source.rows[name]) for point in points if name in point.source.rows]
            parts += _curve(panel, own, number, len(names)) if own else []
    return Chart(height + _legend_height(names), [*parts, *_legend(names, height + 12, lines=True)])


def _along(at: Sequence[float]) -> Axis:
    """Return the axis of a tag's values, logarithmic if they are far apart."""
    if min(at) > 0 and max(at) / min(at) >= WIDE:
        return Axis(min(at) / 1.15, max(at) * 1.15, log=True)
    room = 0.04 * (max(at) - min(at)) or 1.0
    return Axis(min(at) - room, max(at) + room)


def _curve(panel: Panel, rows: Sequence[tuple[float, Row]], number: int, count: int) -> list[str]:
    colour, at = COLOURS[number % len(COLOURS)], [place for place, _ in rows]
    low, high = ([100 * row.interval[end] for _, row in rows] for end in (0, 1))
    aside, parts = 0.0, []
    if count <= BANDS and len(at) > 1:
        parts.append(_band(panel, at, low, high, number))
    else:  # whiskers of several lines stand side by side
        aside = 8 * ((number + 0.5) / count - 0.5)
        for x, *ends in zip(at, low, high, strict=True):
            y, to_y = map(panel.y, ends)
            parts.append(_line(panel.x(x) + aside, y, panel.x(x) + aside, to_y, colour, 0.9, fade=0.7))
    places = [(panel.x(x) + aside, panel.y(100 * row.value)) for x, row in rows]
    parts.append(_path(places, colour, 1.5, DASHES[number % len(DASHES)]))
    return [*parts, *(_marker(number, x, y) for x, y in places)]


def timed(panel: ReportSource) -> list[Row]:
    """Return the rows whose time is known."""
    return [row for row in panel.evaluation.rows if row.cost is not None and (row.cost.seconds_per_example or 0) > 0]


def by_clock(panels: Sequence[ReportSource]) -> bool:
    """Return True if some seconds are wall-clock time instead of process CPU time."""
    return any(row.cost is not None and row.cost.clock for panel in panels for row in timed(panel))


def costs(panels: Sequence[ReportSource], label: str) -> Chart:
    """Draw value × 100 against the seconds for one example; a larger disc means more storage per example.

    The legend marks rows whose seconds are wall-clock time. Each panel must have a row whose time is known.
    """
    rows = {row.name: row for panel in panels for row in timed(panel)}
    names = list(rows)
    places, height = _places(len(panels), 2, 200, left=52, top=30)
    below = "Seconds for one training example" if by_clock(panels) else "CPU time for one training example"
    parts: list[str] = []
    for place, panel in zip(places, panels, strict=True):
        found = timed(panel)
        seconds = [row.cost.seconds_per_example or 0 for row in found if row.cost]
        drawn = Panel(*place, Axis(min(seconds) / 3, max(seconds) * 3, log=True), _fitting(found))
        parts += drawn.frame(panel.label, below, label, seconds_text)
        spots = [(row, drawn.x(at), drawn.y(100 * row.value)) for row, at in zip(found, seconds, strict=True)]
        parts += [_disc(x, y, row.cost.bytes_per_example) for row, x, y in spots if row.cost]
        for row, x, y in spots:
            parts.append(_line(x, drawn.y(100 * row.interval[0]), x, drawn.y(100 * row.interval[1]), SOFT, 0.9))
            parts.append(_marker(names.index(row.name), x, y))
    clocked = [f"{name}, {BY_CLOCK}" if row.cost and row.cost.clock else name for name, row in rows.items()]
    sizes = _size_key([row.cost.bytes_per_example for row in rows.values() if row.cost], height + 14)
    key = _legend(clocked, height + 38, lines=False)
    return Chart(height + 26 + _legend_height(names), [*parts, *sizes, *key])


def _disc(x: float, y: float, size: float) -> str:
    """Draw a pale disc for storage: radius 4 up to 100 bytes, plus 2 for each factor of 10, at most 14."""
    radius = min(max(4 + 2 * (math.log10(max(size, 1.0)) - 2), 4.0), 14.0)
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="#dfe3e8" stroke="{SOFT}" opacity="0.7"/>'


def _size_key(sizes: Sequence[float], y: float) -> list[str]:
    """Draw the key of disc sizes at powers of 8, which are whole numbers of bytes, KiB and MiB."""
    low, high = (max(2, round(math.log(max(end(sizes), 1.0), 8))) for end in (min, max))
    parts, x = [_text(2, y, "storage per example:")], 150.0
    for power in range(low, high + 1, max(1, -(-(high - low) // 4))):
        parts += [_disc(x, y - 4, 8.0**power), _text(x + 18, y, bytes_text(8.0**power))]
        x += 110
    return parts

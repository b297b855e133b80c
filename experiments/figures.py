"""Draw the figures in docs/figures from the results in this folder, and from those of a benchmark.

Usage: python experiments/figures.py

`lm-size` has LDS × 100 over the size of the language model that judges the same subsets, `cost` over CPU seconds, a
panel for each role; `subset-size` has it over the size of the subsets. Values and intervals are those of the artifacts
in `*/results/`, and those that `smollm2/weigh.py` made of them; the seconds, which no artifact has, are those of
`smollm2/costs.yaml`. `scale` has the CPU time of an
example over the size of the index, as `benchmarks/ten_million.py --numbers` wrote it. What was never run (`NOT_RUN`)
is left out; if another result is not there, nothing is drawn. The same results give the same bytes.
"""

import json
import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from html import escape
from itertools import pairwise
from math import ceil, log10
from pathlib import Path
from textwrap import wrap
from typing import Any, NamedTuple

import yaml

from airrep.evaluation.result import Evaluation, Row

HERE = Path(__file__).parent.resolve()
OUT = HERE.parent / "docs" / "figures"
ROLES = {
    "tasks": "30 NLP tasks",
    "mixture": "mixture",
    "general": "general instructions",
    "safety": "many answers (safety)",
}
"""Titles of the panels."""
INK, SOFT, GRID, PAPER = "#1b2433", "#59616d", "#d4d8de", "#ffffff"
"""Colours do not follow the page: a figure brings its own white paper, for light and dark pages alike."""
WIDTH, TOP, BOTTOM, LEFT, PANEL, GAP = 900, 106, 376, 52, 194, 18
"""Pixels: of the figure; where panels begin and end; of a panel and between two."""


class Series(NamedTuple):
    """One method, and how it is drawn."""

    label: str
    colour: str
    shape: str
    """Outline around 0, 0 in pixels."""
    filled: bool = True


CIRCLE = "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z"
SQUARE = "M-4-4h8v8h-8z"
TRIANGLE = "M0-5L5 4H-5z"
DIAMOND = "M0-6L5 0L0 6L-5 0z"
TIP = "M0 5L-5-4H5z"
SERIES = {
    "counting": Series("counting n-grams", SOFT, CIRCLE),
    "text": Series("channels of text", "#1d56b3", SQUARE),
    "expected": Series("text less what the LM expects", "#9a2a86", TRIANGLE),
    "logra": Series("channels with LoGra", "#b3661d", DIAMOND),
    "logra-alone": Series("LoGra alone", "#b3661d", DIAMOND, filled=False),
    "warmed": Series("LoGra before and after a warm-up", "#8a1538", DIAMOND),
    "both": Series("channels with LoGra and EK-FAC", "#2c7a3f", TIP),
    "ekfac": Series("channels with EK-FAC", "#2c7a3f", TIP),
    "ekfac-alone": Series("EK-FAC alone", "#2c7a3f", TIP, filled=False),
}
LEGEND = {
    26: ("counting",),
    196: ("text", "expected"),
    452: ("logra", "logra-alone", "warmed"),
    640: ("both", "ekfac", "ekfac-alone"),
}
"""Series in columns, by where a column begins in pixels."""
STEPS = {
    "build, append, change": {
        "build": ("build a tenth", "#1d56b3", SQUARE),
        "append": ("append the rest", "#b3661d", DIAMOND),
        "compact": ("compact", "#2c7a3f", TIP),
        "verify": ("verify every byte", "#9a2a86", TRIANGLE),
        "delete": ("delete a tenth", SOFT, CIRCLE),
    },
    "ask": {
        "group": ("groups, 16 queries", "#1d56b3", SQUARE),
        "what_if": ("what-if", "#9a2a86", TRIANGLE),
        "select": ("select, 16 queries", "#2c7a3f", TIP),
        "top 16 queries": ("top 10, 16 queries", "#b3661d", DIAMOND),
        "top warm": ("top 10, warm", SOFT, CIRCLE),
        "open": ("open", INK, SQUARE),
    },
}
"""Steps of the benchmark of sizes, by panel: label, colour and shape."""
NUMBERS = HERE.parent / "benchmarks" / "ten_million.jsonl"
SHIFT = 4.5
"""Pixels between the points of neighbouring series at one size, so that intervals do not hide each other."""


class Judge(NamedTuple):
    """A language model that judged, and where its results are."""

    name: str
    parameters: float
    rows: Mapping[str, tuple[str, str]]
    """For each series the evaluation, with {role}, and the name of the row."""


WEIGHED = "smollm2/weighed.yaml"
"""Series that have no evaluation of their own, by role."""
SMOLLM2 = Judge(
    "135M",
    1.35e8,
    {
        "counting": ("smollm2/results/{role}", "N-grams-LM"),
        "text": ("smollm2/results/{role}", "Channels-text"),
        "expected": ("smollm2/results/{role}", "Channels-expected"),
        "logra": ("smollm2/results/{role}-gradients", "Channels-LoGra"),
        "logra-alone": ("smollm2/results/{role}-gradients", "LoGra"),
        "warmed": (WEIGHED, "{role} warmed"),
        "both": (WEIGHED, "{role} both"),
        "ekfac": (WEIGHED, "{role} ekfac"),
        "ekfac-alone": ("smollm2/results/{role}-whole-gradients", "EK-FAC-0.75"),
    },
)


def _smaller(name: str, parameters: float) -> Judge:
    """A smaller LM that judged the pools, queries and subsets that SmolLM2 judged, too."""
    folder = f"smollm2/results/{{role}}-{name}"
    rows = {
        series: (folder, SMOLLM2.rows[series][1]) for series in ("counting", "text", "expected", "logra", "logra-alone")
    }
    weighed = {series: (WEIGHED, f"{{role}}-{name} {series}") for series in ("both", "ekfac")}
    return Judge(name, parameters, {**rows, **weighed, "ekfac-alone": (f"{folder}-whole-gradients", "EK-FAC-0.75")})


CURVE = (_smaller("2.6M", 2.6e6), _smaller("4.5M", 4.5e6), _smaller("57M", 5.7e7), SMOLLM2)
CURVED = ("tasks", "mixture")
"""Roles that these judged."""


def _large(role: str) -> Judge:
    """SmolLM2 on subsets of 1,000."""
    folders = {"counting": "", "text": "", "logra": "-gradients"}
    rows = {name: (f"smollm2/results/{role}-1000{folder}", SMOLLM2.rows[name][1]) for name, folder in folders.items()}
    weighed = {name: (WEIGHED, f"{role}-1000 {name}") for name in ("warmed", "both")}
    return Judge("1,000", 1000, {**rows, **weighed})


def _sized(size: int) -> Judge:
    """The LM of 4.5M on subsets of another size than the role's own."""
    folder = f"channels/results/size-{size}"
    rows = {"text": "Channels-text", "logra": "Channels-LoGra", "both": "Channels-both"}
    whole = {name: (f"{folder}-whole-gradients", row) for name, row in rows.items()}
    warmed = (f"{folder}-warmed-channels", "Channels-warmed")
    return Judge(str(size), size, {"counting": (folder, "N-grams"), "warmed": warmed, **whole})


_OWN_SIZE = Judge(
    "100",
    100,
    {
        "counting": ("channels/results/tasks-logra", "N-grams-LM"),
        "text": ("channels/results/tasks-logra", "Channels-text"),
        "logra": ("channels/results/tasks-logra", "Channels-LoGra"),
        "warmed": ("channels/results/tasks-warmed-channels", "Channels-warmed"),
        "both": ("channels/results/tasks-gradients", "Channels-both"),
    },
)
_SMALL = Judge("50", 50, {name: SMOLLM2.rows[name] for name in ("counting", "text", "logra", "warmed", "both")})
SIZED = {
    ("tasks", "4.5M: 30 NLP tasks"): (_sized(25), _sized(50), _OWN_SIZE, _sized(200), _sized(400)),
    ("tasks", "SmolLM2-135M: 30 NLP tasks"): (_SMALL, _large("tasks")),
    ("mixture", "SmolLM2-135M: mixture"): (_SMALL, _large("mixture")),
}
"""Role and title of each panel, and what judged there; a judge's parameters are the examples of a subset."""
NOT_RUN = {
    "smollm2/results/tasks-57M-whole-gradients",
    "smollm2/results/mixture-1000-gradients",
}
"""Evaluations that may be missing; once they are there, they are drawn."""


class Judged(NamedTuple):
    """Result of one language model for one role."""

    name: str
    parameters: float
    rows: "Mapping[str, Row | Weighed]"
    """By series; those that were run."""


class Weighed(NamedTuple):
    """A value of ``weighed.yaml``, as those of rows."""

    value: float
    interval: tuple[float, float]


class Axis(NamedTuple):
    """A scale from values to pixels."""

    values: tuple[float, float]
    pixels: tuple[float, float]
    logarithmic: bool = False

    def at(self, value: float) -> float:
        """The pixel of a value."""
        low, high, here = (log10(v) if self.logarithmic else v for v in (*self.values, value))
        begin, end = self.pixels
        return begin + (end - begin) * (here - low) / (high - low)


def main() -> None:
    """Write all figures, or none."""
    if sys.argv[1:]:
        sys.exit("Usage: python experiments/figures.py (it takes no arguments)")
    if lacking := missing():
        sys.exit(f"Nothing was drawn, for lack of {', '.join(map(str, lacking))}.")
    OUT.mkdir(exist_ok=True)
    for name, text in figures().items():
        (OUT / name).write_text(text, encoding="utf-8")
        print(f"{OUT / name}: {len(text.encode()):,} bytes")


def missing(folder: Path = HERE) -> list[Path]:
    """Files and results that are drawn and are not there."""
    judged = [(SMOLLM2, role) for role in ROLES] + [(judge, role) for judge in CURVE for role in CURVED]
    judged += [(judge, role) for (role, _), judges in SIZED.items() for judge in judges]
    places = {place.format(role=role) for judge, role in judged for place, _ in judge.rows.values()} - NOT_RUN
    wanted = [folder / "smollm2" / "costs.yaml", NUMBERS, *(folder / place for place in sorted(places))]
    return [path for path in wanted if not path.exists()]


def figures(folder: Path = HERE) -> dict[str, str]:
    """Name and text of each figure, from the results in a folder of experiments."""
    smollm2 = {role: read(folder, SMOLLM2, role) for role in ROLES}
    sizes = {role: [found for judge in CURVE if (found := read(folder, judge, role))] for role in CURVED}
    costs = yaml.safe_load((folder / "smollm2" / "costs.yaml").read_text(encoding="utf-8"))
    seconds = {name: sum(part["seconds"] for part in parts) for name, parts in costs.items()}
    runs = [json.loads(line) for line in NUMBERS.read_text(encoding="utf-8").splitlines()]
    costs_by_role = {role: judged for role, judged in smollm2.items() if judged}
    subsets = {
        title: [found for judge in judges if (found := read(folder, judge, role))]
        for (role, title), judges in SIZED.items()
    }
    return {
        "lm-size.svg": lm_size(sizes),
        "subset-size.svg": subset_size(subsets),
        "cost.svg": cost(costs_by_role, seconds),
        "scale.svg": scale(runs),
    }


def read(folder: Path, judge: Judge, role: str) -> Judged | None:
    """The rows of one language model and role that are there; None if none is.

    Raises:
        ValueError: they were not judged on the same queries, subsets and losses.
        KeyError: an evaluation lacks the row.
    """
    found: dict[str, Evaluation] = {}
    rows: dict[str, Row | Weighed] = {}
    weighed = folder / WEIGHED
    others = yaml.safe_load(weighed.read_text(encoding="utf-8")) if weighed.exists() else {}
    for series, (place, name) in judge.rows.items():
        path = folder / place.format(role=role)
        if place == WEIGHED:
            if (values := others.get(name.format(role=role).split()[0])) is not None:
                value, low, high = values[name.split()[1]]
                rows[series] = Weighed(value, (low, high))
        elif path.is_dir():
            found[place] = found.get(place) or Evaluation.read(path)
            rows[series] = {row.name: row for row in found[place].rows}[name]
    if not found:
        return None
    if len({evaluation.subject for evaluation in found.values()}) > 1:
        raise ValueError(f"{role}, {judge.name}: results have several subjects; expected one, to compare rows.")
    return Judged(judge.name, judge.parameters, rows)


def lm_size(judged: Mapping[str, Sequence[Judged]]) -> str:
    """LDS over the number of parameters of the LM that judges."""
    title = "LDS × 100 over the size of the language model that judges"
    y = heights(model for models in judged.values() for model in models)
    names = [name for name in SERIES if name not in ("ekfac", "warmed")]
    parts = legend(title, names)
    for number, (role, models) in enumerate(judged.items()):
        x = Axis((1.6e6, 2.4e8), across(number, len(judged)), logarithmic=True)
        ticks = {m.parameters: (m.name,) for m in models}
        parts += panel(ROLES[role], x, y, ticks, labelled=number == 0)
        for place, name in enumerate(names):
            shift = SHIFT * (place - (len(names) - 1) / 2)
            points = [(x.at(m.parameters) + shift, m.rows[name]) for m in models if name in m.rows]
            parts += drawn(SERIES[name], points, y)
    below = (
        "Number of parameters, logarithmic. Bars: 95 % intervals. Every model was fine-tuned on the same 60 subsets of "
        "50 out of 1,200 examples, with the same 100 queries; n-grams are of its own tokens, gradients its own before "
        "fine-tuning. 57M is SmolLM2-135M with 8 of its 30 layers, healed."
    )
    return page(title, spoken(judged, names), parts, below, 46)


def subset_size(judged: Mapping[str, Sequence[Judged]]) -> str:
    """LDS over the number of examples of a subset."""
    title = "LDS × 100 over the size of the subsets that are fine-tuned on"
    names = [name for name in SERIES if any(name in found.rows for sizes in judged.values() for found in sizes)]
    y = heights(found for sizes in judged.values() for found in sizes)
    parts = legend(title, names)
    for number, (panel_title, sizes) in enumerate(judged.items()):
        x = Axis((17, 1_500), across(number, len(judged)), logarithmic=True)
        parts += panel(panel_title, x, y, {found.parameters: (found.name,) for found in sizes}, labelled=number == 0)
        for name in names:
            parts += drawn(SERIES[name], [(x.at(s.parameters), s.rows[name]) for s in sizes if name in s.rows], y)
    below = (
        "Examples of a subset, logarithmic. Bars: 95 % intervals. The model of 4.5M: one pool of 2,400 examples and "
        "200 queries. SmolLM2-135M: subsets of 50 of 1,200 and 100 queries, subsets of 1,000 of 4,000 and 200 others."
    )
    return page(title, spoken(judged, names, "examples"), parts, below, 46)


def cost(judged: Mapping[str, Judged], seconds: Mapping[str, float]) -> str:
    """LDS over CPU seconds, of the methods whose cost is known."""
    title = "LDS × 100 over the cost of one attribution, SmolLM2-135M"
    y = heights(judged.values())
    parts = legend(title, seconds)
    for number, (role, model) in enumerate(judged.items()):
        x = Axis((2, 6_000), across(number), logarithmic=True)
        parts += panel(ROLES[role], x, y, {value: (f"{value:,}",) for value in (10, 100, 1_000)}, labelled=number == 0)
        for name, value in seconds.items():
            if name in model.rows:
                parts += drawn(SERIES[name], [(x.at(value), model.rows[name])], y)
    below = (
        "CPU seconds for 1,200 examples and 100 queries, logarithmic, with the start-up of commands; EK-FAC by the "
        "clock, LoGra without queries. Measured on tasks; examples of the other roles are longer and cost more. "
        "Bars: 95 % intervals."
    )
    costs = ", ".join(f"{SERIES[name].label} {value:,.0f}" for name, value in seconds.items())
    values = spoken({role: [model] for role, model in judged.items()}, list(seconds))
    return page(title, f"CPU seconds on tasks: {costs}. {values}", parts, below, 46)


def scale(runs: Sequence[Mapping[str, Any]]) -> str:
    """CPU time of an example over the rows of the index, a panel for what changes it and one for what asks it."""
    title = "CPU time for each example of an index, by its size"
    parts, told = [text(20, 24, title, weight=True)], []
    width = (WIDTH - LEFT - 2 * GAP) / 2 - 150
    y = Axis((1e-3, 1e3), (BOTTOM, TOP - 40), logarithmic=True)
    for number, (panel_title, steps) in enumerate(STEPS.items()):
        begin = LEFT + 14 + number * (width + 150 + GAP)
        x = Axis((7e3, 1.4e7), (begin, begin + width), logarithmic=True)
        parts.append(text(begin, TOP - 52, panel_title, size=14, weight=True))
        for power in range(-3, 4):
            height = y.at(10.0**power)
            parts.append(line(begin, height, begin + width, height, GRID, 1))
            parts.append(text(begin - 6, height + 4, f"{10.0**power:g} µs", anchor="end", size=11.5))
        parts += [text(x.at(run["rows"]), BOTTOM + 20, f"{run['rows']:,}", anchor="middle", size=11.5) for run in runs]
        ends = {name: costs_of(runs, name)[-1] for name in steps}
        spread = apart([y.at(value) for value in ends.values()], 15)
        for (name, (label, colour, shape)), height in zip(steps.items(), spread, strict=True):
            values = costs_of(runs, name)
            places = [(x.at(run["rows"]), y.at(value)) for run, value in zip(runs, values, strict=True)]
            parts += [line(*before, *after, colour, 1.8) for before, after in pairwise(places)]
            parts += [mark(Series(label, colour, shape), *place) for place in places]
            parts.append(text(begin + width + 8, height + 4, label, size=12.5))
            told.append(f"{label}: {', '.join(f'{value:.3g}' for value in values)}.")
    sizes = ", ".join(f"{run['rows']:,}" for run in runs)
    below = (
        "Microseconds of one thread for each row of the index, of a build and of appends for each row that was "
        "encoded; 384 made-up features a row, appended 9,000 at a time, both axes logarithmic. Lines that go down "
        "share what a command does once."
    )
    return page(title, f"Microseconds at {sizes} rows. {' '.join(told)}", parts, below, 46)


def costs_of(runs: Sequence[Mapping[str, Any]], step: str) -> list[float]:
    """Microseconds of a step for each row, or each that was encoded, run by run."""
    shares = {"build": 0.1, "append": 0.9}
    return [1e6 * run["steps"][step]["cpu"] / (run["rows"] * shares.get(step, 1.0)) for run in runs]


def apart(heights: Sequence[float], least: float) -> list[float]:
    """Heights of labels, moved down so far that none covers another."""
    found, before = dict.fromkeys(range(len(heights)), 0.0), -1e9
    for place in sorted(found, key=lambda place: heights[place]):
        before = found[place] = max(heights[place], before + least)
    return list(found.values())


def heights(judged: Iterable[Judged]) -> Axis:
    """The scale of LDS × 100, to the next ten above every interval; at least 0 to 10."""
    ends = [row.interval[1] for model in judged for row in model.rows.values()]
    return Axis((0, 10 * max(1, ceil(10 * max(ends)))), (BOTTOM, TOP))


def across(number: int, panels: int = len(ROLES)) -> tuple[float, float]:
    """Where a panel of so many begins and ends, in pixels."""
    whole = len(ROLES) * (PANEL + GAP)
    begin = LEFT + number * whole / panels
    return begin, begin + whole / panels - GAP


def panel(title: str, x: Axis, y: Axis, ticks: Mapping[float, Sequence[str]], *, labelled: bool) -> list[str]:
    """Title, grid and ticks; numbers beside the first panel alone."""
    begin, end = x.pixels
    parts = [text(begin, TOP - 12, title, size=14, weight=True)]
    for percent in range(0, int(y.values[1]) + 1, 10):
        height = y.at(percent)
        parts.append(line(begin, height, end, height, GRID if percent else SOFT, 1))
        if labelled and percent % 20 == 0:
            parts.append(text(begin - 8, height + 4, str(percent), anchor="end", size=13))
    for value, lines in ticks.items():
        parts.append(line(x.at(value), BOTTOM, x.at(value), BOTTOM + 5, SOFT, 1))
        for number, words in enumerate(lines):
            parts.append(text(x.at(value), BOTTOM + 20 + 15 * number, words, anchor="middle", size=12.5))
    return parts


def drawn(series: Series, points: Sequence[tuple[float, Row | Weighed]], y: Axis) -> list[str]:
    """Intervals, the line and the marks of a series in one panel; points are x in pixels and row."""
    parts = [
        line(x, y.at(100 * row.interval[0]), x, y.at(100 * row.interval[1]), series.colour, 1.5) for x, row in points
    ]
    places = [(x, y.at(100 * row.value)) for x, row in points]
    for before, after in pairwise(places):
        parts.append(line(*before, *after, series.colour, 1.8, dashed=not series.filled))
    return parts + [mark(series, *place) for place in places]


def legend(title: str, names: Container[str]) -> list[str]:
    """Title, and marks and labels of these series, above the panels."""
    parts = [text(20, 24, title, weight=True)]
    for x, column in LEGEND.items():
        for number, name in enumerate(name for name in column if name in names):
            y = 48 + 20 * number
            parts += [mark(SERIES[name], x, y), text(x + 12, y + 4.5, SERIES[name].label, size=13)]
    return parts


def spoken(judged: Mapping[str, Sequence[Judged]], names: Sequence[str], unit: str = "parameters") -> str:
    """All values in words, for those who do not see the figure."""
    told = []
    for role, models in judged.items():
        for model in models:
            values = ", ".join(f"{SERIES[n].label} {ranged(model.rows[n])}" for n in names if n in model.rows)
            told.append(f"{role}, {model.name} {unit}: {values}.")
    return " ".join(told)


def ranged(row: Row | Weighed) -> str:
    """A value and its interval, × 100."""
    low, high = row.interval
    return f"{100 * row.value:.1f} ({100 * low:.1f} to {100 * high:.1f})"


def page(title: str, description: str, parts: Sequence[str], below: str, depth: int) -> str:
    """The whole figure, with small print that begins so many pixels below the panels."""
    lines = wrap(below, 118)
    small = [text(20, BOTTOM + depth + 17 * number, words, size=12.5) for number, words in enumerate(lines)]
    height = BOTTOM + depth + 17 * len(lines)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'aria-labelledby="title text" font-family="system-ui, sans-serif">'
    )
    names = [f'<title id="title">{escape(title)}</title>', f'<desc id="text">{escape(description)}</desc>']
    paper = f'<rect width="{WIDTH}" height="{height}" rx="8" fill="{PAPER}"/>'
    return "\n".join([head, *names, paper, *parts, *small, "</svg>\n"])


def text(x: float, y: float, words: str, *, anchor: str = "start", size: float = 15, weight: bool = False) -> str:
    """Words at a place; y is their base line."""
    bold = ' font-weight="600"' if weight else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{INK}"{bold}>'
        f"{escape(words)}</text>"
    )


def line(x: float, y: float, to_x: float, to_y: float, colour: str, width: float, *, dashed: bool = False) -> str:
    """A straight line."""
    dashes = ' stroke-dasharray="5 4"' if dashed else ""
    return f'<path d="M{x:.1f} {y:.1f}L{to_x:.1f} {to_y:.1f}" stroke="{colour}" stroke-width="{width}"{dashes}/>'


def mark(series: Series, x: float, y: float) -> str:
    """The mark of a series at a place."""
    fill = series.colour if series.filled else PAPER
    place = f"translate({x:.1f} {y:.1f})"
    return f'<path d="{series.shape}" transform="{place}" fill="{fill}" stroke="{series.colour}" stroke-width="1.5"/>'


if __name__ == "__main__":
    main()

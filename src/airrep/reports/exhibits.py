"""Which tables and figures a set of evaluations gives."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from airrep.errors import ConfigError
from airrep.evaluation.result import Measure
from airrep.planning.plan import Plan
from airrep.reports.evaluation_tables import (
    ABOVE,
    BELOW,
    BY_CLOCK,
    WORDS,
    about,
    commands,
    mark_of,
    value_table,
)
from airrep.reports.figures import Drawing, draw_figure
from airrep.reports.other_tables import (
    comparison_table,
    curve_tables,
    diagnosis_tables,
    extras_table,
    parts_table,
    plan_about,
    plan_tables,
    sources_table,
)
from airrep.reports.sources import MEASURES, Panel, Point, Sources, label_panels, panel_rows
from airrep.reports.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHORT: dict[Measure, str] = {"lds": "LDS × 100", "classify": "accuracy × 100", "select": "F1 × 100", "loo": "LOO × 100"}


@dataclass(frozen=True)
class Exhibit:
    """One numbered table or figure."""

    name: str
    """Of letters, digits and hyphens: its id in the page, and its file's name."""
    title: str
    caption: str
    commands: tuple[str, ...]
    tables: tuple[Table, ...]
    """What it shows, or, of a figure, the numbers behind it."""
    drawing: Drawing | None = None
    """None for a table."""
    folded: bool = False
    """Whether its tables are seen only when unfolded."""


@dataclass(frozen=True)
class Section:
    """Exhibits under one heading."""

    name: str
    heading: str
    exhibits: tuple[Exhibit, ...]


@dataclass(frozen=True)
class Drawer:
    """Draws figures, or leaves their numbers as tables."""

    figures: bool
    png: bool

    def figure(
        self,
        name: str,
        title: str,
        caption: str,
        made: tuple[str, ...],
        tables: Sequence[Table],
        build: "Callable[[], Figure]",
    ) -> Exhibit:
        """A figure with its numbers folded below it; or its numbers alone."""
        if not self.figures:
            return Exhibit(name, title, caption, made, tuple(tables))
        text = " ".join([caption, *(f"Command: {command}" for command in made)])
        drawing = draw_figure(build, name, title, text, png=self.png)
        return Exhibit(name, title, caption, made, tuple(tables), drawing, folded=True)


def sections(sources: Sources, curves: Sequence[str], drawer: Drawer) -> list[Section]:
    """All that a page shows, in its order.

    Args:
        sources: evaluations, comparisons and plans.
        curves: numeric tags to draw the values against.
        drawer: makes the figures.

    Raises:
        ConfigError: no evaluation has the tag of a curve, or a tag of it is not a number.
    """
    _check_curves(sources, curves)
    found = [_measure(measure, sources, curves, drawer) for measure in MEASURES if sources.of(measure)]
    found += [_plan(number, plan, drawer) for number, (_, plan) in enumerate(sources.plans, 1)]
    found += [_comparisons(sources), _diagnoses(sources), _evaluations(sources)]
    return [section for section in found if section.exhibits]


def _check_curves(sources: Sources, curves: Sequence[str]) -> None:
    for tag in curves:
        if not any(tag in source.evaluation.tags for source in sources.evaluations):
            raise ConfigError(
                f"--curve {tag}: no run is tagged {tag}; expected some with numbers. "
                f"Tag them: airrep evaluate ... --tag {tag}=100"
            )


def _measure(measure: Measure, sources: Sources, curves: Sequence[str], drawer: Drawer) -> Section:
    panels = sources.panels(measure, curves)
    found = [_table(f"{measure}-values", value_table(f"{WORDS[measure].heading}: all methods", panels))]
    if drawer.figures:
        found.append(_bars(measure, panels, drawer))
    if drawer.figures and measure == "lds":
        found += _cost(measure, panels, drawer)
    for number, tag in enumerate(dict.fromkeys(curves), 1):
        if groups := sources.curve(measure, tag, curves):
            found.append(_curve(f"{measure}-curve-{number}", measure, tag, groups, drawer))
    for number, panel in enumerate(panels, 1):
        extras, parts = extras_table(panel), parts_table(panel)
        found += [_table(f"{measure}-more-{number}", extras)] if extras else []
        found += [_table(f"{measure}-parts-{number}", parts, folded=True)] if parts else []
    return Section(measure, WORDS[measure].heading, tuple(found))


def _table(name: str, table: Table, *, folded: bool = False) -> Exhibit:
    return Exhibit(name, table.title, table.caption, table.commands, (table,), folded=folded)


def _bars(measure: Measure, panels: Sequence[Panel], drawer: Drawer) -> Exhibit:
    from airrep.reports.charts import bars

    words = WORDS[measure]
    parts = [f"{words.value}. Whiskers: {words.interval}. Bold number and thick edge: best."]
    if any(mark_of(row) for panel in panels for row in panel.evaluation.rows):
        parts.append(f"{ABOVE} or {BELOW}: above or below the first row, by a paired difference beyond chance.")
    if any(panel.evaluation.ceiling is not None for panel in panels):
        parts.append("Dotted line, where in reach: noise ceiling.")
    if any("chance" in panel.evaluation.facts for panel in panels):
        parts.append("Dashed line, where in reach: chance.")
    caption = " ".join([*parts, about(panels)])
    title = f"{words.heading} with intervals"
    tables = (replace(value_table("", panels), more=()),)
    return drawer.figure(
        f"{measure}-bars", title, caption, commands(panels), tables, partial(bars, panels, SHORT[measure])
    )


def _cost(measure: Measure, panels: Sequence[Panel], drawer: Drawer) -> list[Exhibit]:
    from airrep.reports.cost_chart import by_clock, cost_scatter, timed

    shown = [panel for panel in panels if timed(panel)]
    if not shown:
        return []
    words = WORDS[measure]
    clock = f", or in seconds {BY_CLOCK} where a name says so," if by_clock(shown) else ""
    absent = _without_cost(shown)
    caption = (
        f"Up: better. Left: cheaper, in process CPU time{clock} of encoding one training example, logarithmic. "
        f"The larger a marker, the more storage each example takes. Whiskers: {words.interval}. {about(shown)}{absent}"
    )
    title = f"{words.heading} against cost and storage"
    tables = (replace(value_table("", shown), more=()),)
    build = partial(cost_scatter, shown, SHORT[measure])
    return [drawer.figure(f"{measure}-cost", title, caption, commands(shown), tables, build)]


def _without_cost(panels: Sequence[Panel]) -> str:
    """Which rows a figure of costs lacks, and where."""
    from airrep.reports.cost_chart import timed

    gone = {panel.label: [row.name for row in panel.evaluation.rows if row not in timed(panel)] for panel in panels}
    texts = [f"{', '.join(names)}{f' ({label})' if len(panels) > 1 else ''}" for label, names in gone.items() if names]
    return f" Not shown, as their cost is not known: {'; '.join(texts)}." if texts else ""


def _curve(
    name: str, measure: Measure, tag: str, groups: Sequence[tuple[str, Sequence[Point]]], drawer: Drawer
) -> Exhibit:
    from airrep.reports.charts import BANDS, curves

    panels = label_panels([point.source for _, points in groups for point in points])
    words, spoken = WORDS[measure], tag.replace("_", " ")
    shape = "Bands" if len(panel_rows(panels)) <= BANDS else "Vertical lines"
    shape = shape if drawer.figures else "In brackets"
    caption = f"{words.value}. {shape}: {words.interval}. {about(panels)}"
    tables = curve_tables(tag, groups)
    title = f"{words.heading} against {spoken}"
    return drawer.figure(name, title, caption, commands(panels), tables, partial(curves, groups, tag, SHORT[measure]))


def _plan(number: int, plan: Plan, drawer: Drawer) -> Section:
    from airrep.reports.charts import plan_lines

    tables = plan_tables(plan)
    found = [_table(f"plan-{number}-table-{place}", table) for place, table in enumerate(tables, 1)]
    caption = (
        "Predicted process CPU time in all, what is paid once included; both axes are logarithmic. Bands: 95 % "
        f"intervals. Circles and dotted lines: from here on AirRep takes less. {plan_about(plan)}"
    )
    if drawer.figures and plan.methods:
        title, made = "Cost against examples processed", (plan.command,) if plan.command else ()
        found.insert(
            0, drawer.figure(f"plan-{number}-lines", title, caption, made, tables[:1], partial(plan_lines, plan))
        )
    return Section(f"plan-{number}", "Cost", tuple(found))


def _comparisons(sources: Sources) -> Section:
    tables = [comparison_table(name, value) for name, value in sources.comparisons]
    found = [_table(f"comparison-{number}", table) for number, table in enumerate(tables, 1)]
    return Section("comparisons", "Comparisons", tuple(found))


def _diagnoses(sources: Sources) -> Section:
    found = [_table(f"diagnosis-{number}", table) for number, table in enumerate(diagnosis_tables(sources), 1)]
    return Section("diagnosis", "Diagnosis", tuple(found))


def _evaluations(sources: Sources) -> Section:
    table = sources_table(sources)
    return Section("runs", "Runs and commands", (_table("runs-table", table),) if table.lines else ())

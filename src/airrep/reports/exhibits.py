"""The tables and figures that a set of evaluations gives."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from airrep.errors import ConfigError
from airrep.evaluation.result import Measure
from airrep.reports.charts import BANDS, Chart, bars, by_clock, costs, curves, timed
from airrep.reports.evaluation_tables import (
    ABOVE,
    BELOW,
    BY_CLOCK,
    WORDS,
    about,
    commands,
    comparison_tables,
    curve_table,
    extras_table,
    findings_table,
    mark_of,
    parts_table,
    removed_table,
    sources_table,
    value_table,
    words_of,
)
from airrep.reports.sources import Point, ReportSource, Sources, label_panels, panel_rows
from airrep.reports.tables import Table


@dataclass(frozen=True)
class Exhibit:
    """One numbered table or figure."""

    name: str
    """Its id in the page and its file's name: letters, digits and hyphens."""
    title: str
    caption: str
    commands: tuple[str, ...]
    tables: tuple[Table, ...]
    """The table itself, or the numbers behind the figure."""
    folded: bool = False
    """Whether its tables are seen only when unfolded."""
    chart: Chart | None = None
    """What is drawn; None for a table."""

    @property
    def svg(self) -> str:
        """The figure as an element for a page, or a file of its own; empty for a table."""
        text = " ".join([self.caption, *(f"Command: {command}" for command in self.commands)])
        return self.chart.svg(self.name, self.title, text) if self.chart else ""


@dataclass(frozen=True)
class Section:
    """Exhibits under one heading."""

    name: str
    heading: str
    exhibits: tuple[Exhibit, ...]
    note: str = ""
    """A sentence below the heading."""


def sections(sources: Sources) -> list[Section]:
    """The sections of a page, in order.

    Raises:
        ConfigError: no evaluation has one of the tags of which curves are made, or its value is not a number.
    """
    for tag in sources.curves:
        if not any(tag in source.evaluation.tags for source in sources.evaluations):
            raise ConfigError(
                f"--curve {tag}: no run is tagged {tag}; expected some with numbers. "
                f"Tag them: airrep evaluate ... --tag {tag}=100"
            )
    found = [_measure(measure, sources) for measure in WORDS if measure in sources.panels]
    compared = [table for name, one in sources.comparisons for table in comparison_tables(name, one)]
    found.append(Section("comparisons", "Comparisons", _numbered("comparison", compared)))
    diagnosed = [findings_table(name, one) for name, one in sources.diagnoses]
    found.append(Section("diagnosis", "Diagnosis", _numbered("diagnosis", diagnosed)))
    runs = (_table("runs-table", sources_table(sources)),) if sources.evaluations else ()
    found.append(Section("runs", "Runs and commands", runs))
    return [section for section in found if section.exhibits]


def _measure(measure: Measure, sources: Sources) -> Section:
    panels, heading = sources.panels[measure], WORDS[measure].heading
    values = value_table(f"{heading}: all methods", panels)
    exhibits = [_table(f"{measure}-values", values), _bars(f"{measure}-bars", panels, values)]
    if measure == "lds" and any(map(timed, panels)):
        exhibits.append(_cost(f"{measure}-cost", panels))
    for number, tag in enumerate(dict.fromkeys(sources.curves), 1):
        if groups := sources.curve(measure, tag):
            exhibits.append(_curve(f"{measure}-curve-{number}", tag, groups))
    for number, panel in enumerate(panels, 1):
        extras, parts = extras_table(panel), parts_table(panel)
        exhibits += [_table(f"{measure}-more-{number}", extras)] if extras else []
        exhibits += [_table(f"{measure}-parts-{number}", parts, folded=True)] if parts else []
        removed = removed_table(panel.evaluation)
        exhibits += [_table(f"{measure}-removed-{number}", removed)] if removed else []
    return Section(measure, heading, tuple(exhibits))


def _table(name: str, table: Table, *, folded: bool = False) -> Exhibit:
    return Exhibit(name, table.title, table.caption, table.commands, (table,), folded)


def _numbered(name: str, tables: Sequence[Table]) -> tuple[Exhibit, ...]:
    return tuple(_table(f"{name}-{number}", table) for number, table in enumerate(tables, 1))


def _behind(values: Table) -> tuple[Table, ...]:
    """A table of values as the numbers behind a figure, under the figure's own heading."""
    return (replace(values, title="", more=()),)


def _bars(name: str, panels: Sequence[ReportSource], values: Table) -> Exhibit:
    words = words_of(panels)
    parts = [f"{words.value}. Whiskers: {words.interval}. Bold number and thick edge: best."]
    if any(mark_of(row) for panel in panels for row in panel.evaluation.rows):
        parts.append(f"{ABOVE} or {BELOW}: above or below the first row, by a paired difference beyond chance.")
    if any(panel.evaluation.ceiling is not None for panel in panels):
        parts.append("Dotted line, where in reach: noise ceiling.")
    if any("chance" in panel.evaluation.facts for panel in panels):
        parts.append("Dashed line, where in reach: chance.")
    caption = " ".join([*parts, about(panels)])
    chart = bars(panels, f"{words.short} × 100")
    return Exhibit(name, f"{words.heading} with intervals", caption, commands(panels), _behind(values), True, chart)


def _cost(name: str, panels: Sequence[ReportSource]) -> Exhibit:
    shown, words = [panel for panel in panels if timed(panel)], words_of(panels)
    clock = f", or in seconds {BY_CLOCK} where a name says so," if by_clock(shown) else ""
    caption = (
        f"Up: better. Left: cheaper, in process CPU time{clock} of encoding one training example, logarithmic. "
        f"The larger a disc, the more storage each example takes. Whiskers: {words.interval}. "
        f"{about(shown)}{_without_cost(shown)}"
    )
    title = f"{words.heading} against cost and storage"
    chart = costs(shown, f"{words.short} × 100")
    return Exhibit(name, title, caption, commands(shown), _behind(value_table("", shown)), True, chart)


def _without_cost(panels: Sequence[ReportSource]) -> str:
    """A sentence that names the rows without a known cost; empty if all have one."""
    gone = {panel.label: [row.name for row in panel.evaluation.rows if row not in timed(panel)] for panel in panels}
    texts = [f"{', '.join(names)}{f' ({label})' if len(panels) > 1 else ''}" for label, names in gone.items() if names]
    return f" Not shown, as their cost is not known: {'; '.join(texts)}." if texts else ""


def _curve(name: str, tag: str, groups: Sequence[tuple[str, Sequence[Point]]]) -> Exhibit:
    panels = label_panels([point.source for _, points in groups for point in points])
    words = words_of(panels)
    shape = "Bands" if len(panel_rows(panels)) <= BANDS else "Vertical lines"
    caption = f"{words.value}. {shape}: {words.interval}. {about(panels)}"
    tables = tuple(curve_table(label, tag, points) for label, points in groups)
    chart = curves(groups, tag, f"{words.short} × 100")
    title = f"{words.heading} against {tag.replace('_', ' ')}"
    return Exhibit(name, title, caption, commands(panels), tables, True, chart)

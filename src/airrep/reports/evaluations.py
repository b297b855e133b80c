"""Evaluations as one self-contained HTML page, and figures as files."""

import re
from collections.abc import Collection, Sequence
from dataclasses import replace as changed
from pathlib import Path
from typing import NamedTuple

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
    detail_tables,
    findings_table,
    mark_of,
    sources_table,
    value_table,
    words_of,
)
from airrep.reports.page import Exhibit, Section, check_page_free, page_bytes, render_sections
from airrep.reports.sources import Given, Point, ReportSource, Sources, label_panels, panel_rows, read_sources
from airrep.reports.tables import Table, short
from airrep.runtime.publishing import writing
from airrep.runtime.remote.outputs import write_output
from airrep.runtime.remote.places import here_only

TITLE = "Evaluation of training data attribution"
CAPTIONS = "captions.txt"
"""File with the captions of the figures, beside them."""
_CAPTION = re.compile(r"(?:\A|\n\n)Figure \d+ \(([A-Za-z0-9-]+)\): ")


class Page(NamedTuple):
    """An HTML page and its sections."""

    html: str
    sections: list[Section]

    @property
    def figures(self) -> list[Exhibit]:
        """The exhibits that are figures, not tables."""
        return [one for section in self.sections for one in section.exhibits if one.svg]


def write_evaluation_report(
    runs: Sequence[Given] | Given,
    out: str | Path,
    *,
    figures: str | Path | None = None,
    curves: Sequence[str] = (),
    join: bool = False,
    title: str | None = None,
    notes: Sequence[str] = (),
    replace: bool = False,
) -> Path:
    """Write tables and figures of evaluations as one self-contained HTML page: no network, no other file.

    The same runs give the same bytes with the same version of airrep.

    Args:
        runs: evaluations as objects or as directories that `airrep evaluate` wrote; directories of `airrep compare`
            and `evaluate --why`; or one alone.
        out: the file to write; missing directories are made.
        figures: a directory to write the figures to, as SVG files with a file of captions; None writes none.
        curves: numeric tags of evaluations; each gives a figure of values against the tag.
        join: True joins evaluations with the same tags, queries and labels into one with one first row.
        title: heading of the page.
        notes: sentences at the top of the page.
        replace: True replaces existing files, and removes old figures that the old captions name.

    Returns:
        The path of the page.

    Raises:
        ConfigError: no runs, a run given twice, a curve that cannot be drawn, or rows of the same name to join.
        ArtifactError: a run cannot be read, or a file exists or cannot be written.

    Example:
        >>> found = airrep.classify([("tfidf", index)], queries)
        >>> from airrep.reports.evaluations import write_evaluation_report
        >>> write_evaluation_report([found], "evaluation.html").name
        'evaluation.html'
    """
    path = Path(out)
    check_page_free(path, replace)
    if figures is not None:
        figures = here_only(figures, "figures are written")
    page = evaluation_page(runs, curves=curves, join=join, title=title, notes=notes)
    files = {} if figures is None else _figure_files(page, Path(figures))
    for file in files:  # all of them before the first is written
        check_page_free(file, replace)
    if figures is not None:
        _remove_old(Path(figures), files)
    for file, content in files.items():
        write_output(file, content)
    write_output(path, page_bytes(page.html))
    return path


def evaluation_page(
    runs: Sequence[Given] | Given,
    *,
    curves: Sequence[str] = (),
    join: bool = False,
    title: str | None = None,
    notes: Sequence[str] = (),
) -> Page:
    """Return the page that :func:`write_evaluation_report` writes; arguments and errors are the same."""
    sources = read_sources(runs, join=join, curves=curves)
    shown = _sections(sources)
    html = render_sections(
        shown,
        title=title or TITLE,
        notes=[*notes, *_judgements(sources), *_cautions(sources)],
        facts=_facts(sources),
        labels=_labels(shown),
    )
    return Page(html, shown)


def _judgements(sources: Sources) -> list[str]:
    """Return the distinct judgements of `airrep prove --budget` on evaluations."""
    found = (source.evaluation.facts.get("judgement") for source in sources.evaluations)
    return [str(one) for one in dict.fromkeys(found) if one]


def _cautions(sources: Sources) -> list[str]:
    """Return each distinct caution after the names of its rows."""
    found: dict[str, list[str]] = {}
    for row in (row for source in sources.evaluations for row in source.evaluation.rows):
        if row.caution and row.name not in found.setdefault(row.caution, []):
            found[row.caution].append(row.name)
    return [f"{', '.join(short(name, 40) for name in names)}: {caution}" for caution, names in found.items()]


def _labels(shown: Sequence[Section]) -> dict[str, str]:
    """Return the label of each exhibit, such as "Figure 2", by its name."""
    numbers = {"Figure": 0, "Table": 0}
    labels = {}
    for exhibit in (one for section in shown for one in section.exhibits):
        kind = "Figure" if exhibit.svg else "Table"
        numbers[kind] += 1
        labels[exhibit.name] = f"{kind} {numbers[kind]}"
    return labels


def _facts(sources: Sources) -> dict[str, str]:
    found = [source.evaluation for source in sources.evaluations]
    facts = {"Evaluations": f"{len(found):,}"}
    if found:
        facts["Methods"] = f"{len({row.name for one in found for row in one.rows}):,}"
        facts["Queries"] = f"{sum({(one.measure, one.subject): len(one.queries) for one in found}.values()):,}"
        facts["Sign"] = "higher = better"
    others = {"Comparisons": len(sources.comparisons), "Diagnoses": len(sources.diagnoses)}
    return facts | {name: f"{count:,}" for name, count in others.items() if count}


def _figure_files(page: Page, folder: Path) -> dict[Path, bytes]:
    labels, files, captions = _labels(page.sections), {}, []
    for exhibit in page.figures:
        files[folder / f"{exhibit.name}.svg"] = page_bytes(exhibit.svg)
        lines = [f"{labels[exhibit.name]} ({exhibit.name}): {exhibit.title}.", exhibit.caption, *exhibit.commands]
        captions.append("\n".join(lines) + "\n")
    return {**files, folder / CAPTIONS: page_bytes("\n".join(captions))}


def _remove_old(folder: Path, files: Collection[Path]) -> None:
    """Remove the figures that the captions in a folder name, unless they are among the files to be written."""
    captions = folder / CAPTIONS
    with writing(captions):
        names = _CAPTION.findall(captions.read_text("utf-8", "replace")) if captions.is_file() else []
    for path in (folder / f"{name}.{kind}" for name in names for kind in ("svg", "png")):
        if path not in files and path.is_file():
            with writing(path):
                path.unlink()


def _sections(sources: Sources) -> list[Section]:
    """Return a page's sections in order (ConfigError: a curve's tag is in no evaluation, or is not a number)."""
    for tag in sources.curves:
        if not any(tag in source.evaluation.tags for source in sources.evaluations):
            raise ConfigError(
                f"--set curve={tag}: no run has the tag {tag}. Tag runs with numbers: airrep evaluate ... --tag "
                f"{tag}=100"
            )
    found = [_measure(measure, sources) for measure in WORDS if measure in sources.panels]
    compared = [table for name, one in sources.comparisons for table in comparison_tables(name, one)]
    found.append(Section("comparisons", "Comparisons", _numbered("comparison", compared)))
    diagnosed = [findings_table(name, one) for name, one in sources.diagnoses]
    found.append(Section("diagnosis", "Diagnosis", _numbered("diagnosis", diagnosed)))
    runs = (Exhibit.of("runs-table", sources_table(sources)),) if sources.evaluations else ()
    found.append(Section("runs", "Runs and commands", runs))
    return [section for section in found if section.exhibits]


def _measure(measure: Measure, sources: Sources) -> Section:
    panels, heading = sources.panels[measure], WORDS[measure].heading
    values = value_table(f"{heading}: all methods", panels)
    exhibits = [
        Exhibit.of(f"{measure}-values", values),
        _bars(f"{measure}-bars", panels, changed(values, title="", more=())),
    ]
    if measure == "lds" and any(map(timed, panels)):
        exhibits.append(_cost(f"{measure}-cost", panels))
    for number, tag in enumerate(dict.fromkeys(sources.curves), 1):
        if groups := sources.curve(measure, tag):
            exhibits.append(_curve(f"{measure}-curve-{number}", tag, groups))
    for number, panel in enumerate(panels, 1):
        for kind, table in detail_tables(panel).items():
            exhibits.append(Exhibit.of(f"{measure}-{kind}-{number}", table, folded=kind == "parts"))
    return Section(measure, heading, tuple(exhibits))


def _numbered(name: str, tables: Sequence[Table]) -> tuple[Exhibit, ...]:
    return tuple(Exhibit.of(f"{name}-{number}", table) for number, table in enumerate(tables, 1))


def _figure(
    name: str, title: str, caption: str, panels: Sequence[ReportSource], chart: Chart, tables: Sequence[Table]
) -> Exhibit:
    """Return a figure with the tables of its numbers, folded."""
    made = commands(panels)
    text = " ".join([caption, *(f"Command: {command}" for command in made)])
    return Exhibit(name, title, caption, made, tuple(tables), True, chart.svg(name, title, text))


def _bars(name: str, panels: Sequence[ReportSource], values: Table) -> Exhibit:
    words = words_of(panels)
    parts = [f"{words.value}. Whiskers: {words.interval}. Bold number and thick edge: best."]
    if any(mark_of(row) for panel in panels for row in panel.evaluation.rows):
        parts.append(f"{ABOVE} or {BELOW}: above or below the first row, by a paired difference beyond chance.")
    if any(panel.evaluation.ceiling is not None for panel in panels):
        parts.append("Dotted line: noise ceiling, if it lies within the plot.")
    if any("chance" in panel.evaluation.facts for panel in panels):
        parts.append("Dashed line: chance, if it lies within the plot.")
    caption = " ".join([*parts, about(panels)])
    chart = bars(panels, f"{words.short} × 100")
    return _figure(name, f"{words.heading} with intervals", caption, panels, chart, [values])


def _cost(name: str, panels: Sequence[ReportSource]) -> Exhibit:
    shown, words = [panel for panel in panels if timed(panel)], words_of(panels)
    clock = f", or {BY_CLOCK} where a name says so" if by_clock(shown) else ""
    caption = (
        f"Higher is better. Further left is cheaper: process CPU time of encoding one training example{clock}, on a "
        f"logarithmic scale. A larger disc means more storage for each example. Whiskers: {words.interval}. "
        f"{about(shown)}{_without_cost(shown)}"
    )
    title = f"{words.heading} against cost and storage"
    chart = costs(shown, f"{words.short} × 100")
    return _figure(name, title, caption, shown, chart, [changed(value_table("", shown), more=())])


def _without_cost(panels: Sequence[ReportSource]) -> str:
    """Return a sentence that names the rows without a known cost; empty if all costs are known."""
    gone = {panel.label: [row.name for row in panel.evaluation.rows if row not in timed(panel)] for panel in panels}
    texts = [f"{', '.join(names)}{f' ({label})' if len(panels) > 1 else ''}" for label, names in gone.items() if names]
    return f" Not shown, as their cost is not known: {'; '.join(texts)}." if texts else ""


def _curve(name: str, tag: str, groups: Sequence[tuple[str, Sequence[Point]]]) -> Exhibit:
    panels = label_panels([point.source for _, points in groups for point in points])
    words = words_of(panels)
    shape = "Bands" if len(panel_rows(panels)) <= BANDS else "Vertical lines"
    caption = f"{words.value}. {shape}: {words.interval}. {about(panels)}"
    tables = [curve_table(label, tag, points) for label, points in groups]
    chart = curves(groups, tag, f"{words.short} × 100")
    title = f"{words.heading} against {tag.replace('_', ' ')}"
    return _figure(name, title, caption, panels, chart, tables)

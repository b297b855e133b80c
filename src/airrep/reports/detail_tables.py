"""Tables of what lies beside and below the values: votes, tasks, curves."""

from collections.abc import Mapping, Sequence
from typing import Any

from airrep.evaluation.result import Row
from airrep.reports.evaluation_tables import WORDS, about, commands, fact, name_cell, value_cell
from airrep.reports.sources import Panel, Point, row_names
from airrep.reports.tables import NOTHING, Cell, Line, Table, hundred, interval_text, is_number, label_of, three


def extras_table(panel: Panel) -> Table | None:
    """What the rows of one evaluation have beside their value, such as macro average and vote@k; None if nothing."""
    rows = panel.evaluation.rows
    keys = [key for key in dict.fromkeys(key for row in rows for key in row.more) if _shown(rows, key)]
    if not keys:
        return None
    lines = [
        Line(name_cell([row]), (value_cell(panel, row), *(_extra_cell(row.more.get(key)) for key in keys)))
        for row in rows
    ]
    chance = fact(panel, "chance")
    if chance is not None:
        lines.append(Line(Cell("Chance"), (Cell(hundred(chance)), *[Cell("")] * len(keys)), reference=True))
    value = {"classify": "Accuracy", "select": "F1", "loo": "LOO", "lds": "LDS"}[panel.evaluation.measure]
    columns = ("Method", value, *(label_of(key) for key in keys))
    text = f"Values × 100. In brackets: {WORDS[panel.evaluation.measure].interval}. {about([panel])}"
    return Table(f"{_place(panel)}: further numbers", columns, tuple(lines), text, commands([panel]))


def _place(panel: Panel) -> str:
    return f"{WORDS[panel.evaluation.measure].heading}, {panel.label}"


def _shown(rows: Sequence[Row], key: str) -> bool:
    return any(is_number(_main(row.more.get(key))) for row in rows)


def _main(value: object) -> object:
    return value.get("value") if isinstance(value, Mapping) else value


def _extra_cell(value: Any) -> Cell:
    main = _main(value)
    if not isinstance(main, int | float):
        return Cell(NOTHING)
    interval = value.get("interval") if isinstance(value, Mapping) else None
    return Cell(hundred(main), interval_text(interval))


PARTS = {"by_task": "task", "by_label": "label"}
"""What a row may have a mean for each of."""
MOST_PARTS = 100
"""Lines of a table by task or label."""


def parts_table(panel: Panel) -> Table | None:
    """Mean of each row for each task or label; None where that is not known."""
    rows = panel.evaluation.rows
    key = next((key for key in PARTS if any(row.more.get(key) for row in rows)), None)
    if key is None:
        return None
    means = [dict(row.more.get(key) or {}) for row in rows]
    names = sorted({name for one in means for name in one})
    lines = [_part_line(name, [one.get(name) for one in means]) for name in names[:MOST_PARTS]]
    left_out = len(names) - len(lines)
    caption = f"Mean × 100 over the queries of each {PARTS[key]}, without intervals; bold: best. {about([panel])}"
    caption += f" {left_out:,} more are left out of this page." if left_out else ""
    columns = (PARTS[key].capitalize(), *(row.name for row in rows))
    return Table(f"{_place(panel)}: by {PARTS[key]}", columns, tuple(lines), caption, commands([panel]))


def _part_line(name: str, means: Sequence[float | None]) -> Line:
    best = max((mean for mean in means if mean is not None), default=None)
    return Line(Cell(name), tuple(Cell(hundred(mean), strong=mean is not None and mean == best) for mean in means))


def curve_tables(tag: str, groups: Sequence[tuple[str, Sequence[Point]]]) -> list[Table]:
    """The numbers of a curve: methods down, values of the tag across; one table for each panel."""
    return [_curve_table(label, tag, points) for label, points in groups]


def _curve_table(label: str, tag: str, points: Sequence[Point]) -> Table:
    panels = [Panel(f"{tag.replace('_', ' ')} {three(point.at)}", point.source) for point in points]
    names = row_names(panels)
    lines = [Line(Cell(name), tuple(value_cell(panel, panel.row(name)) for panel in panels)) for name in names]
    return Table(label, ("Method", *(panel.label for panel in panels)), tuple(lines))

"""Tables of evaluations: values, intervals, differences, costs."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from airrep.evaluation.result import Measure, Row, caution_on
from airrep.reports.sources import Panel, ReportSource, count_of, panel_rows
from airrep.reports.tables import (
    NOTHING,
    Cell,
    Line,
    Table,
    bytes_text,
    hundred,
    interval_text,
    is_number,
    p_text,
    seconds_text,
    span_text,
)
from airrep.scoring.pooling import pooling_text

ABOVE, BELOW = "▲", "▼"
"""Marks of rows that are above, or below, the first one beyond chance."""
LEVEL = 0.05
"""The largest p-value of such a row; its interval excludes 0 as well, which is made otherwise."""


class Words(NamedTuple):
    """How a measure is spoken of."""

    heading: str
    value: str
    """What its value is, × 100."""
    interval: str
    """How its 95 % intervals are made."""


_BOOTSTRAP = "95 % bootstrap over queries"
WORDS: Mapping[Measure, Words] = {
    "lds": Words(
        "Linear datamodelling score (LDS)",
        "LDS × 100: mean over queries of the rank correlation between predicted and measured effect of training on "
        "each subset; 100 is perfect, 0 is chance",
        f"{_BOOTSTRAP} and subsets",
    ),
    "classify": Words(
        "Data classification",
        "Accuracy × 100: share of queries whose best training example has the query's own label",
        _BOOTSTRAP,
    ),
    "select": Words(
        "Data selection",
        "Unigram F1 × 100 of what the language model generates after fine-tuning on the examples selected",
        "95 % bootstrap over tasks and their queries",
    ),
    "loo": Words(
        "Leave-one-out (LOO)",
        "Rank correlation × 100 between predicted and measured effect of removing one example, mean over queries",
        f"{_BOOTSTRAP} and removals",
    ),
}


def value_table(title: str, panels: Sequence[Panel], *, caption: str = "") -> Table:
    """Values × 100 of each row under each panel, best in bold, with what is to be compared with and what it costs."""
    names = panel_rows(panels)
    heads = [panel.label for panel in panels]
    mean = len(panels) > 1 and any(_mean(name, panels) is not None for name in names)
    costs = any(row.cost is not None for panel in panels for row in panel.evaluation.rows)
    lines = [_line(name, panels, names, mean=mean, costs=costs) for name in names]
    lines += _references(panels, blank=(1 if mean else 0) + (2 if costs else 0))
    columns = (
        "Method",
        *heads,
        *(["Mean"] if mean else []),
        *(COST_HEADS if costs else []),
    )
    text = " ".join(filter(None, [caption, _how_to_read(panels, mean=mean)]))
    return Table(title, columns, tuple(lines), text, commands(panels), (differences_table(panels),))


def _line(name: str, panels: Sequence[Panel], names: Sequence[str], *, mean: bool, costs: bool) -> Line:
    cells = [value_cell(panel, panel.row(name)) for panel in panels]
    if mean:
        cells.append(_mean_cell(name, panels, names))
    rows = [row for panel in panels if (row := panel.row(name)) is not None]
    return Line(name_cell(rows), (*cells, *(_cost_cells(rows) if costs else ())))


def name_cell(rows: Sequence[Row]) -> Cell:
    """The name of a row, with its method and pool; of several rows of one name, what they share."""
    method = rows[0].method if rows[0].method != rows[0].name else ""
    whole, kinds = {pooling_text(row.pool, row.temperature) for row in rows}, {row.pool or "" for row in rows}
    pool = next((found.pop() for found in (whole, kinds) if len(found) == 1), "")
    return Cell(rows[0].name, ", ".join(filter(None, [method, pool])))


def value_cell(panel: Panel, row: Row | None) -> Cell:
    """Value and interval of a row, best in bold, with its mark."""
    if row is None:
        return Cell(NOTHING)
    gap = row.difference
    hint = (
        ""
        if gap is None
        else f"{hundred(gap.value)} {interval_text(gap.interval)} more than the first row; {p_text(gap.p_value)}"
    )
    best = row.value == panel.evaluation.best.value
    return Cell(hundred(row.value), interval_text(row.interval), best, mark_of(row), hint)


def mark_of(row: Row) -> str:
    """Whether a row is above or below the first one beyond chance; nothing if neither."""
    if row.difference is None or not row.difference.p_value < LEVEL:
        return ""
    low, high = row.difference.interval
    return ABOVE if low > 0 else BELOW if high < 0 else ""


def _mean_cell(name: str, panels: Sequence[Panel], names: Sequence[str]) -> Cell:
    means = {one: _mean(one, panels) for one in names}
    known = [value for value in means.values() if value is not None]
    own = means[name]
    return Cell(hundred(own), strong=own is not None and own == max(known))


def _mean(name: str, panels: Sequence[Panel]) -> float | None:
    """Mean over panels of different roles; None for a row that is not in all, or pooled in several ways."""
    rows = [row for panel in panels if (row := panel.row(name)) is not None]
    apart = len({panel.source.role for panel in panels}) == len(panels) and len({row.pool for row in rows}) == 1
    return float(np.mean([row.value for row in rows])) if apart and len(rows) == len(panels) else None


def _cost_cells(rows: Sequence[Row]) -> tuple[Cell, Cell]:
    sizes = [row.cost.bytes_per_example for row in rows if row.cost is not None]
    times = [s for row in rows if row.cost is not None and (s := row.cost.seconds_per_example) is not None]
    return Cell(_range(sizes, bytes_text)), Cell(_range(times, seconds_text), clock_text(rows))


def clock_text(rows: Sequence[Row]) -> str:
    """What is to be told of the seconds of some rows, where not all are process CPU time."""
    found = {row.cost.clock for row in rows if row.cost is not None and row.cost.seconds_per_example is not None}
    return BY_BOTH if len(found) > 1 else BY_CLOCK if found == {True} else ""


def _range(values: Sequence[float], show: Any) -> str:
    if not values:
        return NOTHING
    low, high = show(min(values)), show(max(values))
    return low if low == high else f"{low} to {high}"


def _references(panels: Sequence[Panel], *, blank: int) -> list[Line]:
    """Lines of what a row can be compared with: ceiling, chance, signal-to-noise ratio."""
    known = [
        ("Noise ceiling", "a perfect predictor", [panel.evaluation.ceiling for panel in panels], hundred),
        ("Chance", "", [fact(panel, "chance") for panel in panels], hundred),
        ("Signal to noise", "of the measured effects", [fact(panel, *SIGNAL) for panel in panels], _plain),
    ]
    return [
        Line(Cell(name, under), (*(Cell(show(value)) for value in values), *[Cell("")] * blank), reference=True)
        for name, under, values, show in known
        if any(value is not None for value in values)
    ]


COST_HEADS = ("Storage per example", "Seconds per example")
BY_CLOCK, BY_BOTH = "by the clock", "some by the clock"
"""What stands under seconds that are not process CPU time, or not all."""
SIGNAL = ("signal_to_noise", "snr")
"""Names of the fact that tells how far the effects of removals stand out of the noise of training."""


def fact(panel: Panel, *names: str) -> float | None:
    """The first of some facts that is a number."""
    values = [panel.evaluation.facts.get(name) for name in names]
    found = [float(value) for value in values if is_number(value)]
    return found[0] if found else None


def _plain(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.3g}".replace("-", "−")


def _how_to_read(panels: Sequence[Panel], *, mean: bool) -> str:
    words = WORDS[panels[0].evaluation.measure]
    firsts = {panel.evaluation.rows[0].name for panel in panels if panel.evaluation.rows}
    first = f"the first row, {next(iter(firsts))}" if len(firsts) == 1 else "the first row of its run"
    marks = {cell for panel in panels for row in panel.evaluation.rows if (cell := mark_of(row))}
    parts = [f"{words.value}. In brackets: {words.interval}. Bold: best of its column."]
    if marks:
        told = f"by a paired difference whose interval excludes 0, with p < {LEVEL}"
        parts.append(f"{ABOVE} or {BELOW}: above or below {first}, {told}.")
    if mean:
        parts.append("Mean: of the columns, each of another role, without an interval.")
    costs = [row for panel in panels for row in panel.evaluation.rows if row.cost is not None]
    if any(row.cost is not None and row.cost.seconds_per_example is not None for row in costs):
        parts.append(seconds_words(costs))
    return " ".join([*parts, about(panels)])


def seconds_words(rows: Sequence[Row]) -> str:
    """What the seconds of some rows are."""
    marked = f"; where marked so, {BY_CLOCK}, on an accelerator" if clock_text(rows) else ""
    return f"Seconds per example: process CPU time of encoding one training example{marked}."


def about(panels: Sequence[Panel]) -> str:
    """How many queries and subsets each panel stands on, and how many queries were left out; in ranges if many."""
    texts = [_counts([panel.source]) for panel in panels]
    if len(set(texts)) == 1:
        return texts[0] if len(texts) == 1 else f"In each of {len(texts)} runs: {texts[0]}"
    if len(panels) > MOST_APART:
        return f"{len(panels)} runs: {_counts([panel.source for panel in panels])} The table of runs has each."
    return " ".join(f"{panel.label}: {text}" for panel, text in zip(panels, texts, strict=True))


MOST_APART = 6
"""Panels whose counts are told one by one."""


def _counts(sources: Sequence[ReportSource]) -> str:
    removals = [count_of(source.evaluation.facts.get("removals")) for source in sources]
    dropped = [count for source in sources for count in source.dropped]
    known: list[tuple[str, list[int | None]]] = [
        ("queries", [len(source.evaluation.queries) for source in sources]),
        ("subsets", [source.subsets for source in sources]),
        ("removals", removals),
    ]
    words = [f"{_span(values)} {name}" for name, values in known if any(value is not None for value in values)]
    by_row = "" if len(set(dropped)) == 1 else ", depending on the row"
    scant = caution_on(min(source.evaluation.distinct_queries for source in sources))
    gone = sum(count_of(source.evaluation.facts.get("losses_missing")) or 0 for source in sources)
    holes = f"; {gone:,} single losses missing" if gone else ""
    return f"{', '.join(words)}; {_span(dropped)} queries left out{by_row}{holes}{f'; {scant}' if scant else ''}."


def _span(values: Sequence[int | None]) -> str:
    known = [value for value in values if value is not None]
    return span_text(min(known), max(known))


def commands(panels: Sequence[Panel]) -> tuple[str, ...]:
    """The commands behind some panels, each once."""
    return tuple(dict.fromkeys(filter(None, (panel.evaluation.command for panel in panels))))


def differences_table(panels: Sequence[Panel]) -> Table:
    """How much more each row reaches than the first one of its evaluation, with p-values."""
    names = [name for name in panel_rows(panels) if any((row := p.row(name)) and row.difference for p in panels)]
    lines = [Line(Cell(name), tuple(_difference_cell(panel.row(name)) for panel in panels)) for name in names]
    caption = "Paired on the same queries; × 100, with 95 % intervals and two-sided p-values for a difference of 0."
    return Table("Differences from the first row", ("Method", *(p.label for p in panels)), tuple(lines), caption)


def _difference_cell(row: Row | None) -> Cell:
    gap = None if row is None else row.difference
    if gap is None or row is None:
        return Cell(NOTHING)
    return Cell(hundred(gap.value), f"{interval_text(gap.interval)} {p_text(gap.p_value)}", mark=mark_of(row))

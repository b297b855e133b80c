"""Tables of evaluations, comparisons and diagnoses, for page and terminal."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from airrep.errors import many
from airrep.evaluation.comparison import ComparedPair, Comparison
from airrep.evaluation.diagnosis import Diagnosis
from airrep.evaluation.result import Evaluation, Measure, Row, caution_on
from airrep.evaluation.statistics.means import Difference
from airrep.reports.sources import Point, ReportSource, Sources, panel_rows
from airrep.reports.tables import (
    NOTHING,
    Cell,
    Line,
    Table,
    bytes_text,
    counted,
    hundred,
    interval,
    label_of,
    p_number,
    p_text,
    seconds_text,
    signed,
    span_text,
    three,
    true_minus,
)
from airrep.runtime.tracking import is_number
from airrep.scoring.pooling import pooling_text

ABOVE, BELOW = "▲", "▼"
"""Marks of rows that are significantly above, or below, the first row."""
LEVEL = 0.05
"""A row is marked if its p-value is below this and its interval, which is computed separately, excludes 0."""
BY_CLOCK, BY_BOTH = "wall-clock time", "partly wall-clock time"
"""Notes for seconds that are all, or partly, wall-clock time instead of process CPU time."""
COST_HEADS = ("Storage per example", "Seconds per example")
MOST_APART = 6
"""Most panels whose counts are listed one by one."""
PARTS = {"by_task": "task", "by_label": "label"}
"""Keys of a row's means by task or label, and the word for one of these."""
MOST_PARTS = 100
"""Most lines of a table by task or label."""


class Words(NamedTuple):
    """The texts that describe a measure."""

    heading: str
    short: str
    value: str
    """Definition of the value × 100."""
    interval: str
    """How the 95 % intervals are computed."""


_BOOTSTRAP = "95 % bootstrap interval over queries"
WORDS: Mapping[Measure, Words] = {  # in the order of the page
    "lds": Words(
        "Linear datamodelling score (LDS)",
        "LDS",
        "LDS × 100: mean over queries of the rank correlation between predicted and measured effect of training on "
        "each subset; 100 is perfect, 0 is chance",
        f"{_BOOTSTRAP} and subsets",
    ),
    "classify": Words(
        "Data classification",
        "accuracy",
        "Accuracy × 100: share of queries whose best training example has the query's own label",
        _BOOTSTRAP,
    ),
    "select": Words(
        "Data selection",
        "F1",
        "Unigram F1 × 100 of what the language model generates after fine-tuning on the examples selected",
        "95 % bootstrap interval over tasks and their queries",
    ),
    "drop": Words(
        "Drop the top and retrain",
        "rise",
        "Rise × 100 of a query's loss (nats per token) when the examples that a row ranks first for it are left out "
        "of a fine-tune, compared with leaving out as many random examples; 0 is chance",
        f"{_BOOTSTRAP}, widened by the variation between random sets",
    ),
    "trace": Words(
        "Trace of facts",
        "MRR",
        "MRR × 100: mean over queries of the reciprocal rank of the first example that taught the query's fact; 100 is "
        "perfect",
        _BOOTSTRAP,
    ),
    "loo": Words(
        "Leave-one-out (LOO)",
        "LOO",
        "Rank correlation × 100 between predicted and measured effect of leaving examples out, mean over queries",
        f"{_BOOTSTRAP} and removals",
    ),
}


def words_of(panels: Sequence[ReportSource]) -> Words:
    """Return the texts for the common measure of some panels."""
    return WORDS[panels[0].evaluation.measure]


def gap_texts(gap: Difference | None) -> tuple[str, str, str]:
    """Return a difference × 100, its interval and its p-value as texts; empty texts for None."""
    if gap is None:
        return "", "", ""
    return hundred(gap.value), interval(gap.interval), p_number(gap.p_value)


def _more_texts(value: Any) -> tuple[str, str]:
    """Return a further number of a row × 100, and its interval if it has one, as texts."""
    main, ends = (value.get("value"), value.get("interval")) if isinstance(value, Mapping) else (value, None)
    return hundred(main if isinstance(main, int | float) else None), interval(ends)


def value_table(title: str, panels: Sequence[ReportSource]) -> Table:
    """Return the table of values × 100, rows by panels, best in bold, with cost, ceiling and chance."""
    names = panel_rows(panels)
    means = {name: _mean(name, panels) for name in names}
    best = max((mean for mean in means.values() if mean is not None), default=None)
    costs = any(row.cost is not None for panel in panels for row in panel.evaluation.rows)
    heads = (*(["Mean"] if best is not None else []), *(COST_HEADS if costs else ()))
    lines = []
    for name in names:
        rows = _rows(name, panels)
        mean = [] if best is None else [Cell(hundred(means[name]), strong=means[name] == best)]
        values = (value_cell(panel.rows.get(name), panel.evaluation.best) for panel in panels)
        lines.append(Line(name_cell(rows), (*values, *mean, *(_cost_cells(rows) if costs else ()))))
    lines += _references(panels, blank=len(heads))
    columns = ("Method", *(panel.label for panel in panels), *heads)
    text = _how_to_read(panels, mean=best is not None)
    return Table(title, columns, tuple(lines), text, commands(panels), (differences_table(panels),))


def _rows(name: str, panels: Sequence[ReportSource]) -> list[Row]:
    return [panel.rows[name] for panel in panels if name in panel.rows]


def name_cell(rows: Sequence[Row]) -> Cell:
    """Return the cell with a row's name, method and pool; the pool only if rows of this name share it."""
    method = rows[0].method if rows[0].method != rows[0].name else ""
    whole, kinds = {pooling_text(row.pool, row.temperature) for row in rows}, {row.pool or "" for row in rows}
    pool = next((found.pop() for found in (whole, kinds) if len(found) == 1), "")
    return Cell(rows[0].name, ", ".join(filter(None, [method, pool])))


def value_cell(row: Row | None, best: Row) -> Cell:
    """Return the cell with a row's value × 100, interval and mark, in bold for the best value."""
    if row is None:
        return Cell(NOTHING)
    gap, ends, _ = gap_texts(row.difference)
    hint = f"{gap} {ends} more than the first row; {p_text(row.difference.p_value)}" if row.difference else ""
    return Cell(hundred(row.value), interval(row.interval), row.value == best.value, mark_of(row), hint)


def mark_of(row: Row) -> str:
    """Return the mark of a row that is significantly above or below the first row; empty otherwise."""
    if row.difference is None or not row.difference.p_value < LEVEL:
        return ""
    low, high = row.difference.interval
    return ABOVE if low > 0 else BELOW if high < 0 else ""


def _mean(name: str, panels: Sequence[ReportSource]) -> float | None:
    """Return a row's mean over panels of different roles; None if it is not in all panels, or pooled differently."""
    rows = _rows(name, panels)
    apart = len({panel.role for panel in panels}) == len(panels) > 1 and len({row.pool for row in rows}) == 1
    return float(np.mean([row.value for row in rows])) if apart and len(rows) == len(panels) else None


def _cost_cells(rows: Sequence[Row]) -> tuple[Cell, Cell]:
    costs = [row.cost for row in rows if row.cost is not None]
    storage = span_text([cost.bytes_per_example for cost in costs], bytes_text)
    return Cell(storage), Cell(span_text([cost.seconds_per_example for cost in costs], seconds_text), clock_text(rows))


def clock_text(rows: Sequence[Row]) -> str:
    """Return a note on the seconds of some rows; empty if all are process CPU time."""
    found = {row.cost.clock for row in rows if row.cost is not None and row.cost.seconds_per_example is not None}
    return BY_BOTH if len(found) > 1 else BY_CLOCK if found == {True} else ""


def _references(panels: Sequence[ReportSource], *, blank: int) -> list[Line]:
    """Return reference lines: noise ceiling, chance, signal-to-noise ratio."""
    noise = [fact(panel, "signal_to_noise") for panel in panels]
    known = [
        ("Noise ceiling", "a perfect predictor", [panel.evaluation.ceiling for panel in panels], hundred),
        ("Chance", "", [fact(panel, "chance") for panel in panels], hundred),
        ("Signal to noise", "of the measured effects", noise, _plain),
    ]
    return [
        Line(Cell(name, under), (*(Cell(show(value)) for value in values), *[Cell("")] * blank), reference=True)
        for name, under, values, show in known
        if any(value is not None for value in values)
    ]


def fact(panel: ReportSource, name: str) -> float | None:
    """Return a fact that is a number; None if it is unknown."""
    value = panel.evaluation.facts.get(name)
    return float(value) if is_number(value) else None


def _plain(value: float | None) -> str:
    return NOTHING if value is None else true_minus(f"{value:.3g}")


def _how_to_read(panels: Sequence[ReportSource], *, mean: bool) -> str:
    words = words_of(panels)
    firsts = {panel.evaluation.rows[0].name for panel in panels if panel.evaluation.rows}
    first = f"the first row, {next(iter(firsts))}" if len(firsts) == 1 else "the first row of its run"
    rows = [row for panel in panels for row in panel.evaluation.rows]
    parts = [f"{words.value}. In brackets: {words.interval}. Bold: best of its column."]
    if any(map(mark_of, rows)):
        why = f"by a paired difference whose interval excludes 0, with p < {LEVEL}"
        parts.append(f"{ABOVE} or {BELOW}: above or below {first}, {why}.")
    if mean:
        parts.append("Mean: the mean over the columns, each of which is a different role; it has no interval.")
    if any(row.cost is not None and row.cost.seconds_per_example is not None for row in rows):
        marked = f", or {BY_CLOCK} on an accelerator where a row says so" if clock_text(rows) else ""
        parts.append(f"Seconds per example: process CPU time of encoding one training example{marked}.")
    return " ".join([*parts, about(panels)])


def about(panels: Sequence[ReportSource]) -> str:
    """Return the numbers of queries, subsets and left-out queries of each panel, as ranges if there are many panels."""
    texts = [_counts([panel]) for panel in panels]
    if len(set(texts)) == 1:
        return texts[0] if len(texts) == 1 else f"In each of {len(texts)} runs: {texts[0]}"
    if len(panels) > MOST_APART:
        return f"{len(panels)} runs: {_counts(panels)} The table of runs lists each run."
    return " ".join(f"{panel.label}: {text}" for panel, text in zip(panels, texts, strict=True))


def _counts(sources: Sequence[ReportSource]) -> str:
    made = [source.evaluation for source in sources]
    dropped = [count for source in sources for count in source.dropped]
    repeated = any(one.distinct_queries < len(one.queries) for one in made)
    known: dict[tuple[str, str], list[int | None]] = {
        ("query", "queries"): [len(one.queries) for one in made],
        ("of them different",) * 2: [one.distinct_queries for one in made] if repeated else [],
        ("subset", "subsets"): [source.subsets for source in sources],
        ("example left out of each", "examples left out of each"): [
            size for one in made for size in one.facts.get("left_out", ())
        ],
        ("removal", "removals"): [one.facts.get("removals") for one in made],
    }
    words = [counted(values, *names) for names, values in known.items() if span_text(values) != NOTHING]
    by_row = "" if len(set(dropped)) == 1 else ", depending on the row"
    scant = caution_on(min(one.distinct_queries for one in made))
    gone = sum(one.facts.get("losses_missing", 0) for one in made)
    holes = f"; {many(gone, 'single loss', 'single losses')} missing" if gone else ""
    left = f"{counted(dropped, 'query', 'queries')} left out"
    return f"{', '.join(words)}; {left}{by_row}{holes}{f'; {scant}' if scant else ''}."


def commands(panels: Sequence[ReportSource]) -> tuple[str, ...]:
    """Return the distinct commands that made some panels."""
    return tuple(dict.fromkeys(filter(None, (panel.evaluation.command for panel in panels))))


def differences_table(panels: Sequence[ReportSource]) -> Table:
    """Return the table of each row's difference from the first row of its evaluation, with p-values."""
    names = [name for name in panel_rows(panels) if any(row.difference for row in _rows(name, panels))]
    lines = [Line(Cell(name), tuple(_difference_cell(panel.rows.get(name)) for panel in panels)) for name in names]
    caption = "Paired on the same queries; × 100, with 95 % intervals and two-sided p-values for a difference of 0."
    return Table("Differences from the first row", ("Method", *(p.label for p in panels)), tuple(lines), caption)


def _difference_cell(row: Row | None) -> Cell:
    if row is None or row.difference is None:
        return Cell(NOTHING)
    gap, ends, _ = gap_texts(row.difference)
    return Cell(gap, f"{ends} {p_text(row.difference.p_value)}", mark=mark_of(row))


def extras_table(panel: ReportSource) -> Table | None:
    """Return the table of an evaluation's further numbers, such as macro average and vote@k; None if it has none."""
    rows = panel.evaluation.rows
    # Sorted, so that an evaluation in memory and one read from JSON, whose keys are sorted, give the same order.
    keys = [key for key in sorted({key for row in rows for key in row.more}, key=_by_numbers) if _shown(rows, key)]
    if not keys:
        return None
    lines = []
    for row in rows:
        more = (Cell(*_more_texts(row.more.get(key))) for key in keys)
        lines.append(Line(name_cell([row]), (value_cell(row, panel.evaluation.best), *more)))
    chance = fact(panel, "chance")
    if chance is not None:
        lines.append(Line(Cell("Chance"), (Cell(hundred(chance)), *[Cell("")] * len(keys)), reference=True))
    words = words_of([panel])
    text = f"Values × 100. In brackets: {words.interval}. {about([panel])}"
    columns = ("Method", label_of(words.short), *map(label_of, keys))
    title = f"{words.heading}, {panel.label}: further numbers"
    return Table(title, columns, tuple(lines), text, commands([panel]))


def _by_numbers(key: str) -> list[str | int]:
    """Return a sort key that orders by words, and by size of the numbers in them."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", key)]


def _shown(rows: Sequence[Row], key: str) -> bool:
    values = [row.more.get(key) for row in rows]
    return any(is_number(value.get("value") if isinstance(value, Mapping) else value) for value in values)


def parts_table(panel: ReportSource) -> Table | None:
    """Return the table of each row's mean by task or label; None if it is unknown."""
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
    title = f"{words_of([panel]).heading}, {panel.label}: by {PARTS[key]}"
    columns = (PARTS[key].capitalize(), *(row.name for row in rows))
    return Table(title, columns, tuple(lines), caption, commands([panel]))


def _part_line(name: str, means: Sequence[float | None]) -> Line:
    best = max((mean for mean in means if mean is not None), default=None)
    cells = (Cell(hundred(mean), strong=mean is not None and mean == best) for mean in means)
    return Line(Cell(name), tuple(cells))


def curve_table(label: str, tag: str, points: Sequence[Point]) -> Table:
    """Return the table of one panel of a curve: methods in rows, values of the tag in columns."""
    panels = [point.source for point in points]
    lines = [
        Line(Cell(name), tuple(value_cell(panel.rows.get(name), panel.evaluation.best) for panel in panels))
        for name in panel_rows(panels)
    ]
    heads = (f"{tag.replace('_', ' ')} {three(point.at)}" for point in points)
    return Table(label, ("Method", *heads), tuple(lines))


def sources_table(sources: Sources) -> Table:
    """Return the table of evaluations: name, tags, counts, and the command that made each."""
    columns = ("Run", "Measure", "Tags", "Queries", "Left out", "Subsets", "Noise ceiling", "Command")
    return Table.of_texts(columns, map(_source_texts, sources.evaluations), title="Runs that this page is made from")


def _source_texts(source: ReportSource) -> tuple[str, ...]:
    made = source.evaluation
    tags = ", ".join(f"{name}={value}" for name, value in made.tags.items())
    counts = (f"{len(made.queries):,}", span_text(source.dropped), span_text([source.subsets]))
    return (source.name, made.measure, tags or NOTHING, *counts, hundred(made.ceiling), made.command or NOTHING)


def removed_table(evaluation: Evaluation) -> Table | None:
    """Return the table of effects of leaving out whole sources or labels; None if the removals have no names."""
    facts = evaluation.facts
    if not facts.get("removed"):
        return None
    several = len(facts["removed"]) > 1
    lines = (
        (
            f"{name}: {one['name']}" if several else one["name"],
            f"{one['examples']:,}",
            "" if one["effect"] is None else signed(one["effect"]),
            "" if one["helped"] is None else f"{100 * one['helped']:.0f} %",
        )
        for name, removed in zip(facts["instances"], facts["removed"], strict=True)
        for one in removed
    )
    columns = ("left out", "examples", "change of the loss, nats", "queries it had helped")
    caption = (
        "Mean change of the queries' losses when this source or label is left out of training. Above 0 means that it "
        "had helped."
    )
    return Table.of_texts(columns, lines, title="Effect of each source or label", caption=caption)


def tables_of(evaluation: Evaluation) -> list[Table]:
    """Return all tables of one evaluation: values, differences, further numbers, and means by task or label."""
    panel = ReportSource("evaluation", evaluation, f"{WORDS[evaluation.measure].short} × 100")
    values = value_table("", [panel])
    return [table for table in (values, *values.more, *detail_tables(panel).values()) if table.lines]


def detail_tables(panel: ReportSource) -> dict[str, Table]:
    """Return the tables of further numbers, means by task or label, and effects of removals that an evaluation has."""
    found = {"more": extras_table(panel), "parts": parts_table(panel), "removed": removed_table(panel.evaluation)}
    return {kind: table for kind, table in found.items() if table is not None}


def comparison_tables(name: str, comparison: Comparison) -> tuple[Table, Table]:
    """Return two tables of a comparison: rows, best first; and pairs, with difference, p-values and ratio."""
    measure = cast(Measure, comparison.measure)
    drawn = measure in ("lds", "loo")  # the others compare without draws
    draws = f" {comparison.resamples:,} bootstrap draws." if drawn else ""
    caption = (
        f"{WORDS[measure].heading}. Difference × 100: the first minus the second, paired on the same queries, with 95 "
        "% intervals. The p-values are two-sided, for a difference of 0; the adjusted ones correct for all pairs "
        f"here (Holm).{draws} Ratio: the first divided by the second, with Fieller's interval. {ABOVE} or {BELOW}: "
        "above or below, with an adjusted p-value under 0.05."
    )
    rows = tuple(
        Line(
            Cell(row.name, ", ".join(filter(None, [row.method, pooling_text(row.pool, row.temperature)]))),
            (Cell(hundred(row.value), interval(row.interval)), Cell(row.run)),
        )
        for row in comparison.rows
    )
    pairs, made = tuple(map(_pair_line, comparison.pairs)), (comparison.command,) if comparison.command else ()
    title = f": {name}" if name else ""
    head = ("Row", f"{WORDS[measure].short} × 100", "Run")
    columns = ("First", "Second", "Difference × 100", "p", "p, adjusted", "Ratio")
    return (
        Table(f"Rows compared{title}", head, rows, "Best first, with 95 % intervals.", made),
        Table(f"Comparison{title}", columns, pairs, caption, made),
    )


def _pair_line(pair: ComparedPair) -> Line:
    gap, ends, p_value = gap_texts(Difference(pair.difference, pair.interval, pair.p_value))
    mark = "" if pair.adjusted >= LEVEL else ABOVE if pair.difference > 0 else BELOW
    known = pair.ratio is not None and pair.ratio_interval is not None
    ratio = Cell(f"{pair.ratio:.2f}", interval(pair.ratio_interval, "{:.2f}".format)) if known else Cell(NOTHING)
    tested = (Cell(gap, ends, mark=mark), Cell(p_value), Cell(p_number(pair.adjusted)), ratio)
    return Line(Cell(pair.one), (Cell(pair.other), *tested))


def findings_table(name: str, diagnosis: Diagnosis) -> Table:
    """Return the table of a diagnosis's findings with their advice."""
    keys = ("name", "level", "number", "verdict", "about", "advice")
    rows = ([str(getattr(one, key)) for key in keys] for one in diagnosis.findings)
    return Table.of_texts(
        ("Finding", *map(label_of, keys[1:])),
        rows,
        title=f"Diagnosis: {name}",
        caption=diagnosis.sentence,
        commands=(diagnosis.command,) if diagnosis.command else (),
    )

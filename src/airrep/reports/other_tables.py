"""Tables of plans, comparisons, diagnoses, votes, tasks and curves."""

from collections.abc import Mapping, Sequence
from typing import Any

from airrep.evaluation.result import Measure, Row
from airrep.planning.plan import Plan
from airrep.reports.evaluation_tables import ABOVE, BELOW, WORDS, about, commands, fact, name_cell, value_cell
from airrep.reports.sources import Panel, Point, ReportSource, Sources, panel_rows
from airrep.reports.tables import (
    NOTHING,
    Cell,
    Line,
    Table,
    bytes_text,
    hundred,
    interval_text,
    is_number,
    label_of,
    p_number,
    seconds_text,
    span_text,
    three,
)


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
    names = panel_rows(panels)
    lines = [Line(Cell(name), tuple(value_cell(panel, panel.row(name)) for panel in panels)) for name in names]
    return Table(label, ("Method", *(panel.label for panel in panels)), tuple(lines))


def sources_table(sources: Sources) -> Table:
    """Each evaluation: what it was called, on what it stands, and the command that made it."""
    lines = tuple(_source_line(source) for source in sources.evaluations)
    columns = ("Run", "Measure", "Tags", "Queries", "Left out", "Subsets", "Noise ceiling", "Command")
    return Table("Runs that this page is made from", columns, lines, words=True)


def _source_line(source: ReportSource) -> Line:
    made = source.evaluation
    tags = ", ".join(f"{name}={value}" for name, value in made.tags.items())
    counts = (
        f"{len(made.queries):,}",
        span_text(*source.dropped),
        NOTHING if source.subsets is None else f"{source.subsets:,}",
    )
    cells = (made.measure, tags or NOTHING, *counts, hundred(made.ceiling), made.command or NOTHING)
    return Line(Cell(source.name), tuple(map(Cell, cells)))


def diagnosis_tables(sources: Sources) -> list[Table]:
    """What `airrep diagnose` found, worst first; and diagnoses among the facts of evaluations."""
    found = [_findings(name, value) for name, value in sources.diagnoses]
    told = [(one, value) for one in sources.evaluations if (value := one.evaluation.facts.get("diagnosis"))]
    for source, value in told:
        made = (source.evaluation.command,) if source.evaluation.command else ()
        whole = isinstance(value, Mapping) and "findings" in value
        found.append(
            _findings(source.role, value, made) if whole else plain_table(f"Diagnosis: {source.role}", value, made)
        )
    return found


def comparison_table(name: str, value: Mapping[str, Any]) -> Table:
    """What `airrep compare` found: one line for each pair of rows."""
    made = (str(value["command"]),) if value.get("command") else ()
    lines = [_pair_line(pair) for pair in value.get("pairs", ())]
    measure: Measure = value["measure"]
    drawn = measure in ("lds", "loo") and value.get("resamples")  # the others compare without draws
    draws = f" {value['resamples']:,} bootstrap draws." if drawn else ""
    caption = (
        f"{WORDS[measure].heading}. Difference × 100 of the first less the second, paired on the same queries, with "
        f"95 % intervals; two-sided p-values for a difference of 0, also adjusted for all pairs here (Holm).{draws} "
        "Ratio: of the first to the second, with Fieller's interval. "
        f"{ABOVE} or {BELOW}: above or below by an adjusted p-value under 0.05."
    )
    columns = ("First", "Second", "Difference", "p", "p, adjusted", "Ratio")
    return Table(f"Comparison: {name}", columns, tuple(lines), caption, made)


def _pair_line(pair: Mapping[str, Any]) -> Line:
    gap, p_value, adjusted = pair["difference"], pair["p_value"], pair["adjusted"]
    mark = "" if adjusted >= 0.05 else ABOVE if gap > 0 else BELOW
    shown = Cell(hundred(gap), interval_text(pair["interval"]), mark=mark)
    numbers = (Cell(p_number(p_value)), Cell(p_number(adjusted)), _ratio_cell(pair))
    return Line(Cell(pair["one"]), (Cell(pair["other"]), shown, *numbers))


def _ratio_cell(pair: Mapping[str, Any]) -> Cell:
    ratio, ends = pair.get("ratio"), pair.get("ratio_interval")
    return Cell(NOTHING) if ratio is None or ends is None else Cell(f"{ratio:.2f}", f"[{ends[0]:.2f}, {ends[1]:.2f}]")


_FINDING = ("level", "number", "verdict", "about", "advice")


def _findings(name: str, value: Mapping[str, Any], made: tuple[str, ...] = ()) -> Table:
    lines = [
        Line(Cell(str(one.get("name", ""))), tuple(Cell(str(one.get(key, ""))) for key in _FINDING))
        for one in value.get("findings", ())
    ]
    columns = ("Finding", *(label_of(key) for key in _FINDING))
    command = value.get("command") or ""
    text = str(value.get("sentence", ""))
    return Table(f"Diagnosis: {name}", columns, tuple(lines), text, (command,) if command else made, words=True)


def plain_table(title: str, value: Any, made: tuple[str, ...] = ()) -> Table:
    """Any JSON value as names and values; nested names are joined by dots."""
    lines = tuple(Line(Cell(label_of(name)), (Cell(text),)) for name, text in _flat(value))
    return Table(title, ("", "Value"), lines, "", made, words=True)


def _flat(value: Any, name: str = "") -> list[tuple[str, str]]:
    if isinstance(value, Mapping):
        return [pair for key, part in value.items() for pair in _flat(part, f"{name}.{key}" if name else str(key))]
    if isinstance(value, list | tuple) and any(isinstance(part, Mapping | list | tuple) for part in value):
        return [pair for number, part in enumerate(value, 1) for pair in _flat(part, f"{name} {number}".strip())]
    if isinstance(value, list | tuple):
        return [(name, ", ".join(_word(part) for part in value))]
    return [(name, _word(value))]


def _word(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: NOTHING}[value]
    if isinstance(value, float):
        return f"{value:,.4g}".replace("-", "−")
    return f"{value:,}" if isinstance(value, int) else str(value)


def plan_tables(plan: Plan) -> list[Table]:
    """Predicted cost of each method, crossovers, and how far the last predictions were off."""
    made = (plan.command,) if plan.command else ()
    return [table for table in (_methods_table(plan, made), _crossings(plan, made), _last_real(plan, made)) if table]


def _methods_table(plan: Plan, made: tuple[str, ...]) -> Table:
    corpus = plan.corpus
    lines = []
    for method in plan.methods:
        once = Cell(seconds_text(method.fixed_seconds), _times(method.fixed_interval))
        per = Cell(seconds_text(method.seconds_per_example), _times(method.interval))
        whole = [] if corpus is None else [Cell(seconds_text(method.seconds(corpus)), _times(method.ends(corpus)))]
        sizes = [Cell(_size(method.bytes_per_example)), Cell(_size(method.memory_bytes))]
        lines.append(Line(Cell(method.name), (once, per, *whole, *sizes)))
    whole_head = [] if corpus is None else [f"{corpus:,} examples"]
    columns = ("Method", "Once", "Per example", *whole_head, "Storage per example", "Memory")
    caption = "Predicted process CPU time; in brackets: 95 % intervals. Once: what is paid before the first example."
    return Table("Predicted cost", columns, tuple(lines), f"{caption} {plan_about(plan)}", made)


def _times(interval: Sequence[float] | None) -> str:
    return "" if interval is None else f"[{seconds_text(interval[0])}, {seconds_text(interval[1])}]"


def _size(value: float | None) -> str:
    return NOTHING if value is None else bytes_text(value)


def plan_about(plan: Plan) -> str:
    """Machine and language model of a plan, as sentences."""
    size = "" if plan.lm_parameters is None else f" ({plan.lm_parameters / 1e6:,.3g} million parameters)"
    lm = f"Language model: {plan.lm}{size}." if plan.lm else ""
    return " ".join(filter(None, [f"Machine: {plan.machine}." if plan.machine else "", lm]))


def _crossings(plan: Plan, made: tuple[str, ...]) -> Table | None:
    lines = []
    for cross in plan.crossovers:
        where = "never" if cross.examples is None else f"{cross.examples:,.0f}"
        ends = "" if cross.interval is None else f"[{cross.interval[0]:,.0f}, {cross.interval[1]:,.0f}]"
        lines.append(Line(Cell(cross.method), (Cell(where, " ".join(filter(None, [ends, cross.why]))),)))
    caption = (
        "From so many examples on AirRep takes less CPU time than the method, its training included. "
        "In brackets: 95 % intervals."
    )
    return Table("Crossover", ("Method", "Examples"), tuple(lines), caption, made, words=True) if lines else None


def _last_real(plan: Plan, made: tuple[str, ...]) -> Table | None:
    lines = []
    for real in plan.last_real:
        off = f"× {real.predicted_seconds / real.measured_seconds:.2f}" if real.measured_seconds > 0 else NOTHING
        times = (Cell(seconds_text(real.predicted_seconds)), Cell(seconds_text(real.measured_seconds)))
        lines.append(Line(Cell(real.what, "; ".join(real.conditions)), (*times, Cell(off))))
    caption = "What the prediction gives for the last real runs, beside what they took."
    columns = ("Run", "Predicted", "Measured", "Predicted / measured")
    return Table("Predicted and measured", columns, tuple(lines), caption, made) if lines else None

"""Tables of comparisons, diagnoses and plans."""

from collections.abc import Sequence
from typing import cast

from airrep.evaluation.comparison import ComparedPair, Comparison
from airrep.evaluation.diagnosis.diagnosis import Diagnosis
from airrep.evaluation.result import Difference, Measure
from airrep.planning.plan import Plan
from airrep.reports.evaluation_tables import ABOVE, BELOW, LEVEL, WORDS, gap_texts
from airrep.reports.tables import (
    NOTHING,
    PAGE,
    SIGNED,
    Cell,
    Line,
    Style,
    Table,
    bytes_text,
    label_of,
    p_number,
    seconds_text,
    span_text,
)
from airrep.scoring.pooling import pooling_text


def comparison_table(name: str, comparison: Comparison) -> Table:
    """Differences and p-values of a comparison: one line for each pair of rows."""
    measure = cast(Measure, comparison.measure)
    drawn = measure in ("lds", "loo")  # the others compare without draws
    draws = f" {comparison.resamples:,} bootstrap draws." if drawn else ""
    caption = (
        f"{WORDS[measure].heading}. Difference × 100 of the first less the second, paired on the same queries, with "
        f"95 % intervals; two-sided p-values for a difference of 0, also adjusted for all pairs here (Holm).{draws} "
        "Ratio: of the first to the second, with Fieller's interval. "
        f"{ABOVE} or {BELOW}: above or below by an adjusted p-value under 0.05."
    )
    columns = ("First", "Second", "Difference", "p", "p, adjusted", "Ratio")
    lines = tuple(map(_pair_line, comparison.pairs))
    return Table(f"Comparison: {name}", columns, lines, caption, _made_by(comparison.command))


def _pair_line(pair: ComparedPair) -> Line:
    one, other, gap, ends, p_value, adjusted, ratio, ratio_ends = pair_texts(pair, PAGE)
    mark = "" if pair.adjusted >= LEVEL else ABOVE if pair.difference > 0 else BELOW
    return Line(
        Cell(one),
        (Cell(other), Cell(gap, ends, mark=mark), Cell(p_value), Cell(adjusted), Cell(ratio or NOTHING, ratio_ends)),
    )


def pair_texts(pair: ComparedPair, style: Style) -> tuple[str, ...]:
    """Texts of a pair: rows, difference × 100, p-values, ratio; intervals behind what they are of."""
    known = pair.ratio is not None and pair.ratio_interval is not None
    ratio = (f"{pair.ratio:.2f}", style.interval(pair.ratio_interval, "{:.2f}".format)) if known else ("", "")
    tested = gap_texts(Difference(pair.difference, pair.interval, pair.p_value), style)
    return (pair.one, pair.other, *tested, p_number(pair.adjusted), *ratio)


def comparison_tables(comparison: Comparison) -> tuple[Table, Table]:
    """Rows, best first, and pairs of a comparison for the terminal: each number in a column of its own."""
    heads = ("row", "method", "pool", f"{comparison.measure.upper()} × 100", "95 % interval", "run")
    rows = (
        (
            *(row.name, row.method, pooling_text(row.pool, row.temperature)),
            *(SIGNED.hundred(row.value), SIGNED.interval(row.interval), row.run),
        )
        for row in comparison.rows
    )
    columns = ("row", "minus", "difference × 100", "95 % interval", "p", "p adjusted", "ratio", "95 % interval")
    pairs = (pair_texts(pair, SIGNED) for pair in comparison.pairs)
    return Table.of_texts(heads, rows), Table.of_texts(columns, pairs)


def _made_by(command: str) -> tuple[str, ...]:
    return (command,) if command else ()


def findings_table(name: str, diagnosis: Diagnosis) -> Table:
    """Each finding of a diagnosis with its advice."""
    keys = ("name", "level", "number", "verdict", "about", "advice")
    rows = ([str(getattr(one, key)) for key in keys] for one in diagnosis.findings)
    return Table.of_texts(
        ("Finding", *map(label_of, keys[1:])),
        rows,
        title=f"Diagnosis: {name}",
        caption=diagnosis.sentence,
        commands=_made_by(diagnosis.command),
    )


def plan_tables(plan: Plan) -> list[Table]:
    """Predicted cost of each method, crossovers, and how far the last predictions were off."""
    return [_methods_table(plan), *(table for table in (_crossings(plan), _last_real(plan)) if table.lines)]


def _methods_table(plan: Plan) -> Table:
    corpus, lines = plan.corpus, []
    for method in plan.methods:
        once = _seconds_cell(method.fixed_seconds, method.fixed_interval)
        per = _seconds_cell(method.seconds_per_example, method.interval)
        whole = [] if corpus is None else [_seconds_cell(method.seconds(corpus), method.ends(corpus))]
        sizes = (Cell(span_text([size], bytes_text)) for size in (method.bytes_per_example, method.memory_bytes))
        lines.append(Line(Cell(method.name), (once, per, *whole, *sizes)))
    whole_head = [] if corpus is None else [f"{corpus:,} examples"]
    columns = ("Method", "Once", "Per example", *whole_head, "Storage per example", "Memory")
    caption = "Predicted process CPU time; in brackets: 95 % intervals. Once: what is paid before the first example."
    return Table("Predicted cost", columns, tuple(lines), f"{caption} {plan_about(plan)}", _made_by(plan.command))


def _seconds_cell(value: float, interval: Sequence[float] | None = None) -> Cell:
    return Cell(seconds_text(value), PAGE.interval(interval, seconds_text))


def plan_about(plan: Plan) -> str:
    """Machine and language model of a plan, as sentences."""
    size = "" if plan.lm_parameters is None else f" ({plan.lm_parameters / 1e6:,.3g} million parameters)"
    lm = f"Language model: {plan.lm}{size}." if plan.lm else ""
    return " ".join(filter(None, [f"Machine: {plan.machine}." if plan.machine else "", lm]))


def _crossings(plan: Plan) -> Table:
    lines = []
    for cross in plan.crossovers:
        where = "never" if cross.examples is None else f"{cross.examples:,.0f}"
        ends = PAGE.interval(cross.interval, "{:,.0f}".format)
        lines.append(Line(Cell(cross.method), (Cell(where, " ".join(filter(None, [ends, cross.why]))),)))
    caption = (
        "From so many examples on AirRep takes less CPU time than the method, its training included. "
        "In brackets: 95 % intervals."
    )
    return Table("Crossover", ("Method", "Examples"), tuple(lines), caption, _made_by(plan.command), words=True)


def _last_real(plan: Plan) -> Table:
    lines = []
    for real in plan.last_real:
        off = f"× {real.predicted_seconds / real.measured_seconds:.2f}" if real.measured_seconds > 0 else NOTHING
        times = (_seconds_cell(real.predicted_seconds), _seconds_cell(real.measured_seconds))
        lines.append(Line(Cell(real.what, "; ".join(real.conditions)), (*times, Cell(off))))
    caption = "What the prediction gives for the last real runs, beside what they took."
    columns = ("Run", "Predicted", "Measured", "Predicted / measured")
    return Table("Predicted and measured", columns, tuple(lines), caption, _made_by(plan.command))

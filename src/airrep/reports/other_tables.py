"""Tables of comparisons, diagnoses and plans."""

from collections.abc import Mapping, Sequence
from typing import Any

from airrep.evaluation.comparison import Comparison, Pair
from airrep.evaluation.result import Difference, Measure
from airrep.planning.plan import Plan
from airrep.reports.evaluation_tables import ABOVE, BELOW, LEVEL, WORDS, commands, gap_texts
from airrep.reports.sources import Sources
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
    true_minus,
)
from airrep.scoring.pooling import pooling_text

_FINDING = ("level", "number", "verdict", "about", "advice")


def comparison_table(name: str, value: Mapping[str, Any]) -> Table:
    """Differences and p-values of a comparison, a JSON object: one line for each pair of rows."""
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
    lines = tuple(_pair_line(Pair(**pair)) for pair in value.get("pairs", ()))
    return Table(f"Comparison: {name}", columns, lines, caption, _made_by(value.get("command")))


def _pair_line(pair: Pair) -> Line:
    one, other, gap, ends, p_value, adjusted, ratio, ratio_ends = pair_texts(pair, PAGE)
    mark = "" if pair.adjusted >= LEVEL else ABOVE if pair.difference > 0 else BELOW
    return Line(
        Cell(one),
        (Cell(other), Cell(gap, ends, mark=mark), Cell(p_value), Cell(adjusted), Cell(ratio or NOTHING, ratio_ends)),
    )


def pair_texts(pair: Pair, style: Style) -> tuple[str, ...]:
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


def _made_by(command: object) -> tuple[str, ...]:
    return (str(command),) if command else ()


def diagnosis_tables(sources: Sources) -> list[Table]:
    """Findings of diagnoses, worst first; then diagnoses among the facts of evaluations."""
    found = [findings_table(name, value) for name, value in sources.diagnoses]
    for source in sources.evaluations:
        value = source.evaluation.facts.get("diagnosis")
        if not value:
            continue
        whole = isinstance(value, Mapping) and "findings" in value
        made = commands([source])
        title = f"Diagnosis: {source.role}"
        found.append(findings_table(source.role, value, made) if whole else plain_table(title, value, made))
    return found


def findings_table(name: str, value: Mapping[str, Any], made: tuple[str, ...] = ()) -> Table:
    """Each finding of a diagnosis, a JSON object, with its advice."""
    rows = ([str(one.get(key, "")) for key in ("name", *_FINDING)] for one in value.get("findings", ()))
    columns = ("Finding", *map(label_of, _FINDING))
    caption = str(value.get("sentence", ""))
    own = _made_by(value.get("command"))
    return Table.of_texts(columns, rows, title=f"Diagnosis: {name}", caption=caption, commands=own or made)


def plain_table(title: str, value: Any, made: tuple[str, ...] = ()) -> Table:
    """Any JSON value as names and values; nested names are joined by dots."""
    rows = ((label_of(name), text) for name, text in _flat(value))
    return Table.of_texts(("", "Value"), rows, title=title, commands=made)


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
        return true_minus(f"{value:,.4g}")
    return f"{value:,}" if isinstance(value, int) else str(value)


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

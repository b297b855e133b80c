"""Tables of what a plan predicts."""

from collections.abc import Sequence

from airrep.planning.plan_record import Plan
from airrep.reports.tables import NOTHING, Cell, Line, Table, bytes_text, seconds_text


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

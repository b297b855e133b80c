"""What evaluations, datamodels and stacks show."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from airrep.console import out, printable, say
from airrep.learning_console import signed

if TYPE_CHECKING:
    from airrep.datamodels import Datamodels
    from airrep.evaluating import LdsRow, LdsTable
    from airrep.stacking import Stack


def print_lds(table: "LdsTable") -> None:
    """Print one row for each index, and what the values can be measured against."""
    shown = Table("index", "method", "pool", "LDS × 100", "95 % interval", "minus the first", "95 % interval")
    for row in table.rows:
        gap = row.difference
        paired = ("", "") if gap is None else (signed(gap.value), _range(gap.interval))
        shown.add_row(row.index, row.method, _pool(row), signed(row.lds.value), _range(row.lds.interval), *paired)
    out().print(shown)
    say(f"{_counts(table)}{_ceiling(table)}")
    for row in table.rows:
        if row.caution:
            say(f"{row.index}: {row.caution}")


def _pool(row: "LdsRow") -> str:
    return row.pool if row.temperature in (None, 1) else f"{row.pool}, temperature {row.temperature:.3g}"


def _counts(table: "LdsTable") -> str:
    """What the values were taken over."""
    first = table.rows[0]
    dropped = ", ".join(f"{row.index} {row.dropped:,}" for row in table.rows if row.dropped)
    left_out = f"; left out, as scores or losses are constant: {dropped}" if dropped else ""
    tuned = f"; temperatures chosen on {', '.join(table.tuned_on)}" if table.tuned_on else ""
    names = printable(", ".join(table.instances))
    return f"{first.lds.queries:,} queries and {first.lds.subsets:,} subsets of {names}{left_out}{tuned}"


def _ceiling(table: "LdsTable") -> str:
    if table.ceiling is None:
        return "; one seed, so no noise ceiling is known"
    return f"; noise ceiling {signed(table.ceiling)}"


def print_datamodels(made: "Datamodels") -> None:
    """Print how well regressions predict subsets that they have not seen."""
    report = made.report
    table = Table("on subsets not fitted on", "value", "95 % interval")
    table.add_row("LDS × 100", signed(report["lds"]), _range(report["interval"]))
    table.add_row("R² × 100", signed(report["r_squared"]), _range(report["r_squared_interval"]))
    out().print(table)
    without = f"; {report['left_out']:,} subsets without losses were left out" if report["left_out"] else ""
    flat = f"; {report['dropped']:,} queries with constant scores or losses do not count" if report["dropped"] else ""
    say(f"{report['queries']:,} queries and {report['subsets']:,} subsets{without}{flat}")


def print_stack(stack: "Stack") -> None:
    """Print the weights, the held-out table and whether the stack is worth its price."""
    weights = Table("member", "settings", "weight", "deviation of its scores")
    for member in stack.members:
        given = ", ".join(f"{name}={value}" for name, value in member.settings.items() if value is not None)
        weights.add_row(member.method, printable(given), f"{member.weight:.3f}", f"{member.deviation:.4g}")
    out().print(weights)
    table = Table("method and pool", "held-out LDS × 100", "95 % interval", "stack minus it", "95 % interval")
    for row in stack.report["rows"]:
        table.add_row(row["name"], *_value(row["lds"], "lds"), *_value(row["stack_minus_it"], "difference"))
    out().print(table)
    say(stack.report["sentence"])


def _value(found: Mapping[str, Any] | None, name: str) -> tuple[str, str]:
    return ("", "") if found is None else (signed(found[name]), _range(found["interval"]))


def _range(interval: Sequence[float] | None) -> str:
    return "" if interval is None else f"{signed(interval[0])} to {signed(interval[1])}"

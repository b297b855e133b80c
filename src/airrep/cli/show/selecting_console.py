"""What the identical-class test and data selection show."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from airrep.cli.show.console import out, say, snippet
from airrep.cli.show.learning import signed
from airrep.evaluation.result import caution_on
from airrep.reports.tables import p_number

if TYPE_CHECKING:
    from airrep.evaluation.result import Evaluation, Row

MOST_TASKS = 30
"""Tasks that are shown one by one."""


def print_classification(evaluation: "Evaluation") -> None:
    """Print accuracies, the first index's differences, and what chance would reach."""
    facts = evaluation.facts
    votes = [f"vote@{k}" for k in facts["votes"]]
    shown = Table("index", "method", "top 1 × 100", "95 % interval", "macro", *votes, *_GAP)
    for row in evaluation.rows:
        more = (hundred(row.more[name]["value"]) for name in ("macro", *votes))
        shown.add_row(snippet(row.name, 60), row.method, hundred(row.value), _range(row.interval), *more, *_gap(row))
    out().print(shown)
    commonest = facts["commonest"]
    always = snippet(str(commonest["label"]), 40)
    say(
        f"chance {hundred(facts['chance'])}; always {always}: {hundred(commonest['accuracy'])}; "
        f"{_queries(evaluation)} of {len(facts['labels']):,} classes (by {facts['by']}), "
        f"{facts['examples']:,} training examples"
    )
    for name, text in _CLASSIFY_COUNTS.items():
        if facts[name]:
            say(f"{facts[name]:,} {text}")
    _cautions(evaluation)


_GAP = ("minus the first", "95 % interval", "p")
_CLASSIFY_COUNTS = {
    "queries_among_the_examples": "queries are among the training examples themselves; those copies were passed over",
    "queries_without_examples_of_their_label": "queries have a class that no training example has: always wrong",
    "unlabelled_examples": "training examples have no class: they never match",
}


def print_selection(evaluation: "Evaluation") -> None:
    """Print F1 of every competitor, then task by task."""
    facts = evaluation.facts
    shown = Table("selected by", "method", "F1 × 100", "95 % interval", *_GAP, "of the same task", "no words")
    for row in evaluation.rows:
        shares = (_share(row.more["same_task_share"]), _share(row.more["wordless_answers"]))
        shown.add_row(snippet(row.name, 60), row.method, hundred(row.value), _range(row.interval), *_gap(row), *shares)
    out().print(shown)
    _print_tasks(evaluation)
    averaged = f", mean of {facts['seeds']} fine-tunes each" if facts["seeds"] > 1 else ""
    say(
        f"{facts['count']:,} of {facts['examples']:,} training examples for each of {len(facts['tasks']):,} tasks by "
        f"{facts['by']}{averaged}, selected by {facts['selected_by']}; LM {snippet(facts['lm']['name'], 60)}; "
        f"{_queries(evaluation)}; intervals over tasks and queries"
    )
    if facts["examples_left_out_as_queries"]:
        say(
            f"{facts['examples_left_out_as_queries']:,} training examples are queries, to be answered or to select by; "
            "nobody could select them"
        )
    for text in facts["failed"]:
        say(f"failed, and left out: {text}")
    _cautions(evaluation)


def _print_tasks(evaluation: "Evaluation") -> None:
    tasks: Mapping[str, Any] = evaluation.facts["tasks"]
    table = Table("task", "queries", *(snippet(row.name, 40) for row in evaluation.rows))
    for task in list(tasks)[:MOST_TASKS]:
        found = (row.more["by_task"].get(task) for row in evaluation.rows)
        table.add_row(
            snippet(task, 40), f"{tasks[task]['queries']:,}", *("" if f is None else hundred(f) for f in found)
        )
    out().print(table)
    if len(tasks) > MOST_TASKS:
        say(f"and {len(tasks) - MOST_TASKS:,} more tasks: see --json")


def hundred(value: float) -> str:
    """A share as it is shown."""
    return f"{100 * value:.1f}"


def _gap(row: "Row") -> tuple[str, str, str]:
    gap = row.difference
    if gap is None:
        return ("", "", "")
    return signed(gap.value), f"{signed(gap.interval[0])} to {signed(gap.interval[1])}", p_number(gap.p_value)


def _range(interval: Sequence[float]) -> str:
    return f"{hundred(interval[0])} to {hundred(interval[1])}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.0f} %"


def _queries(evaluation: "Evaluation") -> str:
    dropped = max(row.dropped for row in evaluation.rows)
    left_out = f" ({dropped:,} left out)" if dropped else ""
    return f"{len(evaluation.queries):,} queries{left_out}"


def _cautions(evaluation: "Evaluation") -> None:
    if scant := caution_on(evaluation.distinct_queries):
        say(scant)
    for row in evaluation.rows:
        if row.caution:
            say(f"{row.name}: {row.caution}")

"""Print evaluations, comparisons, stacks, datamodels and diagnoses."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from airrep.cli.show.console import out, printable, say, snippet
from airrep.cli.show.learning import signed
from airrep.evaluation.comparison import KIND as COMPARISON
from airrep.evaluation.comparison import read_comparison
from airrep.evaluation.diagnosis.findings import PAGE
from airrep.evaluation.result import caution_on, read_evaluation
from airrep.reports.tables import p_number
from airrep.runtime.artifacts import read_manifest
from airrep.scoring.pooling import pooling_text

if TYPE_CHECKING:
    from airrep.evaluation.comparison import ComparedRow, Comparison
    from airrep.evaluation.diagnosis.diagnosis import Diagnosis
    from airrep.evaluation.result import Difference, Evaluation, Row
    from airrep.training.linear.datamodels import Datamodels
    from airrep.training.linear.stack import Stack


def print_correlations(evaluation: "Evaluation") -> None:
    """Print LDS or leave-one-out correlations, and what they can be measured against."""
    name = evaluation.measure.upper()
    beside = ("Pearson",) if evaluation.measure == "loo" else ()
    gap = ("minus the first", "95 % interval", "p")
    shown = Table("index", "method", "pool", f"{name} × 100", "95 % interval", *beside, *gap)
    for row in evaluation.rows:
        value = (signed(row.value), _range(row.interval), *(_hundred(row.more["pearson"]) for _ in beside))
        shown.add_row(snippet(row.name, 60), row.method, _pool(row), *value, *_gap(row.difference))
    out().print(shown)
    say(_counts(evaluation) + _ceiling(evaluation))
    if evaluation.measure == "loo":
        say(_noise(evaluation.facts["signal_to_noise"]))
    for row in evaluation.rows:
        if row.caution:
            say(f"{row.name}: {row.caution}")


def _pool(row: "Row | ComparedRow") -> str:
    return pooling_text(row.pool, row.temperature)


def _hundred(value: float | None) -> str:
    return "" if value is None else signed(value)


def _gap(gap: "Difference | None") -> tuple[str, str, str]:
    return ("", "", "") if gap is None else (signed(gap.value), _range(gap.interval), p_number(gap.p_value))


def _counts(evaluation: "Evaluation") -> str:
    """What the values were taken over."""
    facts = evaluation.facts
    kind = "subsets" if evaluation.measure == "lds" else "removals"
    dropped = ", ".join(f"{row.name} {row.dropped:,}" for row in evaluation.rows if row.dropped)
    left_out = f"; queries left out, as scores or losses are constant or missing: {dropped}" if dropped else ""
    tuned = f"; temperatures chosen on {', '.join(facts['tuned_on'])}" if facts.get("tuned_on") else ""
    names = printable(", ".join(facts["instances"]))
    lacking = facts.get(f"{kind}_left_out")
    without = f"; {kind} left out, as they have no losses: {lacking:,}" if lacking else ""
    gone = facts.get("losses_missing")
    holes = f"; single losses missing, each left out by itself: {gone:,}" if gone else ""
    several = f" ({facts['distinct_queries']:,} different ones)" if "shared_queries" in facts else ""
    found = facts.get("queries_in_pool")
    copies = (
        f"; queries that are in their train pool: {found:,}, which helps whoever finds equal texts" if found else ""
    )
    scant = caution_on(evaluation.distinct_queries)
    more = printable(without + holes + left_out + copies + tuned) + (f"; {scant}" if scant else "")
    return f"{facts['queries']:,} queries{several} and {facts[kind]:,} {kind} of {names}{more}"


def _ceiling(evaluation: "Evaluation") -> str:
    if evaluation.ceiling is None and any(evaluation.facts.get("seeds_alike", ())):
        return "; the seeds give the same losses, which tell nothing of noise, so no noise ceiling is known"
    if evaluation.ceiling is None and max(evaluation.facts["seeds"]) > 1:
        return "; no losses vary in two seeds yet, so no noise ceiling is known"
    if evaluation.ceiling is None:
        return "; one seed, so no noise ceiling is known"
    return f"; noise ceiling {signed(evaluation.ceiling)}"


def _noise(ratio: float | None) -> str:
    if ratio is None:
        return "signal-to-noise ratio of the effects: not known without several seeds that differ"
    meaning = "variance between removals beyond that due to seeds, over the latter; 0 = nothing but chance"
    return f"signal-to-noise ratio of the effects: {ratio:.2f} ({meaning})"


def print_comparison(comparison: "Comparison") -> None:
    """Print the rows, best first, and every pair with its difference and p-values."""
    table = Table("row", "method", "pool", f"{comparison.measure.upper()} × 100", "95 % interval", "run")
    for row in comparison.rows:
        known = (row.method, _pool(row), signed(row.value), _range(row.interval), snippet(row.run, 60))
        table.add_row(snippet(row.name, 60), *known)
    out().print(table)
    pairs = Table("row", "minus", "difference × 100", "95 % interval", "p", "p adjusted", "ratio", "95 % interval")
    for pair in comparison.pairs:
        tested = (signed(pair.difference), _range(pair.interval), p_number(pair.p_value), p_number(pair.adjusted))
        found = (*tested, *_times(pair.ratio, pair.ratio_interval))
        pairs.add_row(snippet(pair.one, 60), snippet(pair.other, 60), *found)
    out().print(pairs)
    draws = f"; {comparison.resamples:,} bootstrap draws" if comparison.measure in ("lds", "loo") else ""
    scant = "" if comparison.queries is None else caution_on(comparison.queries)
    say(f"adjusted after Holm for these {len(comparison.pairs):,} pairs{draws}" + (f"; {scant}" if scant else ""))


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


def _times(ratio: float | None, interval: tuple[float, float] | None) -> tuple[str, str]:
    return (
        ("", "") if ratio is None or interval is None else (f"{ratio:.2f}", f"{interval[0]:.2f} to {interval[1]:.2f}")
    )


def _range(interval: Sequence[float] | None) -> str:
    return "" if interval is None else f"{signed(interval[0])} to {signed(interval[1])}"


MOST_TASKS = 30
"""Tasks that are shown one by one."""


def print_classification(evaluation: "Evaluation") -> None:
    """Print accuracies, the first index's differences, and what chance would reach."""
    facts = evaluation.facts
    votes = [f"vote@{k}" for k in facts["votes"]]
    shown = Table("index", "method", "top 1 × 100", "95 % interval", "macro", *votes, *_GAP)
    for row in evaluation.rows:
        more = (hundred(row.more[name]["value"]) for name in ("macro", *votes))
        shown.add_row(
            snippet(row.name, 60),
            row.method,
            hundred(row.value),
            _unsigned_range(row.interval),
            *more,
            *_gap(row.difference),
        )
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
        shown.add_row(
            snippet(row.name, 60),
            row.method,
            hundred(row.value),
            _unsigned_range(row.interval),
            *_gap(row.difference),
            *shares,
        )
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


def _unsigned_range(interval: Sequence[float]) -> str:
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


STYLES = {"bad": "bold red", "look": "yellow", "unknown": "cyan", "good": "green"}


def print_diagnosis(diagnosis: "Diagnosis") -> None:
    """Print one row for each finding, worst first, and the outcome."""
    table = Table(show_lines=True)
    table.add_column("verdict")
    table.add_column("finding, its advice", overflow="fold", min_width=28)
    table.add_column("number, what it means")
    for found in diagnosis.findings:
        about = [] if found.about == "labels" else [escape(printable(found.about))]
        named = "\n".join([found.name, *about, f"[dim]#{found.anchor}[/]"])
        meaning = f"{escape(printable(found.number))}\n{escape(printable(found.verdict))}"
        table.add_row(f"[{STYLES[found.level]}]{found.level}[/]", named, meaning)
    out().print(table, highlight=False)
    facts = diagnosis.facts
    members, seeds = _sizes(facts["subset_sizes"]), _seeds(facts["seeds"])
    say(f"{facts['queries']:,} queries, {facts['subsets']:,} subsets of {members}, {seeds}. Advice: {PAGE}.")
    say(diagnosis.sentence)


def _sizes(sizes: list[int]) -> str:
    least, most = sizes
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _seeds(count: int) -> str:
    return "one seed" if count == 1 else f"{count} seeds"


_PRINT = {
    "lds": print_correlations,
    "loo": print_correlations,
    "classify": print_classification,
    "select": print_selection,
}


def print_result(path: Path) -> None:
    """Print the result that an artifact holds.

    Raises:
        ArtifactError: it is altered, or neither an evaluation nor a comparison.
    """
    if read_manifest(path)["kind"] == COMPARISON:
        print_comparison(read_comparison(path))
    else:
        evaluation = read_evaluation(path)
        _PRINT[evaluation.measure](evaluation)

"""Print evaluations, comparisons, learnt recipes, datamodels and diagnoses."""

from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table as RichTable

from airrep.attributors.base import sentences
from airrep.cli.show.console import out, print_table, print_tables, printable, say, snippet
from airrep.errors import many
from airrep.evaluation.comparison import Comparison
from airrep.evaluation.findings import PAGE
from airrep.evaluation.result import Evaluation, caution_on
from airrep.reports.evaluation_tables import WORDS, comparison_tables, findings_table, tables_of
from airrep.reports.tables import Table, held_out_table, hundred, interval, span_text
from airrep.runtime.artifacts import read_manifest

if TYPE_CHECKING:
    from airrep.evaluation.diagnosis import Diagnosis
    from airrep.training.linear.datamodels import Datamodels
    from airrep.training.linear.recipe import Adapted

LONGEST = 60
"""Characters of a name."""

_CLASSIFY_COUNTS = {
    "queries_among_the_examples": "queries that are training examples too, whose copies do not count as hits",
    "queries_without_examples_of_their_label": "queries with a class that no training example has (counted as wrong)",
    "repeated_queries": "queries that repeat other queries' texts (intervals and p-values count each)",
    "unlabelled_examples": "training examples without a class (they never match)",
}
_STYLES = {"bad": "bold red", "look": "yellow", "unknown": "cyan", "good": "green"}


def print_correlations(evaluation: "Evaluation") -> None:
    """Print LDS or leave-one-out correlations, and their noise ceiling."""
    _print_values(evaluation)
    say(_counts(evaluation) + _ceiling(evaluation))
    if left_out := evaluation.facts.get("left_out"):
        say(f"Losses are predicted from the {span_text(left_out)} examples that each subset leaves out.")
    if "signal_to_noise" in evaluation.facts:
        say(_noise(evaluation.facts["signal_to_noise"]))
    if (helped := evaluation.facts.get("helped")) is not None:
        say("Each score is what `airrep what-if` predicts: the effect of removing the examples from the training data.")
        say(f"In {helped:.1%} of measurements, a removal raised a query's loss, so the removed examples had helped.")
    if told := evaluation.facts.get("hardly_moved"):
        say(printable(f"caution: the fine-tunes hardly changed the model, so the LDS say little: {told}"))
    _say_cautions(evaluation)


def _print_values(evaluation: "Evaluation") -> None:
    print_tables(tables_of(evaluation), LONGEST)
    say(f"In brackets: {WORDS[evaluation.measure].interval}. Bold: best.")


def _counts(evaluation: "Evaluation") -> str:
    facts = evaluation.facts
    kind = "subsets" if evaluation.measure == "lds" else "removals"
    dropped = ", ".join(f"{row.name} {row.dropped:,}" for row in evaluation.rows if row.dropped)
    left_out = f"; queries left out, because scores or losses are constant or missing: {dropped}" if dropped else ""
    tuned = f"; temperatures chosen on {', '.join(facts['tuned_on'])}" if facts.get("tuned_on") else ""
    kept = facts.get("not_tuned")
    if kept:
        none = (
            "; --tune changed nothing, because no index scores groups with attention (--pool); a recipe's methods "
            "keep their temperatures"
        )
        tuned = (
            f"{tuned}; not tuned, because they do not score groups with attention: {', '.join(kept)}" if tuned else none
        )
    names = printable(", ".join(facts["instances"]))
    seeds = zip(facts["instances"], facts.get("seeds_left_out", ()), strict=False)
    gaps = ", ".join(f"seed {number} of {name}" for name, numbers in seeds for number in numbers)
    unpaired = f"; left out, because its fine-tune on all examples or all its removals are missing: {gaps}"
    lacking = facts.get(f"{kind}_left_out")
    without = f"; {kind} left out, because they have no losses: {lacking:,}" if lacking else ""
    gone = facts.get("losses_missing")
    holes = f"; missing losses, left out one by one: {gone:,}" if gone else ""
    several = f" ({facts['distinct_queries']:,} different)" if "shared_queries" in facts else ""
    found = facts.get("queries_in_pool")
    copies = (
        f"; queries that are training examples too: {found:,}, which favours methods that find equal texts"
        if found
        else ""
    )
    scant = caution_on(evaluation.distinct_queries)
    more = printable((unpaired if gaps else "") + without + holes + left_out + copies + tuned) + (
        f"; {scant}" if scant else ""
    )
    return f"{many(facts['queries'], 'query', 'queries')}{several} and {facts[kind]:,} {kind} of {names}{more}"


def _ceiling(evaluation: "Evaluation") -> str:
    if evaluation.ceiling is not None:
        return f"; noise ceiling {hundred(evaluation.ceiling)}"
    why = "there is only one seed"
    if any(evaluation.facts.get("seeds_alike", ())):
        why = "all seeds give the same losses"
    elif max(evaluation.facts["seeds"]) > 1:
        why = "no losses vary in two seeds yet"
    return f"; the noise ceiling is unknown, because {why}"


def _noise(ratio: float | None) -> str:
    if ratio is None:
        return (
            "signal-to-noise ratio of the effects: unknown; at least two seeds with different losses must have all "
            "losses of at least two removals"
        )
    meaning = "variance between removals minus the part due to seeds, divided by that part; 0 = only chance"
    return f"signal-to-noise ratio of the effects: {ratio:.2f} ({meaning})"


def print_comparison(comparison: "Comparison") -> None:
    """Print the rows, best first, and every pair with its difference and p-values."""
    print_tables(comparison_tables("", comparison), LONGEST)
    draws = f"; {comparison.resamples:,} bootstrap draws" if comparison.measure in ("lds", "loo") else ""
    scant = "" if comparison.queries is None else caution_on(comparison.queries)
    say(
        f"95 % intervals in brackets; p-values adjusted (Holm) for {many(len(comparison.pairs), 'pair')} of indexes"
        + draws
        + (f"; {scant}" if scant else "")
    )


def print_datamodels(made: "Datamodels") -> None:
    """Print how well regressions predict subsets that they have not seen."""
    report = made.report
    lds = ("LDS × 100", hundred(report["lds"]), interval(report["interval"]))
    fit = ("R² × 100", hundred(report["r_squared"]), interval(report["r_squared_interval"]))
    print_table(Table.of_texts(("on held-out subsets", "value", "95 % interval"), (lds, fit)))
    without = f"; {many(report['left_out'], 'subset')} without losses left out" if report["left_out"] else ""
    flat = (
        f"; {many(report['dropped'], 'query', 'queries')} with constant scores or losses left out"
        if report["dropped"]
        else ""
    )
    say(f"{many(report['queries'], 'query', 'queries')} and {report['subsets']:,} subsets{without}{flat}")


def print_adapted(made: "Adapted") -> None:
    """Print channels and weights, the held-out table and whether the sum is worth its price."""
    rows = [(one.title, one.pool or "its own", f"{one.temperature:.3g}", f"{one.weight:.3g}") for one in made.channels]
    print_table(Table.of_texts(("channel", "pool", "temperature", "weight"), rows))
    print_table(held_out_table(made.report["rows"]))
    if made.report["scored_alike"]:
        alike = printable(", ".join(made.report["scored_alike"]))
        say(f"methods that give all subsets the same score were left out: {alike}")
    for name, reason in made.report["rivals_missing"].items():
        say(printable(f"no comparison with {name}: {reason}"))
    say(made.report["sentence"])


def print_classification(evaluation: "Evaluation") -> None:
    """Print accuracies, the first index's differences, and what chance would reach."""
    facts = evaluation.facts
    _print_values(evaluation)
    commonest = facts["commonest"]
    say(f"If the top examples were drawn at random, the accuracy × 100 would be {hundred(facts['chance'])}.")
    always, reached = snippet(str(commonest["label"]), 40), hundred(commonest["accuracy"])
    say(f"If the answer to every query were '{always}', the accuracy × 100 would be {reached}.")
    say(
        f"{_queries(evaluation)} of {many(len(facts['labels']), 'class', 'classes')} (field {facts['by']}), "
        f"{many(facts['examples'], 'training example')}"
    )
    for name, text in _CLASSIFY_COUNTS.items():
        if facts.get(name):  # artifacts of older versions do not know all
            say(f"{text}: {facts[name]:,}")
    _say_cautions(evaluation, few=True)


def print_selection(evaluation: "Evaluation") -> None:
    """Print F1 of every competitor, then task by task."""
    facts = evaluation.facts
    _print_values(evaluation)
    averaged = f" Each value is the mean of {facts['seeds']} fine-tunes." if facts["seeds"] > 1 else ""
    say(
        f"For each of {many(len(facts['tasks']), 'task')} (field {facts['by']}), {facts['count']:,} of "
        f"{facts['examples']:,} training examples were selected to suit {facts['selected_by']}."
    )
    say(
        f"For each row, the LM {snippet(facts['lm']['name'], 60)} was fine-tuned on the training examples of that row. "
        f"The fine-tuned LM then answered {_queries(evaluation)}.{averaged} The intervals come from resampling the "
        "tasks and queries."
    )
    if facts["examples_left_out_as_queries"]:
        copies = facts["examples_left_out_as_queries"]
        say(f"training examples that cannot be selected, because they are copies of queries: {copies:,}")
    for text in facts["failed"]:
        say(f"failed, and left out: {text}")
    _say_cautions(evaluation, few=True)


def print_drop(evaluation: "Evaluation") -> None:
    """Print how far losses rise without the top examples, and what random ones do."""
    facts = evaluation.facts
    _print_values(evaluation)
    others = "; ".join(
        f"without {many(k, 'random example')}: {one['loss']:.3f} (± {one['deviation']:.3f} between random sets)"
        for k, one in ((k, facts["random"][str(k)]) for k in facts["drop"])
    )
    say(f"Mean loss of the queries before any fine-tune: {facts['before']:.3f}; after a fine-tune {others}")
    say(
        f"The values come from {many(facts['fine_tunes'], 'fine-tune')} of the LM {snippet(facts['lm']['name'], 60)} "
        f"({many(facts['seeds'], 'seed')}), {many(facts['examples'], 'training example')} and "
        f"{_queries(evaluation)}."
    )
    if facts["examples_left_out_as_queries"]:
        say(
            f"{many(facts['examples_left_out_as_queries'], 'training example')} left out, because the same text is a "
            "query"
        )
    _say_cautions(evaluation, few=True)


def print_trace(evaluation: "Evaluation") -> None:
    """Print reciprocal ranks and recalls of the examples that taught the facts, and the gain by a training step."""
    facts = evaluation.facts
    _print_values(evaluation)
    taught, held = span_text(facts["taught_by"]), "their ids" if facts["named_by"] == "ids" else "a shared value"
    say(
        f"{_queries(evaluation)}. The field {facts['facts']} of each query names the training examples that taught "
        f"the answer, by {held}. Each query was taught by {taught} of {facts['examples']:,} training examples. The MRR "
        f"× 100 of a random ranking is {hundred(facts['chance'])}."
    )
    if "lm" in facts:
        say(
            f"Tail patch: rise of the answer's log probability (× 100, nats per token) after one training step on one "
            f"of the top {many(facts['count'], 'example')}, minus the rise after a random example. LM: "
            f"{snippet(facts['lm']['name'], 60)}."
        )
    if facts["queries_without_facts"]:
        say(f"Left out: {many(facts['queries_without_facts'], 'query', 'queries')} without the field {facts['facts']}")
    _say_cautions(evaluation, few=True)


def _queries(evaluation: "Evaluation") -> str:
    dropped = max(row.dropped for row in evaluation.rows)
    left_out = f" ({dropped:,} left out)" if dropped else ""
    return f"{many(len(evaluation.queries), 'query', 'queries')}{left_out}"


def _say_cautions(evaluation: "Evaluation", *, few: bool = False) -> None:
    """Print each caution once, after the names of its rows; with *few*, also the caution on too few queries."""
    if few and (scant := caution_on(evaluation.distinct_queries)):
        say(scant)
    for one in dict.fromkeys(one for row in evaluation.rows for one in sentences(row.caution)):
        say(f"{', '.join(row.name for row in evaluation.rows if one in sentences(row.caution))}: {one}")


def print_diagnosis(diagnosis: "Diagnosis") -> None:
    """Print one row for each finding, worst first, and the outcome."""
    shown = RichTable(show_lines=True)
    shown.add_column("verdict")
    shown.add_column("finding, its advice", overflow="fold", min_width=28)
    shown.add_column("number, what it means")
    for line in findings_table("", diagnosis).lines:
        texts = (escape(printable(cell.text)) for cell in (line.head, *line.cells))
        name, level, number, verdict, about, advice = texts
        named = [name, *([] if about == "labels" else [about]), f"[dim]#{advice.partition('#')[2]}[/]"]
        shown.add_row(f"[{_STYLES[level]}]{level}[/]", "\n".join(named), f"{number}\n{verdict}")
    out().print(shown, highlight=False)
    facts = diagnosis.facts
    seeds = "one seed" if facts["seeds"] == 1 else f"{facts['seeds']} seeds"
    members = span_text(facts["subset_sizes"])
    say(
        f"The labels (measured losses) have {many(facts['queries'], 'query', 'queries')}, {facts['subsets']:,} subsets "
        f"of {members} examples, and {seeds}. Advice on each finding: {PAGE}."
    )
    say(diagnosis.sentence)


_PRINT = {
    "lds": print_correlations,
    "loo": print_correlations,
    "classify": print_classification,
    "select": print_selection,
    "drop": print_drop,
    "trace": print_trace,
}


def print_result(path: Path) -> None:
    """Print the result that an artifact holds.

    ArtifactError: it is altered, or neither an evaluation nor a comparison.
    """
    if read_manifest(path)["kind"] == Comparison.kind:
        print_comparison(Comparison.read(path))
    else:
        evaluation = Evaluation.read(path)
        _PRINT[evaluation.measure](evaluation)
        if judged := evaluation.facts.get("judgement"):
            say(judged)

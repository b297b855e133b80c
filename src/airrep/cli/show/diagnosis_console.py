"""What a diagnosis shows."""

from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from airrep.cli.show.console import out, printable, say
from airrep.evaluation.diagnosis.findings import PAGE

if TYPE_CHECKING:
    from airrep.evaluation.diagnosis.diagnosis import Diagnosis

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

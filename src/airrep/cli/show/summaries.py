"""Print what the answers for many queries have in common."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from airrep.cli.show.console import snippet
from airrep.cli.show.hits import SEPARATOR, deviations_text, one_line, print_hit, print_lines, say
from airrep.corpus.corpus import Example
from airrep.index.results.hits import Verdict
from airrep.index.results.kinds import GroupResult, WhatIfResult
from airrep.index.results.summary import Shared, Summary
from airrep.reports.results_data import both_ends, rank_groups
from airrep.reports.tables import signed, unsigned

EACH, REASONED = 3, 20
"""Of more queries each is shown only if all is asked for; the same where reasons are."""
EXAMPLES = 5
"""Training examples shown, of those that several queries have in common."""
NAMES = 5
"""Sources, labels and openings shown."""


def shows_each(queries: int, wide: bool, reasons: bool = False) -> bool:
    """Whether queries are shown one by one, given whether reasons of their scores are known."""
    return wide or queries <= (REASONED if reasons else EACH)


def print_summary(console: Console, summary: Summary, verb: str, *, scored: str = "deviations", wide: bool) -> None:
    """Print what several queries have in common; *verb* says what the examples are to them."""
    first = summary.first if wide else summary.first[:EXAMPLES]
    told = f"{summary.queries:,} queries; {summary.examples:,} different examples {verb}"
    print_lines(console, Text(told, style="bold"))
    count = len(summary.first)
    openings = [Shared(f"“{one.name}”", one.examples) for one in summary.openings]
    for name, shares in (("source", summary.sources), ("label", summary.labels), ("opening", openings)):
        if shares:
            print_lines(console, Text(f"{name} of the first {count} over all queries: {_shares(shares)}"), hang=3)
    several = [one for one in first if one.queries > 1]
    if not several:
        say(console, "No example is among the first of two queries.")
    for rank, one in enumerate(several, 1):
        mean = f"{deviations_text(one.mean)} on average" if scored == "deviations" else f"mean score {signed(one.mean)}"
        facts = (f"for {one.queries:,} of {summary.queries:,} queries", mean)
        print_hit(console, one.example, one.row, facts, rank=rank, wide=wide)


def print_verdict_counts(console: Console, verdicts: Sequence[Verdict | None]) -> None:
    """Print for how many of several queries something stands out."""
    counts = Counter(verdict.kind for verdict in verdicts if verdict is not None)
    if counts:
        told = f"Something stands out for {counts['stands out']:,}, weakly for {counts['weak']:,}"
        print_lines(console, Text(f"{told}; nothing here taught {counts['nothing']:,}.", style="bold"))


def _shares(shares: Sequence[Shared]) -> str:
    named = SEPARATOR.join(f"{snippet_plain(one.name)} {one.examples}" for one in shares[:NAMES])
    return named + (f"{SEPARATOR}… {len(shares) - NAMES} more" if len(shares) > NAMES else "")


def snippet_plain(text: str) -> str:
    """A name as it is printed."""
    return one_line(Example("", text))[:60]


def add_both_ends(table: Table, rows: Sequence[Sequence[str]]) -> None:
    """Add the first and last rows of a long ranking to a table, and say how many are left out in between."""
    first, left_out, last = both_ends(rows)
    for row in first:
        table.add_row(*row)
    if left_out:
        where = min(1, len(table.columns) - 1)
        table.add_row(*[""] * where, f"… {left_out:,} more, in --json", style="dim")
    for row in last:
        table.add_row(*row)


def print_group_means(console: Console, result: GroupResult) -> None:
    """Print mean and spread of each group's scores, and how many queries agree."""
    table = Table("group", "examples", "mean score", "spread", "first of", "above mean of")
    rows = [
        (
            *(snippet(one.group.name, 60), f"{one.group.size:,}", signed(one.score, 4), unsigned(one.spread, 4)),
            *(f"{one.first:,}", f"{one.above:,}"),
        )
        for one in rank_groups(result.groups, result.scores)
    ]
    add_both_ends(table, rows)
    console.print(f"over {len(result.queries):,} queries", highlight=False)
    console.print(table)


def print_mean_change(console: Console, result: WhatIfResult, meaning: str) -> None:
    """Print mean and spread of the changes, and how many queries agree; *meaning* is that of a change below 0."""
    change = result.change.astype(np.float64)
    below, above = int((change < 0).sum()), int((change > 0).sum())
    told = f"over {len(change):,} queries: mean change {signed(change.mean(), 4)}, spread {unsigned(change.std(), 4)}; "
    print_lines(console, Text(f"{told}below 0, {meaning}, for {below:,}; above 0 for {above:,}"))


def say_where_all_are(console: Console, queries: int) -> None:
    """Say how to see each query."""
    say(console, f"Each of the {queries:,} queries: --wide, --json, or --out RUN for airrep report.")

"""Print what the answers for many queries have in common."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
from rich.console import Console
from rich.table import Table

from airrep.cli.show.console import snippet
from airrep.corpus.corpus import Example
from airrep.index.results import GroupResult, TopResult, WhatIfResult, order_in_words
from airrep.reports.tables import signed, unsigned

FEW = 20
"""Of more queries, none is shown by itself."""
FIRST, LAST = 20, 10
"""Groups shown from both ends of a long ranking."""
EXAMPLES = 10
"""Training examples shown, of those that many queries have in common."""


class Ranked(Protocol):
    """A training example in a ranking."""

    @property
    def row(self) -> int:
        """Its row in the index."""

    @property
    def score(self) -> float:
        """Its score for the query."""

    @property
    def example(self) -> Example:
        """The example."""


def is_long(queries: int) -> bool:
    """Whether queries are too many to be shown one by one."""
    return queries > FEW


def add_both_ends(table: Table, rows: Sequence[Sequence[str]]) -> None:
    """Add the first and last rows of a long ranking to a table, and say how many are left out in between."""
    left_out = len(rows) - FIRST - LAST
    if left_out <= 0:
        left_out, first = 0, rows
    else:
        first = rows[:FIRST]
    for row in first:
        table.add_row(*row)
    if left_out:
        where = min(1, len(table.columns) - 1)
        table.add_row(*[""] * where, f"… {left_out:,} more, in --json", style="dim")
        for row in rows[-LAST:]:
            table.add_row(*row)


def print_common_hits(console: Console, result: TopResult) -> None:
    """Print the training examples that most queries rank among their first."""
    order = order_in_words(result.least, (hit.score for hits in result for hit in hits))
    print_common(console, list(result), f"are among the {order}")


def print_common(console: Console, ranked: Sequence[Iterable[Ranked]], verb: str) -> None:
    """Print the training examples that most of the queries have in common; *verb* says what they are to a query."""
    found: dict[int, list[Ranked]] = defaultdict(list)
    for hits in ranked:
        for hit in hits:
            found[hit.row].append(hit)
    often = sorted((some for some in found.values() if len(some) > 1), key=lambda some: -len(some))[:EXAMPLES]
    distinct = f"{len(found):,} different examples {verb} of {len(ranked):,} queries"
    if not often:
        console.print(f"{distinct}, none of them for two", highlight=False)
        return
    table = Table("queries", "mean score", "id", "prompt → response")
    for some in often:
        example, mean = some[0].example, np.mean([hit.score for hit in some])
        text = f"{snippet(example.prompt, 90)} [dim]→[/] {snippet(example.response, 60)}"
        table.add_row(f"{len(some):,}", signed(float(mean)), snippet(example.id, 20), text)
    console.print(f"{distinct}; those of several:", highlight=False)
    console.print(table)


def print_group_means(console: Console, result: GroupResult) -> None:
    """Print mean and spread of each group's scores, and how many queries agree.

    Queries differ in the size of their scores, so agreement is counted against each query's own mean over the groups.
    """
    scores = result.scores.astype(np.float64)
    above = (scores > scores.mean(axis=1, keepdims=True)).sum(axis=0)
    first = (scores == scores.max(axis=1, keepdims=True)).sum(axis=0)
    table = Table("group", "examples", "mean score", "spread", "first of", "above the query's mean")
    rows = []
    for group in np.argsort(-scores.mean(axis=0), kind="stable"):
        mean, spread = scores[:, group].mean(), scores[:, group].std()
        numbers = (signed(mean, 4), unsigned(spread, 4), f"{first[group]:,}", f"{above[group]:,}")
        rows.append((snippet(result.names[group], 60), f"{result.sizes[group]:,}", *numbers))
    add_both_ends(table, rows)
    console.print(f"over {len(result.queries):,} queries", highlight=False)
    console.print(table)


def print_mean_change(console: Console, result: WhatIfResult) -> None:
    """Print mean and spread of the changes, and how many queries agree."""
    change = result.change.astype(np.float64)
    below, above = int((change < 0).sum()), int((change > 0).sum())
    console.print(
        f"over {len(change):,} queries: mean change {signed(change.mean(), 4)}, spread {unsigned(change.std(), 4)}; "
        f"below 0, so that what was left out had been helping, for {below:,}; above 0 for {above:,}",
        highlight=False,
        soft_wrap=True,
    )


def say_where_all_are(console: Console, queries: int, report: bool = True) -> None:
    """Say how to see each query; *report*: whether a page can be made of them."""
    more = " for airrep report" if report else ""
    console.print(
        f"[dim]{queries:,} queries are not shown one by one; all are in --json, and in --out RUN{more}[/]",
        highlight=False,
        soft_wrap=True,
    )

"""Print what the answers for many queries have in common."""

from collections.abc import Iterable, Sequence

import numpy as np
from rich.console import Console
from rich.table import Table

from airrep.cli.show.console import prompt_snippet, snippet
from airrep.index.results.forms import NamedGroup
from airrep.index.results.kinds import GroupResult, TopResult, WhatIfResult
from airrep.index.results.provenance import order_in_words
from airrep.reports.results_data import RankedExample, both_ends, in_common, rank_groups
from airrep.reports.tables import signed, unsigned

FEW = 20
"""Of more queries, none is shown by itself."""
EXAMPLES = 10
"""Training examples shown, of those that many queries have in common."""


def is_long(queries: int) -> bool:
    """Whether queries are too many to be shown one by one."""
    return queries > FEW


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


def print_common_hits(console: Console, result: TopResult) -> None:
    """Print the training examples that most queries rank among their first."""
    order = order_in_words(result.least, (hit.score for hits in result for hit in hits))
    print_common(console, list(result), f"are among the {order}", least=result.least)


def print_common(
    console: Console, ranked: Sequence[Iterable[RankedExample]], verb: str, *, least: bool = False
) -> None:
    """Print the training examples that most of the queries have in common.

    Args:
        console: where to.
        ranked: the ranking of each query.
        verb: what the examples are to a query.
        least: whether low scores are the strong ones.
    """
    count = len({hit.row for hits in ranked for hit in hits})
    distinct = f"{count:,} different examples {verb} of {len(ranked):,} queries"
    often = in_common(enumerate(ranked), least=least)[:EXAMPLES]
    if not often:
        console.print(f"{distinct}, none of them for two", highlight=False)
        return
    table = Table("queries", "mean score", "id", "prompt → response")
    for one in often:
        text = f"{prompt_snippet(one.example.prompt, 90)} [dim]→[/] {snippet(one.example.response, 60)}"
        table.add_row(f"{len(one.queries):,}", signed(one.mean), snippet(one.example.id, 20), text)
    console.print(f"{distinct}; those of several:", highlight=False)
    console.print(table)


def print_group_means(console: Console, result: GroupResult) -> None:
    """Print mean and spread of each group's scores, and how many queries agree."""
    groups = list(map(NamedGroup, result.names, result.sizes))
    table = Table("group", "examples", "mean score", "spread", "first of", "above the query's mean")
    rows = [
        (
            *(snippet(one.group.name, 60), f"{one.group.size:,}", signed(one.score, 4), unsigned(one.spread, 4)),
            *(f"{one.first:,}", f"{one.above:,}"),
        )
        for one in rank_groups(groups, result.scores)
    ]
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

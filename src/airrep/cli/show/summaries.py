"""Print what the answers for many queries have in common."""

from collections import defaultdict

import numpy as np
from rich.console import Console
from rich.table import Table

from airrep.cli.show.console import snippet
from airrep.index.results import GroupResult, Hit, TopResult, WhatIfResult, order_in_words

FEW = 20
"""Of more queries, none is shown by itself."""
EXAMPLES = 10
"""Training examples shown, of those that many queries have in common."""


def is_long(queries: int) -> bool:
    """Whether queries are too many to be shown one by one."""
    return queries > FEW


def print_common_hits(console: Console, result: TopResult) -> None:
    """Print the training examples that most queries rank among their first."""
    found: dict[int, list[Hit]] = defaultdict(list)
    for hits in result:
        for hit in hits:
            found[hit.row].append(hit)
    often = sorted((some for some in found.values() if len(some) > 1), key=lambda some: -len(some))[:EXAMPLES]
    order = order_in_words(result.least, (hit.score for hits in result for hit in hits))
    distinct = f"{len(found):,} different examples are among the {order} of {len(result):,} queries"
    if not often:
        console.print(f"{distinct}, none of them for two", highlight=False)
        return
    table = Table("queries", "mean score", "id", "prompt → response")
    for some in often:
        example, mean = some[0].example, np.mean([hit.score for hit in some])
        text = f"{snippet(example.prompt, 90)} [dim]→[/] {snippet(example.response, 60)}"
        table.add_row(f"{len(some):,}", f"{mean:+.3f}", snippet(example.id, 20), text)
    console.print(f"{distinct}; those of several:", highlight=False)
    console.print(table)


def print_group_means(console: Console, result: GroupResult) -> None:
    """Print mean and spread of each group's scores, and how many queries agree.

    Queries differ in the size of their scores, so agreement is counted against each query's own mean over the groups.
    """
    scores = result.scores.astype(np.float64)
    above = (scores > scores.mean(axis=1, keepdims=True)).sum(axis=0)
    first = np.bincount(scores.argmax(axis=1), minlength=len(result.names))
    table = Table("group", "examples", "mean score", "spread", "first of", "above the query's mean")
    for group in np.argsort(-scores.mean(axis=0), kind="stable"):
        mean, spread = scores[:, group].mean(), scores[:, group].std()
        numbers = (f"{mean:+.4f}", f"{spread:.4f}", f"{first[group]:,}", f"{above[group]:,}")
        table.add_row(snippet(result.names[group], 60), f"{result.sizes[group]:,}", *numbers)
    console.print(f"over {len(result.queries):,} queries", highlight=False)
    console.print(table)


def print_mean_change(console: Console, result: WhatIfResult) -> None:
    """Print mean and spread of the changes, and how many queries agree."""
    change = result.change.astype(np.float64)
    below, above = int((change < 0).sum()), int((change > 0).sum())
    console.print(
        f"over {len(change):,} queries: mean change {change.mean():+.4f}, spread {change.std():.4f}; "
        f"below 0, so that what was left out had been helping, for {below:,}; above 0 for {above:,}",
        highlight=False,
        soft_wrap=True,
    )


def say_where_all_are(console: Console, queries: int) -> None:
    """Say how to see each query."""
    console.print(
        f"[dim]{queries:,} queries are not shown one by one; all are in --json, and in --out RUN for airrep report[/]",
        highlight=False,
        soft_wrap=True,
    )

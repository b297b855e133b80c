"""Print what the answers for many queries have in common."""

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from airrep.cli.show.hits import SEPARATOR, deviations_text, one_line, print_hit, print_lines, say
from airrep.corpus.corpus import Example
from airrep.index.results.hits import Verdict
from airrep.index.results.summary import Shared, Summary
from airrep.reports.tables import signed

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


def say_where_all_are(console: Console, queries: int) -> None:
    """Say how to see each query."""
    say(console, f"Each of the {queries:,} queries: --wide, --json, or --out RUN for airrep report.")

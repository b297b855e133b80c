"""Tables of groups, what-ifs and shares of hits, for page and terminal."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Self

from airrep.index.results.hits import Hit
from airrep.index.results.kinds import GroupResult, QueryChange, QueryScores, WhatIfResult
from airrep.reports.results_data import (
    OVERVIEW_ROWS,
    ROLL_UP_ROWS,
    RankedGroup,
    both_ends,
    channel_names,
    channel_rows,
    is_contrast,
    rank_groups,
    roll_up,
)
from airrep.reports.tables import Bar, Cell, Line, Table, short, short_prompt

NAME = 80
"""Characters of a name."""


class Scale(NamedTuple):
    """The range of a family of bars, which holds 0, and how many digits its scores need."""

    low: float
    high: float

    @classmethod
    def over(cls, scores: Iterable[float]) -> Self:
        """The narrowest scale for some scores."""
        values = [0.0, *scores]
        return cls(min(values), max(values))

    @property
    def size(self) -> float:
        """The largest absolute score."""
        return max(self.high, -self.low)

    def place(self, score: float) -> float:
        """Where a score stands, in percent from the left end."""
        reach = (self.high - self.low) or 1.0
        return round(100 * (min(max(score, self.low), self.high) - self.low) / reach, 2)

    def show(self, score: float) -> str:
        """A score as text with a true minus sign, to a thousandth of the largest or better."""
        digits = 3 - math.floor(math.log10(self.size)) if self.size else 3
        if not -5 < digits < 10:
            return f"{score:+.3e}".replace("-", "−")
        shown = f"{score:+,.{max(digits, 0)}f}"
        return (shown if shown.strip("+-0.,") else shown[1:]).replace("-", "−")

    def cell(self, score: float) -> Cell:
        """A score with its bar."""
        return Cell(self.show(score), bar=Bar(self.place(0), self.place(score)))


def named(name: str | None) -> str:
    """A source or label as it is shown; signs stand for none and for the empty text."""
    return "(none)" if name is None else short(name, NAME) or "(empty)"


def groups_table(result: GroupResult, entries: Sequence[QueryScores]) -> Table:
    """Groups, most helpful first, by their scores for one query, or their means over several."""
    names, several = channel_names(entries), len(entries) > 1
    ranking = rank_groups(result.groups, [entry.scores for entry in entries], channel_rows(entries, names))
    scale = Scale.over(row.score for row in ranking)
    columns = ["Group", "Examples", "Mean score" if several else "Score", *(short(name, 40) for name in names)]
    columns += ["Spread", "Ranked first", "Above mean of"] if several else []

    def line(row: RankedGroup) -> Line:
        queries = (f"{row.first} of {len(entries)}", f"{row.above} of {len(entries)}")
        more = (scale.show(row.spread).removeprefix("+"), *queries) if several else ()
        texts = (*map(scale.show, row.channels), *more)
        cells = (Cell(f"{row.group.size:,}"), scale.cell(row.score), *map(Cell, texts))
        return Line(Cell(f"{row.rank}. {named(row.group.name)}"), cells)

    first, left_out, last = both_ends(ranking)
    gap = f"{left_out:,} groups in between are left out."
    between = [Line(Cell("…"), (Cell(gap), *[Cell("")] * (len(columns) - 2)))] if left_out else []
    order = "most helpful first"
    if is_contrast(result):
        order = "what teaches the answer in place of the better one most first: the first is the one to leave out"
    count = f"{len(ranking)} group{'' if len(ranking) == 1 else 's'} of training examples"
    caption = f"{count}, {order}; pool: {result.provenance.pooling or 'none'}."
    return Table("", tuple(columns), (*map(line, first), *between, *map(line, last)), caption)


def changes_table(
    result: WhatIfResult, entries: Sequence[QueryChange], place: Callable[[str], str] = lambda _: ""
) -> Table:
    """Group scores before and after a removal, and their change: one query, or those that change most.

    Args:
        result: the what-if.
        entries: what it says of the queries.
        place: the address of a query on a page, by its id.
    """
    shown = sorted(entries, key=lambda entry: -abs(entry.change))[:OVERVIEW_ROWS]
    names = list(shown[0].channels or ()) if shown else []
    lines = []
    for entry in shown:
        scale = Scale.over([*((entry.before, entry.after) if len(entries) == 1 else ()), *(e.change for e in entries)])
        parts = (Cell(scale.show((entry.channels or {})[name])) for name in names)
        numbers = (scale.cell(entry.change), Cell(scale.show(entry.before)), Cell(scale.show(entry.after)))
        head = Cell(short(entry.query.id, NAME), short_prompt(entry.query.prompt, 60), link=place(entry.query.id))
        lines.append(Line(head, (*numbers, *parts)))
    columns = ("Query", "Change", "Before", "After", *(f"of it {short(name, 40)}" for name in names))
    return Table("", columns, tuple(lines), changes_text(entries, contrast=is_contrast(result)))


def changes_text(entries: Sequence[QueryChange], *, contrast: bool) -> str:
    """What the changes mean, in sentences."""
    changes = [entry.change for entry in entries]
    helping = "teaching the answer in place of the better one" if contrast else "helping"
    harming = "teaching the better answer" if contrast else "harming"
    if len(changes) == 1:
        way = f"falls: what was left out had been {helping}" if changes[0] < 0 else "stays as it is"
        way = f"rises: what was left out had been {harming}" if changes[0] > 0 else way
        return f"Group score of the training data{', less that for the better answer' if contrast else ''}. It {way}."
    mean = Scale.over(changes).show(sum(changes) / max(1, len(changes)))
    below, above = sum(change < 0 for change in changes), sum(change > 0 for change in changes)
    most = f" Shown: the {OVERVIEW_ROWS} that change most." if len(changes) > OVERVIEW_ROWS else ""
    told = (
        f"Mean change over {len(changes):,} queries: {mean}. The score falls for {below:,} (what was left out had been"
    )
    return f"{told} {helping}) and rises for {above:,}.{most}"


def shares_tables(hits: Sequence[Hit]) -> list[Table]:
    """How many of some hits have one source, and one label, most hits first; none where no hit has any."""
    scale, tables = Scale.over(hit.score for hit in hits), []
    for key in ("source", "label"):
        found = roll_up(hits, key)
        lines = [
            Line(Cell(named(one.name)), (Cell(f"{one.hits:,}"), Cell(f"{one.share:.0%}"), Cell(scale.show(one.total))))
            for one in found[:ROLL_UP_ROWS]
        ]
        rest = found[ROLL_UP_ROWS:]
        more = f" {len(rest):,} more with {sum(one.hits for one in rest):,} hits are left out." if rest else ""
        columns = (key.capitalize(), "Hits", "Share", "Summed score")
        tables += [Table("", columns, tuple(lines), f"These hits by {key}.{more}")] if found else []
    return tables

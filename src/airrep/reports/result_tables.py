"""Tables of groups, what-ifs and shares of hits."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Self, TypeAlias, get_args

import numpy as np

from airrep.attributors.by_token import standing_out
from airrep.corpus.corpus import Example
from airrep.corpus.places import Span
from airrep.errors import many
from airrep.index.results.hits import Hit, Kind
from airrep.index.results.kinds import (
    GroupResult,
    NamedGroup,
    QueryChange,
    QueryScores,
    TopResult,
    WhatIfResult,
    effect_text,
)
from airrep.reports.tables import Bar, Cell, Line, NotedSpan, Table, short, short_prompt

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Run: TypeAlias = TopResult | GroupResult | WhatIfResult
OVERVIEW_ROWS = 20
"""Most recurring examples, and most changed queries, in the overview."""
ROLL_UP_ROWS = 20
"""Most sources or labels in the table of shares of hits."""
FIRST_GROUPS, LAST_GROUPS = 20, 10
"""Groups shown from the two ends of a long ranking."""
NAME = 80
"""Most characters of a name."""


class Scale(NamedTuple):
    """The range of several bars, which contains 0, and the number format of their scores."""

    low: float
    high: float

    @classmethod
    def over(cls, scores: Iterable[float]) -> Self:
        """Return the narrowest scale for some scores and 0."""
        values = [0.0, *scores]
        return cls(min(values), max(values))

    @property
    def size(self) -> float:
        """The largest absolute score."""
        return max(self.high, -self.low)

    def place(self, score: float) -> float:
        """Return the position of a score, in percent from the left end."""
        reach = (self.high - self.low) or 1.0
        return round(100 * (min(max(score, self.low), self.high) - self.low) / reach, 2)

    def show(self, score: float) -> str:
        """Return a score as text with a true minus sign, to a thousandth of the largest score or better."""
        digits = 3 - math.floor(math.log10(self.size)) if self.size else 3
        if not -5 < digits < 10:
            return f"{score:+.3e}".replace("-", "−")
        shown = f"{score:+,.{max(digits, 0)}f}"
        return (shown if shown.strip("+-0.,") else shown[1:]).replace("-", "−")

    def cell(self, score: float) -> Cell:
        """Return the cell of a score with its bar."""
        return Cell(self.show(score), bar=Bar(self.place(0), self.place(score)))


def named(name: str | None) -> str:
    """Return a source or label for display: "(none)" for None, "(empty)" for an empty text."""
    return "(none)" if name is None else short(name, NAME) or "(empty)"


class RankedGroup(NamedTuple):
    """A group in a ranking."""

    group: NamedGroup
    score: float
    """Mean over queries."""
    spread: float
    """Standard deviation over queries."""
    first: int
    """Number of queries for which the group has the highest score, ties included."""
    above: int
    """Number of queries for which it scores above the mean of all groups (scores differ in size between queries)."""
    channels: tuple[float, ...]
    """Each channel's part of the score, mean over queries; empty if unknown."""


def rank_groups(groups: Sequence[NamedGroup], scores: "ArrayLike", channels: "ArrayLike" = ()) -> list[RankedGroup]:
    """Rank groups by their mean ``(q, m)`` score over queries, most helpful first; ties keep the groups' order.

    *channels*, ``(c, q, m)``, is each channel's part of the scores.
    """
    rows = np.asarray(scores, np.float64)
    if not rows.size:
        return []
    means, parts = rows.mean(axis=0), np.asarray(channels, np.float64).reshape(-1, *rows.shape).mean(axis=1)
    first = (rows == rows.max(axis=1, keepdims=True)).sum(axis=0)
    above = (rows > rows.mean(axis=1, keepdims=True)).sum(axis=0)
    columns = (means.tolist(), rows.std(axis=0).tolist(), first.tolist(), above.tolist(), map(tuple, parts.T.tolist()))
    ranked = list(map(RankedGroup, groups, *columns))
    return [ranked[at] for at in np.argsort(-means, kind="stable")]


def groups_table(result: GroupResult, entries: Sequence[QueryScores]) -> Table:
    """Return the table of groups, most helpful first, by score for one query, or by mean over several."""
    names, several = min((list(entry.channels or ()) for entry in entries), key=len, default=[]), len(entries) > 1
    channels = [[entry.channels[name] for entry in entries if entry.channels is not None] for name in names]
    ranking = rank_groups(result.groups, [entry.scores for entry in entries], channels)
    scale = Scale.over(row.score for row in ranking)
    columns = ["Group", "Examples", "Mean score" if several else "Score", *(short(name, 40) for name in names)]
    columns += ["Spread", "Ranked first", "Above mean of"] if several else []
    lines = []
    for rank, row in enumerate(ranking, 1):
        queries = (f"{row.first} of {len(entries)}", f"{row.above} of {len(entries)}")
        more = (scale.show(row.spread).removeprefix("+"), *queries) if several else ()
        texts = (*map(scale.show, row.channels), *more)
        cells = (Cell(f"{row.group.size:,}"), scale.cell(row.score), *map(Cell, texts))
        lines.append(Line(Cell(f"{rank}. {named(row.group.name)}"), cells))
    left_out = len(lines) - FIRST_GROUPS - LAST_GROUPS
    if left_out > 0:
        gap = f"{many(left_out, 'more group')} in between"
        lines[FIRST_GROUPS:-LAST_GROUPS] = [Line(Cell("…"), (Cell(gap), *[Cell("")] * (len(columns) - 2)))]
    order = "most helpful first"
    if is_contrast(result):
        order = (
            "ordered by how much they teach the answer in place of the better one: the first is the one to leave out"
        )
    count = f"{many(len(ranking), 'group')} of training examples"
    caption = f"{count}, {order}; pool: {result.provenance.pooling or 'none'}."
    return Table("", tuple(columns), tuple(lines), caption)


def changes_table(
    result: WhatIfResult, entries: Sequence[QueryChange], place: Callable[[str], str] = lambda _: ""
) -> Table:
    """Return the table of group scores before and after a removal, for one query or the queries that change most.

    *place* returns the link to a query on the page, by its id.
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
    columns = ("Query", "Change", "Before", "After", *(f"of which {short(name, 40)}" for name in names))
    most = f" Shown: the {OVERVIEW_ROWS} that change most." if len(entries) > OVERVIEW_ROWS else ""
    return Table("", columns, tuple(lines), changes_text(entries, contrast=is_contrast(result)) + most)


def changes_text(entries: Sequence[QueryChange], *, contrast: bool) -> str:
    """Explain the changes in sentences."""
    changes = [entry.change for entry in entries]
    if len(changes) == 1:
        way = "falls" if changes[0] < 0 else "rises" if changes[0] > 0 else "stays as it is"
        less = ", less that for the better answer," if contrast else ""
        return f"The group score of the training data{less} {way}: {effect_text(changes[0], better=contrast)}."
    mean = Scale.over(changes).show(sum(changes) / max(1, len(changes)))
    below, above = sum(change < 0 for change in changes), sum(change > 0 for change in changes)
    told = f"Mean change of the score over {many(len(changes), 'query', 'queries')}: {mean}. "
    told += f"The score falls for {below:,} "
    return f"{told}({effect_text(-1, better=contrast)}) and rises for {above:,}."


def shares_tables(hits: Sequence[Hit]) -> list[Table]:
    """Return tables of hits by source and by label, most hits first; a table is left out if no hit has a value."""
    scale, tables = Scale.over(hit.score for hit in hits), []
    for key in ("source", "label"):
        scores: dict[str | None, list[float]] = defaultdict(list)
        for hit in hits:
            scores[getattr(hit.example, key)].append(hit.score)
        found = sorted(scores.items(), key=lambda pair: (-len(pair[1]), pair[0] is None, pair[0] or ""))
        lines = [
            Line(
                Cell(named(name)),
                tuple(map(Cell, (f"{len(own):,}", f"{len(own) / len(hits):.0%}", scale.show(sum(own))))),
            )
            for name, own in found[:ROLL_UP_ROWS]
        ]
        rest = [len(own) for _, own in found[ROLL_UP_ROWS:]]
        more = f" {len(rest):,} more with {many(sum(rest), 'hit')} are left out." if rest else ""
        columns = (key.capitalize(), "Hits", "Share", "Summed score")
        if scores.keys() - {None}:
            tables.append(Table("", columns, tuple(lines), f"These hits by {key}.{more}"))
    return tables


def all_hits(run: TopResult) -> list[Hit]:
    """Return the hits of all queries of a run."""
    return [hit for entry in run.entries for hit in entry.hits]


def is_contrast(run: Run) -> bool:
    """Return True if scores contrast answers with better ones."""
    return any(entry.better is not None for entry in run.entries)


def verdict_counts(run: TopResult) -> list[tuple[str, int]]:
    """Return each kind of verdict with its number of queries."""
    counts = Counter(entry.verdict.kind for entry in run.entries if entry.verdict is not None)
    return [(kind, counts[kind]) for kind in get_args(Kind) if kind in counts]


def query_marks(hits: Sequence[Hit]) -> list[Span]:
    """Return the query's words that hits share; with scores by token, the words with most of the hits' scores."""
    told = [hit.why.tokens for hit in hits if hit.why is not None and hit.why.tokens is not None]
    if told:
        return _noted(told[0].query, np.sum([one.of_query for one in told], axis=0).tolist())
    return [span for hit in hits if hit.why is not None for same in hit.why.same_words for span in same.query]


def hit_marks(hit: Hit) -> list[Span]:
    """Return a hit's words that the query shares; with scores by token, the words with most of the score."""
    if hit.why is not None and hit.why.tokens is not None:
        return _noted(hit.why.tokens.example, hit.why.tokens.of_example)
    return [] if hit.why is None else [span for same in hit.why.same_words for span in same.example]


def has_tokens(hits: Sequence[Hit]) -> bool:
    """Return True if some hit has its score split over words."""
    return any(hit.why is not None and hit.why.tokens is not None for hit in hits)


def _noted(words: Sequence[Span], scores: Sequence[float]) -> list[Span]:
    """Return the words that stand out, with their scores as notes."""
    scale = Scale.over(scores)
    return [
        NotedSpan(
            **vars(word.span), note=scale.show(word.score), kind=f"t{word.level}{' below' if word.score < 0 else ''}"
        )
        for word in standing_out(words, scores)
    ]


class Recurring(NamedTuple):
    """A training example among the hits of several queries."""

    example: Example
    queries: tuple[int, ...]
    mean: float
    best: int
    """Best rank of the example."""


def recurring(run: TopResult, numbers: Mapping[str, int]) -> list[Recurring]:
    """Return examples among the hits of at least two queries: most queries first, then strongest mean, then row.

    *numbers* maps a query's id to its number.
    """
    seen: dict[int, list[tuple[int, Hit]]] = defaultdict(list)
    for entry in run.queries:
        for hit in entry.hits:
            seen[hit.row].append((numbers[entry.query.id], hit))
    rows = []
    for found in (found for _, found in sorted(seen.items()) if len(found) > 1):
        queries, hits = zip(*found, strict=True)
        mean = sum(hit.score for hit in hits) / len(hits)
        rows.append(Recurring(hits[0].example, queries, mean, min(hit.rank for hit in hits)))
    direction = 1 if run.least else -1
    return sorted(rows, key=lambda row: (-len(row.queries), direction * row.mean))[:OVERVIEW_ROWS]

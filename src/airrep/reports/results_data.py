"""Results checked, merged by query, ranked and summed for page and terminal."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, get_args

import numpy as np
from numpy.typing import ArrayLike

from airrep.corpus.corpus import Example
from airrep.corpus.places import Span
from airrep.errors import ConfigError, DataError
from airrep.index.results.hits import Hit, Hits, Kind
from airrep.index.results.kinds import GroupResult, NamedGroup, QueryChange, QueryScores, TopResult, WhatIfResult
from airrep.index.results.result import Result

OVERVIEW_ROWS = 20
"""Most recurring examples, and most changed queries, shown in the overview."""
ROLL_UP_ROWS = 20
"""Sources or labels shown of a roll-up, those with most hits."""
FIRST_GROUPS, LAST_GROUPS = 20, 10
"""Groups shown from both ends of a long ranking."""

_KINDS: Mapping[str, type[TopResult | GroupResult | WhatIfResult]] = {
    kind.kind: kind for kind in (TopResult, GroupResult, WhatIfResult)
}
T = TypeVar("T")
Run: TypeAlias = TopResult | GroupResult | WhatIfResult
Entry: TypeAlias = Hits | QueryScores | QueryChange


@dataclass
class QueryPart:
    """What the runs say about one query; ``number`` counts from 1 in the order of first appearance."""

    number: int
    query: Example
    better: Example | None = None
    """The better answer, where a run has one."""
    entries: list[tuple[int, Entry]] = field(default_factory=list)
    """What each run that holds the query says, with the place of that run."""

    @property
    def hits(self) -> list[Hit]:
        """Its hits in all runs."""
        return [hit for _, entry in self.entries if isinstance(entry, Hits) for hit in entry.hits]


class HitShare(NamedTuple):
    """How many of some hits have one source or label."""

    name: str | None
    hits: int
    share: float
    total: float
    """Sum of the hits' scores."""


class RankedGroup(NamedTuple):
    """A group in a ranking, 1 = most helpful."""

    rank: int
    group: NamedGroup
    score: float
    """Mean over queries."""
    spread: float
    """Standard deviation over queries."""
    first: int
    """Queries for which the group is the most helpful one."""
    above: int
    """Queries whose mean over the groups it exceeds: scores of different queries differ in size."""
    channels: tuple[float, ...] = ()
    """What each channel gave, mean over queries, where that is told."""


class Recurring(NamedTuple):
    """A training example among the hits of several queries."""

    example: Example
    queries: tuple[int, ...]
    mean: float
    best: int
    """Its best rank."""


def read_runs(results: Sequence[Result | Mapping[str, Any]]) -> list[Run]:
    """Check the JSON forms of some results, and put them in the order: helpful, harmful, groups, what-ifs.

    Raises:
        ConfigError: there are none, or they come from different indexes, or from one by different recipes.
        DataError: one is not the JSON form of a result.
    """
    if not results:
        raise ConfigError("report: there are no results; at least one is expected. Give a run made with --out.")
    runs = [_run(result, f"report: result {number}") for number, result in enumerate(results, 1)]
    first = runs[0].provenance.index
    for index in (run.provenance.index for run in runs):
        if index != first:
            raise ConfigError(
                f"report: the runs come from different indexes, {first[:12]} and {index[:12]}; one is expected. "
                "Write one report for each index, and for each recipe that it was asked with."
            )
    return sorted(runs, key=_order)


def _run(result: Result | Mapping[str, Any], name: str) -> Run:
    """A result, read from its JSON where that is given."""
    if isinstance(result, TopResult | GroupResult | WhatIfResult):
        return result
    kind = str(result.get("kind")) if isinstance(result, Mapping) else "none"
    if not isinstance(result, Mapping) or kind not in _KINDS:
        raise DataError(f"{name}: is of kind {kind[:40]!r}; expected {', '.join(_KINDS)}. Give one of those.")
    return _KINDS[kind].from_dict(result, name)


def _order(run: Run) -> int:
    if isinstance(run, TopResult):
        return int(run.least)
    return 2 if isinstance(run, GroupResult) else 3


def merge(runs: Sequence[Run]) -> list[QueryPart]:
    """Bring together what the runs say about each query, by the query's id.

    Raises:
        ConfigError: there are no queries, or two runs use one id for queries of different texts.
    """
    parts: dict[str, QueryPart] = {}
    for place, run in enumerate(runs):
        for entry in run.entries:
            part = parts.setdefault(entry.query.id, QueryPart(len(parts) + 1, entry.query))
            _check_same(part.query, entry.query)
            part.better = part.better or entry.better
            if entry.better is not None and part.better is not None:
                _check_same(part.better, entry.better)
            part.entries.append((place, entry))
    if not parts:
        raise ConfigError("report: the runs hold no queries; at least one is expected. Give a run with queries.")
    return list(parts.values())


def _check_same(one: Example, other: Example) -> None:
    if (one.prompt, one.response) != (other.prompt, other.response):
        raise ConfigError(
            f"report: query '{one.id[:80]}' has different texts in two runs; the same queries are expected. "
            "Write one report for each query file."
        )


def all_hits(run: TopResult) -> list[Hit]:
    """The hits of all queries of a run."""
    return [hit for entry in run.entries for hit in entry.hits]


def is_contrast(run: Run) -> bool:
    """Whether scores are of answers in place of better ones."""
    return any(entry.better is not None for entry in run.entries)


def verdict_counts(run: TopResult) -> list[tuple[str, int]]:
    """How many queries have each kind of verdict, where they have one."""
    counts = Counter(entry.verdict.kind for entry in run.entries if entry.verdict is not None)
    return [(kind, counts[kind]) for kind in get_args(Kind) if kind in counts]


def query_marks(hits: Sequence[Hit]) -> list[Span]:
    """The words of a query that some of its hits have too."""
    return [span for hit in hits if hit.why is not None for same in hit.why.same_words for span in same.query]


def hit_marks(hit: Hit) -> list[Span]:
    """The words of a hit that the query has too."""
    return [] if hit.why is None else [span for same in hit.why.same_words for span in same.example]


def roll_up(hits: Sequence[Hit], key: Literal["source", "label"]) -> list[HitShare]:
    """Count and sum hits by source or label, most hits first, then by name; nothing if no hit has a value."""
    scores: dict[str | None, list[float]] = defaultdict(list)
    for hit in hits:
        scores[getattr(hit.example, key)].append(hit.score)
    if not scores.keys() - {None}:
        return []
    shares = [HitShare(name, len(those), len(those) / len(hits), sum(those)) for name, those in scores.items()]
    return sorted(shares, key=lambda share: (-share.hits, share.name is None, share.name or ""))


def channel_names(entries: Sequence[QueryScores]) -> list[str]:
    """The channels that group scores tell; none if any tells none."""
    told = [list(entry.channels or ()) for entry in entries]
    return min(told, key=len, default=[])


def channel_rows(entries: Sequence[QueryScores], names: Sequence[str]) -> list[list[np.ndarray]]:
    """For each of the channels, what it gave to all groups for each query."""
    return [[entry.channels[name] for entry in entries if entry.channels is not None] for name in names]


def rank_groups(groups: Sequence[NamedGroup], scores: ArrayLike, channels: ArrayLike = ()) -> list[RankedGroup]:
    """Rank groups by their mean score over queries, most helpful first; ties keep the groups' order.

    Several groups may be first of one query, where they tie.

    Args:
        groups: the groups.
        scores: the scores of all groups for each query, ``(q, m)``.
        channels: what each channel gave of them, ``(c, q, m)``.
    """
    rows = np.asarray(scores, np.float64)
    if not rows.size:
        return []
    parts = np.asarray(channels, np.float64).reshape(-1, *rows.shape).mean(axis=1)
    means, spreads = rows.mean(axis=0), rows.std(axis=0)
    first = (rows == rows.max(axis=1, keepdims=True)).sum(axis=0)
    above = (rows > rows.mean(axis=1, keepdims=True)).sum(axis=0)
    return [
        RankedGroup(
            *(rank, groups[at], float(means[at]), float(spreads[at]), int(first[at]), int(above[at])),
            tuple(parts[:, at].tolist()),
        )
        for rank, at in enumerate(np.argsort(-means, kind="stable"), 1)
    ]


def both_ends(ranking: Sequence[T]) -> tuple[Sequence[T], int, Sequence[T]]:
    """The first groups, how many are left out in between, and the last groups of a ranking."""
    left_out = max(len(ranking) - FIRST_GROUPS - LAST_GROUPS, 0)
    split = FIRST_GROUPS if left_out else len(ranking)
    return ranking[:split], left_out, ranking[split + left_out :]


def recurring(run: TopResult, numbers: Mapping[str, int]) -> list[Recurring]:
    """The examples that two queries or more have: most queries first, then strongest mean, then row.

    Args:
        run: a ranking for several queries.
        numbers: the number of each query, by its id.
    """
    seen: dict[int, list[tuple[int, Hit]]] = defaultdict(list)
    for entry in run.queries:
        for hit in entry.hits:
            seen[hit.row].append((numbers[entry.query.id], hit))
    rows = [
        Recurring(
            found[0][1].example,
            tuple(number for number, _ in found),
            sum(hit.score for _, hit in found) / len(found),
            min(hit.rank for _, hit in found),
        )
        for _, found in sorted(seen.items())
        if len(found) > 1
    ]
    direction = 1 if run.least else -1
    return sorted(rows, key=lambda row: (-len(row.queries), direction * row.mean))[:OVERVIEW_ROWS]

"""Examples that help, or harm, a whole set of queries most."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from airrep.answers.spread import Leaders, Spread, spread_of
from airrep.attributors.base import OnProgress
from airrep.errors import DataError
from airrep.index.contrast import Better
from airrep.index.index import IndexLike, Queries, as_index
from airrep.index.results.hits import Record, fields_of
from airrep.index.results.result import Answer, Provenance
from airrep.scoring.asked import stream_scores
from airrep.scoring.blocks import at_most

DEVIATIONS = "deviations from the mean score of the ranked examples"


@dataclass(frozen=True)
class Mean:
    """One training example, and its mean effect on a set of queries."""

    rank: int
    """1 = first."""
    score: float
    """Mean over the queries of the score in deviations from the query's mean; higher = more helpful."""
    helped: float
    """Share of the queries for which the example scores above the mean."""
    row: int
    """Row number in the index."""
    example: Record


@dataclass(frozen=True, repr=False)
class SetResult(Answer):
    """The examples that help, or harm, a whole set of queries most."""

    hits: tuple[Mean, ...]
    queries: int
    """Number of queries that counted."""
    even: int
    """Number of queries that were left out, because all their scores are equal."""
    least: bool
    """True if the most harmful come first."""
    provenance: Provenance
    kind: ClassVar[str] = "top-of-set"

    def _records(self) -> Iterator[dict[str, Any]]:
        for hit in self.hits:
            numbers = {name: getattr(hit, name) for name in ("rank", "score", "helped", "row")}
            yield {**numbers, **fields_of(hit.example)}


def top_of_set(
    index: IndexLike,
    queries: Queries,
    k: int = 10,
    *,
    better: Better | None = None,
    least: bool = False,
    where: str | None = None,
    progress: OnProgress | None = None,
) -> SetResult:
    """Find the k examples z with the greatest mean over queries x of e(x, z) = (f(x, z) − μ(x)) / σ(x).

    Each query's scores are standardised first, so that a query with large scores does not dominate the mean.

    Args:
        index: the index to ask; or its path.
        queries: the set of queries.
        k: how many examples to return; all, if fewer pass the filter.
        better: better answers to the queries' prompts, as for :meth:`airrep.Index.top`. Then examples rank first that
            taught the queries' answers instead of the better ones.
        least: rank the most harmful examples first.
        where: a filter; only examples that pass it are ranked.
        progress: called with the number of encoded queries.

    Raises:
        ConfigError: k is below 1, or the filter is invalid or matches no example.
        DataError: for every query, all examples have the same score.

    Example:
        >>> from airrep.answers.together import top_of_set
        >>> found = top_of_set(index, queries, k=3)
        >>> [hit.rank for hit in found.hits]
        [1, 2, 3]
    """
    index = as_index(index)
    keep = index.kept(where)
    k = at_most("top of a set: k", k, int(keep.sum()))
    question = index.question(queries, better)
    asked = question.ranked(index.ask(question, progress))
    spread = spread_of(asked, keep)
    uneven = np.flatnonzero(spread.deviation > 0)
    if not len(uneven):
        raise DataError("queries: for every query, all examples have the same score. Give other queries.")
    chosen = Spread(spread.mean[uneven], spread.deviation[uneven])
    sign = -1.0 if least else 1.0
    leaders = Leaders(1, k)
    for rows, scores in stream_scores(asked.chosen(uneven), keep):
        effects = chosen.effects(scores)
        leaders.see(rows, sign * effects.mean(axis=0)[None], (effects > 0).mean(axis=0)[None])
    first, values, shares = (part[0] for part in leaders.found())
    told = (sign * values).astype(np.float32) + np.float32(0)  # -0 becomes 0
    ranked = enumerate(zip(first.tolist(), told.tolist(), shares.tolist(), strict=True), 1)
    hits = (Mean(rank, value, helped, row, index.example(row)) for rank, (row, value, helped) in ranked)
    even = len(spread.mean) - len(uneven)
    provenance = replace(question.told(index.provenance(keep=keep)), units=DEVIATIONS)
    return SetResult(tuple(hits), len(uneven), even, least, provenance)

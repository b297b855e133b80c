"""Examples that harm queries, beside their own spread; one question for a whole set."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from airrep.answers.answer import Answer
from airrep.answers.spread import Leaders, Spread, spread_of
from airrep.arrays import ALIKE, Features, Mask, reaches
from airrep.attributors.base import OnProgress
from airrep.corpus.corpus import Example
from airrep.errors import DataError
from airrep.index.contrast import Better
from airrep.index.index import Index, IndexLike, Queries, as_index
from airrep.index.reasons import Reasons, Scored
from airrep.index.results.hits import FIELDS, Record, fields_of
from airrep.index.results.provenance import Provenance
from airrep.index.results.summary import Summary, summarise, with_summary
from airrep.index.why import Why
from airrep.scoring.blocks import Block, at_most
from airrep.scoring.contrast import WORSE
from airrep.scoring.scores import stream_scores
from airrep.scoring.topk import top_k

HARM = WORSE
"""Deviations from a query's mean at or below which an example with a score below 0 counts as harmful for it."""
HUB_SHARE, HUB_QUERIES = 0.5, 4
"""A hub is harmful for at least this share of the queries; with fewer queries none can be told."""
_NUMBERS = ("rank", "deviations", "score", "hub", "row")
DEVIATIONS = "deviations from the mean score of all examples"


@dataclass(frozen=True)
class Harm:
    """One training example that harms a query."""

    rank: int
    """1 = most harmful."""
    deviations: float
    """Its score, in deviations from the mean of the query's scores; at most -2."""
    score: float
    """Influence score; higher = more helpful."""
    hub: bool | None
    """Whether it is among the k worst of at least half of the queries; None with fewer than 4 queries."""
    row: int
    """Row number in the index."""
    example: Record
    why: Why | None = None
    """What makes up the score, if asked for."""


@dataclass(frozen=True)
class Harmed:
    """A query, the spread of its scores, and what harms it."""

    query: Record
    mean: float
    """Mean of its scores over the examples."""
    deviation: float
    """Deviation of its scores."""
    harms: tuple[Harm, ...]
    """At most k; none where no score below 0 lies two deviations below the mean."""
    better: Record | None = None
    """The better answer, of a contrast."""


@dataclass(frozen=True)
class Hub:
    """A training example that is among the worst of many queries."""

    row: int
    queries: int
    """For how many it is among the k worst."""
    example: Record


@dataclass(frozen=True, repr=False)
class HarmResult(Answer):
    """What harms each of several queries, and the hubs among it."""

    queries: tuple[Harmed, ...]
    hubs: tuple[Hub, ...]
    """Those of most queries first."""
    k: int
    provenance: Provenance
    kind: ClassVar[str] = "harmful"
    columns = ("query", *_NUMBERS, *FIELDS)

    def _records(self) -> Iterator[dict[str, Any]]:
        for one in self.queries:
            for harm in one.harms:
                numbers = {name: getattr(harm, name) for name in _NUMBERS}
                yield {"query": one.query.id, **numbers, **fields_of(harm.example)}

    def in_common(self) -> Summary:
        """What harms several of the queries, and the sources, labels and openings of that."""
        return summarise([one.harms for one in self.queries], least=True)

    def to_dict(self) -> dict[str, Any]:
        return with_summary(super().to_dict(), self.in_common())


def harmful(
    index: IndexLike,
    queries: Example | Queries,
    k: int = 10,
    *,
    better: Better | None = None,
    where: str | None = None,
    why: bool = False,
    progress: OnProgress | None = None,
) -> HarmResult:
    """The examples that harm each query, beside the spread of its own scores.

    The effect of z on x is e(x, z) = (f(x, z) − μ(x)) / σ(x), over all examples that may be chosen. An example harms x
    if f < 0 and e ≤ −2: the least scores of a method that gives most examples 0 or more harm nothing, they are merely
    not related. A row that is among the k worst of half of all queries or more, and harms them, is a hub: it may be
    odd in itself, and says little about one query.

    Args:
        index: the index to ask; or its path.
        queries: one example, or several; hubs need 4.
        k: how many at most for each query.
        better: better answers to the queries' prompts, as for :meth:`airrep.Index.top`; then f is the contrast of the
            better answer with the query's, so what harms taught the query's answer in its place.
        where: a filter; only examples that fulfil it count.
        why: tell what each channel gave to each score, and which words of the two texts are the same.
        progress: called with the number of encoded queries.

    Raises:
        ConfigError: k is below 1, or a filter is bad or fulfilled by no example.

    Example:
        >>> found = airrep.harmful(index, queries, k=3)
        >>> len(found.queries)
        5
    """
    index = as_index(index)
    question = index.question(queries, better)
    asked, keep = list(question.queries), index.mask(where)
    k = at_most("harmful: k", k, int(keep.sum()))
    encoded = index.encode_question(question, progress)
    features, blocks = question.ranked(encoded, index.blocks, towards=True)
    spread = spread_of(features, blocks, keep)
    found = top_k(features, blocks, k, keep=keep, least=True)
    scores = found.scores.astype(np.float64)
    effects, harming = spread.effects(scores).astype(np.float32), harms(scores, spread)
    hubs = _hubs(index, found.rows, harming) if len(asked) >= HUB_QUERIES else None
    named = None if hubs is None else {hub.row for hub in hubs}
    harmed = []
    reasons = Reasons(index, index.attributor) if why else None
    for place, query in enumerate(asked):
        columns = (effects[place].tolist(), found.scores[place].tolist(), found.rows[place].tolist())
        listed = tuple(
            Harm(rank, effect, score, None if named is None else row in named, row, index.example(row))
            for rank, (effect, score, row) in enumerate(zip(*columns, strict=True), start=1)
            if harming[place, rank - 1]
        )
        if reasons is not None:
            whys = question.reasons(reasons, encoded, place, [Scored(harm.row, harm.score) for harm in listed])
            listed = tuple(replace(harm, why=one) for harm, one in zip(listed, whys, strict=True))
        other = None if question.better is None else question.better[place]
        harmed.append(Harmed(query, *spread.told(place), listed, other))
    provenance = question.told(index.provenance(keep=keep), towards=True)
    return HarmResult(tuple(harmed), tuple(hubs or ()), k, provenance)


def harms(scores: np.ndarray, spread: Spread) -> Mask:
    """Whether each of scores ``(q, b)`` is below 0, and at or below -2 deviations, to rounding."""
    found: Mask = (scores < -ALIKE * spread.deviation[:, None]) & reaches(-spread.effects(scores), -HARM)
    return found


def _hubs(index: Index, rows: np.ndarray, harming: Mask) -> list[Hub]:
    """Rows that harm many queries; both arrays are ``(q, k)``."""
    numbers, counts = np.unique(rows[harming], return_counts=True)
    many = np.flatnonzero(counts >= HUB_SHARE * len(rows))
    order = many[np.argsort(-counts[many], kind="stable")]
    pairs = zip(numbers[order].tolist(), counts[order].tolist(), strict=True)
    return [Hub(row, count, one) for (row, count), one in zip(pairs, index.examples(numbers[order]), strict=True)]


@dataclass(frozen=True)
class Mean:
    """One training example, and its mean effect on a set of queries."""

    rank: int
    """1 = first."""
    score: float
    """Mean over the queries of its score in deviations from the query's mean; higher = more helpful."""
    helped: float
    """Share of the queries for which it scores above the mean."""
    row: int
    """Row number in the index."""
    example: Record


@dataclass(frozen=True, repr=False)
class SetResult(Answer):
    """The examples that help, or harm, a whole set of queries most."""

    hits: tuple[Mean, ...]
    queries: int
    """Queries that counted."""
    even: int
    """Queries left out, since all their scores are equal."""
    least: bool
    """Whether the most harmful come first."""
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
    """The k examples that help a whole set of queries most: the mean over x of e(x, z) = (f(x, z) − μ(x)) / σ(x).

    Each query is brought to unit deviation first, so that one with large scores does not speak for all.

    Args:
        index: the index to ask; or its path.
        queries: the set.
        k: how many; all, where fewer fulfil the filter.
        better: better answers to the queries' prompts, as for :meth:`airrep.Index.top`: then what taught the queries'
            answers in their place comes first.
        least: those that harm it most instead.
        where: a filter; only examples that fulfil it count.
        progress: called with the number of encoded queries.

    Raises:
        ConfigError: k is below 1, or a filter is bad or fulfilled by no example.
        DataError: no query tells the examples apart.

    Example:
        >>> found = airrep.top_of_set(index, queries, k=3)
        >>> [hit.rank for hit in found.hits]
        [1, 2, 3]
    """
    index = as_index(index)
    keep = index.mask(where)
    k = at_most("top of a set: k", k, int(keep.sum()))
    question = index.question(queries, better)
    features, blocks = question.ranked(index.encode_question(question, progress), index.blocks)
    spread = spread_of(features, blocks, keep)
    uneven = np.flatnonzero(spread.deviation > 0)
    if not len(uneven):
        raise DataError("queries: all examples score alike for each; expected some difference. Give other queries.")
    chosen = Spread(spread.mean[uneven], spread.deviation[uneven])
    sign = -1.0 if least else 1.0
    leaders = _leaders(features[uneven], blocks, keep, chosen, sign, k)
    values = (sign * leaders.values[0]).astype(np.float32) + np.float32(0)  # -0 becomes 0
    pairs = zip(leaders.rows[0].tolist(), values.tolist(), leaders.more[0].tolist(), strict=True)
    hits = (
        Mean(rank, value, helped, row, index.example(row)) for rank, (row, value, helped) in enumerate(pairs, start=1)
    )
    even = len(spread.mean) - len(uneven)
    provenance = replace(question.told(index.provenance(keep=keep)), units=DEVIATIONS)
    return SetResult(tuple(hits), len(uneven), even, least, provenance)


def _leaders(features: Features, blocks: Sequence[Block], keep: Mask, spread: Spread, sign: float, k: int) -> Leaders:
    leaders = Leaders(1, k)
    for rows, scores in stream_scores(features, blocks, keep):
        effects = spread.effects(scores)
        leaders.see(rows, sign * effects.mean(axis=0)[None], (effects > 0).mean(axis=0)[None])
    return leaders

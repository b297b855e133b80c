"""Pick training data from an index: by rank or weight, diverse, within quotas, budgets."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, overload

import numpy as np

from airrep.arrays import DenseFeatures, Mask, Rows, SparseFeatures, unit_rows, whole_number
from airrep.attributors.base import OnProgress
from airrep.attributors.text.lexical import DsirAttributor
from airrep.attributors.text.tokens import SUBWORDS, tokenizer_of
from airrep.corpus.corpus import Example, left_out
from airrep.corpus.inputs import as_examples
from airrep.errors import ArtifactError, ConfigError, many
from airrep.index.contrast import Better
from airrep.index.index import Index, IndexLike, Queries, as_index
from airrep.index.results.hits import fields_of
from airrep.index.results.result import Provenance, Tabular
from airrep.index.rows import IndexRows
from airrep.runtime.remote.outputs import is_taken, write_output
from airrep.runtime.remote.places import url_of
from airrep.runtime.seeding import stream
from airrep.scoring.asked import Asked, score_all
from airrep.scoring.blocks import check_count
from airrep.scoring.contrast import without_worse
from airrep.scoring.products import ask
from airrep.scoring.topk import Selection, first_of_each, gumbel_top_k, min_rank
from airrep.sparse import beside

REASON = "selected_by"
NUMBERS = 2**28
"""Most features of candidates in memory, 1 GiB of float32."""
CANDIDATES = 10
"""Number of candidates for each requested row: the rows of best rank."""
FIRST = 1000
"""Most picks for which candidates are read at first, if more can be read later."""


@dataclass(frozen=True)
class Limits:
    """Limits on a selection besides the best ranks."""

    diversity: float = 0.0
    """Weight, 0 or more and below 1, of similarity to chosen rows against the rank."""
    quotas: Mapping[str, int] = field(default_factory=dict)
    """Most examples of each named value of the field; other values have no quota here."""
    each: int | None = None
    """Most examples of every value without a quota of its own; examples without the field count as one value."""
    tokens: int | None = None
    """Most tokens in total."""

    def __post_init__(self) -> None:
        if not isinstance(self.diversity, int | float | np.number) or not 0 <= self.diversity < 1:
            raise ConfigError(f"select: diversity is {self.diversity}; it must be at least 0 and below 1.")
        for what, most in (*((f"quota of '{name}'", most) for name, most in self.quotas.items()), ("most", self.each)):
            if most is not None:
                whole_number(f"select: {what}", most)
        if self.tokens is not None:
            whole_number("select: tokens", self.tokens)
        low = next((name for name, most in self.quotas.items() if most < 0), None)
        if low is not None or (self.each is not None and self.each < 0):
            named = f"the quota of '{low}'" if low is not None else "the quota of each value"
            raise ConfigError(f"select: {named} is negative; it must be 0 or more.")
        if self.tokens is not None and self.tokens < 1:
            raise ConfigError(f"select: the budget is {self.tokens} tokens; it must be at least 1.")

    def most(self, value: str | None) -> float:
        """Return how many examples of a value may be chosen."""
        own = None if value is None else self.quotas.get(value)
        return own if own is not None else float("inf") if self.each is None else self.each

    def reach(self, values: Sequence[str | None]) -> int:
        """Return how many examples with these values may be chosen at most."""
        return int(sum(min(count, self.most(value)) for value, count in Counter(values).items()))


class ChosenRow(NamedTuple):
    """One chosen row."""

    place: int
    """Place in the ranking, from 0."""
    redundancy: float
    """Greatest cosine with an earlier chosen row, at least 0."""


def value_of(places: np.ndarray, rows: int) -> np.ndarray:
    """Return 1 − log(1 + p) / log(1 + n) for places p in a ranking of n rows: 1 for the first, near 0 for the last."""
    return 1 - np.log1p(places) / np.log1p(rows)


class Chooser:
    """Greedy choice by (1 − λ)·value − λ·redundancy among the candidates, which are the rows of best rank.

    The value of place p in the ranking of n rows is 1 − log(1 + p) / log(1 + n). If quotas leave no candidate, their
    number is doubled; without diversity the choice does not depend on the number of candidates.
    """

    def __init__(
        self,
        ranked: Callable[[int], Selection],
        count: int,
        index: IndexRows,
        limits: Limits,
        values: Callable[[Rows], Sequence[str | None]],
        tokens: Callable[[Rows], Sequence[int]],
        channels: Sequence[str] | None = None,
    ) -> None:
        """*ranked* returns the first rows of *count* ranked ones; *values* and *tokens* return fields and token counts.

        *channels* are those whose features are compared for diversity; all when None.
        """
        self._ranked, self._count, self._index, self._limits = ranked, count, index, limits
        self._values_of, self._tokens_of, self._channels = values, tokens, channels
        self.ranking: Selection
        """The candidates, in order of rank, with their reasons; set by :meth:`choose`."""
        self.rows: Rows = np.empty(0, np.int64)
        self.tokens: list[int] = []
        """Number of tokens of each candidate; empty without a budget."""
        self._values: list[str | None] = []
        self._units: DenseFeatures | SparseFeatures | None = None
        self._redundancy = np.empty(0)
        self._open = np.empty(0, bool)
        self._chosen: list[ChosenRow] = []
        self._used = 0
        self._taken: Counter[str | None] = Counter()

    def choose(self, count: int) -> list[ChosenRow]:
        """Choose *count* rows, or fewer if the next one does not fit into the budget."""
        # By rank alone more candidates can be read later; a budget without a count may allow all rows.
        first = count if self._limits.diversity else min(count, FIRST)
        self._grow(min(self._count, CANDIDATES * first))
        while len(self._chosen) < count:
            if not self._open.any():
                self._grow(min(self._count, 2 * len(self.rows)))
            elif not self._take(self._best()):
                break
        return self._chosen

    def _best(self) -> int:
        """Return the place of the best open candidate; of equal ones, the first in rank."""
        values = value_of(np.arange(len(self.rows)), self._count)
        scores = (1 - self._limits.diversity) * values - self._limits.diversity * self._redundancy
        scores[~self._open] = -np.inf
        return int(np.argmax(scores))

    def _take(self, place: int) -> bool:
        """Choose a candidate; return False if it does not fit into the budget."""
        if self._limits.tokens is not None and self._used + self.tokens[place] > self._limits.tokens:
            return False
        self._chosen.append(ChosenRow(place, float(self._redundancy[place])))
        self._used += self.tokens[place] if self.tokens else 0
        self._open[place] = False
        value = self._values[place] if self._values else None
        self._taken[value] += 1
        if self._values and self._taken[value] >= self._limits.most(value):
            self._open &= np.array([other != value for other in self._values])
        if self._units is not None:
            alike = _products(self._units, self._units[[place]])[:, 0]
            np.maximum(self._redundancy, alike, out=self._redundancy)
        return True

    def _grow(self, count: int) -> None:
        """Extend the candidates to *count* in all."""
        before = len(self.rows)
        self.ranking = self._ranked(count)
        self.rows = self.ranking.rows
        new = self.rows[before:]
        self._redundancy = np.append(self._redundancy, np.zeros(len(new)))
        is_open = np.ones(len(new), bool)
        if self._limits.quotas or self._limits.each is not None:
            found = self._values_of(new)
            is_open = np.array([self._taken[value] < self._limits.most(value) for value in found], bool)
            self._values += found
        if self._limits.tokens is not None:
            self.tokens += self._tokens_of(new)
        self._open = np.append(self._open, is_open)
        if self._limits.diversity:
            self._units = _unit_features(self._index, self.rows, self._channels)
            if self._chosen and len(new):
                chosen = self._units[[one.place for one in self._chosen]]
                alike = _products(self._units[before:], chosen).max(axis=1)
                self._redundancy[before:] = np.maximum(alike, 0)


def _products(units: DenseFeatures | SparseFeatures, others: DenseFeatures | SparseFeatures) -> np.ndarray:
    left: Any = units  # both are of one kind
    return np.asarray(left @ others.T)


def _unit_features(index: IndexRows, rows: Rows, channels: Sequence[str] | None) -> DenseFeatures | SparseFeatures:
    """Return stored features of rows, scaled to length 1: dense ones, or sparse ones if there are no dense ones."""
    some = [one for one in index.channels if one.kind != "none" and (channels is None or one.name in channels)]
    if not some:
        raise ConfigError(
            f"select: {index.method} stores no features to compare examples by. Remove diversity, or use an index "
            "built with another method."
        )
    dense = [one for one in some if one.kind == "dense"]
    width = sum(one.dimension for one in dense)
    if len(rows) * width > NUMBERS:
        raise ConfigError(
            f"select: {len(rows):,} candidates of {width:,} features each are too many for the setting diversity. "
            "Ask for fewer examples with --count, or choose among fewer with --where."
        )
    parts: list[Any] = list(index.features(rows, [one.name for one in dense or some]).values())
    return unit_rows(np.concatenate(parts, axis=1)) if dense else unit_rows(beside(parts))


@dataclass(frozen=True)
class Picked:
    """One training example that was picked by rank or at random."""

    reasons: ClassVar[tuple[str, ...]]
    """Names of the fields that give the reason, in the order of the file."""

    example: Example
    row: int
    """Row number in the index."""

    def to_dict(self) -> dict[str, Any]:
        """Return the example as a record, with the reason under ``selected_by``; it reads as a training example.

        If the texts were left out of the index, the record has no prompt and no response.
        """
        reasons, record = {name: getattr(self, name) for name in self.reasons}, self.example.to_dict()
        if self.example.response == left_out(self.example.id):
            del record["prompt"], record["response"]
        return {**record, REASON: {name: told for name, told in reasons.items() if told is not None}}


@dataclass(frozen=True)
class Pick(Picked):
    """One training example that was picked by its rank, with the reason."""

    reasons = ("query", "rank", "score", "row", "redundancy", "tokens")

    rank: int
    """Best rank over the queries; 1 = the most helpful example for that query."""
    query: str
    """Id of the first query that gives this rank."""
    score: float
    """Influence score for that query; higher = more helpful."""
    redundancy: float | None = None
    """Greatest cosine with an example that was picked before; None without diversity."""
    tokens: int | None = None
    """Number of tokens; None without a budget."""


@dataclass(frozen=True)
class Draw(Picked):
    """One training example that was drawn by its importance weight."""

    reasons = ("draw", "log_weight", "seed", "row")

    draw: int
    """Number of the draw; 1 = the first."""
    log_weight: float
    """Log importance weight: log of the example's likelihood by the queries over that by the training corpus."""
    seed: int
    """Seed of the draws."""


AnyPick = TypeVar("AnyPick", bound=Picked)


@dataclass(frozen=True, repr=False)
class SelectionResult(Tabular, Sequence[AnyPick], Generic[AnyPick]):
    """Training examples picked by min-rank, the best first; or drawn by weight, the first draw first."""

    picks: tuple[AnyPick, ...]
    provenance: Provenance

    @overload
    def __getitem__(self, position: int) -> AnyPick: ...
    @overload
    def __getitem__(self, position: slice) -> tuple[AnyPick, ...]: ...
    def __getitem__(self, position: int | slice) -> AnyPick | tuple[AnyPick, ...]:
        return self.picks[position]

    def __len__(self) -> int:
        return len(self.picks)

    def rows(self) -> Iterator[dict[str, Any]]:
        for pick in self.picks:
            yield {**fields_of(pick.example), **{name: getattr(pick, name) for name in pick.reasons}}

    def summary(self) -> str:
        return f"{many(len(self), 'example')}"

    def to_dict(self) -> dict[str, Any]:
        """Return the picks and their provenance as JSON values."""
        return {"provenance": self.provenance.entry(), "picks": [pick.to_dict() for pick in self.picks]}

    def save(self, out: str | Path, *, replace: bool = False) -> Path:
        """Write the examples as JSON lines, the reason of each under ``selected_by``.

        ArtifactError: *out* has a suffix of another format, exists and *replace* is false, or cannot be written.
        """
        path = Path(out)
        check_selection(path, replace=replace)
        write_output(path, (f"{json.dumps(pick.to_dict(), ensure_ascii=False)}\n".encode() for pick in self.picks))
        return path

    write = save
    """Earlier name of :meth:`save`."""


def check_selection(path: Path, *, replace: bool) -> None:
    """Refuse a path with the suffix of another format than JSON lines, and what :func:`check_writable` refuses."""
    if path.suffix.lower() in (".parquet", ".csv", ".tsv", ".json", ".gz", ".zst", ".arrow"):
        name = f"{path.stem.partition('.')[0]}.jsonl"
        raise ArtifactError(f"{path}: a selection is written as JSON lines. Use a name such as {name}.")
    check_writable(path, replace=replace)


def check_writable(path: Path, *, replace: bool) -> None:
    """Raise ArtifactError, before any work, for a directory, and for an existing path unless *replace* is true."""
    if path.is_dir() or (not replace and is_taken(path)):
        raise ArtifactError(
            f"{url_of(path) or path}: exists already; nothing is overwritten. Give another path, or pass --replace."
        )


def select(
    index: IndexLike,
    queries: Queries,
    count: int | None = None,
    *,
    better: Better | None = None,
    where: str | None = None,
    drop_duplicates: bool = False,
    diversity: float = 0.0,
    by: str | None = None,
    most: int | Mapping[str, int] | None = None,
    tokens: int | None = None,
    tokenizer: str | Path | None = None,
    progress: OnProgress | None = None,
) -> SelectionResult[Pick]:
    """Pick the training examples that some query ranks highest (min-rank).

    A training example's value is its best rank over the queries. Picks are ordered by that rank, then by the first
    query that gives it. With *diversity* λ, examples are picked one after another from the 10 * count best. Place p of
    all n (p from 0) is worth 1 − log(1 + p) / log(1 + n). The next pick has the greatest (1 − λ)·worth − λ·redundancy,
    where redundancy is the greatest cosine of stored features with an earlier pick, at least 0.

    Args:
        index: the index to pick from; or its path.
        queries: examples that the picked data should help with.
        count: how many examples to pick; if None, as many as fit into the budget *tokens*.
        better: better answers to the queries' prompts, as for :meth:`airrep.Index.top`. Then examples rank first that
            teach them; :func:`airrep.scoring.contrast.without_worse` leaves out those that teach a worse answer most.
        where: a filter; only examples that match it are ranked.
        drop_duplicates: of examples with equal texts, rank only the first.
        diversity: λ, 0 or more and below 1.
        by: a field, such as source.
        most: most examples of each value of the field *by*, or a dict of values; a missing field counts as one value.
        tokens: budget of tokens: picking ends before the pick that would exceed it.
        tokenizer: how to count: ``words`` and punctuation, ``subwords`` (if None), or a folder or Hub id of a model.
        progress: called with the number of encoded queries.

    Raises:
        ConfigError: *count* is below 1 or above the number of examples to choose from, nothing fits into the budget,
            or an invalid filter, field, quota or budget.

    Example:
        >>> picks = airrep.select(index, queries, count=10)
        >>> len(picks)
        10
    """
    index, limits = as_index(index), _limits(count, diversity, by, most, tokens)
    if tokenizer is not None and tokens is None:
        raise ConfigError("select: tokenizer works only with tokens, the number of tokens to pick. Give both.")
    keep, question = _kept(index, where, drop_duplicates), index.question(queries, better)
    asked = index.ask(question, progress)
    ranked = question.ranked(asked, towards=True)
    keep = keep if better is None else without_worse(ranked, keep)
    picking = _Picking(index, ranked, keep, [query.id for query in question.queries])
    picks = (
        picking.told(min_rank(ranked, count or 0, keep), np.arange(count or 0))
        if limits is None
        else picking.within(limits, count, by, str(tokenizer or SUBWORDS), list(asked.channels()) or None)
    )
    return SelectionResult(picks, question.told(index.provenance(), towards=True))


@dataclass(frozen=True)
class _Picking:
    """Choice of kept rows of an index by their best rank over queries with these *ids*."""

    index: Index
    ranked: Asked
    keep: Mask
    ids: Sequence[str]

    def within(
        self, limits: Limits, count: int | None, by: str | None, tokenizer: str, channels: Sequence[str] | None
    ) -> tuple[Pick, ...]:
        """Pick diverse rows within quotas and a budget; features of *channels* are compared."""
        index = self.index
        if by is not None:
            index.check_some(by)
        every = index.values(by, quoted=True) if by is not None else [None] * index.rows
        allowed = _allowed(limits, by, every, self.keep, count)
        chooser = Chooser(
            lambda first: min_rank(self.ranked, first, self.keep),
            int(self.keep.sum()),
            index,
            limits,
            lambda rows: [every[row] for row in rows.tolist()],
            lambda rows: _tokens_of(index, tokenizer, rows),
            channels,
        )
        chosen = chooser.choose(allowed if count is None else count)
        if not chosen:
            told = f"the first example has {chooser.tokens[0]} tokens, the budget is {limits.tokens}"
            raise ConfigError(f"select: {told}. Raise the budget.")
        picks = self.told(chooser.ranking, np.array([one.place for one in chosen]))
        return tuple(
            replace(
                pick,
                redundancy=float(np.float32(one.redundancy)) if limits.diversity else None,
                tokens=chooser.tokens[one.place] if limits.tokens is not None else None,
            )
            for pick, one in zip(picks, chosen, strict=True)
        )

    def told(self, found: Selection, places: np.ndarray) -> tuple[Pick, ...]:
        """Make picks of some rows of a ranking, each with its reason."""
        rows, ranks, queries, scores = (column[places] for column in found)
        reasons = zip(rows.tolist(), ranks.tolist(), queries.tolist(), scores.tolist(), strict=True)
        return tuple(
            Pick(example, row, rank, self.ids[query], score)
            for example, (row, rank, query, score) in zip(self.index.examples(rows), reasons, strict=True)
        )


def _kept(index: Index, where: str | None, drop_duplicates: bool) -> Mask:
    """Return the rows to choose from; with *drop_duplicates*, only the first of equal texts."""
    keep = index.kept(where)
    if not drop_duplicates:
        return keep
    return first_of_each(np.concatenate([shard.examples.content_hashes for shard in index.shards]), keep)


def _limits(
    count: int | None, diversity: float, by: str | None, most: int | Mapping[str, int] | None, tokens: int | None
) -> Limits | None:
    """Return the limits besides the best ranks; None if there are none."""
    if (by is None) != (most is None):
        raise ConfigError("select: by=FIELD and most=NUMBER (the limit for each value) work only together. Give both.")
    if count is None and tokens is None:
        raise ConfigError("select: give a count, a budget of tokens, or both.")
    if count is not None:
        whole_number("select: count", count)
    quotas, each = (most, None) if isinstance(most, Mapping) else ({}, most)
    limits = Limits(diversity, quotas, each, tokens)
    return None if limits == Limits() else limits


def _allowed(limits: Limits, by: str | None, values: Sequence[str | None], keep: Mask, count: int | None) -> int:
    """Return how many kept rows the quotas allow, given the field's *values* of all rows; refuse a *count* above it."""
    known = set(values) if limits.quotas else set()
    unknown = next((name for name in limits.quotas if name not in known), None)
    if unknown is not None:  # it would limit nothing
        raise ConfigError(
            f"select: there is a quota of {limits.quotas[unknown]} for {by} '{unknown}', but no example has this "
            "value. Check the value; case matters."
        )
    rankable = int(keep.sum())
    allowed = limits.reach([values[row] for row in np.flatnonzero(keep).tolist()])
    if rankable and not allowed:
        raise ConfigError("select: the quotas allow no example. Raise the quotas.")
    if count is not None and allowed < count <= rankable:
        quota = f"at most {limits.each} of each {by}" if limits.each is not None else f"by {by}"
        raise ConfigError(
            f"select: count is {count}, but the quotas ({quota}) allow only {allowed} of {many(rankable, 'example')}. "
            f"Lower count to {allowed}, or raise the quotas."
        )
    check_count("select: count", allowed if count is None else count, allowed)
    return allowed


def _tokens_of(index: Index, tokenizer: str, rows: Rows) -> list[int]:
    """Count the tokens of rows' prompts and responses, without those of a chat template."""
    split, _ = tokenizer_of(tokenizer, signs=True)
    texts = [text for example in index.examples(rows) for text in (example.prompt, example.response)]
    return split(texts).lengths.reshape(-1, 2).sum(axis=1).tolist()


def resample(
    index: IndexLike,
    queries: Queries,
    count: int,
    *,
    seed: int = 0,
    where: str | None = None,
    drop_duplicates: bool = False,
) -> SelectionResult[Draw]:
    """Draw training examples by their importance weight for all queries together (DSIR).

    The weight of z is Π p_queries(g) / p_train(g) over its n-grams g. Examples are drawn one after another, without
    replacement, each with a chance in proportion to its weight.

    Args:
        index: an index of the method ``dsir``; or its path.
        queries: examples of the target distribution.
        count: how many examples to draw.
        seed: seed of the draws.
        where: a filter; only examples that match it are drawn.
        drop_duplicates: of examples with equal texts, draw only the first.

    Raises:
        ConfigError: the index has no importance weights, *count* is not between 1 and the number of examples to
            choose from, or the filter is invalid.
        DataError: the queries have no words.
    """
    index = as_index(index)
    attributor = index.attributor
    if not isinstance(attributor, DsirAttributor):
        raise ConfigError(
            f"{index.path}: method '{index.method}' has no importance weights to sample by. Use an index built with "
            "method dsir, or `airrep select` without --set resample=true."
        )
    target = attributor.encode_target(as_examples(queries, options=index.asking))
    weights = score_all(ask(target, index.blocks(index.method)))[0]
    keep = _kept(index, where, drop_duplicates)
    rows = gumbel_top_k(np.where(keep, weights, -np.inf), count, stream(seed, "resample"))
    drawn = enumerate(zip(index.examples(rows), rows.tolist(), strict=True), start=1)
    draws = (Draw(example, row, draw, float(weights[row]), seed) for draw, (example, row) in drawn)
    return SelectionResult(tuple(draws), index.provenance())

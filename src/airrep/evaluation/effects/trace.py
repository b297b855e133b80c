"""Rank the examples that taught given facts; one step on each top example."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from airrep.arrays import Rows
from airrep.corpus.corpus import Corpus
from airrep.corpus.fields import TEXT_FIELDS
from airrep.corpus.inputs import CorpusLike
from airrep.errors import ConfigError, DataError
from airrep.evaluation.effects.refits import EffectStudy, Refits, Running, against_random
from airrep.evaluation.given import IndexesLike, TrainingPool, all_rows
from airrep.evaluation.result import Evaluation, Row, as_json
from airrep.evaluation.select import LmLike, kept_answers
from airrep.evaluation.statistics.means import Estimate, TaskResamples
from airrep.index.contrast import Question
from airrep.index.index import Index
from airrep.lm.settings import FineTuneSettings
from airrep.runtime.seeding import stream
from airrep.runtime.settings import Settings
from airrep.scoring.asked import score_blocks
from airrep.scoring.topk import top_k

REACHES = (1, 10, 100)
"""Numbers k for recall@k; only those below the pool's size are used."""
CELLS = 2**26
"""Scores that are held at once: bounds memory, does not change results."""
RANDOM = 5
"""Random examples to step on, in multiples of the number of top examples."""


class TraceSettings(Settings):
    """Settings of an evaluation by facts."""

    facts: str = "fact"
    """Field of a query that names what taught it: ids of training examples, or a value that these share."""
    where: str | None = None
    """Filter of training examples; only those that match are ranked."""
    count: int = Field(default=10, ge=1)
    """Top examples of each query that the LM takes a step on."""
    resamples: int = Field(default=1000, ge=1)
    """Number of bootstrap draws behind each interval."""
    seed: int = Field(default=0, ge=0)
    """Random seed."""


class _Found(NamedTuple):
    """The examples that one index found."""

    measured: dict[str, np.ndarray]
    """Reciprocal ranks and recalls by name, each ``(q,)``; NaN for queries without a fact."""
    top: np.ndarray
    """Each query's top examples as rows of the first index, ``(q, k)``; empty without an LM."""


class Trace(EffectStudy):
    """How early an index ranks the training examples that taught each query's fact.

    The value is the mean over queries of the reciprocal rank of the first such example (MRR); recall@k is the share of
    these examples in the top k. Equal scores rank by row. With an LM the tail patch is measured too: the LM takes one
    step on each top example alone, from its base weights, and the rise of the log probability of the query's answer,
    per token, is compared with the rise by a step on random examples. A query without a fact is left out and counted.

    Example:
        >>> from airrep.evaluation.effects.trace import Trace
        >>> found = Trace([("tfidf", index)], queries, {"facts": "source"}).run()
        >>> found.measure, [row.name for row in found.rows]
        ('trace', ['tfidf'])
    """

    measure = "trace"

    def __init__(
        self,
        indexes: IndexesLike,
        queries: CorpusLike,
        settings: TraceSettings | Mapping[str, Any] | None = None,
        lm: LmLike | None = None,
        fine_tune: FineTuneSettings | Mapping[str, Any] | None = None,
        running: Running | None = None,
    ) -> None:
        """Read the texts of the indexes, and load the LM, if there is one; nothing is scored or fine-tuned.

        Indexes and the LM are given as in :func:`airrep.evaluation.select.evaluate_selection`. Epochs, schedule and
        warm-up of *fine_tune* have no effect.

        ConfigError: a setting that does not fit, or only one query. DataError: no query has a fact, an id or fact that
        no training example has, or other examples in some index.
        """
        super().__init__(indexes, queries)
        tuning, chosen = FineTuneSettings.given(fine_tune, "fine_tune"), TraceSettings.given(settings)
        self._settings, fields = chosen, self.indexes[0][1].fields
        known = chosen.facts in TEXT_FIELDS or chosen.facts.partition(".")[0] in fields
        self._by = chosen.facts if known else "id"
        self._pools = TrainingPool.of(self.indexes, self._by, chosen.where)
        self._wanted = list(map(_named_by, self.queries.values(chosen.facts, fields if known else (), "--rows")))
        if not any(self._wanted):
            raise DataError(
                f"queries: no query has a value in the field '{chosen.facts}'. Give --rows FIELD, a field of the "
                "queries with the ids of the training examples that taught the answer, or with a value that these "
                "examples have in the same field."
            )
        self._teachers = [self._teachers_in(pool) for pool in self._pools]
        n = len(self._pools[0].order)
        self._reaches = [k for k in REACHES if k < n]
        self._refits: Refits | None = None
        decisive: dict[str, Any] = {"facts": chosen.facts}
        if lm is not None:
            if chosen.count > n:
                raise ConfigError(
                    f"evaluate: --count {chosen.count:,} is more than the {n:,} training examples. Lower --count."
                )
            once = {"epochs": 1, "schedule": "constant", "warmup_steps": 0, "warmup_ratio": 0.0}
            step = tuning.model_copy(update=once)
            self._refits = Refits(lm, step, all_rows(self.indexes[0][1]), self.queries, running or Running())
            decisive |= {**self._refits.decisive, "count": chosen.count, "seed": chosen.seed}
        self.decide(self._pools[0], chosen.resamples, **decisive)

    def _teachers_in(self, pool: TrainingPool) -> list[Rows]:
        """Return one index's rows that taught each query (DataError: no example has a named id or fact)."""
        rows: dict[str, list[int]] = {}
        for row in np.sort(pool.order).tolist():
            if (value := pool.values[row]) is not None:
                for one in _named_by(value) if self._by != "id" else [value]:
                    rows.setdefault(one, []).append(row)
        for query, wanted in zip(self.queries, self._wanted, strict=True):
            lacking = next((one for one in wanted if one not in rows), None)
            if lacking is not None:
                where = "that matches --where " * (self._settings.where is not None)
                raise DataError(
                    f"query \"{query.id}\": no training example {where}has the {self._by} '{lacking}'. Correct "
                    f"{self._settings.facts} of the query, or leave the query out."
                )
        return [np.unique([row for one in wanted for row in rows[one]]).astype(np.int64) for wanted in self._wanted]

    def run(self, out: str | Path | None = None, *, replace: bool = False) -> Evaluation:
        """Rank, step, compare; with *out* the losses are kept beside it until the evaluation is written."""
        indexes = (index for _, index in self.indexes)
        found = [self._find(*each) for each in zip(indexes, self._pools, self._teachers, strict=True)]
        patches = None if self._refits is None else self._patched(self._refits, found, out, replace=replace)
        return self.evaluation([self._row(place, found, patches) for place in range(len(found))], self._facts())

    def _find(self, index: Index, pool: TrainingPool, teachers: Sequence[Rows]) -> _Found:
        ranks = list(_ranks(index, self.queries, pool, teachers))
        first = np.array([1 / one.min() if len(one) else np.nan for one in ranks])
        recall = {
            f"recall@{k}": np.array([(one <= k).mean() if len(one) else np.nan for one in ranks]) for k in self._reaches
        }
        top = np.empty((len(ranks), 0), np.int64)
        if self._refits is not None:
            rows = top_k(index.ask(Question(self.queries)), self._settings.count, keep=pool.keep).rows
            top = pool.rows_in(self._pools[0], rows)
        return _Found({"mrr": first, **recall}, top)

    def _patched(
        self, refits: Refits, found: Sequence[_Found], out: str | Path | None, *, replace: bool
    ) -> list[tuple[np.ndarray, Estimate]]:
        """Measure each index's gain of a step on a top example over a random one: per query, and the mean."""
        order = np.sort(self._pools[0].order)
        chance = stream(self._settings.seed, "trace", "random")
        random = chance.choice(order, min(len(order), RANDOM * self._settings.count), replace=False)
        rows = np.unique(np.concatenate([random, *(one.top.ravel() for one in found)]))
        with kept_answers(out, self.request, replace=replace) as folder:
            after = refits.losses([rows[[place]] for place in range(len(rows))], folder, seeds=1, seed=0)
        gains = after.base[:, None] - after.losses[0]
        control = gains[:, np.searchsorted(rows, random)]
        every = np.arange(len(gains))[:, None]
        own = (gains[every, np.searchsorted(rows, one.top)].mean(axis=1) for one in found)
        return [against_random(each, control, self._settings.resamples, self._settings.seed) for each in own]

    def _row(self, place: int, found: Sequence[_Found], patches: Sequence[tuple[np.ndarray, Estimate]] | None) -> Row:
        settings, more, own = self._settings, dict[str, Any](), place > 0
        plain = TaskResamples.plain(len(self.queries), settings.resamples, settings.seed)
        measured, first = found[place].measured, found[0].measured
        for key, values in measured.items():
            gap = plain.difference(values, first[key]).to_dict() if own else None
            more[key] = as_json({**plain.estimate(values).to_dict(), "minus_first": gap})
        value = more.pop("mrr")
        if patches is not None:
            gains, estimate = patches[place]
            free = TaskResamples.plain(len(self.queries), settings.resamples, settings.seed, bounded=False)
            gap = free.difference(gains, patches[0][0]).to_dict() if own else None
            more["tail_patch"] = as_json({**estimate.to_dict(), "minus_first": gap, "per_query": gains.tolist()})
        gap_of_mrr = plain.difference(measured["mrr"], first["mrr"]) if own else None
        return self.row(place, value, measured["mrr"], gap_of_mrr, more)

    def _facts(self) -> dict[str, Any]:
        """Return facts on all rows; ``taught_by`` is the least and the greatest number of examples behind a query."""
        n, counts = len(self._pools[0].order), [len(rows) for rows in self._teachers[0] if len(rows)]
        by_count = {count: _chance_of_first(count, n) for count in set(counts)}
        chance = float(np.mean([by_count[count] for count in counts]))
        steps = {} if self._refits is None else {**self._refits.facts, "count": self._settings.count}
        return {
            "facts": self._settings.facts,
            "named_by": "ids" if self._by == "id" else "a shared value",
            "chance": chance,
            "taught_by": [min(counts), max(counts)],
            "examples": n,
            "queries_without_facts": sum(not wanted for wanted in self._wanted),
            "where": self._settings.where,
            "resamples": self._settings.resamples,
            **steps,
        }


def _named_by(value: str | None) -> list[str]:
    """Return the ids or facts in a field's value: a JSON list, or one text; none if there is no value."""
    if value and value.startswith("["):
        with suppress(ValueError):
            return list(dict.fromkeys(one if isinstance(one, str) else json.dumps(one) for one in json.loads(value)))
    return [value] if value else []


def _ranks(index: Index, queries: Corpus, pool: TrainingPool, teachers: Sequence[Rows]) -> Iterator[np.ndarray]:
    """Yield the ranks, from 1, of the examples that taught each query, among all that may be ranked; ties by row."""
    rows = np.sort(pool.order)
    step = max(1, CELLS // max(1, len(pool.hashes)))
    for start in range(0, len(queries), step):
        asked = index.ask(Question(queries.take(np.arange(start, min(start + step, len(queries))))))
        scores = np.concatenate([block for _, block in score_blocks(asked)], axis=1)[:, rows]
        for own, wanted in zip(scores, teachers[start : start + step], strict=True):
            places = np.searchsorted(rows, wanted)
            order = np.empty(len(rows), np.int64)
            order[np.argsort(-own, kind="stable")] = np.arange(1, len(rows) + 1)
            yield order[places]


def _chance_of_first(count: int, n: int) -> float:
    """Return the expected reciprocal rank of the first of *count* among n examples in a random order.

    P(first at r) = C(n − r, count − 1) / C(n, count), as a running product from count / n on.
    """
    ranks = np.arange(1, n - count + 2)
    shrinking = (n - ranks - count + 1) / np.maximum(n - ranks, 1)
    chances = count / n * np.cumprod([1.0, *shrinking[:-1]])
    return float((chances / ranks).sum())

"""The identical-class test: the label of the nearest training example."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from pydantic import Field, field_validator

from airrep.arrays import Rows
from airrep.corpus.corpus import Corpus
from airrep.corpus.inputs import CorpusLike, as_corpus
from airrep.errors import ConfigError, DataError, many
from airrep.evaluation.given import IndexesLike, Named, TrainingPool, cost_of, named_indexes
from airrep.evaluation.result import Evaluation, Row, check_names
from airrep.evaluation.statistics.means import CONFIDENCE, Estimate, Interval, TaskResamples, task_means
from airrep.index.index import Index
from airrep.runtime.artifacts import json_digest
from airrep.runtime.metering import OnProgress, teller
from airrep.runtime.settings import Settings
from airrep.scoring.topk import top_k

CHUNK = 1024
"""Queries ranked at a time: bounds memory, does not change results."""
NOBODY = -1
"""The class of an example without label; it equals no class, not even itself."""


class ClassifySettings(Settings):
    """Settings of the identical-class test."""

    by: str = "label"
    """The field that holds the class: label, source or a metadata field."""
    votes: tuple[int, ...] = (10,)
    """Numbers k; for each, the top k examples vote for a class. The default is 10, or all examples if fewer."""
    where: str | None = None
    """Filter of training examples; only those that match are ranked."""
    skip_unlabelled: bool = False
    """Leave out, and count, queries without the field instead of refusing them."""
    resamples: int = Field(default=1000, ge=1)
    """Number of bootstrap draws behind each interval."""
    seed: int = 0
    """Random seed."""

    @field_validator("votes")
    @classmethod
    def _at_least_one(cls, votes: tuple[int, ...]) -> tuple[int, ...]:
        if any(k < 1 for k in votes):
            raise ValueError(
                "each number in votes must be at least 1: it is the number of top examples that predict a class"
            )
        return tuple(sorted(set(votes)))


def classify(
    indexes: IndexesLike,
    queries: CorpusLike,
    settings: ClassifySettings | Mapping[str, Any] | None = None,
    progress: OnProgress | None = None,
) -> Evaluation:
    """Measure how often a query's top-1 training example has the query's class (identical-class test).

    A query never retrieves itself: all training examples with its own texts are skipped. Equal scores rank by row.
    Training examples without class never match. The top k vote for the class that most of them have; of tied classes
    the one that comes first wins. Examples without class have no vote, but count among the k.

    Args:
        indexes: indexes of the same training examples, or their paths, each alone or as ``(name, index)``. The others
            are compared with the first.
        queries: queries with their classes.
        settings: settings, or a dict of some of them; the defaults if None.
        progress: called with the numbers of ranked and of all queries, for each index; True shows them.

    Raises:
        ConfigError: no index, a bad setting or filter, no such field, or more votes than examples.
        DataError: two rows of one name, a query without class, other examples in some index, or no class at all.

    Example:
        >>> found = airrep.classify([("tfidf", index)], queries)
        >>> found.measure, len(found.queries)
        ('classify', 5)
    """
    chosen, asked = ClassifySettings.given(settings), as_corpus(queries, "queries")
    return Classification(named_indexes(indexes, "classify"), asked, chosen).run(progress)


class Classification:
    """An identical-class test, checked; :attr:`request` holds all that decides its result."""

    def __init__(self, indexes: Named, queries: Corpus, settings: ClassifySettings) -> None:
        """Read the texts of the indexes; nothing is encoded."""
        if not indexes:
            raise ConfigError("classify: no index is given. Give at least one.")
        check_names([name for name, _ in indexes])
        self._indexes, self._queries, self._settings = indexes, queries, settings
        self._pools = TrainingPool.of(indexes, settings.by, settings.where)
        self._hashes = queries.content_hashes
        self._wanted = queries.values(settings.by, indexes[0][1].fields)
        known = {value for value in (*self._wanted, *self._pools[0].values) if value is not None}
        self._classes: dict[str | None, int] = {name: code for code, name in enumerate(sorted(known))}
        self._check()
        if "votes" not in settings.model_fields_set:  # the default k is at most the number of examples
            votes = tuple(min(k, self._reach) for k in settings.votes)
            self._settings = settings.model_copy(update={"votes": votes})
        self.subject = json_digest(
            {"measure": "classify", "queries": queries.fingerprint, "pool": self._pools[0].fingerprint}
            | {"by": settings.by}
        )
        """Digest of queries, training examples and classes."""
        self.request = {
            "measure": "classify",
            "indexes": [index.fingerprint for _, index in indexes],
            "subject": self.subject,
            "settings": self._settings.model_dump(mode="json"),
        }

    def run(self, progress: OnProgress | None = None) -> Evaluation:
        rows: list[Row] = []
        for (name, index), pool in zip(self._indexes, self._pools, strict=True):
            rows.append(self._row(name, index, self._judge(index, pool, progress), rows[0] if rows else None))
        keys = tuple((label or "", query.id) for label, query in zip(self._wanted, self._queries, strict=True))
        return Evaluation("classify", tuple(rows), keys, self.subject, facts=self._facts(), request=self.request)

    def _check(self) -> None:
        settings = self._settings
        lacking = [number for number, value in enumerate(self._wanted) if value is None]
        if len(lacking) == len(self._wanted):
            raise DataError(f"queries: no query has a {settings.by}. Name the field with their classes: --by FIELD.")
        if lacking and not settings.skip_unlabelled:
            raise DataError(
                f"queries: of {len(self._wanted):,}, {many(len(lacking), 'has', 'have')} no {settings.by}; the first: "
                f'"{self._queries[lacking[0]].id}". Add what is missing, or leave these queries out with --set '
                "skip_unlabelled=true."
            )
        # Too many votes are refused only if the user named them; the default is capped.
        asked = max((1, *settings.votes)) if "votes" in settings.model_fields_set else 1
        if self._reach < asked:
            where = "" if settings.where is None else f"--where keeps {many(len(self._pools[0].order), 'example')}: "
            raise ConfigError(
                f"classify: {where}--set vote={asked} needs {many(asked, 'example')} for each query, but one query has "
                f"only {self._reach:,}. Examples with the query's own text do not count. Lower --set vote=, or use "
                "more examples."
            )

    @cached_property
    def _reach(self) -> int:
        """Number of examples that every query can find, without its own texts."""
        return len(self._pools[0].order) - int(self._pools[0].copies(self._hashes).max(initial=0))

    def _judge(self, index: Index, pool: TrainingPool, progress: OnProgress | None) -> np.ndarray:
        """Judge queries by their top 1 and each vote, ``(1 + votes, q)`` float64: 1 right, 0 wrong, NaN left out."""
        ks = (1, *self._settings.votes)
        wanted, train = (
            np.array([self._classes.get(value, NOBODY) for value in values], np.int64)
            for values in (self._wanted, pool.values)
        )
        found = np.full((len(ks), len(wanted)), np.nan)
        for part, rows in ranked(index, self._queries, self._hashes, pool, max(ks), progress):
            hits = train[rows]
            for place, k in enumerate(ks):
                found[place, part] = vote(hits[:, :k]) == wanted[part]
        found[:, wanted == NOBODY] = np.nan
        return found

    def _row(self, name: str, index: Index, judged: np.ndarray, first: Row | None) -> Row:
        settings, (top, *votes) = self._settings, judged
        plain = TaskResamples.plain(len(self._queries), settings.resamples, settings.seed)
        known = [str(value) for value in self._wanted]
        macro = _macro(TaskResamples(tuple(known), False, settings.resamples, settings.seed), top)
        by_votes = {f"vote@{k}": plain.estimate(values) for k, values in zip(settings.votes, votes, strict=True)}
        told = {key: found.to_dict() for key, found in {"macro": macro, **by_votes}.items()}
        return Row(
            name,
            index.method,
            *plain.estimate(top),
            top,
            difference=None if first is None else plain.difference(top, first.per_query),
            cost=cost_of(index),
            caution=index.attributor.caution,
            more={**told, "by_label": task_means(top, known)},
        )

    def _facts(self) -> dict[str, Any]:
        pool = self._pools[0]
        asked = Counter(value for value in self._wanted if value is not None)
        train = Counter(value for row in pool.order.tolist() if (value := pool.values[row]) is not None)
        commonest = max((name for name in self._classes if name is not None), key=lambda name: train[name])
        distinct = len(np.unique(self._hashes))
        return {
            "by": self._settings.by,
            "chance": sum(asked[name] * train[name] / len(pool.order) for name in asked) / asked.total(),
            "commonest": {"label": commonest, "accuracy": asked[commonest] / asked.total()},
            "labels": {name: {"queries": asked[name], "train": train[name]} for name in sorted(asked)},
            "examples": len(pool.order),
            "unlabelled_examples": len(pool.order) - train.total(),
            "unlabelled_queries": len(self._wanted) - asked.total(),
            "distinct_queries": distinct,
            "repeated_queries": len(self._hashes) - distinct,
            "queries_without_examples_of_their_label": sum(asked[name] for name in asked if not train[name]),
            "queries_among_the_examples": int((pool.copies(self._hashes) > 0).sum()),
            "votes": list(self._settings.votes),
            "where": self._settings.where,
            "resamples": self._settings.resamples,
        }


def ranked(
    index: Index, queries: Corpus, hashes: np.ndarray, pool: TrainingPool, k: int, progress: OnProgress | None = None
) -> Iterator[tuple[Rows, np.ndarray]]:
    """Rank the top k examples of each query, without those that have its own texts (*hashes*, ``(q,)``).

    Yields the numbers of some queries and the rows of their top k, ``(queries, k)``, best first, ties by row.
    """
    # Queries with equally many copies of themselves need an equally deep search, so they go together.
    copies, done, tell = pool.copies(hashes), 0, teller(progress, "ranking for queries")
    for extra in np.unique(copies).tolist():
        alike = np.flatnonzero(copies == extra)
        for start in range(0, len(alike), CHUNK):
            part = alike[start : start + CHUNK]
            rows = top_k(index.ask(queries.take(part)), k + extra, keep=pool.keep).rows
            own = pool.hashes[rows] == hashes[part, None]
            # A stable sort puts a query's own texts last and leaves the others best first.
            yield part, np.take_along_axis(rows, np.argsort(own, axis=1, kind="stable")[:, :k], axis=1)
            done += len(part)
            tell(done, len(queries))


def vote(classes: np.ndarray) -> np.ndarray:
    """Return the class that most of each query's examples have, ``(q,)``; of tied classes the one that comes first.

    *classes* are the examples' classes, ``(q, k)``, best first. :data:`NOBODY` has no vote. Without any vote the
    result is :data:`NOBODY` − 1, which equals no class.
    """
    votes = np.zeros(classes.shape, np.int64)
    for place in range(classes.shape[1]):
        votes += classes == classes[:, place, None]
    votes[classes == NOBODY] = 0
    elected = np.take_along_axis(classes, votes.argmax(axis=1)[:, None], axis=1)[:, 0]
    return np.where(votes.max(axis=1) > 0, elected, NOBODY - 1)


def _macro(resamples: TaskResamples, right: np.ndarray) -> Estimate:
    """Return the mean over classes with its interval; exact if no class has both right and wrong queries.

    All draws are equal then, so the ends follow Clopper and Pearson's rule: the least and the greatest mean of the
    accuracies p_c under which the result has a chance of at least 2.5 %. For classes of n_c queries, all right,
    Π p_c^n_c = 0.025 has the least Σ p_c at p_c = min(1, λ n_c); for one size that is the accuracy's interval.
    """
    found, known = resamples.estimate(right), ~np.isnan(right)
    codes = np.unique(np.array(resamples.tasks)[known], return_inverse=True)[1]
    sizes, hits = np.bincount(codes), np.bincount(codes, right[known])
    if not ((hits == 0) | (hits == sizes)).all():
        return found
    ends = Interval(_least(sizes[hits > 0]) / len(sizes), 1 - _least(sizes[hits == 0]) / len(sizes))
    return Estimate(found.value, ends)


def _least(sizes: np.ndarray) -> float:
    """Return the least sum of accuracies of classes of these sizes, all of whose queries were right."""
    if not len(sizes):
        return 0.0
    from scipy.optimize import brentq

    known, end = np.log(sizes), math.log((1 - CONFIDENCE) / 2)
    scale = brentq(lambda at: float(sizes @ np.minimum(at + known, 0)) - end, end - known.max(), -known.min())
    return float(np.exp(np.minimum(scale + known, 0)).sum())

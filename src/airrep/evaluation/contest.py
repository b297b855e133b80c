"""Tasks and competitors of a data selection, and what each selects."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from pydantic import Field

from airrep.arrays import Rows
from airrep.corpus.corpus import Corpus
from airrep.errors import ConfigError, DataError
from airrep.evaluation.given import Named, TrainingPool, all_rows, cost_of
from airrep.evaluation.result import Cost, check_names
from airrep.runtime.artifacts import json_digest
from airrep.runtime.metering import OnProgress, teller
from airrep.runtime.seeding import stream, stream_seed
from airrep.runtime.settings import Settings
from airrep.scoring.topk import min_rank

KEY_DIGITS = 16
RANDOM, FULL, NONE = "random", "full", "none"
"""Baselines beside the indexes: random examples, all examples, and the LM without fine-tuning."""
Pick: TypeAlias = tuple[str, int, Rows]
"""A task, the number of the repetition, and rows of the training corpus, ascending."""


class SelectSettings(Settings):
    """Settings of the evaluation by data selection; defaults are the paper's values if it names any."""

    count: int = Field(default=1000, ge=1)
    """Training examples selected for each task."""
    by: str = "label"
    """Field of a query that holds its class or task: label, source or a metadata field."""
    seeds: int = Field(default=1, ge=1)
    """Number of fine-tunes on each set of selected examples; airrep averages their results. Each has its own data
    order and random examples."""
    random: bool = True
    """Also fine-tune, for each task, on as many random examples as are selected."""
    full: bool = False
    """Also fine-tune once on all training examples, and measure this model on every task."""
    none: bool = True
    """Also score the answers of the LM as it is, without fine-tuning."""
    where: str | None = None
    """Filter of training examples, such as 'label == "gsm8k"'."""
    max_new_tokens: int = Field(default=64, ge=1)
    """Longest answer to generate, in tokens."""
    resamples: int = Field(default=1000, ge=1)
    """Number of bootstrap draws behind each interval."""
    seed: int = 0
    """Random seed."""


class Choice(NamedTuple):
    """One competitor's selection for one task, and the queries to answer after fine-tuning on it."""

    name: str
    """Title to show, such as ``"tfidf, task math, seed 0"``."""
    train: Rows
    """Rows of the training corpus, ascending; none for the LM without fine-tuning."""
    seed: int
    """Seed of the fine-tune; fixes the order of its data."""
    queries: Rows
    """Rows of the task's queries."""
    key: str
    """16 hex digits: equal keys give equal answers."""


@dataclass(frozen=True)
class Competitor:
    """An index or a baseline, with its selections."""

    name: str
    method: str
    choices: tuple[Choice, ...]
    """One or several for each task."""
    same_task_share: float | None
    """Share of the chosen examples that belong to the task they were chosen for; None if none are chosen."""
    caution: str = ""
    cost: Cost | None = None


class Contest:
    """Tasks, training examples and competitors, checked; nothing is encoded before :meth:`competitors`.

    All competitors choose among the same examples: those that pass the filter and do not have the text of a query, to
    be answered or to select by, since every method finds a query's own text. Equal sets of texts become equal rows of
    the first index, whichever index they were chosen from. Tasks are sorted by name.
    """

    def __init__(self, indexes: Named, queries: Corpus, selecting: Corpus | None, settings: SelectSettings) -> None:
        """Read the texts of the indexes, of the queries to answer, and of the queries to select by (None: the same).

        ConfigError: no index, a bad filter, no such field, or too few examples to select from. DataError: two
        rows of one name, other examples in some index, a query without task, or a task without queries to select by.
        """
        if not indexes:
            raise ConfigError("evaluate: no index is given. Give at least one.")
        beside = {RANDOM: settings.random, FULL: settings.full, NONE: settings.none}
        check_names([*(name for name, _ in indexes), *(name for name, asked in beside.items() if asked)])
        pools = TrainingPool.of(indexes, settings.by, settings.where)
        self.indexes, self.settings, fields = indexes, settings, indexes[0][1].fields
        self.train = all_rows(indexes[0][1])
        self.queries, self.selecting = queries, queries if selecting is None else selecting
        self.task_of_each = _task_of_each(queries, settings.by, fields)
        """Task of each query."""
        self.rows = _rows_by_task(self.task_of_each)
        """Queries of each task."""
        self._selecting_rows = self.rows
        if selecting is not None:
            self._selecting_rows = _rows_by_task(_task_of_each(selecting, settings.by, fields))
        lacking = next((task for task in self.rows if task not in self._selecting_rows), None)
        if lacking is not None:
            raise DataError(
                f"--set selecting=FILE: FILE has no query of the task '{lacking}', but --queries has. Add a query of "
                "this task to FILE, or remove the task from --queries."
            )
        seen = np.append(queries.content_hashes, self.selecting.content_hashes)
        self._pools = [replace(pool, keep=pool.keep & ~np.isin(pool.hashes, seen)) for pool in pools]
        self._pool = self._pools[0]
        self._copies = len(pools[0].order) - len(self._pool.order)
        if settings.count > len(self._pool.order):
            raise ConfigError(
                f"evaluate: --count is {settings.count:,}, but only {len(self._pool.order):,} training examples can be "
                "selected (those that are also queries are left out). Lower --count."
            )

    @property
    def subject(self) -> dict[str, Any]:
        """JSON values that must be equal for competitors to be compared, beside LM and fine-tuning."""
        settings = self.settings.model_dump(include={"count", "by", "seeds", "max_new_tokens", "seed"})
        corpora = {"queries": self.queries.fingerprint, "selecting": self.selecting.fingerprint}
        return {**corpora, "pool": self._pool.fingerprint, **settings}

    def facts(self) -> dict[str, Any]:
        """Return facts on all rows, as JSON values; ``clusters`` is the task of each query."""
        by = self._selecting_rows
        sizes = {task: {"queries": len(rows), "selecting": len(by[task])} for task, rows in self.rows.items()}
        return {
            "clusters": self.task_of_each,
            "tasks": sizes,
            "selected_by": "the queries themselves" if self.selecting is self.queries else "other queries",
            "examples": len(self._pool.order),
            "examples_left_out_as_queries": self._copies,
            **self.settings.model_dump(mode="json", exclude={"random", "full", "none"}),
        }

    def competitors(self, training: str, progress: OnProgress | None = None) -> list[Competitor]:
        """Return indexes in order, then baselines; *training* is the digest of LM, fine-tuning and answer length."""
        found: list[Competitor] = []
        total, tell = len(self.indexes) * len(self.rows), teller(progress, "selecting")
        for (name, index), pool in zip(self.indexes, self._pools, strict=True):
            picks: list[Pick] = []
            for number, task in enumerate(self.rows, 1):
                asked = index.ask(self.selecting.take(self._selecting_rows[task]))
                best = min_rank(asked, self.settings.count, pool.keep).rows
                picked = np.sort(pool.rows_in(self._pool, best))  # as rows of the first index
                picks += [(task, repetition, picked) for repetition in range(self.settings.seeds)]
                tell(len(found) * len(self.rows) + number, total)
            made = self._competitor(name, index.method, picks, training)
            found.append(replace(made, caution=index.attributor.caution, cost=cost_of(index)))
        return [*found, *(self._competitor(name, name, picks, training) for name, picks in self._baselines())]

    def _baselines(self) -> Iterator[tuple[str, list[Pick]]]:
        everything, nothing = np.sort(self._pool.order), np.empty(0, np.int64)
        places = [(task, repetition) for task in self.rows for repetition in range(self.settings.seeds)]
        if self.settings.random:
            yield RANDOM, [(*place, self._drawn(*place)) for place in places]
        if self.settings.full:
            yield FULL, [(*place, everything) for place in places]
        if self.settings.none:
            yield NONE, [(task, 0, nothing) for task in self.rows]  # without fine-tuning, seeds change nothing

    def _drawn(self, task: str, repetition: int) -> Rows:
        chance = stream(self.settings.seed, "selection", "random", task, repetition)
        drawn = chance.choice(len(self._pool.order), self.settings.count, replace=False)
        return np.sort(self._pool.order[drawn])

    def _competitor(self, name: str, method: str, picks: Sequence[Pick], training: str) -> Competitor:
        choices, values = [], np.array(self._pool.values, dtype=object)
        for task, repetition, train in picks:
            title = "all tasks" if method in (FULL, NONE) else f"task {task}"
            seed = stream_seed(self.settings.seed, "selection", "fine-tune", repetition)
            # Keys are made of texts: equal row numbers of other data would find wrong answers.
            texts, asked = (
                [text.decode() for text in hashes[rows].tolist()]
                for hashes, rows in ((self._pool.hashes, train), (self.queries.content_hashes, self.rows[task]))
            )
            key = json_digest([training, texts, seed if texts else None, asked])[:KEY_DIGITS]
            choices.append(Choice(f"{name}, {title}, seed {repetition}", train, seed, self.rows[task], key))
        shares = [float((values[train] == task).mean()) for task, _, train in picks if len(train)]
        return Competitor(name, method, tuple(choices), float(np.mean(shares)) if shares else None)


def _task_of_each(queries: Corpus, by: str, known: Sequence[str]) -> list[str]:
    found: list[str] = []
    for row, task in enumerate(queries.values(by, known)):
        if task is None:
            raise DataError(
                f'query "{queries[row].id}": has no {by}, which must name the task of the query. Add it, or name the '
                "field with --label-field."
            )
        found.append(task)
    return found


def _rows_by_task(of_each: Sequence[str]) -> dict[str, Rows]:
    names = np.array(of_each, dtype=object)
    return {task: np.flatnonzero(names == task) for task in sorted(set(of_each))}

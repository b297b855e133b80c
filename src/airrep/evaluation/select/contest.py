"""Which examples each competitor fine-tunes on, task by task."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from pydantic import Field

from airrep.arrays import Rows
from airrep.attributors.base import OnProgress
from airrep.corpus.corpus import Corpus
from airrep.errors import ConfigError, DataError
from airrep.evaluation.pool import TrainingPool, check_same_pools, cost_of, text_hashes, whole_corpus
from airrep.evaluation.result import Cost, check_names
from airrep.evaluation.select.answers import Job, Questions, answers_key
from airrep.index.index import Index
from airrep.runtime.artifacts import json_digest
from airrep.runtime.seeding import stream, stream_seed
from airrep.runtime.settings import Settings
from airrep.scoring.min_rank import min_rank

Named: TypeAlias = Sequence[tuple[str, Index]]
"""Indexes with the names of their rows."""

RANDOM, FULL, NONE = "random", "full", "none"
"""Competitors beside the indexes: examples at random, all of them, and the LM as it is."""


class SelectSettings(Settings):
    """Settings of the evaluation by data selection; the defaults are the paper's where it names a value."""

    count: int = Field(default=1000, ge=1)
    """Training examples selected for each task."""
    by: str = "label"
    """The field that holds the task: label, source or a metadata field."""
    seeds: int = Field(default=1, ge=1)
    """Fine-tunes of each selection, in other orders of the data, averaged; each has its own random examples."""
    random: bool = True
    """Also examples drawn at random, of the same number, for each task."""
    full: bool = False
    """Also all training examples: one fine-tune for all tasks."""
    none: bool = True
    """Also the LM as it is."""
    where: str | None = None
    """A filter; only training examples that fulfil it are selected."""
    max_new_tokens: int = Field(default=64, ge=1)
    """Most tokens of an answer."""
    resamples: int = Field(default=1000, ge=1)
    """Bootstrap draws behind each interval."""
    seed: int = 0
    """Of random examples, fine-tunes and draws."""


class Choice(NamedTuple):
    """What one competitor fine-tunes on for one task."""

    task: str
    repetition: int
    train: Rows
    """Rows of the training corpus, ascending; none for the LM as it is."""


@dataclass(frozen=True)
class Competitor:
    """An index, or something to hold it against."""

    name: str
    method: str
    choices: tuple[Choice, ...]
    """For each task, one or several."""
    caution: str = ""
    cost: Cost | None = None


class Contest:
    """Tasks, training examples and competitors, checked; nothing is encoded before :meth:`competitors`.

    All competitors choose among the same examples: those that fulfil the filter and whose texts are not those of a
    query, to be answered or to select by: a method would find the latter in the pool at once, and they are of the task.
    Equal sets of texts become equal rows, whichever index they were chosen from.
    """

    def __init__(self, indexes: Named, queries: Corpus, selecting: Corpus | None, settings: SelectSettings) -> None:
        """Read the texts of the indexes.

        Raises:
            ConfigError: no index, a bad filter, no such field, or fewer examples than are to be selected.
            DataError: two rows of one name, other examples in some index, a query without task, or a task without
                queries to select by.
        """
        if not indexes:
            raise ConfigError("evaluate select: expected at least one index. Name some.")
        beside = {RANDOM: settings.random, FULL: settings.full, NONE: settings.none}
        check_names([*(name for name, _ in indexes), *(name for name, asked in beside.items() if asked)])
        self.indexes, self.queries, self.settings = indexes, queries, settings
        self.selecting = queries if selecting is None else selecting
        pools = [TrainingPool.of(index, settings.by, settings.where) for _, index in indexes]
        check_same_pools([name for name, _ in indexes], pools)
        known = np.array([*text_hashes(queries), *text_hashes(self.selecting)], dtype="S16")
        self.copies = int(np.isin(pools[0].hashes[pools[0].order], known).sum())
        self.pools = [replace(pool, keep=pool.keep & ~np.isin(pool.hashes, known)) for pool in pools]
        self.tasks = rows_by_task(queries, settings.by, indexes[0][1].fields)
        self.selecting_tasks = rows_by_task(self.selecting, settings.by, indexes[0][1].fields)
        self._check()

    def _check(self) -> None:
        lacking = next((task for task in self.tasks if task not in self.selecting_tasks), None)
        if lacking is not None:
            raise DataError(
                f"--selecting: has no query of the task '{lacking}'; expected some of each. Add them, or leave the "
                "task out of the queries."
            )
        if self.settings.count > len(self.pools[0].order):
            raise ConfigError(
                f"evaluate select: {self.settings.count:,} examples are to be selected of {len(self.pools[0].order):,} "
                "that are no query; expected no more than there are. Lower --count."
            )

    @cached_property
    def train(self) -> Corpus:
        """All rows of the first index."""
        return whole_corpus(self.indexes[0][1])

    @cached_property
    def task_of_each(self) -> list[str]:
        """The task of each query, in order."""
        return [str(task) for task in self.queries.values(self.settings.by, self.indexes[0][1].fields)]

    @property
    def subject(self) -> dict[str, Any]:
        """What decides which competitors can be compared, but for LM and fine-tuning."""
        settings = self.settings.model_dump(include={"count", "by", "seeds", "max_new_tokens", "seed"})
        corpora = {"queries": self.queries.fingerprint, "selecting": self.selecting.fingerprint}
        return {**corpora, "pool": self.pools[0].fingerprint, **settings}

    def competitors(self, progress: OnProgress | None = None) -> list[Competitor]:
        """The indexes in order, then those that were asked for beside them.

        Args:
            progress: told about selections.
        """
        found, total = [], len(self.indexes) * len(self.tasks)
        for number, (name, index) in enumerate(self.indexes):
            choices = []
            for done, task in enumerate(self.tasks, number * len(self.tasks) + 1):
                chosen = self._picked(number, index, task)
                choices += [Choice(task, repetition, chosen) for repetition in range(self.settings.seeds)]
                if progress is not None:
                    progress(done, total)
            found.append(Competitor(name, index.method, tuple(choices), index.attributor.caution, cost_of(index)))
        return [*found, *self._others()]

    def _picked(self, number: int, index: Index, task: str) -> Rows:
        """Rows, in the first index, of the examples that an index picks for a task by min-rank."""
        pool = self.pools[number]
        features = index.encode_queries(self.selecting.take(self.selecting_tasks[task]))
        picked = min_rank(features, index.blocks, self.settings.count, pool.keep).rows
        same = np.empty(len(pool.hashes), np.int64)
        same[pool.order] = self.pools[0].order
        return np.sort(same[picked])

    def _others(self) -> Iterator[Competitor]:
        settings, order = self.settings, self.pools[0].order
        places = [(task, repetition) for task in self.tasks for repetition in range(settings.seeds)]
        if settings.random:
            choices = (Choice(task, repetition, self._drawn(task, repetition)) for task, repetition in places)
            yield Competitor(RANDOM, RANDOM, tuple(choices))
        if settings.full:
            everything = np.sort(order)
            yield Competitor(FULL, FULL, tuple(Choice(*place, everything) for place in places))
        if settings.none:
            nothing = np.empty(0, np.int64)
            yield Competitor(NONE, NONE, tuple(Choice(task, 0, nothing) for task in self.tasks))

    def _drawn(self, task: str, repetition: int) -> Rows:
        chance = stream(self.settings.seed, "selection", "random", task, repetition)
        drawn = chance.choice(len(self.pools[0].order), self.settings.count, replace=False)
        return np.sort(self.pools[0].order[drawn])

    def same_task_share(self, competitor: Competitor) -> float | None:
        """Share of the chosen examples that are of the task they were chosen for; None where none are chosen."""
        values = np.array(self.pools[0].values, dtype=object)
        shares = [float((values[each.train] == each.task).mean()) for each in competitor.choices if len(each.train)]
        return float(np.mean(shares)) if shares else None

    def questions(self, choice: Choice, settings: str) -> Questions:
        """The queries of a choice's task, with the key of what a fine-tune on it answers.

        Args:
            choice: what is fine-tuned on.
            settings: digest of the LM, its fine-tuning and the length of answers.
        """
        rows, texts = self.tasks[choice.task], self.pools[0].hashes[choice.train]
        asked = self._query_hashes[rows].tolist()
        key = answers_key(settings, [text.decode() for text in texts.tolist()], self._seed(choice.repetition), asked)
        return Questions(choice.task, rows, key)

    @cached_property
    def _query_hashes(self) -> np.ndarray:
        return np.array(text_hashes(self.queries), dtype=object)

    def _seed(self, repetition: int) -> int:
        return stream_seed(self.settings.seed, "selection", "fine-tune", repetition)

    def jobs(self, competitors: Sequence[Competitor], settings: str) -> list[Job]:
        """Each set of examples once for each seed, with all tasks that it is to be asked for.

        Args:
            competitors: whose choices are to be fine-tuned on.
            settings: as for :meth:`questions`.
        """
        found: dict[tuple[str, int], Job] = {}
        for competitor in competitors:
            for choice in competitor.choices:
                asked = self.questions(choice, settings)
                place = (json_digest(choice.train.tolist()), choice.repetition if len(choice.train) else 0)
                job = found.get(place)
                if job is None:
                    name = _job_name(competitor, choice)
                    found[place] = Job(name, choice.train, self._seed(choice.repetition), (asked,))
                elif asked.key not in {each.key for each in job.questions}:
                    found[place] = replace(job, questions=(*job.questions, asked))
        return list(found.values())


def rows_by_task(queries: Corpus, by: str, known: Sequence[str] = ()) -> Mapping[str, Rows]:
    """The rows of each task, in order of names.

    Args:
        queries: of all tasks.
        by: the field that holds the task.
        known: metadata fields that are no error even if no query has them.

    Raises:
        DataError: a query has no task.
    """
    found: dict[str, list[int]] = {}
    for row, task in enumerate(queries.values(by, known)):
        if task is None:
            raise DataError(
                f'query "{queries[row].id}": has no {by}; expected one for each, which is its task. Add it, or name '
                "the field with --label-field."
            )
        found.setdefault(task, []).append(row)
    return {task: np.array(found[task], np.int64) for task in sorted(found)}


def _job_name(competitor: Competitor, choice: Choice) -> str:
    if competitor.method in (FULL, NONE):
        return f"{competitor.method}, all tasks, seed {choice.repetition}"
    return f"{competitor.name}, task {choice.task}, seed {choice.repetition}"

"""Settings and tasks of a data selection: queries to answer and to select by."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic import Field

from airrep.arrays import Rows
from airrep.corpus.corpus import Corpus
from airrep.errors import DataError
from airrep.runtime.settings import Settings


class SelectSettings(Settings):
    """Settings of the evaluation by data selection; the defaults are the paper's where it names a value."""

    count: int = Field(default=1000, ge=1)
    """Training examples selected for each task."""
    by: str = "label"
    """Field that holds the task: label, source or a metadata field."""
    seeds: int = Field(default=1, ge=1)
    """Fine-tunes of each selection, averaged. Each has another order of the data, and its own random examples."""
    random: bool = True
    """Also examples at random. As many, for each task."""
    full: bool = False
    """Also all training examples. That is one fine-tune for all tasks."""
    none: bool = True
    """Also the LM as it is."""
    where: str | None = None
    """Only training examples that fulfil this, such as 'label == "gsm8k"'."""
    max_new_tokens: int = Field(default=64, ge=1)
    """Most tokens of an answer."""
    resamples: int = Field(default=1000, ge=1)
    """Bootstrap draws behind each interval."""
    seed: int = 0
    """Of random examples and fine-tunes. The draws behind intervals have it too."""


class Tasks:
    """The tasks in order of names, with the queries of each."""

    def __init__(self, queries: Corpus, selecting: Corpus | None, by: str, known: Sequence[str] = ()) -> None:
        """Read the texts and tasks of the queries to be answered, and of those to select by; None for the same.

        Raises:
            DataError: a query without task, or a task without queries to select by.
        """
        self.queries, self.selecting = queries, queries if selecting is None else selecting
        self.of_each = _task_of_each(queries, by, known)
        """Task of each query."""
        self.rows = _rows_by_task(self.of_each)
        """Queries of each task."""
        self.selecting_rows = self.rows if selecting is None else _rows_by_task(_task_of_each(selecting, by, known))
        lacking = next((task for task in self.rows if task not in self.selecting_rows), None)
        if lacking is not None:
            raise DataError(
                f"--selecting: has no query of the task '{lacking}'; expected some of each. Add them, or leave the "
                "task out of the queries."
            )

    @property
    def seen(self) -> np.ndarray:
        """Content hashes of all queries."""
        if self.selecting is self.queries:
            return self.queries.content_hashes
        return np.append(self.queries.content_hashes, self.selecting.content_hashes)

    def texts(self, task: str) -> list[str]:
        """Content hashes of the queries to be answered, in order."""
        return [text.decode() for text in self.queries.content_hashes[self.rows[task]].tolist()]

    def facts(self) -> dict[str, Any]:
        """Facts for reports, as JSON values; ``clusters`` is the task of each query."""
        pairs = ((task, len(rows), len(self.selecting_rows[task])) for task, rows in self.rows.items())
        sizes = {task: {"queries": asked, "selecting": selecting} for task, asked, selecting in pairs}
        by = "the queries themselves" if self.selecting is self.queries else "other queries"
        return {"clusters": self.of_each, "tasks": sizes, "selected_by": by}


def _task_of_each(queries: Corpus, by: str, known: Sequence[str]) -> list[str]:
    found: list[str] = []
    for row, task in enumerate(queries.values(by, known)):
        if task is None:
            raise DataError(
                f'query "{queries[row].id}": has no {by}; expected one for each, which is its task. Add it, or name '
                "the field with --label-field."
            )
        found.append(task)
    return found


def _rows_by_task(of_each: Sequence[str]) -> dict[str, Rows]:
    names = np.array(of_each, dtype=object)
    return {task: np.flatnonzero(names == task) for task in sorted(set(of_each))}

"""Unigram F1 of answers, for every competitor of a data selection."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from airrep.errors import TrainingError
from airrep.evaluation.result import Difference, Row
from airrep.evaluation.select.answers import AnswerFiles
from airrep.evaluation.select.contest import Competitor, Contest
from airrep.evaluation.statistics.means import Gap, TaskResamples, task_means

_WORD = re.compile(r"\w+")


def unigram_f1(answer: str, reference: str) -> float:
    """How much two texts agree in their words, whatever their order: between 0 and 1, higher = better.

    Words are what is left of the lower-case text when it is split at every character that is no letter, digit or
    underscore (Unicode's), nothing else is left out. With c = Σ_w min(count of w in either), precision c / words of
    the answer and recall c / words of the reference, F1 is their harmonic mean 2c / (words of both).

    Texts without any word (empty, or signs alone) score 1 if they are equal, spaces around them aside, and 0 if not;
    if one alone has no word, 0. Where words are written without spaces between them, a whole clause is one word.

    Args:
        answer: what was generated.
        reference: what was expected.
    """
    given, wanted = words(answer), words(reference)
    if not given and not wanted:
        return float(answer.strip() == reference.strip())
    common = sum((given & wanted).values())
    return 2 * common / (given.total() + wanted.total())


def words(text: str) -> Counter[str]:
    """How often each word occurs in a text."""
    return Counter(_WORD.findall(text.lower()))


def f1_rows(contest: Contest, competitors: Sequence[Competitor], files: AnswerFiles, settings: str) -> tuple[Row, ...]:
    """One row for each competitor, compared with the first.

    Args:
        contest: tasks and references.
        competitors: in the order of rows.
        files: the answers; those that are missing belong to fine-tunes that failed.
        settings: digest of the LM, its fine-tuning and the length of answers.

    Raises:
        TrainingError: all fine-tunes of a competitor failed.
    """
    rows: list[Row] = []
    for competitor in competitors:
        rows.append(
            _row(contest, competitor, _Answers(contest, competitor, files, settings), rows[0] if rows else None)
        )
    return tuple(rows)


class _Answers:
    """F1 of one competitor's answers."""

    def __init__(self, contest: Contest, competitor: Competitor, files: AnswerFiles, settings: str) -> None:
        references = [query.response for query in contest.queries]
        found: dict[int, list[float]] = {}
        wordless: list[bool] = []
        for choice in competitor.choices:
            questions = contest.questions(choice, settings)
            answers = files.read(questions)
            for row, answer in [] if answers is None else zip(questions.rows.tolist(), answers, strict=True):
                found.setdefault(row, []).append(unigram_f1(answer, references[row]))
                wordless.append(not words(answer))
        if not found:
            raise TrainingError(f"{competitor.name}: every fine-tune failed; expected some that did not. Look at why.")
        self.f1 = np.array([np.mean(found[row]) if row in found else np.nan for row in range(len(references))])
        """``(q,)`` mean over the repetitions that did not fail; NaN where all did."""
        self.wordless = float(np.mean(wordless))
        """Share of answers without any word."""


def _row(contest: Contest, competitor: Competitor, answers: _Answers, first: Row | None) -> Row:
    settings, tasks, values = contest.settings, tuple(contest.task_of_each), answers.f1
    across, within = (TaskResamples(tasks, level, settings.resamples, settings.seed) for level in (True, False))
    value, interval = across.estimate(values)
    gap, inner = (None if first is None else each.difference(values, first.per_query) for each in (across, within))
    more = {
        "by_task": task_means(values, tasks),
        "same_task_share": contest.same_task_share(competitor),
        "wordless_answers": answers.wordless,
        "these_tasks": {"interval": list(within.estimate(values).interval), "minus_first": _json(inner)},
    }
    return Row(
        competitor.name,
        competitor.method,
        value,
        interval,
        values,
        difference=None if gap is None else Difference(*gap),
        cost=competitor.cost,
        caution=competitor.caution,
        more=more,
    )


def _json(gap: Gap | None) -> dict[str, Any] | None:
    return None if gap is None else {**gap._asdict(), "interval": list(gap.interval)}


def contest_facts(contest: Contest) -> dict[str, Any]:
    """What holds for all rows, as JSON values; ``clusters`` is the task of each query."""
    own = contest.selecting is contest.queries
    tasks = {
        task: {"queries": len(rows), "selecting": len(contest.selecting_tasks[task])}
        for task, rows in contest.tasks.items()
    }
    return {
        "clusters": contest.task_of_each,
        "tasks": tasks,
        "selected_by": "the queries themselves" if own else "other queries",
        "examples": len(contest.pools[0].order),
        "examples_left_out_as_queries": contest.copies,
        **contest.settings.model_dump(mode="json", exclude={"random", "full", "none"}),
    }

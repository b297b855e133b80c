"""Unigram F1 of answers, for every competitor of a data selection."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from airrep.corpus.words import Words, plain
from airrep.errors import TrainingError
from airrep.evaluation.result import Difference, Row
from airrep.evaluation.select.answers import AnswerFiles
from airrep.evaluation.select.competitors import Competitor, Contest
from airrep.evaluation.statistics.means import Gap, TaskResamples, task_means

_WORDS = Words()


def unigram_f1(answer: str, reference: str) -> float:
    """How much two texts agree in their words, whatever their order: between 0 and 1, higher = better.

    Words are what is left of the lower-case text when it is split at every character that is no letter with its
    marks, digit or underscore (Unicode's), nothing else is left out. With c = Σ_w min(count of w in either), precision
    c / words of the answer and recall c / words of the reference, F1 is their harmonic mean 2c / (words of both).

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
    return Counter(_WORDS.findall(plain(text).lower()))


def f1_rows(contest: Contest, competitors: Sequence[Competitor], files: AnswerFiles) -> tuple[Row, ...]:
    """One row for each competitor, compared with the first; answers are missing where fine-tunes failed.

    Raises:
        TrainingError: all fine-tunes of a competitor failed.
    """
    references, rows = [query.response for query in contest.tasks.queries], list[Row]()
    for competitor in competitors:
        values, wordless = _f1(competitor, references, files)
        rows.append(_row(contest, competitor, values, wordless, rows[0] if rows else None))
    return tuple(rows)


def _f1(competitor: Competitor, references: Sequence[str], files: AnswerFiles) -> tuple[np.ndarray, float]:
    """Mean F1 of each query over the repetitions that succeeded, NaN without one; and the share of wordless answers."""
    found: dict[int, list[float]] = {}
    wordless: list[bool] = []
    for choice in competitor.choices:
        answers = files.read(choice)
        for row, answer in [] if answers is None else zip(choice.queries.tolist(), answers, strict=True):
            found.setdefault(row, []).append(unigram_f1(answer, references[row]))
            wordless.append(not words(answer))
    if not found:
        raise TrainingError(f"{competitor.name}: every fine-tune failed; expected some that did not. Look at why.")
    values = np.array([np.mean(found[row]) if row in found else np.nan for row in range(len(references))])
    return values, float(np.mean(wordless))


def _row(contest: Contest, competitor: Competitor, values: np.ndarray, wordless: float, first: Row | None) -> Row:
    settings, tasks = contest.settings, tuple(contest.tasks.of_each)
    # Across tasks the interval is of other tasks, within of these tasks with other queries.
    across, within = (TaskResamples(tasks, level, settings.resamples, settings.seed) for level in (True, False))
    value, interval = across.estimate(values)
    gap, inner = (None if first is None else each.difference(values, first.per_query) for each in (across, within))
    more = {
        "by_task": task_means(values, tasks),
        "same_task_share": competitor.same_task_share,
        "wordless_answers": wordless,
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

"""Which training examples taught an answer, or in place of a better one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from airrep.answers.answer import Answer
from airrep.answers.spread import Leaders, Moments, Spread
from airrep.answers.tokens import Token, token_scores
from airrep.answers.verdicts.verdict import verdicts
from airrep.arrays import Features, Mask, Rows
from airrep.attributors.base import OnProgress
from airrep.corpus.corpus import Example
from airrep.corpus.inputs import given_or_typed
from airrep.index.contrast import Better, Question
from airrep.index.index import Index, IndexLike, Queries, as_index
from airrep.index.reasons import Reasons, Scored
from airrep.index.results.hits import Record, Verdict, fields_of
from airrep.index.results.provenance import Provenance
from airrep.index.results.summary import Summary, summarise, with_summary
from airrep.index.why import Why
from airrep.scoring.blocks import Block, at_most
from airrep.scoring.scores import stream_scores

_NUMBERS = ("rank", "score", "deviations", "answer_score", "better_score", "row")
TOGETHER = 64
"""Answers explained at a time."""


@dataclass(frozen=True)
class Lesson:
    """One training example that teaches an answer."""

    rank: int
    """1 = teaches it most."""
    score: float
    """Influence score; with a better answer, the contrast (:class:`airrep.index.contrast.Question`)."""
    deviations: float
    """How far the score lies above the mean of all examples, in deviations of their scores."""
    answer_score: float
    """Influence score for the answer."""
    better_score: float | None
    """Influence score for the better answer; None without one."""
    row: int
    """Row number in the index."""
    example: Record
    why: Why | None = None
    """What makes up the score for the answer, where that was asked for."""
    better_why: Why | None = None
    """What makes up the score for the better answer, likewise."""
    tokens: tuple[Token, ...] | None = None
    """What it does for each word of the answer, in order, where that was asked for."""


@dataclass(frozen=True)
class Explained:
    """An answer, the better one if there is one, and what teaches it in its place."""

    answer: Record
    better: Record | None
    lessons: tuple[Lesson, ...]
    verdict: Verdict | None = None
    """Whether any of it stands out; None where the method scores its own queries alone."""


@dataclass(frozen=True, repr=False)
class ExplainResult(Answer):
    """What taught each of several answers."""

    answers: tuple[Explained, ...]
    provenance: Provenance
    kind: ClassVar[str] = "explain"

    def _records(self) -> Iterator[dict[str, Any]]:
        for one in self.answers:
            for lesson in one.lessons:
                numbers = {name: getattr(lesson, name) for name in _NUMBERS}
                yield {"query": one.answer.id, **numbers, **fields_of(lesson.example)}

    def in_common(self) -> Summary:
        """What taught several of the answers, and the sources, labels and openings of that."""
        return summarise([one.lessons for one in self.answers])

    def to_dict(self) -> dict[str, Any]:
        return with_summary(super().to_dict(), self.in_common())


def explain(
    index: IndexLike,
    answers: Example | Queries | None = None,
    better: Better | None = None,
    k: int = 10,
    *,
    prompt: str | None = None,
    response: str | None = None,
    where: str | None = None,
    why: bool = False,
    tokens: bool = False,
    progress: OnProgress | None = None,
) -> ExplainResult:
    """The training examples that teach each answer most; with *better*, in place of a better answer.

    The contrast of a training example z is (f − f')·(|f| + |f'|), with f = f(x, z) for the prompt and the answer, and
    f' = f(x', z) for the prompt and the better answer: what is above 0 pushes to the answer and away from the better
    one. All rows are scored, in float64, so the ranking is exact; ties go by row.

    Args:
        index: the index to ask; or its path.
        answers: prompts with the answers to explain; or one, by its *prompt* and *response*.
        better: better answers: a text, the name of a field of the answers' records, or the same prompts with better
            answers, in any order.
        k: how many training examples for each; all, where fewer fulfil the filter.
        prompt: of the one answer to explain.
        response: the answer itself, in place of *answers*.
        where: a filter; only examples that fulfil it count.
        why: tell what each channel gave, and which words are the same.
        tokens: tell which words of the answer each example helps; encodes the answer once for each word, or
            :data:`~airrep.answers.tokens.PIECES` times where it is long.
        progress: called with the number of encoded texts.

    Raises:
        ConfigError: k is below 1, there is no answer, one has no better one, or a filter is bad or fulfilled by no
            example.

    Example:
        >>> told = airrep.explain(index, queries[0], k=3)
        >>> [lesson.rank for lesson in told.answers[0].lessons]
        [1, 2, 3]
    """
    index = as_index(index)
    answers = given_or_typed(answers, prompt, response, "answers")
    question = Question.of(answers, better, index.asking, "answers")
    asked, pairs = list(question.queries), question.better
    keep = index.mask(where)
    k = at_most("explain: k", k, int(keep.sum()))
    encoded = index.encode_question(question, progress)
    reasons = Reasons(index, index.attributor) if why else None
    found: list[Explained] = []
    for start in range(0, len(asked), TOGETHER):
        places = np.arange(start, min(start + TOGETHER, len(asked)))
        both = places if pairs is None else np.concatenate([places, places + len(asked)])
        some = replace(
            question, queries=asked[start : start + TOGETHER], better=pairs and pairs[start : start + TOGETHER]
        )
        ranked = _rank(some, encoded[both], index.blocks, keep, k)
        judged = verdicts(index, some, encoded[both], keep)
        for number, place in enumerate(places.tolist()):
            other, lessons = None if pairs is None else pairs[place], ranked.lessons(number, index)
            one = Explained(asked[place], other, lessons, judged[number])
            one = one if reasons is None else _told(one, reasons, encoded, place, len(asked))
            found.append(_by_token(one, index, asked[place]) if tokens else one)
    return ExplainResult(tuple(found), question.told(index.provenance(keep=keep)))


@dataclass(frozen=True)
class _Ranked:
    """The leading rows of a few answers."""

    rows: Rows
    """``(q, k)``."""
    values: np.ndarray
    """``(q, k)``: scores, or contrasts."""
    parts: dict[int, np.ndarray]
    """Of each row that leads somewhere the scores for all answers, then for all better ones."""
    spread: Spread

    def lessons(self, number: int, index: Index) -> tuple[Lesson, ...]:
        """What teaches one of the answers."""
        q, found = len(self.rows), []
        # As elsewhere numbers are told in float32, whose digits do not depend on shards and other answers.
        values = self.values[number].astype(np.float32)
        effects = self.spread.effects(self.values)[number].astype(np.float32)
        for rank, row in enumerate(self.rows[number].tolist(), start=1):
            part = self.parts[row].astype(np.float32)
            better = float(part[q + number]) if len(part) > q else None
            lesson = Lesson(
                rank,
                float(values[rank - 1]),
                float(effects[rank - 1]),
                float(part[number]),
                better,
                row,
                index.example(row),
            )
            found.append(lesson)
        return tuple(found)


def _rank(question: Question, encoded: Features, blocks: Sequence[Block], keep: Mask, k: int) -> _Ranked:
    """Rank all rows for the answers of a question."""
    q = len(question.queries)
    moments, leaders = Moments(q), Leaders(q, k)
    for rows, values in stream_scores(*question.ranked(encoded, blocks), keep):
        moments.see(values)
        leaders.see(rows, values)
    chosen = np.zeros_like(keep)
    chosen[leaders.rows] = True
    parts: dict[int, np.ndarray] = {}
    for rows, scores in stream_scores(encoded, blocks, chosen):
        parts |= zip(rows.tolist(), scores.T, strict=True)
    return _Ranked(leaders.rows, leaders.values, parts, moments.spread)


def _told(one: Explained, reasons: Reasons, encoded: Features, place: int, count: int) -> Explained:
    """An explained answer, with the reasons of its scores."""
    scored = [Scored(lesson.row, lesson.answer_score) for lesson in one.lessons]
    whys: list[Why] = reasons.of(one.answer, encoded[[place]], scored)
    others: list[Why | None] = [None] * len(whys)
    if one.better is not None:
        scored = [Scored(lesson.row, lesson.better_score or 0.0) for lesson in one.lessons]
        others = [*reasons.of(one.better, encoded[[place + count]], scored)]
    told = zip(one.lessons, whys, others, strict=True)
    return replace(one, lessons=tuple(replace(lesson, why=why, better_why=other) for lesson, why, other in told))


def _by_token(one: Explained, index: Index, answer: Example) -> Explained:
    """An explained answer, with what each lesson does for its words."""
    found = token_scores(index, answer, [lesson.row for lesson in one.lessons])
    told = zip(one.lessons, found, strict=True)
    return replace(one, lessons=tuple(replace(lesson, tokens=tuple(tokens)) for lesson, tokens in told))

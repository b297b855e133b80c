"""Parts of answers as JSON: hits with reasons, the verdict, a proof's command."""

import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from airrep.answers.spread import top_beside_spread
from airrep.answers.verdicts.verdict import verdicts
from airrep.arrays import Mask
from airrep.explorer.requests import DEEPEST
from airrep.explorer.served import ServedIndex
from airrep.explorer.texts import example_json, why_json
from airrep.index.contrast import Question
from airrep.index.reasons import Reasons, Scored
from airrep.index.results.summary import FIRST, Summary
from airrep.index.why import Why

BASKET = "basket.jsonl"
"""File that names the examples of a command where they are many."""


class Answers:
    """What one index says of one query, or of an answer in place of a better one."""

    def __init__(self, index: ServedIndex, question: Question) -> None:
        self._index, self._question = index, question
        self._encoded = index.encode_question(question)
        self._reasons = Reasons(index, index.attributor)

    def hits(self, found: Iterable[tuple[int, float, float]], start: int) -> list[dict[str, Any]]:
        """Examples as lists show them, from their rows, scores and deviations."""
        told = []
        for rank, (row, score, deviations) in enumerate(found, start + 1):
            example = self._index.example(row)
            why, numbers = self._why(row), {"rank": rank, "row": row, "score": score, "deviations": deviations}
            own = {**numbers, **self._parts(row), **example_json(example, why=why)}
            told.append({**own, **why_json(self._question.queries[0], example, why)})
        return told

    def of_row(self, row: int) -> dict[str, Any]:
        """Score and reasons of one example, whole."""
        score = self._index.score_of(self._question, row)
        spread = self._index.ranking(self._question, self._index.live, DEEPEST).spread
        why = self._why(row)
        told = why_json(self._question.queries[0], self._index.example(row), why, None)
        return {"score": score, "deviations": spread.of_one(score), **self._parts(row), **told}

    def _why(self, row: int) -> Why:
        scored = Scored(row, self._index.score_of(self._question, row))
        return self._question.reasons(self._reasons, self._encoded, 0, [scored])[0]

    def _parts(self, row: int) -> dict[str, float]:
        """The scores for the answer and for the better one, of a contrast."""
        if self._question.better is None:
            return {}
        answer, better = self._index.score_row(self._encoded, row).tolist()
        return {"answer_score": answer, "better_score": better}


def verdict_json(index: ServedIndex, question: Question, keep: Mask) -> dict[str, Any] | None:
    """Whether anything of the kept rows stands out; None where the method cannot tell."""
    encoded = index.encode_question(question)
    (found,) = verdicts(index, question, encoded, keep)
    return None if found is None else {"kind": found.kind, "text": found.text}


def common(index: ServedIndex, question: Question) -> Summary:
    """What the first examples of several queries have in common."""
    return top_beside_spread(index, question.queries, min(FIRST, len(index)), question.better).in_common()


def prove_command(index: ServedIndex, question: Question, ids: Sequence[str] | None) -> str:
    """The command that proves by fine-tunes what some examples taught; without ids, those that a file names."""
    query = question.queries[0]
    rows = ["--from", BASKET] if ids is None else [word for one in ids for word in ("--rows", one)]
    better = [] if question.better is None else ["--better", question.better[0].response]
    lm = str(index.manifest["settings"].get("lm") or "MODEL")
    asked = ["--prompt", query.prompt, "--response", query.response, *better]
    return shlex.join(["airrep", "prove", str(index.path), *rows, "--lm", lm, *asked])

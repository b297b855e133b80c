"""Questions: queries, with the better answer to each if there is one."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeAlias, TypeVar

import numpy as np

from airrep.attributors.by_token import WordScores
from airrep.corpus.corpus import Example
from airrep.corpus.inputs import QueriesLike, as_examples
from airrep.errors import ConfigError, near
from airrep.index.results.result import Provenance
from airrep.index.why import Reasons, Scored, Why
from airrep.scoring.asked import Asked
from airrep.scoring.contrast import ContrastAsked

Better: TypeAlias = QueriesLike
"""Better answers: a text, the name of a field of the queries that holds one, or examples with the same prompts."""

CONTRAST = "score for the answer minus score for the better answer"
RANKED = "score for the answer minus score for the better answer, times the sum of their absolute values"
AGAINST_SIGN = "above 0 = teaches the answer in place of the better one"
TOWARDS_SIGN = "above 0 = teaches the better answer in place of the other"
FIELD_PARTS = 60
"""Characters of a text that is shown where it names no field."""

Numbers = TypeVar("Numbers", bound=np.ndarray)


@dataclass(frozen=True)
class Question:
    """Queries that are asked about; with better answers, what teaches the one in place of the other.

    With f the score for the prompt and the answer that the model gave, and f' that for the prompt and the better
    answer, a training example is ranked by its contrast (f − f')·(|f| + |f'|)
    (:func:`airrep.scoring.contrast.contrast_scores`). Above 0 it pushes to the answer, below 0 to the better one.
    Scores of groups are plain differences. Where an answer has a span, the better one has it in the same place.
    """

    queries: Sequence[Example]
    better: tuple[Example, ...] | None = None

    @classmethod
    def of(
        cls,
        queries: QueriesLike,
        better: Better | None = None,
        options: Mapping[str, Any] | None = None,
        where: str = "queries",
    ) -> Self:
        """The question that queries ask; *options* are of reading files and records.

        ConfigError: there are no queries; a query has no better answer, or one that reads as the answer does.
        """
        asked = as_examples(queries, where, options)
        if better is None:
            return cls(asked)
        if isinstance(better, str):
            found = _of_text(asked, better)
        else:
            found = _of_examples(asked, as_examples(better, "better", options))
        for answer, other in zip(asked, found, strict=True):
            if answer.response.strip() == other.response.strip():
                raise ConfigError(
                    f"answer '{answer.id}': its better answer is the same text. Give a better answer that differs."
                )
        return cls(asked, tuple(map(_spanned_alike, asked, found)))

    @property
    def all(self) -> Sequence[Example]:
        """The answers, then the better ones."""
        return self.queries if self.better is None else [*self.queries, *self.better]

    def less_better(self, values: Numbers) -> Numbers:
        """Values of :attr:`all`, those of the better answers taken from those of the answers; ``(q, …)``."""
        if self.better is None:
            return values
        q = len(self.queries)
        less: Numbers = values[:q] - values[q:]
        return less

    def ranked(self, asked: Asked, *, towards: bool = False) -> Asked:
        """Return what examples are ranked by: scores, or contrasts.

        Args:
            asked: all of :attr:`all`.
            towards: what teaches the better answers in place of the queries' comes first, not the reverse.
        """
        if self.better is None:
            return asked
        q = len(self.queries)
        return ContrastAsked(asked.chosen(slice(0, q)), asked.chosen(slice(q, None)), -1.0 if towards else 1.0)

    def told(self, provenance: Provenance, *, towards: bool = False, pooled: bool = False) -> Provenance:
        """Provenance of scores of single examples, or of *pooled* ones, which says what they measure."""
        if self.better is None:
            return provenance
        return replace(provenance, units=CONTRAST if pooled else RANKED, sign=TOWARDS_SIGN if towards else AGAINST_SIGN)

    def reasons(
        self, reasons: Reasons, asked: Asked, place: int, hits: Sequence[Scored], *, tokens: bool = False
    ) -> list[Why]:
        """Why hits of one query have their scores; of a contrast, what each channel gave to it.

        Args:
            reasons: of the index.
            asked: all of :attr:`all`.
            place: number of the query.
            hits: rows of the index, with their scores or contrasts.
            tokens: tell pairs of words too; of a contrast those of the answer, with what the better one takes apart.

        Raises:
            ConfigError: as :meth:`Reasons.of`.
        """
        of_answer = reasons.of(self.queries[place], asked, place, hits, tokens=tokens)
        if self.better is None:
            return of_answer
        of_better = reasons.of(self.better[place], asked, place + len(self.queries), hits)
        return [_less(*three) for three in zip(of_answer, of_better, hits, strict=True)]


def _less(why: Why, other: Why, hit: Scored) -> Why:
    """The parts of a contrast by channel, which add up to it; and the words that the row shares with the answer."""
    parts = {name: part - other.channels[name] for name, part in why.channels.items()}
    difference = sum(parts.values())
    scale = hit.score / difference if difference else 0.0
    alone = len(parts) == 1
    given = dict.fromkeys(parts, hit.score) if alone else {name: scale * part for name, part in parts.items()}
    tokens = None if why.tokens is None else _scaled(why.tokens, scale, given, why.channels)
    return Why(given, why.same_words, () if alone else why.predicted, tokens)


def _scaled(tokens: WordScores, scale: float, given: Mapping[str, float], before: Mapping[str, float]) -> WordScores:
    """Pairs of words of an answer as parts of a contrast; the rest has what the better answer takes."""
    scores = tuple(tuple(scale * part for part in row) for row in tokens.scores)
    rest = {name: given[name] - scale * (before[name] - tokens.rest[name]) for name in given}
    return WordScores(tokens.query, tokens.example, scores, rest)


def answered(example: Example, response: str) -> Example:
    """An example with another answer to its prompt, after the same messages."""
    chat = example.sides[0].chat
    if chat is not None and "messages" in chat:
        asked = list(chat["messages"])[: chat.get("asked", -1)]
        role = chat["messages"][-1]["role"]
        kept = {name: part for name, part in chat.items() if name != "asked"}
        chat = {**kept, "messages": [*asked, {"role": role, "content": response}]}
    return Example(example.prompt, response, label=example.label, source=example.source, chat=chat)


def _spanned_alike(answer: Example, better: Example) -> Example:
    """A better answer, whose span, if the answer has one, is what stands in the place of that."""
    if (answer.span is None) == (better.span is None):
        return better
    if answer.span is None:
        raise ConfigError(
            f"answer '{answer.id}': only its better answer has a marked span. Mark a span in the answer too."
        )
    before, after = answer.response[: answer.span[0][0]], answer.response[answer.span[-1][1] :]
    text, stop = better.response, len(better.response) - len(after)
    if not (text.startswith(before) and text.endswith(after) and text[len(before) : max(stop, 0)].strip()):
        raise ConfigError(
            f"answer '{answer.id}': outside the marked span, its better answer has other words. Mark a span in the "
            "better answer too."
        )
    return replace(better, span=((len(before), stop),))


def _of_text(asked: Sequence[Example], better: str) -> list[Example]:
    """Better answers that a field of the queries holds, or that one text is."""
    if any(better in example.metadata for example in asked):
        return [answered(example, _field(example, better)) for example in asked]
    as_examples(better, "better")  # refuses the name of a file
    if len({example.prompt for example in asked}) > 1:
        shown = better if len(better) <= FIELD_PARTS else better[:FIELD_PARTS] + "…"
        fields = {name for example in asked for name in example.metadata}
        raise ConfigError(
            f"better: '{shown}' is not a field of the queries, and one text cannot answer several prompts. "
            f"{near(better, fields, 'Give the name of a field, or a file of better answers.')}"
        )
    if not better.strip():
        raise ConfigError("better is blank. Give the text of a better answer.")
    return [answered(example, better) for example in asked]


def _field(example: Example, name: str) -> str:
    value = example.metadata.get(name)
    if not isinstance(value, str) or not value.strip():
        told = "is empty" if value is None or value == "" else f"holds no text ({type(value).__name__})"
        raise ConfigError(
            f"answer '{example.id}': its field '{name}' {told}. Write a better answer there, or remove this answer."
        )
    return value


def _of_examples(asked: Sequence[Example], better: Sequence[Example]) -> list[Example]:
    """Better answers by their prompts, or one text for each answer."""
    if any(one.prompt for one in better) or not any(one.prompt for one in asked):
        return match_better(asked, better)
    if len(better) != len(asked):
        raise ConfigError(
            f"better: there are {len(better):,} texts for {len(asked):,} answers. Give one text for each answer, or "
            "examples with the same prompts."
        )
    pairs = zip(asked, better, strict=True)
    return [replace(answered(example, one.response), span=one.span) for example, one in pairs]


def match_better(answers: Sequence[Example], better: Sequence[Example]) -> list[Example]:
    """The better answer to the prompt of each answer; of several to one prompt, each its own, in order.

    ConfigError: a prompt has none, or not as many.
    """
    waiting: defaultdict[str, list[Example]] = defaultdict(list)
    for one in reversed(better):
        waiting[one.prompt].append(one)
    matched = []
    for answer in answers:
        if not waiting[answer.prompt]:
            raise ConfigError(
                f"answer '{answer.id}': a better answer with exactly the same prompt is missing. Add it, or remove "
                "this answer."
            )
        matched.append(waiting[answer.prompt].pop())
    return matched

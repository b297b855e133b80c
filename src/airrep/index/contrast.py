"""Questions: queries, with a better answer to each if there is one."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeAlias, TypeVar

import numpy as np

from airrep.attributors.by_token import WordScores
from airrep.corpus.corpus import Corpus, Example
from airrep.corpus.inputs import QueriesLike, as_examples
from airrep.corpus.records import Reading
from airrep.corpus.schemas.conversations import Pair
from airrep.corpus.schemas.forms import PLAIN
from airrep.corpus.schemas.trainers import Trainer
from airrep.errors import ConfigError, many, near
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
"""Most characters of a text that an error shows if it is not the name of a field."""

Numbers = TypeVar("Numbers", bound=np.ndarray)


@dataclass(frozen=True)
class Question:
    """Queries, perhaps with better answers: then scores say what teaches an answer in place of the better one.

    With f the score for the prompt and the answer that the model gave, and f' that for the prompt and the better
    answer, a training example is ranked by its contrast (f − f')·(|f| + |f'|)
    (:func:`airrep.scoring.contrast.contrast_scores`). Above 0 it pushes to the answer, below 0 to the better answer.
    Scores of groups are plain differences. If an answer has a span, the better answer has one in the same place.
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
        """Make a question of queries; *options* say how files and records are read.

        ConfigError: there are no queries; or a query lacks its better answer, or has one with the same text.
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

    def typed_as(self, form: str, preamble: bool, trainer: Trainer) -> Self:
        """Read typed prompts, and those of records with prompt and response, in the *form* of the training rows."""
        reading = self.queries.reading if isinstance(self.queries, Corpus) else Reading()
        forms = {re.split(r" \(|, ", form)[0] for form in reading.forms}  # without notes on other fields
        if not forms <= {PLAIN, "example"} and "prompt_field" not in reading.options:
            return self

        def typed(one: Example) -> Example:
            marked = trainer.marked(Pair(one.prompt, one.response)).chat  # of a record with two texts
            if one.chat not in (None, marked) or not one.prompt.strip():
                return one
            asked, given, extra = one.prompt.partition(trainer.between)
            pair = trainer.asked(asked, extra if given else None, one.response)
            return replace(one, chat=pair.chat if preamble else {"form": form})

        better = None if self.better is None else tuple(map(typed, self.better))
        return replace(self, queries=tuple(map(typed, self.queries)), better=better)

    @property
    def all(self) -> Sequence[Example]:
        """The answers, then the better answers."""
        return self.queries if self.better is None else [*self.queries, *self.better]

    def less_better(self, values: Numbers) -> Numbers:
        """Subtract the better answers' values from the answers'; *values* are of :attr:`all`, the result ``(q, …)``."""
        if self.better is None:
            return values
        q = len(self.queries)
        return values[:q] - values[q:]

    def ranked(self, asked: Asked, *, towards: bool = False) -> Asked:
        """Return the scores, or contrasts, that rank examples; *asked* are the prepared queries of :attr:`all`.

        *towards* ranks examples first that teach the better answers, not the queries' answers.
        """
        if self.better is None:
            return asked
        q = len(self.queries)
        return ContrastAsked(asked.chosen(slice(0, q)), asked.chosen(slice(q, None)), -1.0 if towards else 1.0)

    def told(self, provenance: Provenance, *, towards: bool = False, pooled: bool = False) -> Provenance:
        """Add units and sign of contrasts to a provenance; *pooled* scores are those of groups."""
        if self.better is None:
            return provenance
        return replace(provenance, units=CONTRAST if pooled else RANKED, sign=TOWARDS_SIGN if towards else AGAINST_SIGN)

    def reasons(
        self, reasons: Reasons, asked: Asked, place: int, hits: Sequence[Scored], *, tokens: bool = False
    ) -> list[Why]:
        """Do what :meth:`Reasons.of` does for the prepared queries of :attr:`all`; of contrasts, give channels' parts.

        With *tokens*, contrasts have only pairs of words of the answer; the better answer's part is in the rest.
        """
        of_answer = reasons.of(self.queries[place], asked, place, hits, tokens=tokens)
        if self.better is None:
            return of_answer
        of_better = reasons.of(self.better[place], asked, place + len(self.queries), hits)
        return [_less(*three) for three in zip(of_answer, of_better, hits, strict=True)]


def _less(why: Why, other: Why, hit: Scored) -> Why:
    """Divide a contrast among channels, and give the words that the row shares with the answer."""
    parts = {name: part - other.channels[name] for name, part in why.channels.items()}
    difference = sum(parts.values())
    scale = hit.score / difference if difference else 0.0
    alone = len(parts) == 1
    given = dict.fromkeys(parts, hit.score) if alone else {name: scale * part for name, part in parts.items()}
    tokens = why.tokens
    if tokens is not None:  # the rest includes the better answer's part
        scores = tuple(tuple(scale * part for part in row) for row in tokens.scores)
        rest = {name: given[name] - scale * (why.channels[name] - tokens.rest[name]) for name in given}
        tokens = WordScores(tokens.query, tokens.example, scores, rest)
    return Why(given, why.same_words, () if alone else why.predicted, tokens)


def answered(example: Example, response: str) -> Example:
    """Return an example with another answer to its prompt, after the same messages."""
    chat = example.sides[0].chat
    if chat is not None and "messages" in chat:
        asked = list(chat["messages"])[: chat.get("asked", -1)]
        role = chat["messages"][-1]["role"]
        kept = {name: part for name, part in chat.items() if name != "asked"}
        chat = {**kept, "messages": [*asked, {"role": role, "content": response}]}
    return Example(example.prompt, response, label=example.label, source=example.source, chat=chat)


def _spanned_alike(answer: Example, better: Example) -> Example:
    """Give a better answer a span in the same place as the answer's, if the answer has a span."""
    if (answer.span is None) == (better.span is None):
        return better
    if answer.span is None:
        raise ConfigError(
            f"answer '{answer.id}': its better answer has a marked part (span), but the answer has none. Mark a part "
            "of the answer too, with [[ ]] or the field 'span'."
        )
    before, after = answer.response[: answer.span[0][0]], answer.response[answer.span[-1][1] :]
    text, stop = better.response, len(better.response) - len(after)
    if not (text.startswith(before) and text.endswith(after) and text[len(before) : max(stop, 0)].strip()):
        raise ConfigError(
            f"answer '{answer.id}': its better answer may differ only inside the marked part (span), and must have "
            "some text there. Change only the marked words, or mark a part of the better answer too."
        )
    return replace(better, span=((len(before), stop),))


def _of_text(asked: Sequence[Example], better: str) -> list[Example]:
    """Read better answers from a field of the queries, or use one text for all queries."""
    if any(better in example.metadata for example in asked):
        return [answered(example, _field(example, better)) for example in asked]
    if not better.strip():
        raise ConfigError("better is blank. Give the text of a better answer.")
    as_examples(better, "better")  # refuses the name of a file
    if len({example.prompt for example in asked}) > 1:
        shown = better if len(better) <= FIELD_PARTS else better[:FIELD_PARTS] + "…"
        fields = {name for example in asked for name in example.metadata}
        raise ConfigError(
            f"better: '{shown}' is not a field of the queries, and one text cannot be the better answer to several "
            f"prompts. {near(better, fields, 'Give the name of a field, or a file of better answers.')}"
        )
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
    """Match better answers by prompt, several to one prompt in order; if they have no prompts, by order."""
    if any(one.prompt for one in asked) and not any(one.prompt for one in better):
        if len(better) != len(asked):
            raise ConfigError(
                f"better: {many(len(better), 'better answer')} for {many(len(asked), 'answer')} cannot be matched. "
                "Give one better answer for each answer, in the same order, or add prompts to the better answers, to "
                "match them by prompt."
            )
        pairs = zip(asked, better, strict=True)
        return [replace(answered(example, one.response), span=one.span) for example, one in pairs]
    waiting: defaultdict[str, list[Example]] = defaultdict(list)
    for one in reversed(better):
        waiting[one.prompt].append(one)
    matched = []
    for answer in asked:
        if not waiting[answer.prompt]:
            raise ConfigError(
                f"answer '{answer.id}': a better answer with exactly the same prompt is missing. Add it, or remove "
                "this answer."
            )
        matched.append(waiting[answer.prompt].pop())
    return matched

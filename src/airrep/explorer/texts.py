"""Texts of examples as JSON: cut, with the places of same words."""

from collections.abc import Iterable, Sequence
from typing import Any

from airrep.attributors.by_token import WordScores
from airrep.corpus.corpus import Example
from airrep.corpus.places import Span
from airrep.corpus.schemas.conversations import DOTS, last_message, message_at, system_end
from airrep.index.contrast import Question
from airrep.index.why import Why

SHOWN = 1200
"""Characters shown of a text in a list; the whole is shown on its own."""
SEEN = 420
"""Characters that are seen before an example is opened."""
LISTED = 160
"""Characters shown of a query in a list."""


def example_json(example: Example, length: int | None = SHOWN, why: Why | None = None) -> dict[str, Any]:
    """An example's fields; texts are cut after some characters, none if *length* is None.

    Give *why* where :func:`why_json` tells places too, so that both speak of the same part of a conversation.
    """
    prompt = shown_prompt(example.prompt, length, _first_same(why))
    return {
        "id": example.id,
        "prompt": cut(prompt, length),
        "response": cut(example.response, length),
        "lengths": {"prompt": len(prompt), "response": len(example.response)},
        "system": _units(prompt[: system_end(prompt)]),
        "place": example.place,
        "label": example.label,
        "source": example.source,
        "metadata": dict(example.metadata),
    }


def query_json(question: Question) -> dict[str, Any]:
    """A query whole, with the better answer and the span, in characters, if there are any."""
    better = None if question.better is None else question.better[0].response
    span = question.queries[0].span
    return {**example_json(question.queries[0], None), "better": better, "span": span}


def shown_prompt(prompt: str, length: int | None, same: Sequence[Span] = ()) -> str:
    """A prompt as lists show it: without its system prompt; of several messages that do not fit, the last.

    Where no place of the *same* words is there, it begins with the message that has the first of them.
    """
    if length is None:
        return prompt
    start = max(last_message(prompt, min(length, SEEN)), system_end(prompt))
    if start and same and all(span.start < start for span in same):
        start = message_at(prompt, same[0].start)
    return DOTS + prompt[start:] if start else prompt


def _first_same(why: Why | None) -> list[Span]:
    """Places of same words in the prompt of a training example, those that gave most first."""
    if why is None:
        return []
    return [span for same in why.same_words for span in same.example if span.field == "prompt"]


def cut(text: str, length: int | None) -> str:
    """The beginning of a text."""
    return text if length is None else text[:length]


def why_json(query: Example, example: Example, why: Why, length: int | None = SHOWN) -> dict[str, Any]:
    """Return what makes up a score: channels, and the same words with their places in both texts as they are shown."""
    prompt = shown_prompt(example.prompt, length, _first_same(why))
    return {
        "channels": why.channels,
        "words": [
            {
                "text": same.text,
                "score": same.score,
                "query": _places(query, query.prompt, same.query, None),
                "example": _places(example, prompt, same.example, length),
            }
            for same in why.same_words
        ],
    }


def tokens_json(query: Example, example: Example, tokens: WordScores) -> dict[str, Any]:
    """A score by pairs of words: both texts, where their words stand, and a row for each word of the query."""
    return {
        "query": _worded(query, tokens.query),
        "example": _worded(example, tokens.example),
        "scores": tokens.scores,
        "rest": tokens.rest,
    }


def _worded(example: Example, words: Sequence[Span]) -> dict[str, Any]:
    texts = {"prompt": example.prompt, "response": example.response}
    return {**texts, "words": _places(example, example.prompt, words, None)}


def _places(example: Example, prompt: str, spans: Iterable[Span], length: int | None) -> list[list[Any]]:
    """Field, start and stop of each place that is shown, in the units by which JavaScript counts characters.

    *prompt* is the example's as it is shown, before it is cut.
    """
    told: list[list[Any]] = []
    for span in spans:
        whole = getattr(example, span.field)
        text = prompt if span.field == "prompt" else whole
        before = len(whole) - len(text)  # characters left out at the beginning
        text = cut(text, length)
        start, stop = span.start - before, span.stop - before
        if (len(DOTS) if before else 0) <= start < len(text):
            told.append([span.field, _units(text[:start]), _units(text[:stop])])
    return told


def _units(text: str) -> int:
    """Length in UTF-16, in which signs outside the basic plane count twice."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2

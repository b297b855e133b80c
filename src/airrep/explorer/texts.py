"""Texts of examples as JSON: cut, with the places of same words."""

from collections.abc import Iterable
from typing import Any

from airrep.corpus.corpus import Example
from airrep.corpus.places import Span
from airrep.index.why import Why

SHOWN = 1200
"""Characters shown of a text in a list; the whole is shown on its own."""
LISTED = 160
"""Characters shown of a query in a list."""


def example_json(example: Example, length: int | None = SHOWN) -> dict[str, Any]:
    """An example's fields; texts are cut after some characters, none if *length* is None."""
    return {
        "id": example.id,
        "prompt": cut(example.prompt, length),
        "response": cut(example.response, length),
        "lengths": {"prompt": len(example.prompt), "response": len(example.response)},
        "label": example.label,
        "source": example.source,
        "metadata": dict(example.metadata),
    }


def cut(text: str, length: int | None) -> str:
    """The beginning of a text."""
    return text if length is None else text[:length]


def why_json(query: Example, example: Example, why: Why, length: int | None = SHOWN) -> dict[str, Any]:
    """What makes up a score: channels, and the same words with their places in both texts as they are shown."""
    return {
        "channels": why.channels,
        "words": [
            {
                "text": same.text,
                "score": same.score,
                "query": _places(query, same.query, None),
                "example": _places(example, same.example, length),
            }
            for same in why.same_words
        ],
    }


def _places(example: Example, spans: Iterable[Span], length: int | None) -> list[list[Any]]:
    """Field, start and stop of each place that is shown, in the units by which JavaScript counts characters."""
    told: list[list[Any]] = []
    for span in spans:
        text = cut(getattr(example, span.field), length)
        if span.start < len(text):
            told.append([span.field, _units(text[: span.start]), _units(text[: span.stop])])
    return told


def _units(text: str) -> int:
    """Length in UTF-16, in which signs outside the basic plane count twice."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2

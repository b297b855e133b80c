"""Surprise of a language model at a response's tokens: 1 − p."""

from collections.abc import Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from airrep.attributors.text.tokens import FoundTokens
from airrep.corpus.corpus import Example

if TYPE_CHECKING:
    from airrep.lm.model import TargetLM
    from airrep.lm.templates.chat import ResponsePlaces

_UNKNOWN = 1e3
"""Nats of a token without a finite loss: as good as never expected."""


def unexpected(lm: "TargetLM", examples: Sequence[Example], found: Sequence[FoundTokens]) -> list[np.ndarray]:
    """1 − p of the tokens of each response and of its end, p the LM's probability of them, ``(t + 1,)`` each.

    *found* are the tokens that are counted. Where the LM cuts the text into others, the loss of each of its tokens is
    shared among the characters that are no space.

    Raises:
        ConfigError: the LM's tokenizer does not tell places.
        DataError: the LM cannot read an example.
        TrainingError: memory is short.
    """
    return [_misses(*row) for row in zip(examples, found, *_read(lm, examples), strict=True)]


def _read(lm: "TargetLM", examples: Sequence[Example]) -> tuple[list[np.ndarray], "list[ResponsePlaces]"]:
    """Losses of the LM's own tokens, and their places; the last examples are not read again by another channel."""
    asked = tuple(example.content_hash for example in examples)
    known = _last.get(lm)
    if known is None or known[0] != asked:
        known = _last[lm] = (asked, (lm.token_losses(lm.tokenise(examples)), lm.chat.response_places(examples)))
    return known[1]


_last: "WeakKeyDictionary[TargetLM, tuple[tuple[str, ...], tuple[list[np.ndarray], list[ResponsePlaces]]]]"
_last = WeakKeyDictionary()


def _misses(example: Example, found: FoundTokens, losses: np.ndarray, places: "ResponsePlaces") -> np.ndarray:
    nats = np.where(np.isfinite(losses), losses, _UNKNOWN).astype(np.float64)
    until = np.concatenate([[0.0], np.cumsum(_spread(example.response, nats, places))])
    ending = nats[places.starts >= len(example.response)].sum()
    own: np.ndarray = np.append(until[found.stops] - until[found.starts], ending)
    return np.asarray(-np.expm1(-np.maximum(own, 0.0)))


def _spread(text: str, losses: np.ndarray, places: "ResponsePlaces") -> np.ndarray:
    """Nats of each character, ``(characters,)``: a token's loss is shared by those that are no space, if any is."""
    marks = np.fromiter((not letter.isspace() for letter in text), bool, len(text))
    before = np.concatenate([[0], np.cumsum(marks)])
    shared = np.zeros(len(text))
    for loss, start, stop in zip(losses, places.starts, places.stops, strict=True):
        count = before[stop] - before[start]
        if count:
            shared[start:stop] += marks[start:stop] * (loss / count)
        elif stop > start:
            shared[start:stop] += loss / (stop - start)
    return shared

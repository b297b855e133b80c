"""Surprise of a language model at a response's tokens: 1 − p."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from airrep.attributors.language import heard_losses
from airrep.attributors.text.tokens import FoundTokens
from airrep.corpus.corpus import Example
from airrep.runtime.artifacts.manifests import json_digest

if TYPE_CHECKING:
    from airrep.lm.chat import ResponsePlaces
    from airrep.lm.model import TargetLM

    _Found: TypeAlias = tuple[list[np.ndarray], list[ResponsePlaces]]

_UNKNOWN = 1e3
"""Nats of a token without a finite loss: as good as never expected."""
HELD = 2**27
"""Bytes of losses and places that are remembered for other channels, beside those of the last examples."""
OBJECTS = 512
"""Bytes of the Python objects that hold one example's numbers."""


def unexpected(
    lm: "TargetLM", examples: Sequence[Example], found: Sequence[FoundTokens], own: Sequence[bool] = ()
) -> list[np.ndarray]:
    """1 − p of the tokens of each response and of its end, p the LM's probability of them, ``(t + 1,)`` each.

    *found* are the tokens that are counted. Where these are not the LM's *own*, the loss of each of its tokens is
    shared among the characters that are no space.

    Raises:
        ConfigError: the LM's tokenizer does not tell places.
        DataError: the LM cannot read an example.
    """
    flags = own or [False] * len(examples)
    return [_misses(*row) for row in zip(examples, found, *_read(lm, examples), flags, strict=True)]


def _read(lm: "TargetLM", examples: Sequence[Example]) -> "_Found":
    """Losses of the LM's own tokens, and their places; the same examples are not read again by another channel."""
    return _remembered.setdefault(lm, _Memory()).found(lm, examples)


class _Memory:
    """Outputs of an LM for examples that it read together, the latest last; at most so many bytes.

    They are found again as they were read: an example in other company may differ in its last digits, and an index
    would depend on what was read before it.
    """

    def __init__(self) -> None:
        self._known: dict[str, _Found] = {}
        self._bytes = 0

    def found(self, lm: "TargetLM", examples: Sequence[Example]) -> "_Found":
        """From memory, from gradients that were taken of all of them, or read."""
        heard = heard_losses(lm).of([lm.key(example) for example in examples])
        if heard is not None:
            return heard, lm.chat.tokenise_with_places(examples)[1]
        asked = json_digest([example.reading_hash for example in examples])
        found = self._known.get(asked)
        if found is None:
            documents, places = lm.chat.tokenise_with_places(examples)
            found = lm.token_losses(documents), places
            self._keep(asked, found)
        return found

    def _keep(self, asked: str, found: "_Found") -> None:
        self._known[asked] = found
        self._bytes += _size(found)
        while self._bytes > HELD and len(self._known) > 1:
            self._bytes -= _size(self._known.pop(next(iter(self._known))))


def _size(found: "_Found") -> int:
    """Bytes of the numbers, and of the objects that hold them."""
    parts = zip(*found, strict=True)
    return sum(OBJECTS + own.nbytes + places.starts.nbytes + places.stops.nbytes for own, places in parts)


_remembered: "WeakKeyDictionary[TargetLM, _Memory]" = WeakKeyDictionary()


def _misses(
    example: Example, found: FoundTokens, losses: np.ndarray, places: "ResponsePlaces", own: bool = False
) -> np.ndarray:
    nats = np.where(np.isfinite(losses), losses, _UNKNOWN).astype(np.float64)
    if own:
        count = len(found.numbers)
        return _miss(np.append(nats[:count], nats[count:].sum()))
    until = np.concatenate([[0.0], np.cumsum(_spread(example.response, nats, places))])
    ending = nats[places.starts >= len(example.response)].sum()
    return _miss(np.append(until[found.stops] - until[found.starts], ending))


def _miss(nats: np.ndarray) -> np.ndarray:
    """1 − p of a loss."""
    return np.asarray(-np.expm1(-np.maximum(nats, 0.0)))


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

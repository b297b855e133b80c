"""Tokens that a trainer learns: an answer as the chat template writes it."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from airrep.attributors.settings import NgramSettings
from airrep.attributors.text.tokens import FIRST, FoundTokens, Split, tokenizer_file
from airrep.corpus.corpus import Example

if TYPE_CHECKING:
    from airrep.lm.templates.chat import Chat, ResponsePlaces

_SAYS_HOW = "tokenizer_config.json"
"""Says of which class a tokenizer is; its chat template is in it or beside it."""
_MOST_TOKENS = 2048
"""Tokens of a row that are read where it is cut, and nobody says how long it may be."""


def chat_of(settings: NgramSettings) -> "Chat | None":
    """What writes examples for a model of which the tokenizer alone is needed; None where no file says how.

    Raises:
        ConfigError: the tokenizer, or its chat template, cannot be used.
    """
    folder = tokenizer_file(settings.tokenizer, (_SAYS_HOW, "chat_template.jinja")).parent
    if not (folder / _SAYS_HOW).is_file():
        return None
    from airrep.lm.files import load_tokenizer, recorded_reading  # torch, which other tokens do not need
    from airrep.lm.templates.chat import Chat

    recorded = recorded_reading(folder)
    cut, template = settings.cut or recorded.get("cut"), settings.template or recorded.get("template")
    most = settings.max_tokens or (sys.maxsize if cut is None else _MOST_TOKENS)
    tokenizer = load_tokenizer(folder, settings.tokenizer)
    return Chat(tokenizer, settings.tokenizer, most, sys.maxsize, template, cut or "prompt")


class LearntTokens:
    """The tokens of examples that a chat template writes as those of their conversation; of others those of their text.

    What a template writes behind an answer is no token of it: the end of a text stands for that.
    """

    def __init__(self, chat: "Chat", split: Split) -> None:
        self.chat = chat
        self._split = split

    @property
    def reading(self) -> dict[str, Any]:
        """What decides how the template writes examples, and what is cut."""
        chat = self.chat
        return {
            "template": chat.tokenizer.chat_template,
            "form": chat.template,
            "cut": chat.cut,
            "max": chat.max_tokens,
        }

    def find(self, examples: Sequence[Example]) -> list[FoundTokens]:
        """The tokens of each response, with their places in it; those that are none of its text have no characters."""
        written = [one for one in examples if self.chat.writes(one)]
        documents, places = self.chat.tokenise_with_places(written)
        learnt = iter(range(len(written)))
        return [
            _found(documents.sequence(row)[documents.starts[row] :], places[row], len(one.response))
            if self.chat.writes(one) and (row := next(learnt)) is not None
            else self._split.find(one.response)
            for one in examples
        ]


def _found(ids: np.ndarray, places: "ResponsePlaces", length: int) -> FoundTokens:
    """Learnt tokens up to the last one of the response."""
    within = np.flatnonzero(places.starts < length)
    count = int(within[-1]) + 1 if len(within) else 0
    return FoundTokens(ids[:count] + FIRST, places.starts[:count], places.stops[:count])

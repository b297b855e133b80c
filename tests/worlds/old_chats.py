"""Chat templates as they were used once: with all messages of a prompt as one text of the user's."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from airrep.corpus.corpus import Corpus, Example
from airrep.corpus.schemas.conversations import chat_message
from airrep.lm.chat import Chat


@contextmanager
def conversations_as_texts() -> Iterator[None]:
    """Read prompts as before they were given to templates as messages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Chat, "_conversation", _as_text)
        patch.setattr(Chat, "reads_messages", lambda self, example: False)
        yield


def _as_text(self: Chat, example: Example) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    return [chat_message("user", example.prompt), chat_message("assistant", example.response)], {}


def make_chats(count: int, prefix: str = "c") -> Corpus:
    """Conversations of three messages and an answer."""
    said = (
        [("user", f"a{n}"), ("assistant", "b"), ("user", "c" * (1 + n % 3)), ("assistant", f"d{n}")]
        for n in range(count)
    )
    return Corpus.from_records(
        {"id": f"{prefix}{n}", "messages": [{"role": role, "content": text} for role, text in one]}
        for n, one in enumerate(said)
    )

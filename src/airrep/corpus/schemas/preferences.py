"""Preference pairs: a prompt, the chosen response, the rejected one."""

import re
from collections.abc import Mapping
from itertools import takewhile
from typing import Any

from airrep.corpus.schemas.conversations import Message, Pair, is_messages, last_turn, read_messages
from airrep.corpus.schemas.values import describe, text
from airrep.errors import DataError

_SPEAKER = re.compile(r"(?:^|\n\n)(Human|Assistant):[ \t]*")


def read_preference(
    prompt: object, before: list[Message], chosen: object, rejected: object, *, both: bool = False
) -> list[Pair]:
    """Return the chosen response with its prompt, and the rejected one if both are wanted and it is there.

    Args:
        prompt: text, a list of messages, or None if the responses hold it.
        before: messages before the prompt, such as the system's.
        chosen: text, a message, or messages of which the last is the assistant's.
        rejected: the same, or None.
        both: read the rejected response too; each then tells which it is.
    """
    if prompt is None and isinstance(chosen, str) and not _SPEAKER.search(chosen):
        border = _border(chosen, rejected) if isinstance(rejected, str) else 0
        prompt = chosen[:border]
        chosen = chosen[border:]
        rejected = rejected[border:] if isinstance(rejected, str) else rejected
    first = _pair(prompt, before, chosen, "chosen")
    if rejected is None or not both:
        return [first]
    second = _pair(prompt, before, rejected, "rejected")
    return [first._replace(part=("preference", "chosen")), second._replace(part=("preference", "rejected"))]


def is_preference(record: Mapping[str, Any]) -> bool:
    """Whether a record holds a chosen response."""
    if is_messages(record.get("preferred_output")):
        return True
    return isinstance(record.get("chosen"), str | Mapping) or is_messages(record.get("chosen"))


def _pair(prompt: object, before: list[Message], response: object, name: str) -> Pair:
    if isinstance(response, str):
        if prompt is None:
            return last_turn(before + _spoken(response, name), name)
        if not before and isinstance(prompt, str):
            return Pair(prompt, response)
        return last_turn([*before, *_asked(prompt), Message("assistant", text("response", response))], name)
    if not isinstance(response, Mapping) and not is_messages(response):
        raise DataError(f"{name} is {describe(response)}; text or messages are expected")
    said = read_messages([response] if isinstance(response, Mapping) else response, name)
    # Some data sets repeat the prompt in both conversations, others hold the answers alone.
    alone = all(message.role == "assistant" for message in said)
    return last_turn(before + (_asked(prompt) if alone and prompt is not None else []) + said, name)


def _asked(prompt: object) -> list[Message]:
    """Return a prompt as messages."""
    if is_messages(prompt):
        return read_messages(prompt, "prompt")
    if not isinstance(prompt, str):
        raise DataError(f"prompt is {describe(prompt)}; text or messages are expected")
    return [Message("user", text("prompt", prompt))]


def _spoken(dialogue: str, name: str) -> list[Message]:
    """Return the messages of a text with ``Human:`` and ``Assistant:`` at the heads of its paragraphs."""
    _, *parts = _SPEAKER.split(dialogue)
    speakers = {"Human": "user", "Assistant": "assistant"}
    said = zip(parts[::2], parts[1::2], strict=True)
    found = [Message(speakers[who], what.strip()) for who, what in said if what.strip()]
    if not found:
        raise DataError(f"{name} holds speakers and no text; text is expected. Remove the record or fill it in")
    return found


def _border(chosen: str, rejected: str) -> int:
    """Return where the beginning that two texts share ends, at the last white space in it."""
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(chosen, rejected, strict=False)))
    if shared in (len(chosen), len(rejected)):  # one begins with the other: nothing says where the prompt ends
        return 0
    return max((place + 1 for place in range(shared) if chosen[place].isspace()), default=0)

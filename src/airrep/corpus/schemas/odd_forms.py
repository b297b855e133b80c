"""Trees of messages, segments of a text, answers to choose from, preference pairs."""

import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from airrep.corpus.schemas.conversations import (
    Message,
    Pair,
    every_turn,
    from_json,
    is_messages,
    last_turn,
    read_messages,
)
from airrep.corpus.schemas.trainers import BARE
from airrep.corpus.schemas.values import describe, text
from airrep.errors import DataError

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_COLUMNS = ("{}", "option_{}", "option{}", "option {}", "choice_{}", "choice{}", "op{}")
"""Names of columns that hold an answer to choose from each: of MMLU, MedMCQA, COPA and others."""
_NAMED = re.compile(r"\(?([A-Za-z0-9])[).]?")
"""A letter that stands for an answer, in its usual spellings."""


def is_tree(value: object) -> bool:
    """True if a value is the first message of a tree of replies, as OASST has them."""
    return isinstance(value, Mapping) and "replies" in value and "text" in value


def of_tree(root: Mapping[str, Any], *, every: bool) -> list[Pair]:
    """The assistant's messages of a tree, each after those on its path; without *every* those that nobody answered."""
    pairs: list[Pair] = []
    waiting: list[tuple[Mapping[str, Any], list[Message]]] = [(root, [])]
    while waiting:
        node, before = waiting.pop()
        said = {"role": node.get("role"), "content": node.get("text")}
        path = before + read_messages([said], "a path of the tree")
        replies = [one for one in node.get("replies") or () if isinstance(one, Mapping)]
        if before and path[-1].role == "assistant" and (every or not replies):
            pairs += every_turn(path, first=len(path) - 1)
        waiting += [(one, path) for one in reversed(replies)]
    if not pairs:
        raise DataError("the tree holds no message by the assistant; one is expected")
    return [pair._replace(part=("turn", number)) for number, pair in enumerate(pairs, 1)]


def check_no_node(record: Mapping[str, Any]) -> None:
    """Refuse one message of a tree whose others are other records: alone it is nobody's answer."""
    if "parent_id" in record and "role" in record:
        raise DataError(
            "is one message of a tree whose other messages are other records; whole trees are expected, an object "
            "prompt with replies (OASST's files of trees). Give these, or conversations"
        )


def of_segments(segments: Sequence[object], *, every: bool) -> list[Pair]:
    """The learnt segments of a text, each after all before it, as they stand; without *every* the last."""
    pairs, before = [], ""
    for number, segment in enumerate(segments, 1):
        if not isinstance(segment, Mapping) or not isinstance(segment.get("text"), str):
            raise DataError(f"segment {number} is {describe(segment)}; an object with text and label is expected")
        if segment.get("label") and segment["text"].strip():
            pairs.append(Pair(before, text(f"segment {number}", segment["text"]), chat=BARE))
        before += segment["text"]
    if not pairs:
        raise DataError("no segment has the label true; one to learn from is expected")
    if not every or len(pairs) == 1:
        return pairs[-1:]
    return [pair._replace(part=("turn", number)) for number, pair in enumerate(pairs, 1)]


def options_of(value: object) -> list[str]:
    """Answers to choose from, each with its letter or label; none for a value of another form."""
    value = from_json(value) if isinstance(value, str) else value
    if isinstance(value, Mapping):
        texts, names = value.get("text"), value.get("label")
        if is_messages(texts) and is_messages(names):
            value = dict(zip(map(str, names), texts, strict=False))
        pairs = [(str(name), option) for name, option in value.items() if option is not None]
    elif is_messages(value):
        pairs = list(zip(_LETTERS, value, strict=False))
    else:
        return []
    if not all(isinstance(option, str) for _, option in pairs):
        return []
    named = [option.lstrip().startswith((f"{name}.", f"{name})", f"({name}")) for name, option in pairs]
    return [option if all(named) else f"{name}. {option}" for name, option in pairs]


def option_columns(record: Mapping[str, Any]) -> dict[str, str]:
    """Columns that hold an answer to choose from each, by its letter or number; none where there are not two."""
    for form in _COLUMNS:
        for names in (_LETTERS, _LETTERS.lower(), "123456789"):
            columns = {name.upper(): form.format(name) for name in names}
            found = dict(takewhile(lambda one: _is_option(record.get(one[1])), columns.items()))
            if len(found) > 1 and (form != "{}" or names != "123456789"):
                return found
    return {}


def _is_option(value: object) -> bool:
    """True if a value may be an answer to choose from: a text, or a number that a table made of one."""
    return isinstance(value, int | float) or (isinstance(value, str) and bool(value.strip()))


def chosen_option(answer: object, listed: Sequence[str]) -> object:
    """The option that an answer names, by its letter or number, or of lettered ones by its place from 0 on; any other
    answer as it is.
    """
    said = "" if isinstance(answer, bool) or not isinstance(answer, int | str) else str(answer).strip()
    named = _NAMED.fullmatch(said)
    if named is None or answer in [option.partition(". ")[2] for option in listed]:
        return answer
    name = named[1].upper()
    if name.isdecimal() and listed[0].startswith("A. "):
        name = _LETTERS[int(name)]
    return next((option for option in listed if option.startswith(f"{name}. ")), answer)


_SPEAKER = re.compile(r"(?:^|\n\n)(Human|Assistant):[ \t]*")


def read_preference(
    prompt: object, before: list[Message], chosen: object, rejected: object, *, both: bool = False
) -> list[Pair]:
    """Return the chosen response with its prompt, and the rejected one if *both* are wanted and it is there.

    The prompt is text, messages, or None if the responses, texts or messages, hold it.
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
    """True if a record holds a chosen response."""
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

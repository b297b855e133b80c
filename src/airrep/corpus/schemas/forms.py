"""Forms of records: which fields are prompt and response."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from airrep.corpus.schemas.conversations import (
    Message,
    Pair,
    every_turn,
    is_messages,
    last_turn,
    of_exchanges,
    read_messages,
    system_message,
    tools_message,
)
from airrep.corpus.schemas.preferences import is_preference, read_preference
from airrep.corpus.schemas.values import describe, text
from airrep.errors import DataError

Turns: TypeAlias = Literal["last", "all"]
"""Which assistant turns of a conversation are examples: its last, or each."""
Preferences: TypeAlias = Literal["chosen", "both"]
"""Which responses of a preference pair are examples."""

PAIRS = (
    ("prompt", "response"),
    ("prompt", "completion"),
    ("instruction", "output"),
    ("instruction", "response"),
    ("inputs", "targets"),
    ("question", "answer"),
    ("question", "response"),
    ("query", "response"),
    ("input", "output"),
)
"""Names of prompt and response, in order of precedence."""
PLAIN = "prompt and response"
"""The form of a record that has these two fields."""
PAIRED = "preference pairs"
"""What the forms of preference pairs begin with."""
KTO = "label false"
"""What the forms of KTO's answers to avoid hold."""
CHATS = ("messages", "conversations", "conversation")
"""Names of a list of messages; they are looked for after the pairs."""
_NAMES = {
    ("instruction", "output"): "instruction, input and output (Alpaca)",
    ("instruction", "response"): "instruction, context and response (Dolly)",
}
_JOINED = {
    ("instruction", "output"): ("input", "context"),
    ("instruction", "response"): ("context", "input"),
    ("question", "answer"): ("context",),
    ("question", "response"): ("context",),
}
"""What is joined to a prompt: the first of these names that the record has, of which the first is the form's own."""
_WITH_TURNS = ("instruction", "question", "query")
"""Prompts that may have a system prompt and a history beside them. Beside ``prompt`` these are metadata, as written
examples are read back to what they were."""
_ASKED = ("prompt", "question", "instruction", "query", "input")
"""Names of the prompt of a preference pair."""
_EXPECTED = (
    ", ".join(dict.fromkeys("/".join(pair) for pair in PAIRS)) + ", chosen/rejected, messages, conversations or text"
)


class Read(NamedTuple):
    """What was found in a record: the form, as it is told to the user, and its prompts and responses."""

    form: str
    pairs: Sequence[Pair]


def read_form(rest: dict[str, Any], turns: Turns = "last", preferences: Preferences = "chosen") -> Read:
    """Take prompts and responses out of ``rest``, by the first form that fits; DataError if none does."""
    for prompt, response in PAIRS:
        if rest.get(prompt) is not None and rest.get(response) is not None:
            return _read_pair(rest, prompt, response, turns)
    if is_preference(rest):
        return _read_preference(rest, preferences)
    for name in CHATS:
        if rest.get(name) is not None:
            return _read_chat(rest, name, turns)
    if rest.get("text") is not None and all(rest.get(name) is None for name in _ASKED):
        return Read("text alone (no prompt: all of it is the response)", [Pair("", rest.pop("text"))])
    raise DataError(_nothing_found(rest))


def read_chat(messages: object, name: str, turns: Turns, before: list[Message] | None = None) -> Read:
    """Return the turns of a list of messages."""
    return _of_messages((before or []) + read_messages(messages, name), name, turns)


def _read_pair(rest: dict[str, Any], prompt_key: str, response_key: str, turns: Turns) -> Read:
    """Read a prompt and a response that stand in two fields, either a text or a list of messages."""
    prompt, response = rest.pop(prompt_key), rest.pop(response_key)
    form = _NAMES.get((prompt_key, response_key), f"{prompt_key} and {response_key}")
    if response_key == "completion" and str(rest.get("label")).lower() == "false":  # CSV has it as a text
        form = f"{form}, {KTO} (in KTO data an answer to avoid; here as any other, unless a filter leaves it out)"
    if is_messages(prompt) or is_messages(response):
        return _conversational(rest, (prompt_key, prompt), (response_key, response), form, turns)
    prompt, joined = _with_input(prompt, rest, prompt_key, response_key)
    if joined is not None:
        form = f"{prompt_key}, {joined} and {response_key}"
    if prompt_key in _WITH_TURNS:
        before = _before(rest)
        if before:
            return _after_history(before, prompt, response, form, turns)
    return Read(form, [Pair(prompt, response)])


def _before(rest: dict[str, Any]) -> list[Message]:
    """Take system prompt and history out of ``rest``."""
    found: list[Message] = []
    for name in ("system", "system_prompt"):
        if isinstance(rest.get(name), str):
            found += system_message(rest.pop(name), name)
    if is_messages(rest.get("history")):
        found += of_exchanges(rest.pop("history"), "history")
    return found


def _after_history(before: list[Message], prompt: object, response: object, form: str, turns: Turns) -> Read:
    asked, answered = Message("user", text("prompt", prompt)), Message("assistant", text("response", response))
    return _of_messages([*before, asked, answered], form, turns)


def _conversational(
    rest: dict[str, Any], prompt: tuple[str, object], response: tuple[str, object], form: str, turns: Turns
) -> Read:
    """Read a prompt and a completion of which one at least is a list of messages; the completion alone is learnt."""
    before = tools_message(rest.pop("tools", None))
    before += read_messages(prompt[1], prompt[0]) if is_messages(prompt[1]) else _said("user", prompt)
    after = read_messages(response[1], response[0]) if is_messages(response[1]) else _said("assistant", response)
    pairs = every_turn(before + after, response[0], len(before))
    if turns == "all" and len(pairs) > 1:
        return Read(form, pairs)
    return Read(form, [last_turn(before + after, response[0])])


def _said(role: str, field: tuple[str, object]) -> list[Message]:
    return [Message(role, text(field[0], field[1]))]


def _with_input(prompt: object, rest: dict[str, Any], prompt_key: str, response_key: str) -> tuple[object, str | None]:
    """Join an instruction or question and its input by a blank line, as Alpaca does.

    Returns:
        The prompt, and the name of what was joined where the form is not named after it.
    """
    known = _JOINED.get((prompt_key, response_key), ())
    name = next((one for one in known if rest.get(one) is not None), None)
    if name is None or not isinstance(prompt, str):
        return prompt, None
    own = prompt_key == "instruction" and name == known[0]
    if not isinstance(rest[name], str):
        if own:
            raise DataError(f"{name} is {describe(rest[name])}; text is expected")
        return prompt, None  # a list of passages, say: metadata, as of old
    extra = rest.pop(name)
    if not extra or extra.isspace():
        return prompt, None
    return f"{prompt}\n\n{extra}", None if own else name


def _read_preference(rest: dict[str, Any], preferences: Preferences) -> Read:
    prompt_key = next((name for name in (*_ASKED, *CHATS) if rest.get(name) is not None), None)
    prompt = None if prompt_key is None else rest.pop(prompt_key)
    if prompt_key in ("instruction", "question"):
        prompt, _ = _with_input(prompt, rest, prompt_key, "response")
    before = tools_message(rest.pop("tools", None)) + _before(rest)
    both = preferences == "both"
    pairs = read_preference(prompt, before, rest.pop("chosen"), rest.pop("rejected", None), both=both)
    return Read(f"{PAIRED} ({'chosen and rejected' if both else 'chosen'})", pairs)


def _read_chat(rest: dict[str, Any], name: str, turns: Turns) -> Read:
    tools = rest.pop("tools", None)
    before = tools_message(rest.pop("functions", None) if tools is None else tools)
    for key in ("system", "system_prompt"):
        if isinstance(rest.get(key), str):
            before += system_message(rest.pop(key), key)
    return read_chat(rest.pop(name), name, turns, before)


def _of_messages(messages: list[Message], form: str, turns: Turns) -> Read:
    if turns == "all":
        pairs = every_turn(messages, form)
        return Read(form, pairs if len(pairs) > 1 else [pair._replace(part=None) for pair in pairs])
    several = sum(message.role == "assistant" and message.learnt for message in messages) > 1
    return Read(
        f'{form} (the last of several turns; turns="all" takes each)' if several else form, [last_turn(messages)]
    )


def _nothing_found(record: Mapping[str, Any]) -> str:
    """Say why no prompt and response were found in a record."""
    known = dict.fromkeys([*(key for pair in PAIRS for key in pair), "chosen", *CHATS, "text"])
    empty = [key for key in known if record.get(key, "") is None]
    if empty:
        return f"{empty[0]} is empty or null; text is expected. Remove the record or fill it in"
    ways = "Rename the fields, or name them with prompt_field and response_field"
    return f"no prompt and response; found {names(record)}; expected {_EXPECTED}. {ways}"


def names(record: Mapping[str, Any]) -> str:
    """List a record's field names, at most twelve."""
    found = [str(key) for key in record]
    more = f" and {len(found) - 12} more" if len(found) > 12 else ""
    return (", ".join(found[:12]) or "no fields") + more

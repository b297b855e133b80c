"""Turns messages in the usual formats into prompts and responses; shortens prompts for display."""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, TypeGuard

import numpy as np

from airrep.corpus.schemas.values import CALLS, describe, is_learnt, role_of, text
from airrep.errors import DataError

RENDERING = "rendering"
"""Field of manifests and requests: how prompts are rendered, where an LM's fingerprint does not determine it."""
REJECTED = "rejected"
"""Key of a chat: the response that a pair rejects, a text, or where the chat has messages, a message or several."""
CHAT_KEYS = ("messages", "tools", "template", "form", "prompt", "learn", "asked", REJECTED, "span")
"""Keys of :attr:`airrep.Example.chat`, and "span", under which a corpus stores a query's span beside them."""
MESSAGES: Mapping[str, Any] = MappingProxyType({"form": "messages"})
"""Chat of a conversation whose messages :func:`messages_of` can recover exactly from the prompt's text."""
FORMS = ("joined", "bare", "messages")
"""Values of a chat's ``form``: "joined" and "bare" rows use no chat template; "messages" is :data:`MESSAGES`."""
_SPEAKERS = ("User", "Assistant", "Tool", "System", "Tools")
_FIRST = ("System: ", "Tools: ")
SYSTEM = "[system …] "
"""Text in place of a folded system prompt."""
DOTS = "… "
"""Text in place of all messages before the last."""
_SILENT = ("system", "tool")
"""Roles whose message may be empty: an empty system prompt is left out; a tool may return nothing."""
_TEXT_PARTS = ("text", "input_text", "output_text")
_MEDIA = ("image", "image_url", "video", "video_url", "audio", "input_audio", "audio_url")
_REASONING = ("reasoning_content", "reasoning", "thinking")
"""Fields of an assistant's thoughts before its answer; the LM learns them as it learns the answer."""
_TURN = re.compile(r"^(Tools|System|User|Assistant|Tool): ", re.MULTILINE)
_LOOKS_SO = re.compile(r"\n(?=\\*(?:Tools|System|User|Assistant|Tool): )")
"""Matches before a line inside a message that looks like the start of a message (with or without backslashes), as in a
pasted transcript. Only the prompt's text is stored, so such a line is escaped by a backslash; as in mailboxes (mboxrd),
an escaped line gets one more backslash, so that every text can be restored."""
_WRITTEN_SO = re.compile(r"\n\\(?=\\*(?:Tools|System|User|Assistant|Tool): )")
_ESCAPE = "\n\\\\"


class Message(NamedTuple):
    """One message: its role, its text, and whether an assistant's message is trained on.

    ``given`` is the object for a chat template if it holds more than role and text; for tools, their list.
    """

    role: str
    content: str
    learnt: bool = True
    given: Mapping[str, Any] | None = None


class Pair(NamedTuple):
    """A prompt and a response of a record; ``part`` names their part of the record, such as ``("turn", 2)``.

    ``chat`` is the input of a trainer beyond the two texts (:attr:`airrep.Example.chat`).
    """

    prompt: object
    response: object
    part: tuple[str, str | int] | None = None
    chat: Mapping[str, Any] | None = None


def is_messages(value: object) -> TypeGuard[Sequence[Any]]:
    """Return True if a value is a list, tuple or array, the types that conversations have."""
    return isinstance(value, list | tuple | np.ndarray)


def read_messages(messages: object, name: str = "messages") -> list[Message]:
    """Return the messages of a list (or its JSON text) of objects with role and content, or from and value."""
    if isinstance(messages, str):  # such as a cell of a CSV file
        messages = from_json(messages)
    if not is_messages(messages):
        raise DataError(f"{name} is {describe(messages)}; a list of objects with role and content is expected.")
    listed: Sequence[object] = messages
    if not len(listed):
        raise DataError(f"{name} is an empty list; objects with role and content are expected.")
    found = [_message(number, message) for number, message in enumerate(listed, 1)]
    if not _not_silent(found):
        raise DataError(f"{name} has no assistant message, but at least one is needed.")
    return found


def _not_silent(messages: Sequence[Message]) -> list[Message]:
    """Return the messages without empty system prompts, which only a chat template shows."""
    return [message for message in messages if message.content or message.role != "system"]


def of_exchanges(exchanges: object) -> list[Message]:
    """Return the messages of a list of pairs of texts (Alpaca's history) or of messages, which may be JSON text."""
    if isinstance(exchanges, str):
        exchanges = from_json(exchanges) if exchanges.strip() else []
    if is_messages(exchanges) and len(exchanges) and all(isinstance(one, Mapping) for one in exchanges):
        return read_messages(exchanges, "history")
    if not is_messages(exchanges):
        raise DataError(f"history is {describe(exchanges)}; a list of pairs of texts is expected.")
    found = []
    for number, pair in enumerate(exchanges, 1):
        if not is_messages(pair) or len(pair) != 2:
            raise DataError(f"history {number} is {describe(pair)}; a pair of texts is expected.")
        asked, answered = (text(f"history {number}", said) for said in pair)
        found += [Message("user", asked), Message("assistant", answered)]
    return found


def tools_message(tools: object, name: str = "tools") -> list[Message]:
    """Return tools (a list, an object, or JSON text of either) as one message to put first; an empty list for none."""
    written = tools if isinstance(tools, str) else None
    if isinstance(tools, str):
        tools = [] if tools.strip() in ("", "null") else from_json(tools)
    elif isinstance(tools, np.ndarray):
        tools = tools.tolist()
    if tools is not None and not is_messages(tools) and not isinstance(tools, Mapping):
        what = "text that is not a JSON list or object" if isinstance(tools, str) else describe(tools)
        raise DataError(
            f"{name} is {what}, but must be a list of tools, or such a list as JSON text. Correct or remove this field."
        )
    if not tools:
        return []
    listed = {"tools": list(tools)} if is_messages(tools) else None
    return [Message("tools", written or _json("tools", tools), given=listed)]


def from_json(value: str) -> Any:
    """Return the value of a text that is a JSON list or object; return any other text unchanged."""
    if value.lstrip()[:1] in ("[", "{"):
        with suppress(ValueError, RecursionError):
            return json.loads(value)
    return value


def system_message(system: object, name: str = "system") -> list[Message]:
    """Return a system prompt (a text or a list of blocks) as one message; an empty list for a blank prompt."""
    if is_messages(system):
        system = "\n".join(_part(name, part) for part in system)
    return [] if _is_blank(system) else [Message("system", text(name, system))]


def last_turn(
    messages: list[Message], name: str = "messages", advice: str = 'Set turns="all" to use every assistant turn'
) -> Pair:
    """Return the last trained turn as the response to all before it; the last message must be an assistant's."""
    if messages[-1].role != "assistant":
        raise DataError(
            f"the last message has the role {messages[-1].role!r}, but a conversation must end with an assistant "
            f"message. {advice}, or remove the record."
        )
    return _pair(messages, _answers(messages, name)[-1])


def every_turn(messages: list[Message], name: str = "messages", first: int = 0) -> list[Pair]:
    """Return each trained assistant turn from message *first* on as a response, numbered from 1 in ``part``."""
    answers = [place for place in _answers(messages, name) if place >= first]
    return [_pair(messages, place)._replace(part=("turn", number)) for number, place in enumerate(answers, 1)]


def prompt_of(messages: Sequence[Message]) -> str:
    """Return messages as a prompt: a single user message unchanged, else ``Role: content`` for each message.

    A backslash is put before a line inside a message that begins with such a role, and before a single user message
    that reads as several messages.

    Example:
        >>> print(prompt_of([Message("system", "Be brief."), Message("user", "Who is right?\\nUser: I am.")]))
        System: Be brief.
        User: Who is right?
        \\User: I am.
    """
    if len(messages) == 1 and messages[0].role == "user":
        content = messages[0].content
        return f"\\{content}" if _several(content.lstrip("\\")) else content
    return "\n".join(map(_lines, messages))


def answered(prompt: str, response: str) -> str:
    """Return the text that the prompts of all later turns begin with, given an earlier turn's prompt and response."""
    asked = messages_of(prompt)
    before = _lines(asked[0]) if len(asked) == 1 and asked[0].role == "user" else prompt
    return f"{before}\n{_lines(Message('assistant', response))}\n"


def _lines(message: Message) -> str:
    return f"{message.role.capitalize()}: {_LOOKS_SO.sub(_ESCAPE, message.content)}"


def holds_turns(prompt: str) -> bool:
    """Return True if the prompt begins with a role such as ``User:``, as :func:`prompt_of` writes several messages."""
    return _TURN.match(prompt) is not None


def messages_of(prompt: str) -> list[Message]:
    """Return the messages that :func:`prompt_of` wrote as a prompt; any other prompt is one user message.

    A text that reads as several messages becomes several, so that files written by airrep are read as conversations.
    """
    bare = prompt.lstrip("\\")
    found = _several(bare)
    if len(bare) < len(prompt):  # an escaped single user message
        return [Message("user", prompt[1:] if found else prompt)]
    return found or [Message("user", prompt)]


def _several(prompt: str) -> list[Message]:
    """Split a prompt that :func:`prompt_of` wrote from several messages; return an empty list for other prompts."""
    if not holds_turns(prompt):
        return []
    _, *parts = _TURN.split(prompt)
    contents = [*(content.removesuffix("\n") for content in parts[1:-1:2]), *parts[-1:]]
    pairs = zip(parts[::2], contents, strict=True)
    found = [Message(role.lower(), _WRITTEN_SO.sub("\n", content)) for role, content in pairs]
    alone = len(found) == 1 and found[0].role == "user"
    known = not alone and all(one.role != "tools" for one in found[1:]) and "\n".join(map(_lines, found)) == prompt
    return found if known else []


def chat_of(prompt: str) -> list[dict[str, str]]:
    """Return the messages of a prompt as chat templates take them, with tools as text in the system message."""
    found = messages_of(prompt)
    first = next((number for number, one in enumerate(found) if one.role not in ("tools", "system")), len(found))
    before = list(map(_told, found[:first]))
    system = [chat_message("system", "\n\n".join(before))] if before else []
    return system + [chat_message(one.role, one.content) for one in found[first:]]


def chat_message(role: str, content: str) -> dict[str, str]:
    """Return one message as chat templates and trainers take it."""
    return {"role": role, "content": content}


def _answers(messages: list[Message], name: str) -> list[int]:
    """Return the numbers, from 0, of trained assistant messages that have a message before them."""
    places = [place for place, message in enumerate(messages) if message.role == "assistant"]
    if not places:
        raise DataError(f"{name} has no assistant message, but at least one is needed.")
    learnt = [place for place in places if messages[place].learnt]
    if not learnt:
        raise DataError(
            f"{name}: every assistant message is marked as not trained on (weight 0, train false or the like). Unmark "
            "at least one, or remove the record."
        )
    answers = [place for place in learnt if place]
    if not answers:
        raise DataError(
            f"{name} has no message before the assistant's, so there is no prompt. Add a message, or remove the record."
        )
    return answers


def _pair(messages: list[Message], place: int) -> Pair:
    return Pair(prompt_of(_not_silent(messages[:place])), messages[place].content, chat=_chat(messages[: place + 1]))


def _chat(messages: Sequence[Message]) -> Mapping[str, Any] | None:
    """Return a chat template's arguments; None or MESSAGES if the texts of prompt and response determine them."""
    tools = [tool for one in messages if one.role == "tools" and one.given for tool in one.given["tools"]]
    # tools that are not a list can only be text in the system prompt
    said = [one for one in messages if one.role != "tools" or one.given is None]
    plain = not tools and all(one.given is None and one.role != "tools" for one in said)
    first = next((number for number, one in enumerate(said) if one.role != "system"), len(said))
    if plain and first <= 1 and len(_not_silent(said)) == len(said):  # then :func:`chat_of` recovers these messages
        return None if [one.role for one in said] == ["user", "assistant"] else MESSAGES
    given = [one.given or chat_message("system" if one.role == "tools" else one.role, _told(one)) for one in said]
    return {"messages": given, **({"tools": tools} if tools else {})}


def chat_of_pair(pair: Pair) -> Mapping[str, Any]:
    """Return a pair's chat; if its texts determine the messages, rebuild the messages from them."""
    if pair.chat not in (None, MESSAGES):
        return pair.chat
    asked = chat_of(pair.prompt) if isinstance(pair.prompt, str) and pair.prompt else []
    return {"messages": [*asked, chat_message("assistant", str(pair.response))]}


def taken_chat(rest: dict[str, Any]) -> Mapping[str, Any] | None:
    """Pop a written :attr:`airrep.Example.chat` from a record; a field ``chat`` of any other form stays."""
    chat = rest.get("chat")
    chat = from_json(chat) if isinstance(chat, str) else chat  # exported tables hold it as text
    if not is_chat_of_example(chat):
        return None
    rest.pop("chat")
    return chat


def is_chat_of_example(chat: object) -> TypeGuard[Mapping[str, Any]]:
    """Return True if a value has the form of an :attr:`airrep.Example.chat`."""
    if not isinstance(chat, Mapping) or not chat or not chat.keys() <= set(CHAT_KEYS):
        return False
    messages = chat.get("messages")
    if not is_messages(messages):
        alone = chat.keys() <= {REJECTED, "span"}
        return messages is None and (chat.get("form") in FORMS or alone)
    return bool(messages) and all(isinstance(one, Mapping) and "role" in one for one in messages)


def with_rejected(chosen: Pair, rejected: Pair) -> Pair:
    """Return the chosen pair with the rejected response in its chat; DataError if their prompts differ."""
    first, alike, said = dict(chosen.chat or {}), chosen.prompt == rejected.prompt, rejected.response
    if "messages" in {*first, *(rejected.chat or {})}:
        first = dict(chat_of_pair(chosen))
        (asked, own), (asked_too, other) = _parted(first), _parted(chat_of_pair(rejected))
        said = other[0] if len(own) == len(other) == 1 else other
        if said is other:  # a completion of several messages
            first, alike = {**first, "asked": len(asked)}, asked == asked_too
    if not alike:
        raise DataError(
            "chosen and rejected answer different prompts, but must share one. Remove the record, or set "
            'preferences="chosen".'
        )
    return chosen._replace(part=None, chat={**first, REJECTED: said if "messages" in first else text(REJECTED, said)})


def _parted(chat: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    """Split a chat's messages into those of the prompt and those that are learnt."""
    asked = chat.get("asked", -1)
    return list(chat["messages"][:asked]), list(chat["messages"][asked:])


Side: TypeAlias = tuple[str, str, Mapping[str, Any] | None]
"""Prompt, response and chat of one side of a preference pair."""


def sides(prompt: str, response: str, chat: Mapping[str, Any]) -> tuple[Side, Side | None]:
    """Return the chosen side, and the rejected side or None if there is none."""
    alone = {name: value for name, value in chat.items() if name != REJECTED}
    chosen = prompt, response, alone or None
    if (said := chat.get(REJECTED)) is None:
        return chosen, None
    if isinstance(said, str) and "messages" not in alone:
        return chosen, (prompt, said, alone or None)
    after = said if is_messages(said) else [chat_message("assistant", said) if isinstance(said, str) else said]
    read = [_message(number, one) for number, one in enumerate(after, 1)]
    if "messages" in alone:
        before, own = _parted(alone)
        alone = {**alone, "messages": [*before, *after]}
        if max(len(own), len(read)) > 1:  # the prompt's text has all messages before the last
            known = messages_of(prompt)
            prompt = prompt_of([*known[: len(known) - len(own) + 1], *read[:-1]])
    return chosen, (prompt, read[-1].content, alone or None)


def _told(message: Message) -> str:
    return f"Tools: {message.content}" if message.role == "tools" else message.content


_USUAL = ("user", "assistant", "system", "tool")


def _message(number: int, message: object) -> Message:
    """Parse message *number* (from 1) of a conversation."""
    if not isinstance(message, Mapping):
        raise DataError(f"message {number} is {describe(message)}; an object with role and content is expected.")
    if len(message) == 2 and message.get("role") in _USUAL and isinstance(message.get("content"), str):  # most are
        said = message["content"]
        if said and not said.isspace():
            return Message(message["role"], text(f"the content of message {number}", said))
    role_key = next((key for key in ("role", "from") if message.get(key) is not None), "role")
    usual = ("content", "value", "text") if role_key == "role" else ("value", "content", "text")
    content_key = next((key for key in usual if message.get(key) is not None), usual[0])
    role, written = role_of(f"the {role_key} of message {number}", message.get(role_key))
    silent = role in _SILENT and _is_blank(message.get(content_key)) and not message.get("tool_calls")
    content = "" if silent else _content(number, content_key, message)
    given = _given(message, written, str(message.get(role_key)).strip().lower(), content_key)
    plain = given == chat_message(role, content)
    return Message(role, content, is_learnt(number, message), None if plain else given)


def _given(message: Mapping[str, Any], role: str, name: str, content_key: str) -> dict[str, Any]:
    """Return a message for chat templates: the record's own, with the keys and roles that templates know."""
    left_out = ("role", "from", "content", "value", content_key)
    others = {key: value for key, value in message.items() if key not in left_out and value is not None}
    content = message.get(content_key)
    known = ("text", *_MEDIA)  # parts that chat templates know
    if is_messages(content) and not all(isinstance(one, Mapping) and one.get("type") in known for one in content):
        role, content, more = _from_parts(role, content)
        others |= more
    call = from_json(content) if name in CALLS and isinstance(content, str) else others.pop("function_call", None)
    calls = [one for one in (call if is_messages(call) else [call]) if isinstance(one, Mapping)]
    if calls:
        calls = [one if "function" in one else {"type": "function", "function": one} for one in calls]
        return {"role": role, "content": "" if name in CALLS else content or "", **others, "tool_calls": calls}
    kept = {"content": content} if content is not None or content_key in message else {}
    return {"role": role, **kept, **others}


def _from_parts(role: str, parts: Sequence[Any]) -> tuple[str, str, dict[str, Any]]:
    """Return role, text and other chat-template keys of a message made of parts (Anthropic, Bedrock)."""
    said: dict[str, list[str]] = {"reasoning_content": [], "content": []}
    kinds, calls = [], []
    for part in map(_of_bedrock, parts):
        kind = part.get("type") if isinstance(part, Mapping) else None
        kinds.append(kind)
        if isinstance(part, Mapping) and kind == "tool_use":
            called = {"name": part.get("name"), "arguments": part.get("input")}
            calls.append({"type": "function", "function": called})
        else:
            said["reasoning_content" if kind in _REASONING else "content"].append(_part("content", part))
    others = {"reasoning_content": "\n".join(said["reasoning_content"]), "tool_calls": calls}
    results = bool(kinds) and all(kind == "tool_result" for kind in kinds)
    more = {key: value for key, value in others.items() if value}
    return "tool" if results else role, "\n".join(said["content"]), more


def _of_bedrock(part: object) -> object:
    """Rename Bedrock's keys of a tool part to Anthropic's; return any other part unchanged."""
    for name, kind in (("toolUse", "tool_use"), ("toolResult", "tool_result")):
        if isinstance(part, Mapping) and isinstance(part.get(name), Mapping):
            return {"type": kind, **part[name]}
    return part


def _is_blank(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _content(number: int, key: str, message: Mapping[str, Any]) -> str:
    """Return the text of a message: its reasoning, its content, and its tool calls, one below the other."""
    where, value = f"the {key} of message {number}", message.get(key)
    thought = next((message[name] for name in _REASONING if isinstance(message.get(name), str)), "")
    before, after = ([part] if part.strip() else [] for part in (thought, _calls(number, message)))
    if _is_blank(value) and (before or after):
        return "\n".join([*before, *after])
    if is_messages(value):
        value = "\n".join(_part(where, part) for part in value)
    said = text(where, value)
    return "\n".join([*before, said, *after])


def _part(where: str, part: object) -> str:
    """Return the text of one part of a message; a part without text, such as an image, gives its type in brackets."""
    part = _of_bedrock(part)
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        raise DataError(f'{where} has a part that is {describe(part)}; parts must be text or an object with "type".')
    kind = part.get("type")
    if kind == "refusal" and isinstance(part.get("refusal"), str):
        return str(part["refusal"])
    if kind in _TEXT_PARTS or (kind is None and part.get("text") is not None):
        return text(f"{where}, a part of it,", part.get("text"))
    if kind in _REASONING and isinstance(part.get(kind, part.get("text")), str):
        return str(part.get(kind, part.get("text")))
    if kind == "tool_use" and isinstance(part.get("name"), str):
        return _json(f"{where}, a part of it,", {"name": part["name"], "arguments": part.get("input")})
    if kind == "tool_result" and part.get("content") is not None:
        said = part["content"]
        return "\n".join(_part(where, one) for one in said) if is_messages(said) else text(where, said)
    return f"[{text(f'the type of a part of {where}', kind).removesuffix('_url')}]"


def _calls(number: int, message: Mapping[str, Any]) -> str:
    """Return tool calls as JSON objects with name and arguments, one a line."""
    calls = message.get("tool_calls")
    if calls is None:
        calls = [call for call in (message.get("function_call"),) if call is not None]
    if not is_messages(calls):
        raise DataError(f"the tool_calls of message {number} are {describe(calls)}; a list of objects is expected.")
    return "\n".join(_call(f"a tool call of message {number}", call) for call in calls)


def _call(where: str, call: object) -> str:
    called = call.get("function", call) if isinstance(call, Mapping) else call
    if not isinstance(called, Mapping):
        raise DataError(f"{where} is {describe(called)}; an object is expected.")
    arguments, name = called.get("arguments"), text(f"the name of {where}", called.get("name"))
    if isinstance(arguments, str) and not isinstance(from_json(arguments), str):
        # already JSON text, as in OpenAI's API: keep spellings such as 1e5, and nulls
        return f'{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": {arguments.strip()}}}'
    return _json(where, {"name": name, "arguments": arguments})


def _json(where: str, value: object) -> str:
    """Return a value as one line of JSON, without keys that are null, which Parquet adds."""
    try:
        return json.dumps(without_nulls(value), ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(f"{where} is not valid JSON ({error}).") from None


def without_nulls(value: Any) -> Any:
    """Return a JSON value with its arrays as lists, and without keys that are null."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list | tuple) else value


def last_message(prompt: str, length: int) -> int:
    """Return where the last message starts if the prompt, on one line, is longer than *length*; otherwise 0."""
    if len(prompt) <= length or not holds_turns(prompt):
        return 0
    if len(prompt) <= 2 * length and len(" ".join(prompt.split())) <= length:
        return 0
    return message_at(prompt, len(prompt))


def message_at(prompt: str, place: int) -> int:
    """Return where the message that contains position *place* of a conversation starts."""
    heads = [f"\n{role}: " for role in _SPEAKERS]
    return max(prompt.rfind(head, 0, place + len(head)) + 1 for head in heads)


def system_end(prompt: str) -> int:
    """Return where the first message after the system prompt and tools starts; 0 if there is neither."""
    end = 0
    while prompt.startswith(_FIRST, end) and (end or holds_turns(prompt)):
        heads = (prompt.find(f"\n{role}: ", end) for role in _SPEAKERS)
        end = min((head for head in heads if head >= 0), default=-1) + 1
        if not end:
            return 0
    return end


def folded(prompt: str) -> str:
    """Return a prompt with its system prompt abbreviated; a single message left after that loses its role.

    Example:
        >>> folded("System: Be polite.\\nUser: Is it late?")
        '[system …] Is it late?'
    """
    rest = prompt[(end := system_end(prompt)) :]
    if not end:
        return prompt
    return SYSTEM + (rest if message_at(rest, len(rest)) else rest.removeprefix("User: "))


def from_last_message(prompt: str, length: int) -> str:
    """Return dots and the last message of a prompt longer than *length* characters; return other prompts unchanged.

    The messages before the question, such as system prompt and tools, are usually equal throughout a data set.

    Example:
        >>> from_last_message("System: Be polite.\\nUser: Is it late?", 20)
        '… User: Is it late?'
    """
    start = last_message(prompt, length)
    return DOTS + prompt[start:] if start else prompt

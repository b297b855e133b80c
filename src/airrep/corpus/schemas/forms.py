"""Finds the fields of a record that hold prompt and response."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import takewhile
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from airrep.corpus.schemas.conversations import (
    Message,
    Pair,
    chat_of_pair,
    every_turn,
    from_json,
    is_messages,
    last_turn,
    of_exchanges,
    read_messages,
    system_message,
    taken_chat,
    tools_message,
    with_rejected,
    without_nulls,
)
from airrep.corpus.schemas.trainers import BARE, DEFAULT, JOINED, Trainer
from airrep.corpus.schemas.values import describe, half_heeded, text
from airrep.errors import DataError

Turns: TypeAlias = Literal["last", "all"]
"""Assistant turns of a conversation that become examples: the last, or all."""
Preferences: TypeAlias = Literal["chosen", "both", "pairs"]
"""Examples of a preference pair: its chosen response, both responses apart, or one example that holds both."""

PAIRS = (
    ("prompt", "response"),
    ("prompt", "completion"),
    ("instruction", "output"),
    ("instruction", "response"),
    ("inputs", "targets"),
    ("question", "solution"),
    ("question", "answer"),
    ("question", "response"),
    ("problem", "solution"),
    ("problem", "answer"),
    ("query", "response"),
    ("input", "output"),
)
"""Field names of prompt and response, in order of precedence: a worked solution comes before the bare answer."""
PLAIN = "prompt and response"
"""The form of a record that has these two fields."""
PAIRED = "preference pairs"
"""First words of the name of every form for preference pairs."""
EARLIER = '; turns="all" '
"""Part of the name of every form whose earlier answers are not examples of their own."""
LAST = f" (only the last assistant turn{EARLIER}uses every one)"
"""End of the name of a form whose earlier answers did not become examples."""
JOINT = f" (all answers of a completion are one example{EARLIER}makes one example of each)"
"""End of the name of a form whose earlier answers are learnt within the example of the last one."""
OPEN = " (messages after the last answer: not read)"
"""End of the name of a form whose trainer learns messages after the last answer too."""
KTO = "in KTO data an answer to avoid"
"""Words in the name of a form whose answer KTO data mark as undesirable."""
KTO_FIELDS = {"kto_tag": ("False",), "label": ('"false"', '"False"', '"0"')}
"""Fields that mark undesirable answers in KTO data, and the values that do, as literals of a filter."""
_TRUTHS = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}
CHATS = ("messages", "conversations", "conversation")
"""Fields that hold a list of messages."""
_BEFORE_CHATS = (("prompt", "response"), ("prompt", "completion"))
"""Pairs that are read even if the record also has messages: airrep writes the first, and trl reads the second so."""
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
"""Fields to join to a prompt: the first that the record has."""
_ASKED = ("prompt", "question", "instruction", "query", "input", "problem")
"""Fields that may hold the prompt of a preference pair."""
_ENDED = "Add the answer"
"""Advice for a record without an answer at its end where ``turns`` does not change how the record is read."""
_SYSTEM = ("system", "system_prompt")
_AS_TRL = "joined without a chat template as trl does"
_OPTIONS = ("options", "choices")
"""Fields that hold the options of a multiple-choice question."""
_CELLS = ("prompt", "completion", "input", "output", "chosen", "rejected", "rejected_messages")
"""Fields that may hold messages, as a list or, in CSV and similar tables, as JSON text."""
_TELLING = {
    *("system", "system_prompt", "history", "tools", "functions", *CHATS, "answer", "solution", "response", "output"),
    *("completion", "context", *_OPTIONS, "segments", "article", "passage", "passages", "paragraph", "document"),
    *("documents", "story", "dialogue", "abstract", "summary", "text", "content", "evidence", "knowledge"),
    *("background", "persona", "instruction", "instructions", "input", "query", "problem", "prompt"),
    "message_loss_mask",
}
"""Fields that look like a turn, an answer, a system prompt or a context; the form's name lists the ones that were not
read."""
_ANSWER = (
    r"(.*[_ -])?(answer|solution|response|output|completion|generation|attempt|reasoning|rationale|think(ing)?|thought|"
    r"explanation|trajector(y|ie)|trace|cot|chosen|rejected)s?([_ -](content|messages|text))?[_ -]?\d*"
)
"""Names of fields that look like an answer unless they hold a number, such as ``deepseek_attempt``."""
_names_answer = lru_cache(1024)(re.compile(_ANSWER, re.IGNORECASE).fullmatch)
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_COLUMNS = ("{}", "option_{}", "option{}", "option {}", "choice_{}", "choice{}", "op{}")
"""Names of columns that hold one option of a multiple-choice question each, as in MMLU, MedMCQA and COPA."""
_NAMED = re.compile(r"\(?([A-Za-z0-9])[).]?")
"""A letter or digit that stands for an option, in its usual spellings."""
_SPEAKER = re.compile(r"(?:^|\n\n)(Human|Assistant):[ \t]*")
_EXPECTED = (
    ", ".join(dict.fromkeys("/".join(pair) for pair in PAIRS)) + ", chosen/rejected, messages, conversations or text"
)


class Read(NamedTuple):
    """The name of a record's form, as shown to users, with its prompts and responses."""

    form: str
    pairs: Sequence[Pair]
    earlier: int = 0
    """Number of assistant turns that ``turns="all"`` would add."""


def read_form(
    rest: dict[str, Any], turns: Turns = "last", preferences: Preferences = "chosen", trainer: Trainer = DEFAULT
) -> Read:
    """Take prompts and responses out of ``rest`` by the first form that fits; DataError if no form fits."""
    kwargs = rest.pop("chat_template_kwargs", None)
    if rest.get("response") is None:  # a field "response" is plain text, even if it looks like JSON
        cells = {name: from_json(rest[name]) for name in _CELLS if is_cell_of_messages(rest.get(name))}
        if {"prompt", "input", "chosen"} & cells.keys():  # an answer alone may be JSON that is learnt as text
            rest.update(cells)
    found = _read(rest, turns, preferences, trainer)
    kwargs = from_json(kwargs) if isinstance(kwargs, str) else kwargs
    named = kwargs.items() if isinstance(kwargs, Mapping) else ()
    pairs = found.pairs
    if given := {name: value for name, value in named if value is not None}:
        pairs = [pair._replace(chat={**chat_of_pair(pair), "template": given}) for pair in pairs]
    pairs = [trainer.marked(pair) for pair in pairs]
    if preferences == "pairs" and found.form.startswith(PAIRED):
        if len(pairs) == 1:
            raise DataError(
                "has a chosen but no rejected response, and a preference pair needs both. Remove the record."
            )
        found, pairs = found._replace(form=f"{found.form}, as one example"), [with_rejected(*pairs)]
    last = LAST if found.earlier and not found.form.endswith(JOINT) else ""
    form = found.form + last + _avoided(rest, found.form) + _half_heeded(pairs, trainer)
    return Read(form + _left_out(rest), pairs, found.earlier)


def read_named_chat(messages: object, name: str, turns: Turns, trainer: Trainer) -> Read:
    """Return the turns of messages in the field that the user named."""
    found = _of_messages(_heeded(messages, name, trainer), name, turns, whole=trainer.whole)
    pairs = [trainer.marked(trainer.of_messages(pair)) for pair in found.pairs]
    note = bool(found.earlier) * LAST
    return Read(found.form + note + _half_heeded(pairs, trainer), pairs, found.earlier)


def _heeded(messages: object, name: str, trainer: Trainer) -> list[Message]:
    """Read messages, with ``learnt`` set by the marks that the trainer follows."""
    return [trainer.heeding(message) for message in read_messages(messages, name)]


def _half_heeded(pairs: Sequence[Pair], trainer: Trainer) -> str:
    """Return cautions about marks that airrep follows only in part; the last pair has all messages."""
    messages = (pairs[-1].chat or {}).get("messages", ())
    told = {words: None for one in messages if one["role"] == "assistant" for words in half_heeded(one, trainer.marks)}
    return "".join(f", {words}" for words in told)


def _read(rest: dict[str, Any], turns: Turns, preferences: Preferences, trainer: Trainer) -> Read:
    chat = next((name for name in CHATS if name in rest and is_chat(rest[name])), None)
    pairs = PAIRS if chat is None else _BEFORE_CHATS
    pair = next((pair for pair in pairs if rest.get(pair[0]) is not None and rest.get(pair[1]) is not None), None)
    if pair is not None:
        return _read_pair(rest, *pair, turns, trainer)
    root, chosen = rest.get("prompt"), rest.get("chosen")
    if isinstance(root, Mapping) and "replies" in root and "text" in root:  # the first message, as OASST has it
        return _of_tree(rest.pop("prompt"), every=turns == "all")
    if is_messages(rest.get("preferred_output")) or isinstance(chosen, str | Mapping) or is_messages(chosen):
        return _read_preference(rest, preferences, trainer)
    chat = chat or next((name for name in CHATS if rest.get(name) is not None), None)
    if chat is not None:
        found = _read_chat(rest, chat, turns, preferences, trainer)
        return found._replace(pairs=[trainer.of_messages(pair) for pair in found.pairs])
    if is_messages(rest.get("segments")):
        return _of_segments(rest.pop("segments"), every=turns == "all")
    if rest.get("text") is not None and all(rest.get(name) is None for name in _ASKED):
        if "parent_id" in rest and "role" in rest:  # one message without its tree has no prompt
            raise DataError(
                "holds one message of a conversation tree; the other messages are in other records. Give files where "
                "each record holds a whole conversation or tree (an object 'prompt' with 'replies', as in OASST)."
            )
        return Read("text alone (no prompt: all of it is the response)", [Pair("", rest.pop("text"))])
    known = dict.fromkeys([*(key for pair in PAIRS for key in pair), "chosen", *CHATS, "text"])
    empty = next((key for key in known if rest.get(key, "") is None), None)
    if empty is not None:
        raise DataError(f"{empty} is empty or null; text is expected. Fill in the field, or remove the record.")
    ways = "Rename the fields, or name them with prompt_field and response_field."
    raise DataError(
        f"no prompt and response found. The record has {names(rest)}, but one of these is needed: {_EXPECTED}. {ways}"
    )


def is_chat(value: object) -> bool:
    """Return True if a value is a list (of messages, presumably) or JSON text of a list."""
    return is_messages(value) or (isinstance(value, str) and is_messages(from_json(value)))


def is_cell_of_messages(value: object) -> bool:
    """Return True if a value is JSON text of a list of messages, as in CSV and similar tables."""
    found = from_json(value) if isinstance(value, str) and value.lstrip().startswith("[{") else None
    return is_messages(found) and all(isinstance(one, Mapping) and ("role" in one or "from" in one) for one in found)


def _avoided(rest: dict[str, Any], form: str) -> str:
    """Return a caution if KTO's marks call the answer undesirable; turn ``kto_tag`` of ``rest`` into a bool."""
    if rest.get("kto_tag") is not None:
        rest["kto_tag"] = _TRUTHS.get(str(rest["kto_tag"]).lower(), rest["kto_tag"])
    for name in ("kto_tag",) if form.startswith(PLAIN) else KTO_FIELDS:
        if name in rest and _TRUTHS.get(str(rest[name]).lower()) is False:  # CSV has it as a text
            return f", {name} false ({KTO}; treated like any other answer unless a filter leaves it out)"
    return ""


def _left_out(rest: Mapping[str, Any]) -> str:
    """List the telling fields that were not read, as a note in parentheses."""
    found = [
        name
        for name, value in rest.items()
        if (name in _TELLING or (_names_answer(str(name)) and not isinstance(value, int | float | np.number)))
        and not _is_empty(value)
    ]
    return f" ({', '.join(found)}: not read)" if found else ""


def read_beside(form: str, field: str) -> str:
    """Return a form's name without a field that it lists as not read, but that is read for another purpose."""
    name = re.escape(field)
    return re.sub(rf" \({name}: not read\)|(?<=\(){name}, |, {name}(?=[,:])", "", form)


def _is_empty(value: object) -> bool:
    if isinstance(value, str):
        return not value.strip()
    return value is None or (hasattr(value, "__len__") and not len(value))


def _read_pair(rest: dict[str, Any], prompt_key: str, response_key: str, turns: Turns, trainer: Trainer) -> Read:
    """Read a prompt and a response from two fields, each a text or a list of messages."""
    prompt, response = rest.pop(prompt_key), rest.pop(response_key)
    form = _NAMES.get((prompt_key, response_key), f"{prompt_key} and {response_key}")
    if (prompt_key, response_key) == _BEFORE_CHATS[0] and isinstance(prompt, str) and isinstance(response, str):
        return Read(form, [Pair(prompt, response, chat=taken_chat(rest))])
    reads = trainer if (prompt_key, response_key) == _BEFORE_CHATS[1] else DEFAULT
    if is_messages(prompt) or is_messages(response):
        before = _tools(rest) + _before(rest, reads)
        asked, answered = _said("user", prompt_key, prompt), _said("assistant", response_key, response)
        return _conversational(before + asked, answered, response_key, form, turns, whole=reads.whole)
    extra, joined = _input_of(prompt, rest, prompt_key, response_key)
    prompt, response, options = _with_options(prompt, response, rest)
    if joined or options:
        form = f"{', '.join(filter(None, [prompt_key, joined, options]))} and {response_key}"
    before = [] if (prompt_key, response_key) == _BEFORE_CHATS[0] else _before(rest, reads)
    pair = (trainer if prompt_key == "instruction" else DEFAULT).asked(prompt, extra, response)
    if before:
        said = [*_said("user", "prompt", pair.prompt), *_said("assistant", "response", response)]
        return _of_messages(before + said, form, turns)
    if (prompt_key, response_key) == _BEFORE_CHATS[1]:
        return Read(f"{form}, {_AS_TRL}", [pair._replace(chat=JOINED)])
    return Read(form, [pair])


def _before(rest: dict[str, Any], trainer: Trainer) -> list[Message]:
    """Take system prompt and history out of ``rest``, as messages, if the trainer reads them."""
    found: list[Message] = []
    if trainer.literal:
        return found
    for name in _SYSTEM:
        if isinstance(rest.get(name), str) or is_messages(rest.get(name)):
            found += system_message(rest.pop(name), name)
    history = rest.get("history")
    if is_chat(history) or (isinstance(history, str) and not history.strip()):
        found += of_exchanges(rest.pop("history"))
    return found


def _tools(rest: dict[str, Any]) -> list[Message]:
    tools, functions = rest.pop("tools", None), rest.pop("functions", None)
    return tools_message(functions, "functions") if tools is None else tools_message(tools)


def _conversational(
    before: list[Message], after: list[Message], name: str, form: str, turns: Turns, *, whole: bool
) -> Read:
    """Read the messages of a prompt and of a completion, which alone is learnt: as one example if *whole*."""
    if whole:
        after, note = _up_to_answer([one._replace(learnt=True) for one in after])
        return Read(form + note, [_completed(before, after, name, _ENDED)])
    pairs = every_turn(before + after, name, len(before))
    if turns == "all" and len(pairs) > 1:
        return Read(form, pairs)
    return Read(form + (len(pairs) > 1) * JOINT, [_completed(before, after, name)], max(0, len(pairs) - 1))


def _up_to_answer(messages: list[Message]) -> tuple[list[Message], str]:
    """Return messages without the ones after the last answer, and a note if there are such messages."""
    end = max((place for place, one in enumerate(messages, 1) if one.role == "assistant"), default=len(messages))
    return messages[:end], (end < len(messages)) * OPEN


def _completed(before: list[Message], after: list[Message], name: str, *advice: str) -> Pair:
    """Return the last answer of a completion, all of whose messages are learnt, of any role."""
    pair = last_turn(before + after, name, *advice)
    if len(after) == 1:
        return pair
    chat = chat_of_pair(pair)
    return pair._replace(chat={**chat, "asked": max(1, len(chat["messages"]) - len(after))})


def _said(role: str, field: str, value: object) -> list[Message]:
    return read_messages(value, field) if is_messages(value) else [Message(role, text(field, value))]


def _input_of(
    prompt: object, rest: dict[str, Any], prompt_key: str, response_key: str
) -> tuple[str | None, str | None]:
    """Take the text to join to a prompt out of ``rest``, with its field's name unless the form's name has it."""
    known = _JOINED.get((prompt_key, response_key), ())
    name = next((one for one in known if rest.get(one) is not None), None)
    if name is None or not isinstance(prompt, str):
        return None, None
    own = prompt_key == "instruction" and name == known[0]
    if not isinstance(rest[name], str):
        if own:
            raise DataError(f"{name} is {describe(rest[name])}; text is expected.")
        return None, None  # such as a list of passages, which stays in the metadata
    extra = rest.pop(name)
    if not extra or extra.isspace():
        return None, None
    return extra, None if own else name


def _with_options(prompt: object, response: object, rest: dict[str, Any]) -> tuple[object, object, str | None]:
    """Add the options to a question, one a line with its letter; return prompt, response and the options' field."""
    name = next((name for name in _OPTIONS if rest.get(name) is not None), None)
    listed = _options_of(rest[name]) if name is not None and isinstance(prompt, str) else []
    if not listed:
        return _with_columns(prompt, response, rest)
    rest.pop(name)  # type: ignore[arg-type]
    texts = [one.partition(". ")[2] for one in listed]
    if isinstance(response, str) and response.strip().isdecimal() and response.strip() not in texts:  # CSV has text
        response = int(response) if listed[0].startswith("A.") else response
    if isinstance(response, int | np.integer) and not isinstance(response, bool) and 0 <= response < len(listed):
        response = listed[int(response)]
    return "\n".join([str(prompt), *listed]), response, name


def _with_columns(prompt: object, response: object, rest: dict[str, Any]) -> tuple[object, object, str | None]:
    """Add options in columns of their own to the prompt; a letter as response becomes the option with its letter."""
    columns = _option_columns(rest) if isinstance(prompt, str) else {}
    if not columns:
        return prompt, response, None
    listed = [f"{letter}. {rest.pop(column)}" for letter, column in columns.items()]
    first, *_, last = columns.values()
    return "\n".join([str(prompt), *listed]), _chosen_option(response, listed), f"{first} to {last}"


def _read_preference(rest: dict[str, Any], preferences: Preferences, trainer: Trainer) -> Read:
    plain = isinstance(rest.get("prompt"), str)
    prompt, chosen, rejected, before = _preference_of(rest, trainer)
    if trainer.literal and prompt is None and isinstance(chosen, str) and isinstance(rejected, str):
        plain, border = True, _border(chosen, rejected, literal=True)
        prompt, chosen, rejected = chosen[:border], chosen[border:], rejected[border:]
    pairs = read_preference(prompt, before, chosen, rejected, both=preferences != "chosen")
    form = f"{PAIRED} ({'chosen and rejected' if len(pairs) > 1 else 'chosen'})"
    if not plain or before or not isinstance(chosen, str):
        return Read(form, pairs)
    return Read(f"{form}, {_AS_TRL}", [pair._replace(chat=JOINED) for pair in pairs])


def _preference_of(rest: dict[str, Any], trainer: Trainer) -> tuple[object, object, object, list[Message]]:
    """Take prompt, chosen and rejected response, and the messages before the prompt, out of ``rest``."""
    if "preferred_output" in rest:  # OpenAI and Together: the messages are inside the input
        asked = rest.pop("input", None)
        inner = dict(asked) if isinstance(asked, Mapping) else {"messages": asked}
        before = _tools(inner) + _tools(rest)
        return inner.get("messages"), rest.pop("preferred_output"), rest.pop("non_preferred_output", None), before
    prompt_key = next((name for name in (*_ASKED, *CHATS) if rest.get(name) is not None), None)
    prompt = None if prompt_key is None else rest.pop(prompt_key)
    if prompt_key in ("instruction", "question"):
        extra, _ = _input_of(prompt, rest, prompt_key, "response")
        prompt = trainer.asked(prompt, extra, "").prompt
    before = _tools(rest) + _before(rest, trainer if prompt_key in (None, "prompt") else DEFAULT)
    return prompt, rest.pop("chosen"), rest.pop("rejected", None), before


def _read_chat(rest: dict[str, Any], name: str, turns: Turns, preferences: Preferences, trainer: Trainer) -> Read:
    messages = _tools(rest) + _before(rest, trainer) + _heeded(rest.pop(name), name, trainer)
    rejected = [key for key in ("rejected_response", "rejected_messages") if not _is_empty(rest.get(key))]
    if not rejected:
        return _of_messages(messages, name, turns, whole=trainer.whole)
    other = rest.pop(rejected[0])  # ms-swift: the messages hold the chosen answer
    if preferences == "chosen":
        return Read(f"{PAIRED} (chosen)", [last_turn(messages, name, _ENDED)])
    chosen = last_turn(messages, name, _ENDED)._replace(part=("preference", "chosen"))
    asked = messages[: max(place for place, one in enumerate(messages) if one.role == "assistant")]
    said = other if is_messages(other) else [{"role": "assistant", "content": other}]
    (avoided,) = read_preference(None, [] if said is other else asked, said, None)
    return Read(f"{PAIRED} (chosen and rejected)", [chosen, avoided._replace(part=("preference", "rejected"))])


def _of_messages(messages: list[Message], form: str, turns: Turns, *, whole: bool = False) -> Read:
    """Read the last turn or all turns; a conversation that is learnt *whole* is one example, with no turn left out."""
    if whole:
        messages, note = _up_to_answer(messages)
        return Read(form + note, [last_turn(messages, form, _ENDED)])
    pairs = every_turn(messages, form) if turns == "all" else [last_turn(messages)]
    if len(pairs) > 1:
        return Read(form, pairs)
    answers = sum(one.role == "assistant" and one.learnt for one in messages[1:])  # a first message answers nothing
    return Read(form, [pairs[-1]._replace(part=None)], 0 if turns == "all" else answers - 1)


def names(record: Mapping[str, Any]) -> str:
    """List a record's field names for a message, at most twelve."""
    found = [str(key) for key in record]
    more = f" and {len(found) - 12} more" if len(found) > 12 else ""
    return f"the fields {', '.join(found[:12])}{more}" if found else "no fields"


def _of_tree(root: Mapping[str, Any], *, every: bool) -> Read:
    """Return a tree's assistant messages as responses to the path before each; only leaves unless *every*."""
    pairs, earlier = list[Pair](), 0
    waiting: list[tuple[Mapping[str, Any], list[Message]]] = [(root, [])]
    while waiting:
        node, before = waiting.pop()
        said = {"role": node.get("role"), "content": node.get("text")}
        path = before + read_messages([said], "a path of the tree")
        replies = [one for one in node.get("replies") or () if isinstance(one, Mapping)]
        if before and path[-1].role == "assistant":
            answer = every_turn(path, first=len(path) - 1)
            pairs, earlier = (pairs + answer, earlier) if every or not replies else (pairs, earlier + len(answer))
        waiting += [(one, path) for one in reversed(replies)]
    if not pairs:
        raise DataError(
            "the conversation tree has no assistant message. Add an assistant message, or remove the record."
        )
    parts = [pair._replace(part=("turn", number)) for number, pair in enumerate(pairs, 1)]
    return Read("a tree of messages (OASST)", parts, earlier)


def _of_segments(segments: Sequence[object], *, every: bool) -> Read:
    """Return the learnt segments of a text as responses to all text before each; only the last unless *every*."""
    pairs, before = [], ""
    for number, segment in enumerate(segments, 1):
        if not isinstance(segment, Mapping) or not isinstance(segment.get("text"), str):
            raise DataError(f"segment {number} is {describe(segment)}; an object with text and label is expected.")
        if segment.get("label") and segment["text"].strip():
            pairs.append(Pair(before, text(f"segment {number}", segment["text"]), chat=BARE))
        before += segment["text"]
    if not pairs:
        raise DataError('no segment has "label": true, so there is nothing to train on. Remove the record.')
    form = "segments (axolotl)"
    if not every or len(pairs) == 1:
        return Read(form, pairs[-1:], len(pairs) - 1)
    return Read(form, [pair._replace(part=("turn", number)) for number, pair in enumerate(pairs, 1)])


def _options_of(value: object) -> list[str]:
    """Return the options of a question, each with its letter or label; an empty list for a value of another form."""
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


def _option_columns(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the columns that hold one option each, by letter or number; empty unless there are at least two."""
    for form in _COLUMNS:
        for names in (_LETTERS, _LETTERS.lower(), "123456789"):
            columns = {name.upper(): form.format(name) for name in names}
            found = dict(takewhile(lambda one: _is_option(record.get(one[1])), columns.items()))
            if len(found) > 1 and (form != "{}" or names != "123456789"):
                return found
    return {}


def _is_option(value: object) -> bool:
    """Return True if a value may be an option: a text that is not blank, or a number."""
    return isinstance(value, int | float) or (isinstance(value, str) and bool(value.strip()))


def _chosen_option(answer: object, listed: Sequence[str]) -> object:
    """Return the option that an answer names by letter or number (for lettered options, its position from 0 on);
    return any other answer unchanged.
    """
    said = "" if isinstance(answer, bool) or not isinstance(answer, int | str) else str(answer).strip()
    named = _NAMED.fullmatch(said)
    if named is None or answer in [option.partition(". ")[2] for option in listed]:
        return answer
    name = named[1].upper()
    if name.isdecimal() and listed[0].startswith("A. "):
        name = _LETTERS[int(name)]
    return next((option for option in listed if option.startswith(f"{name}. ")), answer)


def read_preference(
    prompt: object, before: list[Message], chosen: object, rejected: object, *, both: bool = False
) -> list[Pair]:
    """Return the chosen response with its prompt, and with *both* also the rejected one, if there is one.

    The prompt is text or messages, or None if the responses (texts or messages) contain it.
    """
    if prompt is None and isinstance(chosen, str) and not _SPEAKER.search(chosen):
        border = _border(chosen, rejected) if isinstance(rejected, str) else 0
        prompt, chosen = chosen[:border], chosen[border:]
        rejected = rejected[border:] if isinstance(rejected, str) else rejected
    shared = _shared_messages(chosen, rejected) if is_messages(chosen) and is_messages(rejected) else 0
    first = _pair(prompt, before, chosen, "chosen", shared)
    if rejected is None or not both:
        return [first]
    second = _pair(prompt, before, rejected, "rejected", shared)
    return [first._replace(part=("preference", "chosen")), second._replace(part=("preference", "rejected"))]


def _shared_messages(chosen: Sequence[object], rejected: Sequence[object]) -> int:
    """Return how many messages two conversations have in common at their beginning, but not all of one of them."""
    least = max(0, min(len(chosen), len(rejected)) - 1)
    pairs = zip(chosen[:least], rejected[:least], strict=True)
    return sum(1 for _ in takewhile(lambda pair: without_nulls(pair[0]) == without_nulls(pair[1]), pairs))


def _pair(prompt: object, before: list[Message], response: object, name: str, shared: int = 0) -> Pair:
    """Return one side of a preference; of conversations whose earlier answers differ, all but *shared* is learnt."""
    if isinstance(response, str):
        if prompt is None:
            return last_turn(before + _spoken(response, name), name, _ENDED)
        if not before and isinstance(prompt, str):
            return Pair(prompt, response)
        return last_turn([*before, *_said("user", "prompt", prompt), *_said("assistant", "response", response)], name)
    if not isinstance(response, Mapping) and not is_messages(response):
        raise DataError(f"{name} is {describe(response)}; text or messages are expected.")
    said = read_messages([response] if isinstance(response, Mapping) else response, name)
    asked = [] if prompt is None else _said("user", "prompt", prompt)
    # Some data sets repeat the prompt in both conversations, others hold the completions alone.
    if (
        not asked
        or said[0].role in ("system", "user")
        or [one[:2] for one in said[: len(asked)]] == [one[:2] for one in asked]
    ):
        if shared and said[shared].role not in ("system", "user"):
            return _completed(before + said[:shared], said[shared:], name, _ENDED)
        return last_turn(before + said, name, _ENDED)
    return _completed(before + asked, said, name, _ENDED)


def _spoken(dialogue: str, name: str) -> list[Message]:
    """Return the messages of a text with ``Human:`` and ``Assistant:`` at the heads of its paragraphs."""
    _, *parts = _SPEAKER.split(dialogue)
    speakers = {"Human": "user", "Assistant": "assistant"}
    said = zip(parts[::2], parts[1::2], strict=True)
    found = [Message(speakers[who], what.strip()) for who, what in said if what.strip()]
    if not found:
        raise DataError(
            f"{name} has the speaker names Human: or Assistant:, but no text after them. Fill in the text, or remove "
            "the record."
        )
    return found


def _border(chosen: str, rejected: str, *, literal: bool = False) -> int:
    """Return the length of two texts' common beginning up to its last white space; 0 if one text begins the other.

    *literal*: as trl does, all of the beginning without a space at its end, and without the last letter of a text.
    """
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(chosen, rejected, strict=False)))
    one_begins_other = shared in (len(chosen), len(rejected))
    if literal:
        return shared - (one_begins_other or chosen[shared - 1 : shared] == " ")
    if one_begins_other:  # the prompt's end is unknown
        return 0
    return max((place + 1 for place in range(shared) if chosen[place].isspace()), default=0)

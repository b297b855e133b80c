"""Roles of messages by all their names; marks of learnt turns."""

from collections.abc import Mapping, Sequence
from typing import Any

from airrep.corpus.schemas.values import describe, text
from airrep.errors import DataError

ROLES = {
    "system": ("developer",),
    "user": ("human", "prompter"),
    "assistant": (
        *("gpt", "chatgpt", "bot", "ai", "model", "bing", "bard", "claude", "gemini", "llm", "chatbot", "chip2"),
        *("function_call", "tool_call", "tool_calls"),
    ),
    "tool": ("function", "observation", "ipython", "tool_response", "tool_result", "tool_results", "function_response"),
}
"""Each role, and its other names: of ShareGPT, LangChain, OASST, Gemini, Llama, ms-swift, LLaMA-Factory."""
_KNOWN = {name: role for role, names in ROLES.items() for name in (role, *names)}
WRITTEN = ("system", "developer", "user", "assistant", "tool", "function", "observation", "ipython")
"""Roles that chat templates know: they get these as they stand."""
CALLS = ("function_call", "tool_call", "tool_calls")
"""Roles of messages that hold a call of a tool, as JSON text."""

_COUNTS = (
    *("weight", "loss", "loss_weight", "loss_mask", "loss_scale", "train", "training", "trainable", "is_trainable"),
    *("train_on_turn", "compute_loss"),
)
HIDES = ("masked", "is_masked", "mask", "ignore_loss")
"""Marks of which true says that a message is not learnt."""
MARKS = (*_COUNTS, *HIDES)
"""Keys of a message that say whether it is learnt: of OpenAI, ms-swift, LLaMA-Factory, verl, axolotl, Fireworks,
torchtune."""
_MARKS = frozenset(MARKS)
_OF_PARTS = ("train", "weight")
"""Marks of a part of a message, of axolotl."""
_NO = (False, 0)


def role_of(where: str, value: object) -> tuple[str, str]:
    """The role of a message, and its name as chat templates get it.

    Raises:
        DataError: it is none that is known: a line of another name would be learnt or read as somebody else's.

    Example:
        >>> role_of("the role of message 1", "GPT"), role_of("the role of message 1", "ipython")
        (('assistant', 'assistant'), ('tool', 'ipython'))
    """
    given = value if isinstance(value, str) and value in _KNOWN else text(where, value).strip().lower()
    role = _KNOWN.get(given)
    if role is None:
        raise DataError(
            f"{where} is {value!r}; {', '.join(ROLES)} or a usual name of these is expected. Rename it, or leave the "
            "record out"
        )
    return role, given if given in WRITTEN else role


def is_learnt(number: int, message: Mapping[str, Any]) -> bool:
    """True if a trainer learns a message: no mark of it says otherwise.

    Raises:
        DataError: a mark is neither true nor false, nor a number, nor null.

    Example:
        >>> is_learnt(1, {"weight": 0}), is_learnt(1, {"masked": True}), is_learnt(1, {"train": None})
        (False, False, True)
    """
    if _MARKS.isdisjoint(message):  # nearly always
        return _some_part_is_learnt(message.get("content"))
    counted = [_truth(number, name, message[name]) for name in _COUNTS if message.get(name) is not None]
    hidden = [_truth(number, name, message[name]) for name in HIDES if message.get(name) is not None]
    return all(counted) and not any(hidden) and _some_part_is_learnt(message.get("content"))


def _some_part_is_learnt(content: object) -> bool:
    """True if a message has no parts, or some part that is not marked as left out of training."""
    if not isinstance(content, list | tuple) or not content:
        return True
    return not all(isinstance(one, Mapping) and any(one.get(name) in _NO for name in _OF_PARTS) for one in content)


def half_heeded(message: Mapping[str, Any], marks: Sequence[str] = MARKS) -> list[str]:
    """List cautions about marks that airrep follows only in part, as far as *marks* are heeded.

    Example:
        >>> half_heeded({"weight": 0.5}), half_heeded({"weight": 1}), half_heeded({"weight": 0.5}, ("loss",))
        (['weights of turns other than 0 and 1 count as 1'], [], [])
    """
    weights = [message[name] for name in _COUNTS if name in marks and message.get(name) is not None]
    parts = message.get("content")
    marked = [part for part in parts if isinstance(part, Mapping)] if isinstance(parts, list | tuple) else []
    of_parts = any(part.get(name) is not None for part in marked for name in _OF_PARTS) or "train_detail" in message
    told = {
        "weights of turns other than 0 and 1 count as 1": any(map(_is_fraction, weights)),
        "turns of which parts are marked count whole": of_parts and "train" in marks,
    }
    return [words for words, holds in told.items() if holds]


def _is_fraction(value: Any) -> bool:
    return str(value).strip().lower() not in ("true", "false") and float(value) not in (0, 1)


def _truth(number: int, name: str, value: Any) -> bool:
    written = {"true": True, "false": False, "1": True, "0": False}
    if isinstance(value, str) and value.strip().lower() in written:
        return written[value.strip().lower()]
    try:
        return bool(float(value) != 0)
    except (TypeError, ValueError):
        raise DataError(
            f"{name} of message {number} is {describe(value)}; true, false, a number or null is expected"
        ) from None

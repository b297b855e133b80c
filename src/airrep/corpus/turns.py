"""Prompts of several messages, shortened so that their last one is seen."""

from airrep.corpus.schemas.conversations import holds_turns

_ROLES = ("User", "Assistant", "Tool", "System", "Tools")
_FIRST = ("System: ", "Tools: ")
SYSTEM = "[system …] "
"""Text in place of a folded system prompt."""
DOTS = "… "
"""Text in place of everything before the last message."""


def last_message(prompt: str, length: int) -> int:
    """Find the last message's first character in a prompt longer than *length* on one line.

    It is 0 for a prompt that fits, and for one that is no conversation.
    """
    if len(prompt) <= length or not holds_turns(prompt):
        return 0
    if len(prompt) <= 2 * length and len(" ".join(prompt.split())) <= length:
        return 0
    return message_at(prompt, len(prompt))


def message_at(prompt: str, place: int) -> int:
    """Find the first character of the message that holds a place of a conversation."""
    heads = [f"\n{role}: " for role in _ROLES]
    return max(prompt.rfind(head, 0, place + len(head)) + 1 for head in heads)


def system_end(prompt: str) -> int:
    """Find the first message after a system prompt and its tools; 0 if there is neither."""
    end = 0
    while prompt.startswith(_FIRST, end) and (end or holds_turns(prompt)):
        heads = (prompt.find(f"\n{role}: ", end) for role in _ROLES)
        end = min((head for head in heads if head >= 0), default=-1) + 1
        if not end:
            return 0
    return end


def folded(prompt: str) -> str:
    """A prompt without its system prompt, and a question that stands alone then without its role.

    Example:
        >>> folded("System: Be polite.\\nUser: Is it late?")
        '[system …] Is it late?'
    """
    rest = prompt[(end := system_end(prompt)) :]
    if not end:
        return prompt
    return SYSTEM + (rest if message_at(rest, len(rest)) else rest.removeprefix("User: "))


def from_last_message(prompt: str, length: int) -> str:
    """A prompt to be shortened to *length* characters: of several messages the last, behind dots; others whole.

    What stands before the question is alike in all examples of a data set: its system prompt, its tools.

    Example:
        >>> from_last_message("System: Be polite.\\nUser: Is it late?", 20)
        '… User: Is it late?'
    """
    start = last_message(prompt, length)
    return DOTS + prompt[start:] if start else prompt

"""Prompts of several messages, shortened so that their last one is seen."""

from airrep.corpus.schemas.conversations import holds_turns

_ROLES = ("User", "Assistant", "Tool", "System", "Tools")
DOTS = "… "
"""What stands for all before the last message."""


def last_message(prompt: str, length: int) -> int:
    """Where the last of several messages begins in a prompt that is longer than *length* on one line.

    It is 0 for a prompt that fits, and for one that is no conversation.
    """
    if len(prompt) <= length or not holds_turns(prompt):
        return 0
    if len(prompt) <= 2 * length and len(" ".join(prompt.split())) <= length:
        return 0
    return message_at(prompt, len(prompt))


def message_at(prompt: str, place: int) -> int:
    """Where the message begins that a place of a conversation is in."""
    heads = [f"\n{role}: " for role in _ROLES]
    return max(prompt.rfind(head, 0, place + len(head)) + 1 for head in heads)


def from_last_message(prompt: str, length: int) -> str:
    """A prompt to be shortened to *length* characters: of several messages the last, behind dots; others whole.

    What stands before the question is alike in all examples of a data set: its system prompt, its tools.

    Example:
        >>> from_last_message("System: Be polite.\\nUser: Is it late?", 20)
        '… User: Is it late?'
    """
    start = last_message(prompt, length)
    return DOTS + prompt[start:] if start else prompt

"""Which examples are parts of one record: turns, or a preference pair."""

from collections.abc import Hashable

from airrep.corpus.corpus import Example
from airrep.corpus.schemas.conversations import answered

PARTS = ("turn", "preference")
"""Metadata keys that tell which part of its record an example is."""


class RecordKeys:
    """Keys of the records that examples are of, asked for in the order of the data.

    Parts of a record with an id have it before the last "/" of their own. The ids of others are hashes of their texts;
    these are parts of the same record as the example right before them if that is an earlier turn, whose prompt and
    response their own prompt begins with, or the chosen response to the same prompt. If the data were shuffled since
    they were read, such parts are taken for records of their own.
    """

    def __init__(self) -> None:
        self._count = 0
        self._before: tuple[Example, Hashable] | None = None

    def of(self, example: Example) -> Hashable:
        """The key of the record of the next example."""
        own = _record_id(example)
        self._count += 1
        key: Hashable = self._count if own is None else own
        if own is None and self._before is not None and _follows(example, self._before[0]):
            key = self._before[1]
        self._before = (example, key)
        return key


def _record_id(example: Example) -> str | None:
    ends = (f"/{example.metadata[name]}" for name in PARTS if name in example.metadata)
    return next((example.id[: -len(end)] for end in ends if example.id.endswith(end)), None)


def _follows(example: Example, before: Example) -> bool:
    """Whether an example is the next part of the record that another is a part of."""
    first, second = before.metadata, example.metadata
    if (first.get("preference"), second.get("preference")) == ("chosen", "rejected"):
        return before.prompt == example.prompt
    turns = first.get("turn"), second.get("turn")
    if not (isinstance(turns[0], int) and isinstance(turns[1], int) and turns[0] < turns[1]):
        return False
    return example.prompt.startswith(answered(before.prompt, before.response))

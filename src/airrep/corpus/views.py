"""Views: the parts of an example that a representation reads."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import numpy as np

from airrep.arrays import Mask
from airrep.corpus.corpus import Corpus, Example
from airrep.corpus.schemas.conversations import REJECTED

View: TypeAlias = Literal["whole", "response", "prompt"]
"""The part of an example that a representation reads. The loss of fine-tuning counts only the response."""


_TOGETHER = 4096
"""Number of rows whose texts are made at a time."""


def seen(example: Example, view: View) -> Example:
    """Return the example with the text that the view does not show set to ""."""
    if view == "whole":
        return example
    return replace(example, prompt="") if view == "response" else replace(example, response="", span=None)


def seen_text(example: Example, view: View) -> str:
    """Return the text that a view shows; "whole" puts prompt and response on separate lines."""
    return f"{example.prompt}\n{example.response}" if view == "whole" else str(getattr(example, view))


def seen_texts(examples: Sequence[Example], view: View) -> Iterator[str]:
    """Yield the text that a view shows of each example; a corpus is read batch by batch from its table's columns."""
    if not isinstance(examples, Corpus):
        return (seen_text(example, view) for example in examples)
    names = ["prompt", "response"] if view == "whole" else [view]
    batches = examples.table.select(names).to_batches(max_chunksize=_TOGETHER)
    columns: Iterator[list[Any]] = ([column.to_pylist() for column in batch.columns] for batch in batches)
    return (text for part in columns for text in (map("{}\n{}".format, *part) if view == "whole" else part[0]))


def something_seen(examples: Sequence[Example], view: View) -> Mask:
    """Return True for each example whose view holds more than white space, ``(rows,)``."""
    return np.fromiter((bool(text.strip()) for text in seen_texts(examples, view)), dtype=bool, count=len(examples))


def has_pairs(examples: Sequence[Example]) -> bool:
    """Return True if some example is a preference pair; a corpus is first searched by its column ``chat``."""
    if not isinstance(examples, Corpus):
        return any(example.is_pair for example in examples)
    chats = examples.table.column("chat").drop_null().to_pylist()
    return any(REJECTED in str(chat) for chat in chats) and any(example.is_pair for example in examples)


def chosen_sides(examples: Sequence[Example]) -> Sequence[Example]:
    """Return examples with one response each; a preference pair gives its chosen side."""
    return [example.sides[0] for example in examples] if has_pairs(examples) else examples


def both_sides(train: Corpus) -> Corpus:
    """Return a corpus with one response per example: all chosen sides, then the rejected sides of the pairs."""
    if not has_pairs(train):
        return train
    sides = [example.sides for example in train]
    rejected = [replace(other, id=f"{other.id}/{REJECTED}") for _, other in sides if other is not None]
    return Corpus.from_examples([*(chosen for chosen, _ in sides), *rejected])

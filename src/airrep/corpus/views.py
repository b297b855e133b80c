"""Views: what of an example a representation reads."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import numpy as np

from airrep.arrays import Mask
from airrep.corpus.corpus import Corpus, Example
from airrep.corpus.schemas.conversations import REJECTED

View: TypeAlias = Literal["whole", "response", "prompt"]
"""The part of an example that a representation reads. The loss that fine-tuning changes counts the response alone."""


_TOGETHER = 4096
"""Rows whose texts are made at a time."""


def seen(example: Example, view: View) -> Example:
    """The example as a view shows it: what is not read is empty, all else stays."""
    if view == "whole":
        return example
    return replace(example, prompt="") if view == "response" else replace(example, response="", span=None)


def seen_text(example: Example, view: View) -> str:
    """The text that a view shows; prompt and response on lines of their own."""
    return f"{example.prompt}\n{example.response}" if view == "whole" else str(getattr(example, view))


def seen_texts(examples: Sequence[Example], view: View) -> Iterator[str]:
    """The text that a view shows of each example; a corpus is read by the columns of its table, part by part."""
    if not isinstance(examples, Corpus):
        return (seen_text(example, view) for example in examples)
    names = ["prompt", "response"] if view == "whole" else [view]
    batches = examples.table.select(names).to_batches(max_chunksize=_TOGETHER)
    columns: Iterator[list[Any]] = ([column.to_pylist() for column in batch.columns] for batch in batches)
    return (text for part in columns for text in (map("{}\n{}".format, *part) if view == "whole" else part[0]))


def something_seen(examples: Sequence[Example], view: View) -> Mask:
    """True for each example of which a view shows more than white space, ``(rows,)``."""
    return np.fromiter((bool(text.strip()) for text in seen_texts(examples, view)), dtype=bool, count=len(examples))


def has_pairs(examples: Sequence[Example]) -> bool:
    """True if some example is a preference pair; a corpus is looked through by its column of chats."""
    if not isinstance(examples, Corpus):
        return any(example.is_pair for example in examples)
    chats = examples.table.column("chat").drop_null().to_pylist()
    return any(REJECTED in str(chat) for chat in chats) and any(example.is_pair for example in examples)


def chosen_sides(examples: Sequence[Example]) -> Sequence[Example]:
    """Examples with one response each, of pairs the chosen one."""
    return [example.sides[0] for example in examples] if has_pairs(examples) else examples


def both_sides(train: Corpus) -> Corpus:
    """A corpus with one response an example: first the chosen ones, then those that pairs reject."""
    if not has_pairs(train):
        return train
    sides = [example.sides for example in train]
    rejected = [replace(other, id=f"{other.id}/{REJECTED}") for _, other in sides if other is not None]
    return Corpus.from_examples([*(chosen for chosen, _ in sides), *rejected])

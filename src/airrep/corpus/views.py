"""Views: what of an example a representation reads."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, TypeAlias, cast

import numpy as np

from airrep.arrays import Mask
from airrep.corpus.corpus import Corpus, Example

View: TypeAlias = Literal["whole", "response", "prompt"]
"""The part of an example that a representation reads. The loss that fine-tuning changes counts the response alone."""


def seen(example: Example, view: View) -> Example:
    """The example as a view shows it: what is not read is empty, all else stays."""
    if view == "whole":
        return example
    return replace(example, prompt="") if view == "response" else replace(example, response="")


def seen_text(example: Example, view: View) -> str:
    """The text that a view shows; prompt and response on lines of their own."""
    return f"{example.prompt}\n{example.response}" if view == "whole" else str(getattr(example, view))


def seen_texts(examples: Sequence[Example], view: View) -> list[str]:
    """The text that a view shows of each example."""
    if not isinstance(examples, Corpus):
        return [seen_text(example, view) for example in examples]
    if view != "whole":  # of a table's column, without the rest of its rows
        return cast(list[str], examples.table[view].to_pylist())
    return list(map("{}\n{}".format, *(examples.table[name].to_pylist() for name in ("prompt", "response"))))


def something_seen(examples: Sequence[Example], view: View) -> Mask:
    """Whether a view shows more than white space of each example, ``(rows,)``."""
    return np.fromiter((bool(text.strip()) for text in seen_texts(examples, view)), dtype=bool, count=len(examples))

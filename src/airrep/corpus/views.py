"""Views: what of an example a representation reads."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

import numpy as np

from airrep.arrays import Mask
from airrep.corpus.corpus import Example

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


def something_seen(examples: Sequence[Example], view: View) -> Mask:
    """Whether a view shows more than white space of each example, ``(rows,)``."""
    return np.fromiter((bool(seen_text(one, view).strip()) for one in examples), dtype=bool, count=len(examples))

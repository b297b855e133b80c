"""Examples of an index as words: normalised, and their n-grams."""

import re
import unicodedata
from collections.abc import Iterator, Sequence

from airrep.arrays import Mask
from airrep.corpus.corpus import Example
from airrep.corpus.words import WORD
from airrep.index.rows import IndexRows

_OPERATORS = re.compile(r"[<>=+*/%&|^~\[\]{}()#@$\\¬±×÷\u2190-\u2211\u2213-\u22ff]|[-\u2010\u2212](?=\w)")
"""Signs that tell programs and formulas apart, arrows and those of mathematics among them; those of prose do not."""
_MINUS = {0x2010: "-", 0x2212: "-"}


def kept_examples(index: IndexRows, keep: Mask) -> Iterator[tuple[int, Example]]:
    """Row numbers and examples of the kept rows, in order."""
    for shard in index.shards:
        kept = keep[shard.start : shard.start + shard.rows].tolist()
        for place, example in enumerate(shard.examples if any(kept) else ()):  # one by one they would be slow to get
            if kept[place]:
                yield shard.start + place, example


def kept_values(index: IndexRows, keep: Mask, field: str) -> list[str | None]:
    """One field of the kept rows as text, named as groups are; None where it is missing.

    Raises:
        ConfigError: no such field.
    """
    return [value for value, kept in zip(index.values(field, quoted=True), keep.tolist(), strict=True) if kept]


def words_of(text: str) -> list[str]:
    """The words of a text in their normal form: any case, any width, without punctuation and white space.

    Of scripts without spaces between words, such as Chinese and Thai, each sign is one.
    """
    return WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def operators_of(text: str) -> str:
    """The operators and brackets of a text in their order, of any width; a minus if it stands before a word.

    Example:
        >>> operators_of("If (x < 5), then ... well-known - or not")
        '(<)-'
    """
    return "".join(_OPERATORS.findall(unicodedata.normalize("NFKC", text))).translate(_MINUS)


def ngrams_of(words: Sequence[str], order: int) -> list[str]:
    """All n-grams of words, repeats included; none where there are fewer words."""
    return [" ".join(words[start : start + order]) for start in range(len(words) - order + 1)]

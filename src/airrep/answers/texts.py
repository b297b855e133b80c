"""Examples of an index as words: normalised, and their n-grams."""

import re
import unicodedata
from collections.abc import Iterator, Sequence

from airrep.arrays import Mask
from airrep.corpus.corpus import Example
from airrep.corpus.words import INVISIBLE, Words
from airrep.index.rows import IndexRows

_WORDS = Words(signs=True)
_INVISIBLE = re.compile(f"[{INVISIBLE}]")


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
    """The words of a text in their normal form: any case and width, without punctuation, white space and the invisible.

    Of scripts without spaces between words, such as Chinese and Thai, each sign is one.
    """
    if text.isascii():
        return _WORDS.findall(text.lower())
    folded = unicodedata.normalize("NFKC", _INVISIBLE.sub("", text)).casefold()
    return _WORDS.findall(unicodedata.normalize("NFC", folded))


def ngrams_of(words: Sequence[str], order: int) -> list[str]:
    """All n-grams of words, repeats included; none where there are fewer words."""
    return [" ".join(words[start : start + order]) for start in range(len(words) - order + 1)]

"""Examples of an index as words: normalised, and their n-grams."""

import re
import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np

from airrep.arrays import Mask
from airrep.corpus.corpus import Example
from airrep.corpus.fields import TEXT_FIELDS, field_values
from airrep.errors import ConfigError
from airrep.index.rows import IndexRows

_WORD = re.compile(r"\w+")


def kept_examples(index: IndexRows, keep: Mask) -> Iterator[tuple[int, Example]]:
    """Row numbers and examples of the kept rows, in order."""
    for shard in index.shards:
        for place in np.flatnonzero(keep[shard.start : shard.start + shard.rows]).tolist():
            yield shard.start + place, shard.examples[place]


def kept_values(index: IndexRows, keep: Mask, field: str) -> list[str | None]:
    """One field of the kept rows as text; None where it is missing.

    Raises:
        ConfigError: no such field.
    """
    known = (*TEXT_FIELDS, *index.fields)
    if field not in known:
        raise ConfigError(f"{index.path}: has no field '{field}'; it has {', '.join(known)}. Name one of them.")
    values: list[str | None] = []
    for shard in index.shards:
        of_shard = field_values(shard.examples.table, field, index.fields)
        values += [of_shard[place] for place in np.flatnonzero(keep[shard.start : shard.start + shard.rows]).tolist()]
    return values


def words_of(text: str) -> list[str]:
    """The words of a text in their normal form: any case, any width, without punctuation and white space."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def ngrams_of(words: Sequence[str], order: int) -> list[str]:
    """All n-grams of words, repeats included; none where there are fewer words."""
    return [" ".join(words[start : start + order]) for start in range(len(words) - order + 1)]

"""Examples of an index: their words, n-grams, templates and records."""

import re
import unicodedata
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import chain

from airrep.arrays import Mask
from airrep.corpus.corpus import Example
from airrep.corpus.schemas.conversations import answered
from airrep.corpus.words import INVISIBLE, Words
from airrep.errors import ConfigError
from airrep.index.rows import IndexRows

_WORDS = Words(signs=True)
_INVISIBLE = re.compile(f"[{INVISIBLE}]")
STRETCH = 8
"""Words of an n-gram that may belong to a template; 3 words, such as "one of the", are common in any text."""
COMMON, COMMON_SHARE = 10, 0.005
"""An n-gram is common if more different texts than the first number, and a greater share than the second, have it."""
LOOKED_THROUGH = 20_000
"""Most ids that are compared with an unknown id to suggest similar ones: comparing is slow."""
PARTS = ("turn", "preference")
"""Metadata keys that say which part of its record an example is."""


def find_row(index: IndexRows, name: str) -> int:
    """Find the row of an example by its id, by its place such as ``train.jsonl:12``, or by ``row 12``.

    ConfigError: no example has this name.
    """
    found = index.find([name])
    if found:
        return found[name]
    for shard in index.shards:
        for row in (shard.start + place for place in shard.examples.places_of(name)):
            if index.live[row]:
                return row
    number = name.removeprefix("row ")
    if number != name and number.isdecimal() and int(number) < index.rows and index.live[int(number)]:
        return int(number)
    ids = chain.from_iterable(shard.examples.ids.to_pylist() for shard in index.shards)
    known = [str(one) for _, one in zip(range(LOOKED_THROUGH), ids, strict=False)]
    near = [one for one in known if one.startswith(name)][:3] or get_close_matches(name, known, n=3)
    told = f" Similar ids: {', '.join(near)}." if near else ""
    raise ConfigError(
        f"{index.path}: has no example '{name}'. Give an id, a place such as train.jsonl:12, or 'row 12'.{told}"
    )


def kept_examples(index: IndexRows, keep: Mask) -> Iterator[tuple[int, Example]]:
    """Yield row numbers and examples of the kept rows, in order."""
    for shard in index.shards:
        kept = keep[shard.start : shard.start + shard.rows].tolist()
        for place, example in enumerate(shard.examples if any(kept) else ()):  # reading them one by one is slow
            if kept[place]:
                yield shard.start + place, example


def kept_values(index: IndexRows, keep: Mask, field: str) -> list[str | None]:
    """Return one field of the kept rows as text, in the form of group names; None where it is missing."""
    return [value for value, kept in zip(index.values(field, quoted=True), keep.tolist(), strict=True) if kept]


def words_of(text: str) -> list[str]:
    """List the words of a text in normal form: lower case and one width, without punctuation or invisible characters.

    In scripts without spaces between words, such as Chinese and Thai, each character is a word.
    """
    if text.isascii():
        return _WORDS.findall(text.lower())
    folded = unicodedata.normalize("NFKC", _INVISIBLE.sub("", text)).casefold()
    return _WORDS.findall(unicodedata.normalize("NFC", folded))


def ngrams_of(words: Sequence[str], order: int) -> list[str]:
    """List all n-grams of *order* words, repeats included; none if there are fewer words."""
    return [" ".join(words[start : start + order]) for start in range(len(words) - order + 1)]


@dataclass(frozen=True)
class Templates:
    """Word stretches that were taken for templates, and so do not count as similarity."""

    stretches: int
    """Number of different word stretches, each in more texts than :func:`most_of_texts` allows."""
    texts: int
    """Number of texts that have at least one of the stretches."""
    commonest: str
    """The stretch in most texts, in the normal form of words."""
    commonest_texts: int
    """Number of texts with that stretch; equal texts count once, and so do the parts of a record."""


def most_of_texts(texts: int) -> float:
    """Return how many different texts may have an n-gram without making it common; parts of a record count once."""
    return max(COMMON, COMMON_SHARE * texts)


class RecordKeys:
    """Keys of the records that examples belong to; call :meth:`of` in the order of the data.

    If a record has an id, the ids of its parts begin with it, up to the last "/". Otherwise an example joins the record
    of the example before it if that is an earlier turn of the same chat, or the chosen response to the same prompt.
    """

    def __init__(self) -> None:
        self._count = 0
        self._before: tuple[Example, Hashable] | None = None

    def of(self, example: Example) -> Hashable:
        """Return the key of the record of the next example."""
        ends = (f"/{example.metadata[name]}" for name in PARTS if name in example.metadata)
        own = next((example.id[: -len(end)] for end in ends if example.id.endswith(end)), None)
        self._count += 1
        key: Hashable = self._count if own is None else own
        if own is None and self._before is not None and _follows(example, self._before[0]):
            key = self._before[1]
        self._before = (example, key)
        return key


def _follows(example: Example, before: Example) -> bool:
    """Return whether an example is a later part of the record that *before* belongs to."""
    first, second = before.metadata, example.metadata
    if (first.get("preference"), second.get("preference")) == ("chosen", "rejected"):
        return before.prompt == example.prompt
    turns = first.get("turn"), second.get("turn")
    if not (isinstance(turns[0], int) and isinstance(turns[1], int) and turns[0] < turns[1]):
        return False
    return example.prompt.startswith(answered(before.prompt, before.response))

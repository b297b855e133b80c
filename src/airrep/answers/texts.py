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
"""Words of an n-gram that may be a template's: ones of 3 words, such as "one of the", are common in any text."""
COMMON, COMMON_SHARE = 10, 0.005
"""An n-gram in more than so many different texts, and more than this share of all texts, is common."""
LOOKED_THROUGH = 20_000
"""Ids among which near ones are looked for: comparing takes long."""
PARTS = ("turn", "preference")
"""Metadata keys that tell which part of its record an example is."""


def find_row(index: IndexRows, name: str) -> int:
    """The row of an example that is named by its id, by its place such as ``train.jsonl:12``, or as ``row 12``.

    ConfigError: there is none.
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
    """Row numbers and examples of the kept rows, in order."""
    for shard in index.shards:
        kept = keep[shard.start : shard.start + shard.rows].tolist()
        for place, example in enumerate(shard.examples if any(kept) else ()):  # one by one they would be slow to get
            if kept[place]:
                yield shard.start + place, example


def kept_values(index: IndexRows, keep: Mask, field: str) -> list[str | None]:
    """One field of the kept rows as text, named as groups are; None where it is missing."""
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


@dataclass(frozen=True)
class Templates:
    """Texts that were taken for templates, and so said nothing."""

    stretches: int
    """Different stretches of words, each in more texts than :func:`most_of_texts` says."""
    texts: int
    """Texts that have some of them."""
    commonest: str
    """The first of those that stand in most texts, in the normal form of words."""
    commonest_texts: int
    """Texts that have that one; equal texts count once, and so do the parts of a record."""


def most_of_texts(texts: int) -> float:
    """In how many different texts an n-gram may stand without being common; parts of a record count once."""
    return max(COMMON, COMMON_SHARE * texts)


class RecordKeys:
    """Keys of the records that examples are of, asked for in the order of the data.

    Parts of a record with an id have it before the last "/" of their own. Without one, an example belongs to the record
    of the one right before it if that is an earlier turn, which its prompt begins with, or the chosen response to it.
    """

    def __init__(self) -> None:
        self._count = 0
        self._before: tuple[Example, Hashable] | None = None

    def of(self, example: Example) -> Hashable:
        """The key of the record of the next example."""
        ends = (f"/{example.metadata[name]}" for name in PARTS if name in example.metadata)
        own = next((example.id[: -len(end)] for end in ends if example.id.endswith(end)), None)
        self._count += 1
        key: Hashable = self._count if own is None else own
        if own is None and self._before is not None and _follows(example, self._before[0]):
            key = self._before[1]
        self._before = (example, key)
        return key


def _follows(example: Example, before: Example) -> bool:
    """Tell whether an example is the next part of the record that another is a part of."""
    first, second = before.metadata, example.metadata
    if (first.get("preference"), second.get("preference")) == ("chosen", "rejected"):
        return before.prompt == example.prompt
    turns = first.get("turn"), second.get("turn")
    if not (isinstance(turns[0], int) and isinstance(turns[1], int) and turns[0] < turns[1]):
        return False
    return example.prompt.startswith(answered(before.prompt, before.response))

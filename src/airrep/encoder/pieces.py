"""Turn texts into word pieces, each different word once."""

import json
import re
from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np

from airrep.encoder.tokens import chunks, parse_tokenizer, unknown_of, unknown_shares
from airrep.shapes import Int32, Int64

_WORD = re.compile("[^ \t\n\r]+")
"""Words as a BERT tokenizer first splits them. It splits at other signs too, but drops some characters that Python
counts as spaces."""
_SPACE = re.compile("[ \t\n\r]")
_NONE = np.empty(0, np.int32)
_PART = 1 << 20
"""Characters that are read at a time."""
_MOST = 1 << 23
"""Characters of the words that are remembered, a hundred more for each of them: some 30 MB."""
_AROUND = 100


class Pieces(NamedTuple):
    """Pieces of some texts, end to end."""

    ids: Int32[np.ndarray, " pieces"]
    offsets: Int64[np.ndarray, " texts_and_one"]
    """The place where each text begins, and the end."""


class PieceTokenizer:
    """A tokenizer that adds no special tokens and does not pad.

    What BERT's tokenizer makes of a word does not depend on the words around it, so each different word is tokenised
    once. Others read whole texts.

    Args:
        content: content of ``tokenizer.json``, without padding; its truncation counts.
        where: the model's name, for errors.

    Attributes:
        digest: digest of the content, whatever the order of its keys.
        vocabulary: number of each token by its text.
        unknown: the token that stands for what the vocabulary lacks; None without one.
    """

    def __init__(self, content: dict[str, Any], where: str) -> None:
        # Written once, by C, for the library and the digest: a vocabulary has a hundred thousand lines.
        written = json.dumps(content, sort_keys=True)
        self._tokenizer, self.digest = parse_tokenizer(written, where), sha256(written.encode()).hexdigest()
        cut = content.get("truncation") or {}
        self._most, self._from_left = cut.get("max_length"), cut.get("direction") == "Left"
        self._tokenizer.no_truncation()
        self.vocabulary = _vocabulary(content) or self._tokenizer.get_vocab()
        self.unknown = unknown_of(content, self._tokenizer)
        self._word_by_word = _reads_word_by_word(content)
        self._known, self._held = dict[str, list[int]](), 0

    def __call__(self, texts: Sequence[str]) -> Pieces:
        """The pieces of texts, cut off where the tokenizer cuts."""
        read = self._by_word if self._word_by_word else self._by_text
        rows = [self._cut(row) for chunk in chunks(texts) for row in read(chunk)]
        offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
        return Pieces(np.concatenate([np.empty(0, np.int32), *rows]), offsets)

    def unknown_shares(self, texts: Sequence[str]) -> np.ndarray:
        """Share of each text that has no token of its own: see :func:`airrep.encoder.tokens.unknown_shares`."""
        return unknown_shares(self._tokenizer, self.unknown, texts)

    def _cut(self, row: np.ndarray) -> np.ndarray:
        if self._most is None or len(row) <= self._most:
            return row
        return row[len(row) - self._most :] if self._from_left else row[: self._most]

    def _by_text(self, texts: Sequence[str]) -> list[np.ndarray]:
        encoded = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [np.array(one.ids, np.int32) for one in encoded]

    def _by_word(self, texts: Sequence[str]) -> list[np.ndarray]:
        if len(texts) == 1 and len(texts[0]) > _PART:
            return [np.concatenate([self._of_words([part])[0] for part in parts(texts[0])])]
        return self._of_words(texts)

    def _of_words(self, texts: Sequence[str]) -> list[np.ndarray]:
        words = [_WORD.findall(text) for text in texts]
        known = self._with(set[str]().union(*words))
        return [np.fromiter(chain.from_iterable(map(known.__getitem__, row)), np.int32) for row in words]

    def _with(self, words: set[str]) -> dict[str, list[int]]:
        """Pieces of words by word, these among them; nothing is taken out of it, so other threads may read it."""
        if self._held > _MOST:
            self._known, self._held = {}, 0
        known = self._known
        if missing := sorted(words.difference(known)):
            known.update(zip(missing, self._pieces_of(missing), strict=True))
            self._held += sum(map(len, missing)) + _AROUND * len(missing)
        return known

    def _pieces_of(self, words: Sequence[str]) -> Iterator[list[int]]:
        """Pieces of each word, by where each piece begins in one text of all words: quicker than one by one."""
        encoded = self._tokenizer.encode(" ".join(words), add_special_tokens=False)
        ids, starts = encoded.ids, np.array([start for start, _ in encoded.offsets], np.int64)
        ends = np.cumsum([len(word) + 1 for word in words])
        bounds = [0, *np.searchsorted(starts, ends).tolist()]
        return (ids[begin:end] for begin, end in pairwise(bounds))


def parts(text: str) -> Iterator[str]:
    """A text in parts that a BERT tokenizer reads as it reads the whole; few are longer than a part's length."""
    start = 0
    while len(text) - start > _PART:
        found = _SPACE.search(text, start + _PART)
        if found is None:
            break
        yield text[start : found.start()]
        start = found.start()
    yield text[start:]


def _vocabulary(content: dict[str, Any]) -> dict[str, int] | None:
    """Numbers of all tokens where the content lists them by text, in its order: the library's copy takes longer."""
    known = content["model"].get("vocab")
    if not isinstance(known, dict):
        return None
    return {**known, **{token["content"]: token["id"] for token in content.get("added_tokens") or ()}}


def _reads_word_by_word(content: dict[str, Any]) -> bool:
    kinds = [(content.get(part) or {}).get("type") for part in ("normalizer", "pre_tokenizer")]
    added = (str(token.get("content")) for token in content.get("added_tokens") or ())
    return kinds in (["BertNormalizer", "BertPreTokenizer"], [None, "BertPreTokenizer"]) and not any(
        map(_SPACE.search, added)
    )

"""Turn texts into token ids without padding, and into word pieces."""

import json
import re
from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Encoding, Tokenizer

from airrep.errors import ConfigError, DataError
from airrep.shapes import Float64, Int32, Int64

LEAST_TOKENS = 3  # two of them special ones
_CHUNK_TEXTS = 256
_CHUNK_CHARACTERS = 1 << 20
_CHARACTERS_A_TOKEN = 16  # a guess: a text for which it was too few is read again, whole
_BREAK = re.compile("[ \n\t]")


class TextTokenizer:
    """A tokenizer that cuts texts off after ``max_tokens``, special tokens included, and does not pad.

    *content* is that of ``tokenizer.json``, without truncation and padding; *vocabulary* the number of embeddings.
    """

    def __init__(self, content: dict[str, Any], max_tokens: int, vocabulary: int, where: str) -> None:
        self._tokenizer = parse_tokenizer(content, where)
        self._tokenizer.enable_truncation(max_tokens)
        self._max_tokens = max_tokens
        self._unknown = unknown_of(content, self._tokenizer)
        pre_tokenizer = content.get("pre_tokenizer")
        splits_at_spaces = isinstance(pre_tokenizer, dict) and pre_tokenizer.get("type") == "BertPreTokenizer"
        self._enough = _CHARACTERS_A_TOKEN * max_tokens if splits_at_spaces else None
        largest = max(self._tokenizer.get_vocab().values(), default=0)
        if largest >= vocabulary:
            raise DataError(
                f"{where}: its tokenizer has token number {largest}, but its encoder has only {vocabulary} embeddings. "
                "Use the tokenizer that the encoder was trained with."
            )
        if not self._tokenizer.encode("").ids:
            raise DataError(
                f"{where}: its tokenizer adds no special tokens, such as [CLS] and [SEP], so an empty text would have "
                "no token. Use the tokenizer that the encoder was trained with."
            )

    def __call__(self, texts: Sequence[str]) -> list[Int64[np.ndarray, " length"]]:
        """Return token ids of each text, special tokens included."""
        sequences: list[Int64[np.ndarray, " length"]] = []
        for chunk in chunks(texts):
            clipped = [self._clip(text) for text in chunk]
            encoded = [np.array(one.ids, np.int64) for one in self._tokenizer.encode_batch_fast(clipped)]
            sequences += map(self._complete, chunk, clipped, encoded)
        return sequences

    def unknown_shares(self, texts: Sequence[str]) -> Float64[np.ndarray, " texts"]:
        """Return the share of each text that the vocabulary lacks: see :func:`unknown_shares`."""
        return unknown_shares(self._tokenizer, self._unknown, [self._clip(text) for text in texts])

    def _clip(self, text: str) -> str:
        """Leave out text far beyond ``max_tokens``, if the tokenizer splits words at spaces."""
        if self._enough is None or len(text) <= self._enough:
            return text
        found = _BREAK.search(text, self._enough)
        return text if found is None else text[: found.start()]

    def _complete(self, text: str, clipped: str, encoded: Int64[np.ndarray, " length"]) -> Int64[np.ndarray, " longer"]:
        """Read the whole text if the clipped text had too few tokens after all."""
        if len(clipped) == len(text) or len(encoded) == self._max_tokens:
            return encoded
        return np.array(self._tokenizer.encode(text).ids, np.int64)


def unknown_shares(tokenizer: Tokenizer, unknown: int | None, texts: Sequence[str]) -> Float64[np.ndarray, " texts"]:
    """Return the share of each text's tokens, or of its characters if that is more, that are the token *unknown*.

    A whole word in a script that the vocabulary lacks is one unknown token, so few tokens can be most of a text.
    Special tokens do not count; if *unknown* is None, the share is 0.
    """
    if unknown is None:
        return np.zeros(len(texts))
    encoded = (one for chunk in chunks(texts) for one in tokenizer.encode_batch(chunk))
    return np.array([_unknown_share(one, unknown) if unknown in one.ids else 0.0 for one in encoded], np.float64)


def _unknown_share(encoded: Encoding, unknown: int) -> float:
    own = np.array(encoded.special_tokens_mask) == 0
    is_unknown = own & (np.array(encoded.ids) == unknown)
    starts, ends = np.array(encoded.offsets).T
    characters = ends - starts
    of_characters = characters[is_unknown].sum() / max(characters[own].sum(), 1)
    return float(max(is_unknown.sum() / max(own.sum(), 1), of_characters))


def unknown_of(content: dict[str, Any], tokenizer: Tokenizer) -> int | None:
    """Return the number of the unknown token; None if there is none."""
    model = content.get("model") or {}
    number, token = model.get("unk_id"), model.get("unk_token")
    return number if number is not None or token is None else tokenizer.token_to_id(token)


def check_max_tokens(max_tokens: int, most: int, where: str) -> int:
    """Return *max_tokens* (ConfigError: the encoder cannot read this number of tokens)."""
    if not LEAST_TOKENS <= max_tokens <= most:
        raise ConfigError(f"{where}: max_tokens is {max_tokens}; must be from {LEAST_TOKENS} to {most}.")
    return max_tokens


def check_texts(texts: Sequence[object], first: int = 0) -> None:
    """Refuse a text that is not a string or not valid Unicode; errors number texts from *first* on."""
    for number, text in enumerate(texts, first):
        if not isinstance(text, str):
            raise DataError(f"text {number}: is not a string but of type {type(text).__name__}. Correct the data.")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"text {number}: is not valid Unicode: it has half of a surrogate pair at character {error.start}. "
                "Correct the text or leave it out."
            ) from error


def parse_tokenizer(content: dict[str, Any] | str, where: str) -> Tokenizer:
    """Make a tokenizer from the content of its ``tokenizer.json``, parsed or as JSON text."""
    try:
        return Tokenizer.from_str(content if isinstance(content, str) else json.dumps(content))
    except Exception as error:  # the library raises nothing more precise
        raise DataError(
            f"{where}: its tokenizer.json cannot be read ({error}). Restore it or download the model again."
        ) from error


def chunks(texts: Sequence[str]) -> Iterator[list[str]]:
    """Group texts into chunks, to bound the memory that the tokenizer needs beside the ids."""
    chunk: list[str] = []
    characters = 0
    for text in texts:
        if chunk and (len(chunk) == _CHUNK_TEXTS or characters + len(text) > _CHUNK_CHARACTERS):
            yield chunk
            chunk, characters = [], 0
        chunk.append(text)
        characters += len(text)
    if chunk:
        yield chunk


_WORD = re.compile("[^ \t\n\r]+")
"""Words as a BERT tokenizer first splits them. It splits at other signs too, but drops some characters that Python
counts as spaces."""
_SPACE = re.compile("[ \t\n\r]")
_MOST = 1 << 23
"""Most characters of remembered words, counting ``_AROUND`` more for each word: some 30 MB."""
_AROUND = 100


class Pieces(NamedTuple):
    """Pieces of some texts, end to end."""

    ids: Int32[np.ndarray, " pieces"]
    offsets: Int64[np.ndarray, " texts_and_one"]
    """Place where each text begins, and the end of the last."""


class PieceTokenizer:
    """A tokenizer that adds no special tokens and does not pad.

    BERT's tokenizer splits a word in the same way whatever words are around it, so each different word is tokenised
    once. Other tokenizers read whole texts. *content* is that of ``tokenizer.json``, without padding; its truncation
    applies. ``digest`` covers *content*, whatever the order of its keys. ``unknown`` is the unknown token's number.
    """

    def __init__(self, content: dict[str, Any], where: str) -> None:
        # Serialised once, by C code, for the library and the digest: a vocabulary can have 100,000 lines.
        written = json.dumps(content, sort_keys=True)
        self._tokenizer, self.digest = parse_tokenizer(written, where), sha256(written.encode()).hexdigest()
        cut = content.get("truncation") or {}
        self._most, self._from_left = cut.get("max_length"), cut.get("direction") == "Left"
        self._tokenizer.no_truncation()
        known, added = content["model"].get("vocab"), content.get("added_tokens") or ()
        if isinstance(known, dict):  # token numbers by text; the library's own copy takes longer
            known = {**known, **{token["content"]: token["id"] for token in added}}
        self.vocabulary: dict[str, int] = known if known and isinstance(known, dict) else self._tokenizer.get_vocab()
        self.unknown = unknown_of(content, self._tokenizer)
        kinds = [(content.get(part) or {}).get("type") for part in ("normalizer", "pre_tokenizer")]
        self._word_by_word = kinds in (["BertNormalizer", "BertPreTokenizer"], [None, "BertPreTokenizer"]) and not any(
            _SPACE.search(str(token.get("content"))) for token in added
        )
        self._known, self._held = dict[str, list[int]](), 0

    def __call__(self, texts: Sequence[str]) -> Pieces:
        """Return the pieces of texts, cut off as the tokenizer's truncation says."""
        read = self._of_words if self._word_by_word else self._by_text
        rows = [self._cut(row) for chunk in chunks(texts) for row in read(chunk)]
        offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
        return Pieces(np.concatenate([np.empty(0, np.int32), *rows]), offsets)

    def unknown_shares(self, texts: Sequence[str]) -> np.ndarray:
        """Return the share of each text that the vocabulary lacks: see :func:`airrep.encoder.tokens.unknown_shares`."""
        return unknown_shares(self._tokenizer, self.unknown, texts)

    def _cut(self, row: np.ndarray) -> np.ndarray:
        if self._most is None or len(row) <= self._most:
            return row
        return row[len(row) - self._most :] if self._from_left else row[: self._most]

    def _by_text(self, texts: Sequence[str]) -> list[np.ndarray]:
        encoded = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [np.array(one.ids, np.int32) for one in encoded]

    def _of_words(self, texts: Sequence[str]) -> list[np.ndarray]:
        words = [_WORD.findall(text) for text in texts]
        known = self._with(set[str]().union(*words))
        return [np.fromiter(chain.from_iterable(map(known.__getitem__, row)), np.int32) for row in words]

    def _with(self, words: set[str]) -> dict[str, list[int]]:
        """Return the pieces of all known words, *words* among them; none is removed, so threads may share the dict."""
        if self._held > _MOST:
            self._known, self._held = {}, 0
        known = self._known
        if missing := sorted(words.difference(known)):
            known.update(zip(missing, self._pieces_of(missing), strict=True))
            self._held += sum(map(len, missing)) + _AROUND * len(missing)
        return known

    def _pieces_of(self, words: Sequence[str]) -> Iterator[list[int]]:
        """Tokenise all words as one text and split it by where each piece begins: quicker than word by word."""
        encoded = self._tokenizer.encode(" ".join(words), add_special_tokens=False)
        ids, starts = encoded.ids, np.array([start for start, _ in encoded.offsets], np.int64)
        ends = np.cumsum([len(word) + 1 for word in words])
        bounds = [0, *np.searchsorted(starts, ends).tolist()]
        return (ids[begin:end] for begin, end in pairwise(bounds))

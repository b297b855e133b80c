"""Turn texts into token ids, without padding."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from tokenizers import Encoding, Tokenizer

from airrep.errors import ConfigError, DataError
from airrep.shapes import Float64, Int64

LEAST_TOKENS = 3  # two of them special ones
_CHUNK_TEXTS = 256
_CHUNK_CHARACTERS = 1 << 20
_CHARACTERS_A_TOKEN = 16  # a guess: a text for which it was too few is read again, whole
_BREAK = re.compile("[ \n\t]")


class TextTokenizer:
    """A tokenizer that cuts texts off after ``max_tokens``, special tokens included, and does not pad.

    Args:
        content: content of ``tokenizer.json``, without truncation and padding.
        max_tokens: longest sequence.
        vocabulary: number of tokens that the encoder has embeddings for.
        where: the model's name, for errors.
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
                f"{where}: its tokenizer has a token number {largest}, its encoder embeddings for "
                f"{vocabulary} only. Use the tokenizer that the encoder was trained with."
            )
        if not self._tokenizer.encode("").ids:
            raise DataError(
                f"{where}: its tokenizer adds no special tokens, so an empty text has no token; expected "
                "[CLS] and [SEP]. Use the tokenizer that the encoder was trained with."
            )

    def __call__(self, texts: Sequence[str]) -> list[Int64[np.ndarray, " length"]]:
        """Token ids of each text, special tokens included."""
        sequences: list[Int64[np.ndarray, " length"]] = []
        for chunk in chunks(texts):
            clipped = [self._clip(text) for text in chunk]
            encoded = [np.array(one.ids, np.int64) for one in self._tokenizer.encode_batch_fast(clipped)]
            sequences += map(self._complete, chunk, clipped, encoded)
        return sequences

    def unknown_shares(self, texts: Sequence[str]) -> Float64[np.ndarray, " texts"]:
        """Share of each text that has no token of its own: see :func:`unknown_shares`."""
        return unknown_shares(self._tokenizer, self._unknown, [self._clip(text) for text in texts])

    def _clip(self, text: str) -> str:
        """Leave out the text far behind the last token, where words are cut at spaces."""
        if self._enough is None or len(text) <= self._enough:
            return text
        found = _BREAK.search(text, self._enough)
        return text if found is None else text[: found.start()]

    def _complete(self, text: str, clipped: str, encoded: Int64[np.ndarray, " length"]) -> Int64[np.ndarray, " longer"]:
        """Read the whole text where the clipped one had too few tokens after all."""
        if len(clipped) == len(text) or len(encoded) == self._max_tokens:
            return encoded
        return np.array(self._tokenizer.encode(text).ids, np.int64)


def unknown_shares(tokenizer: Tokenizer, unknown: int | None, texts: Sequence[str]) -> Float64[np.ndarray, " texts"]:
    """Share of each text's tokens, or of its characters if that is more, that are the token *unknown*.

    Whole words of scripts that a vocabulary lacks are one such token, so that few tokens may hide most of a text.
    Special tokens do not count; without any unknown token the share is 0.
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
    """The number of the token that stands for what the vocabulary lacks; None without one."""
    model = content.get("model") or {}
    number, token = model.get("unk_id"), model.get("unk_token")
    return number if number is not None or token is None else tokenizer.token_to_id(token)


def check_max_tokens(max_tokens: int, most: int, where: str) -> int:
    """Return *max_tokens* if the encoder can read so many."""
    if not LEAST_TOKENS <= max_tokens <= most:
        raise ConfigError(f"{where}: max_tokens is {max_tokens}; expected {LEAST_TOKENS} to {most}. Change it.")
    return max_tokens


def check_texts(texts: Sequence[object], first: int = 0) -> None:
    """Refuse what is no string or no valid Unicode; errors number texts from *first* on."""
    for number, text in enumerate(texts, first):
        if not isinstance(text, str):
            raise DataError(f"text {number}: is of type {type(text).__name__}; expected a string. Correct the data.")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"text {number}: has half of a surrogate pair at character {error.start}; expected valid "
                "Unicode. Correct or leave out the text."
            ) from error


def parse_tokenizer(content: dict[str, Any] | str, where: str) -> Tokenizer:
    """A tokenizer of the content of its ``tokenizer.json``, or of that as JSON."""
    try:
        return Tokenizer.from_str(content if isinstance(content, str) else json.dumps(content))
    except Exception as error:  # the library raises nothing more precise
        raise DataError(
            f"{where}: its tokenizer.json is no tokenizer ({error}). Restore it or download the model again."
        ) from error


def chunks(texts: Sequence[str]) -> Iterator[list[str]]:
    """Cut texts into pieces small enough that what the tokenizer keeps beside the ids stays small."""
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

"""Texts as token numbers; columns of their n-grams."""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import blake2b, sha256
from pathlib import Path
from typing import TypeAlias

import numpy as np

from airrep.attributors.settings import MOST_ORDERS
from airrep.errors import ConfigError
from airrep.runtime.hub import download

WORDS, SUBWORDS = "words", "subwords"
"""Tokenizers that need no model: words and single signs, in their own case; and the 4,096 pieces of the LM that comes
with airrep."""
TOKENIZER = "tokenizer.json"
BUNDLED = Path(__file__).parents[2] / "models" / "tiny-lm"
BUCKETS = 2**26
"""Columns of each order: few enough for 32-bit numbers, and so many that n-grams of a corpus rarely share one."""
LENGTH = 0
"""Column of an example's length; those of n-grams follow."""
COLUMNS = 1 + MOST_ORDERS * BUCKETS

Split: TypeAlias = Callable[[Sequence[str]], list[np.ndarray]]
"""Token numbers of each text, int64 from 2 on; 0 stands for the start and 1 for the end of a text."""
_START, _END, _FIRST = 0, 1, 2
_WORD = re.compile(r"\w+|[^\w\s]")
_ODD = np.uint64(0x9E3779B97F4A7C15)


def tokenizer_of(name: str) -> tuple[Split, str]:
    """A tokenizer, and 64 hex digits over what decides its tokens.

    Args:
        name: :data:`WORDS`, :data:`SUBWORDS`, a folder with ``tokenizer.json``, or a model on the Hub.

    Raises:
        ConfigError: there is no such tokenizer.
    """
    if name == WORDS:
        return _split_words, sha256(_WORD.pattern.encode()).hexdigest()
    path = _file_of(name)
    content = path.read_bytes()
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_buffer(content)
    except Exception as error:  # the library raises nothing more precise
        raise ConfigError(f"{path}: is no tokenizer ({error}). Restore it, or take another one.") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def split(texts: Sequence[str]) -> list[np.ndarray]:
        encoded = tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(one.ids, np.int64) + _FIRST for one in encoded]

    return split, sha256(content).hexdigest()


def _file_of(name: str) -> Path:
    if name == SUBWORDS:
        return BUNDLED / TOKENIZER
    instead = f"Give {WORDS}, {SUBWORDS}, or the folder of a model."
    folder = Path(name) if Path(name).is_dir() else download("tokenizer", name, (TOKENIZER,), instead)
    if not (folder / TOKENIZER).is_file():
        raise ConfigError(f"tokenizer {name}: has no {TOKENIZER}. {instead}")
    return folder / TOKENIZER


def _split_words(texts: Sequence[str]) -> list[np.ndarray]:
    return [np.fromiter(map(_word_number, _WORD.findall(text)), np.int64) for text in texts]


@lru_cache(maxsize=2**17)
def _word_number(word: str) -> int:
    """62 bits of a hash, so that the number does not depend on the words seen before."""
    return _FIRST + (int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "little") >> 2)


def ngram_columns(tokens: np.ndarray, orders: Sequence[int]) -> np.ndarray:
    """Columns of all n-grams of one text, repeats included, ``(k,)`` int32; none where it has no token.

    The text begins with one start symbol, which stands for the prompt, and ends with one end symbol. The start symbol
    is predicted by nothing, so it is no n-gram of order 1. Each order has columns of its own, by its place in *orders*.
    """
    if len(tokens) == 0:
        return np.empty(0, np.int32)
    whole = np.concatenate([[_START], tokens, [_END]]).astype(np.uint64)
    parts = []
    for place, order in enumerate(orders):
        series = whole[1:] if order == 1 else whole
        count = len(series) - order + 1
        if count < 1:
            continue
        code = np.zeros(count, np.uint64)
        for shift in range(order):
            code = _mixed(code ^ series[shift : shift + count])
        parts.append(1 + place * BUCKETS + (code >> np.uint64(38)).astype(np.int64))
    return np.concatenate(parts).astype(np.int32) if parts else np.empty(0, np.int32)


def order_of(columns: np.ndarray) -> np.ndarray:
    """Place of each column's order among the orders, int64."""
    place: np.ndarray = (columns.astype(np.int64) - 1) // BUCKETS
    return place


def _mixed(code: np.ndarray) -> np.ndarray:
    """A reversible mix of 64 bits (SplitMix64), whose overflow is meant."""
    with np.errstate(over="ignore"):
        code = code + _ODD
        code = (code ^ (code >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        code = (code ^ (code >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        code ^= code >> np.uint64(31)
    return code

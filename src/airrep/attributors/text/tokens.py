"""Texts as token numbers; columns of their n-grams."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b, sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from airrep.attributors.settings import MOST_ORDERS
from airrep.corpus.places import ends_in
from airrep.corpus.words import UNSPACED, Words, plain, plain_places
from airrep.errors import ConfigError
from airrep.lm.folders.forms import ADAPTER_CONFIG, NEW_PLACE, find_lm, settled
from airrep.lm.folders.gguf import gguf_of
from airrep.runtime.hub import download, model_folder

if TYPE_CHECKING:
    from tokenizers import Tokenizer

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

_START, _END, FIRST = 0, 1, 2
_LETTERS = {signs: Words(signs) for signs in (False, True)}
"""Words, without or with each sign of scripts that put no space between them."""
_NAMES = {False: r"\w+|[^\w\s]", True: rf"[{UNSPACED}]|[^\W{UNSPACED}]+|[^\w\s]"}
"""By these their fingerprints tell them apart, as in indexes from before."""
_ODD = np.uint64(0x9E3779B97F4A7C15)


class FoundTokens(NamedTuple):
    """The tokens of one text, and where they stand in it."""

    numbers: np.ndarray
    """``(t,)`` int64."""
    starts: np.ndarray
    """``(t,)`` int64: the first character of each."""
    stops: np.ndarray
    """``(t,)`` int64: the character after its last."""


class NgramPlaces(NamedTuple):
    """All n-grams of one text that have a token, repeats included, and where they stand in it."""

    columns: np.ndarray
    """``(k,)`` int64, as :func:`ngram_columns` has them."""
    ngrams: np.ndarray
    """``(k,)`` uint64, equal for equal n-grams."""
    starts: np.ndarray
    """``(k,)`` int64."""
    stops: np.ndarray
    """``(k,)`` int64."""


class Split(Protocol):
    """Token numbers from 2 on; 0 stands for the start and 1 for the end of a text."""

    def __call__(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The numbers of each text, int64."""

    def find(self, text: str) -> FoundTokens:
        """The same numbers of one text, with their places."""


class BehindSpace:
    """The tokens of each text behind a space, which joins its first word in most tokenizers."""

    def __init__(self, split: Split) -> None:
        self._split = split

    def __call__(self, texts: Sequence[str]) -> list[np.ndarray]:
        return self._split([text and f" {text}" for text in texts])

    def find(self, text: str) -> FoundTokens:
        numbers, starts, stops = self._split.find(text and f" {text}")
        return FoundTokens(numbers, np.maximum(starts - 1, 0), np.maximum(stops - 1, 0))


def tokenizer_of(name: str, signs: bool = False) -> tuple[Split, str]:
    """A tokenizer, and 64 hex digits over what decides its tokens.

    Args:
        name: :data:`WORDS`, :data:`SUBWORDS`, a folder with ``tokenizer.json``, or a model on the Hub.
        signs: whether :data:`WORDS` takes scripts that put no space between words sign by sign.

    Raises:
        ConfigError: there is no such tokenizer.
    """
    if name == WORDS:
        return _Words(signs), sha256(_NAMES[signs].encode()).hexdigest()
    path = tokenizer_file(name)
    content = path.read_bytes()
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_buffer(content)
    except Exception as error:  # the library raises nothing more precise
        raise ConfigError(f"{path}: is no tokenizer ({error}). Restore it, or take another one.") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return _Pieces(tokenizer), sha256(content).hexdigest()


class _Pieces:
    """The tokens of a tokenizer."""

    def __init__(self, tokenizer: "Tokenizer") -> None:
        self._tokenizer = tokenizer

    def __call__(self, texts: Sequence[str]) -> list[np.ndarray]:
        encoded = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(one.ids, np.int64) + FIRST for one in encoded]

    def find(self, text: str) -> FoundTokens:
        encoded = self._tokenizer.encode(text, add_special_tokens=False)
        starts, stops = np.array(encoded.offsets, np.int64).reshape(-1, 2).T
        return FoundTokens(np.array(encoded.ids, np.int64) + FIRST, starts, stops)


class _Words:
    """Words and single signs."""

    def __init__(self, signs: bool) -> None:
        self._words = Words(signs, rest=r"[^\w\s]")

    def __call__(self, texts: Sequence[str]) -> list[np.ndarray]:
        return [np.fromiter(map(_word_number, self._words.findall(plain(text))), np.int64) for text in texts]

    def find(self, text: str) -> FoundTokens:
        whole, origin = plain_places(text)
        found = [(_word_number(word[0]), word.start(), word.end()) for word in self._words.finditer(whole)]
        numbers, starts, stops = np.array(found, np.int64).reshape(-1, 3).T
        return FoundTokens(numbers, origin[starts], ends_in(origin, stops))


def tokenizer_file(name: str, beside: tuple[str, ...] = ()) -> Path:
    """The file of a model's tokenizer; from the Hub with those files *beside* it that there are.

    Raises:
        ConfigError: there is none.
    """
    if name == SUBWORDS:
        return BUNDLED / TOKENIZER
    instead = f"Give {WORDS}, {SUBWORDS}, or the folder of a model."
    path = model_folder("tokenizer", name)
    if gguf_of(name, path) is not None:
        return find_lm(name).tokenizer / TOKENIZER
    local = path.is_dir()
    if not local and path.is_absolute():
        raise ConfigError(
            f"tokenizer {name}: there is no such folder; expected that of a model. Where the LM has moved, say where "
            f"it is: {NEW_PLACE}; where its tokens alone are counted, --set tokenizer=FOLDER."
        )
    folder = _folder_of(settled(path), name) if local else download("tokenizer", name, (TOKENIZER, *beside), instead)
    if not (folder / TOKENIZER).is_file():
        raise ConfigError(f"tokenizer {name}: has no {TOKENIZER}. {instead}")
    return folder / TOKENIZER


def _folder_of(folder: Path, name: str) -> Path:
    """The folder that has the tokenizer of an LM's folder, whose adapters or checkpoint may have none of their own."""
    if (folder / TOKENIZER).is_file():
        return folder
    if (folder / ADAPTER_CONFIG).is_file():
        return find_lm(name).tokenizer
    try:
        return find_lm(name).tokenizer
    except ConfigError:  # no LM either: the caller says what a tokenizer is
        return folder


@lru_cache(maxsize=2**17)
def _word_number(word: str) -> int:
    """62 bits of a hash, so that the number does not depend on the words seen before."""
    return FIRST + (int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "little") >> 2)


MARK = _word_number("")
"""Number of all words that are copied; no word is empty."""


def mark_copied(tokens: np.ndarray, prompt: str, signs: bool = False) -> np.ndarray:
    """Numbers of the words of a response, those that its prompt has as one mark; single signs stay as they are."""
    known = np.fromiter(map(_word_number, _LETTERS[signs].findall(plain(prompt))), np.int64)
    return np.where(np.isin(tokens, known), MARK, tokens)


def ngram_columns(tokens: np.ndarray, orders: Sequence[int], skip: bool = False) -> np.ndarray:
    """Columns of all n-grams of one text, repeats included, ``(k,)`` int32; none where it has no token.

    The text begins with one start symbol, which stands for the prompt, and ends with one end symbol. The start symbol
    is predicted by nothing, so it is no n-gram of order 1. Each order has columns of its own, by its place in *orders*;
    pairs with one token between them, if *skip*, have those behind them.
    """
    parts = [_columns_of(code, place) for place, code in enumerate(_codes(tokens, orders, skip))]
    return np.concatenate(parts).astype(np.int32) if parts else np.empty(0, np.int32)


def ngram_ends(count: int, orders: Sequence[int], skip: bool = False) -> np.ndarray:
    """Place of the last token of each n-gram of :func:`ngram_columns` among *count* tokens and their end, ``(k,)``."""
    if count == 0:
        return np.empty(0, np.int64)
    parts = [np.arange(max(0, order - 2), count + 1) for order in orders]
    return np.concatenate([*parts, np.arange(1, count + 1)] if skip else parts)


def ngram_places(found: FoundTokens, orders: Sequence[int], skip: bool = False) -> NgramPlaces:
    """The n-grams of :func:`ngram_columns` with their places; start and end symbols have no characters.

    A pair with a gap stands in two places, as what lies between may differ. N-grams with a mark of
    :func:`mark_copied` have no place: what was copied differs.
    """
    none = np.empty(0, np.int64)
    parts = [NgramPlaces(none, none.astype(np.uint64), none, none)]
    codes = list(_codes(found.numbers, orders, skip))
    marks = np.concatenate([[0], np.cumsum(found.numbers == MARK)])
    for place, (code, order) in enumerate(zip(codes, orders, strict=False)):
        first = np.arange(len(code)) - (0 if order == 1 else 1)  # a start symbol stands before the tokens
        last = np.minimum(first + order, len(found.numbers)) - 1  # and an end symbol behind them
        first = np.maximum(first, 0)
        some = (first <= last) & (marks[last + 1] == marks[first])
        starts, stops = found.starts[first[some]], found.stops[last[some]]
        parts.append(NgramPlaces(_columns_of(code[some], place), code[some], starts, stops))
    if skip and codes:
        parts += _gap_places(found, codes[-1], len(orders))
    return NgramPlaces(*map(np.concatenate, zip(*parts, strict=True)))


def _gap_places(found: FoundTokens, code: np.ndarray, place: int) -> Iterator[NgramPlaces]:
    """Places of the first and of the last token of pairs with a gap, told apart by their numbers."""
    count = len(found.numbers)
    marked = np.concatenate([[False], found.numbers == MARK, [False]])
    plain = ~(marked[:-2] | marked[2:])
    for end in (0, 1):
        token = np.arange(len(code)) - 1 + 2 * end
        some = plain & (token >= 0) & (token < count)
        names = code[some] ^ np.uint64(end)
        yield NgramPlaces(_columns_of(code[some], place), names, found.starts[token[some]], found.stops[token[some]])


def _codes(tokens: np.ndarray, orders: Sequence[int], skip: bool) -> Iterator[np.ndarray]:
    """64 bits for each n-gram of each order, then for each pair with a gap, uint64."""
    if len(tokens) == 0:
        return
    whole = np.concatenate([[_START], tokens, [_END]]).astype(np.uint64)
    for order in orders:
        series = whole[1:] if order == 1 else whole
        count = max(0, len(series) - order + 1)
        code = np.zeros(count, np.uint64)
        for shift in range(order):
            code = _mixed(code ^ series[shift : shift + count])
        yield code
    if skip:
        yield _mixed(_mixed(whole[:-2]) ^ whole[2:])


def _columns_of(code: np.ndarray, place: int) -> np.ndarray:
    columns: np.ndarray = 1 + place * BUCKETS + (code >> np.uint64(38)).astype(np.int64)
    return columns


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

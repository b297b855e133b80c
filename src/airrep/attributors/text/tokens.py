"""Tokenizers: texts as token numbers, and where each token stands."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b, sha256
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from airrep.attributors.settings import NgramSettings
from airrep.corpus.corpus import Example
from airrep.corpus.places import ends_in
from airrep.corpus.words import UNSPACED, Words, plain, plain_places
from airrep.errors import ConfigError
from airrep.lm.folders.forms import ADAPTER_CONFIG, find_lm, settled
from airrep.lm.folders.gguf import gguf_of
from airrep.runtime.hub import NoModelError, download, model_folder

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from airrep.lm.chat import Chat, TokenPlaces


WORDS, SUBWORDS = "words", "subwords"
"""Tokenizers that need no model: words and punctuation marks, case kept; and the 4,096 pieces of the LM that comes with
airrep."""
TOKENIZER = "tokenizer.json"
BUNDLED = Path(__file__).parents[2] / "models" / "tiny-lm"
FIRST = 2
"""Smallest number of a token: 0 and 1 stand for the start and the end of a text."""
REMEMBERED = 2**17
"""Most words whose numbers are cached."""
_LETTERS = {signs: Words(signs) for signs in (False, True)}
"""Patterns of words; with *signs*, each character of scripts without spaces between words is a word."""
_NAMES = {False: r"\w+|[^\w\s]", True: rf"[{UNSPACED}]|[^\W{UNSPACED}]+|[^\w\s]"}
"""Texts that fingerprints of the two word tokenizers are made of, the same as in older indexes."""


@dataclass(frozen=True, eq=False)
class TokenBatch:
    """Token numbers of several texts, joined in one array."""

    numbers: np.ndarray
    """``(k,)`` int64."""
    ends: np.ndarray
    """``(rows + 1,)`` int64: where the tokens of each text begin, and where the last text ends."""

    @classmethod
    def of(cls, texts: Sequence[Sequence[int] | np.ndarray]) -> "TokenBatch":
        numbers = np.fromiter(chain.from_iterable(texts), np.int64)
        return cls(numbers, np.cumsum([0, *map(len, texts)]))

    def __len__(self) -> int:
        """Number of texts."""
        return len(self.ends) - 1

    def __iter__(self) -> Iterator[np.ndarray]:
        """The numbers of each text."""
        return (self.numbers[start:stop] for start, stop in pairwise(self.ends.tolist()))

    @property
    def lengths(self) -> np.ndarray:
        """``(rows,)`` int64: tokens of each text."""
        return np.diff(self.ends)


class FoundTokens(NamedTuple):
    """The tokens of one text, and where they stand in it."""

    numbers: np.ndarray
    """``(t,)`` int64."""
    starts: np.ndarray
    """``(t,)`` int64: the first character of each."""
    stops: np.ndarray
    """``(t,)`` int64: the character after its last."""


class Split(Protocol):
    """A tokenizer; its token numbers are at least :data:`FIRST`."""

    def __call__(self, texts: Sequence[str]) -> TokenBatch:
        """The numbers of each text."""

    def find(self, text: str) -> FoundTokens:
        """Return the numbers of one text, with their places."""


class BehindSpace:
    """A tokenizer that puts a space before each text, which most tokenizers join to the first word."""

    def __init__(self, split: Split) -> None:
        self._split = split

    def __call__(self, texts: Sequence[str]) -> TokenBatch:
        return self._split([text and f" {text}" for text in texts])

    def find(self, text: str) -> FoundTokens:
        numbers, starts, stops = self._split.find(text and f" {text}")
        return FoundTokens(numbers, np.maximum(starts - 1, 0), np.maximum(stops - 1, 0))


def tokenizer_of(name: str, signs: bool = False) -> tuple[Split, str]:
    """Load a tokenizer; return it with 64 hex digits that are equal for equal tokens (ConfigError: it does not exist).

    The name is :data:`WORDS`, :data:`SUBWORDS`, a folder with ``tokenizer.json``, or a model on the Hub. With *signs*,
    :data:`WORDS` splits scripts that put no space between words into characters.
    """
    if name == WORDS:
        return _Words(signs), sha256(_NAMES[signs].encode()).hexdigest()
    path = tokenizer_file(name)
    content = path.read_bytes()
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_buffer(content)
    except Exception as error:  # the library raises nothing more precise
        raise ConfigError(f"{path}: is not a valid tokenizer ({error}). Restore the file, or use another.") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return _Pieces(tokenizer), sha256(content).hexdigest()


class _Pieces:
    """A tokenizer of the tokenizers library."""

    def __init__(self, tokenizer: "Tokenizer") -> None:
        self._tokenizer = tokenizer

    def __call__(self, texts: Sequence[str]) -> TokenBatch:
        encoded = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        found = TokenBatch.of([one.ids for one in encoded])
        return TokenBatch(found.numbers + FIRST, found.ends)

    def find(self, text: str) -> FoundTokens:
        encoded = self._tokenizer.encode(text, add_special_tokens=False)
        starts, stops = np.array(encoded.offsets, np.int64).reshape(-1, 2).T
        return FoundTokens(np.array(encoded.ids, np.int64) + FIRST, starts, stops)


class _Words:
    """A tokenizer of words, and of single punctuation marks and symbols."""

    def __init__(self, signs: bool) -> None:
        self._words = Words(signs, rest=r"[^\w\s]")

    def __call__(self, texts: Sequence[str]) -> TokenBatch:
        return TokenBatch.of([_numbers_of(self._words, text) for text in texts])

    def find(self, text: str) -> FoundTokens:
        whole, origin = plain_places(text)
        found = [(_NUMBERS[word[0]], word.start(), word.end()) for word in self._words.finditer(whole)]
        numbers, starts, stops = np.array(found, np.int64).reshape(-1, 3).T
        return FoundTokens(numbers, origin[starts], ends_in(origin, stops))


def tokenizer_file(name: str, beside: tuple[str, ...] = ()) -> Path:
    """Find the ``tokenizer.json`` of a model; from the Hub, files *beside* it are fetched too if they exist.

    ConfigError: the model has none.
    """
    if name == SUBWORDS:
        return BUNDLED / TOKENIZER
    instead = f"Give {WORDS}, {SUBWORDS}, or the folder of a model."
    path = model_folder("tokenizer", name)
    if gguf_of(name, path) is not None:
        return find_lm(name).tokenizer / TOKENIZER
    local = path.is_dir()
    if not local and (path.is_absolute() or name.startswith(".")):
        raise NoModelError(f"tokenizer {name}: there is no such folder. {instead}")
    folder = _folder_of(settled(path), name) if local else download("tokenizer", name, (TOKENIZER, *beside), instead)
    if not (folder / TOKENIZER).is_file():
        raise ConfigError(f"tokenizer {name}: has no {TOKENIZER}. {instead}")
    return folder / TOKENIZER


def _folder_of(folder: Path, name: str) -> Path:
    """Return the folder of an LM's tokenizer; adapters and checkpoints may have none of their own."""
    if (folder / TOKENIZER).is_file():
        return folder
    try:
        return find_lm(name).tokenizer
    except ConfigError:
        if (folder / ADAPTER_CONFIG).is_file():
            raise
        return folder  # it is not an LM either: the caller raises the error


class _WordNumbers(dict[str, int]):
    """Cache of the number of each word: 62 bits of a hash, so that it does not depend on words seen before."""

    def __missing__(self, word: str) -> int:
        if len(self) >= REMEMBERED:
            self.clear()
        digest = blake2b(word.encode(), digest_size=8).digest()
        number = self[word] = FIRST + (int.from_bytes(digest, "little") >> 2)
        return number


_NUMBERS = _WordNumbers()
MARK = _NUMBERS[""]
"""Number that stands for every copied word: that of the empty word, which no text has."""


def _numbers_of(words: Words, text: str) -> list[int]:
    return list(map(_NUMBERS.__getitem__, words.findall(plain(text))))


def mark_copied(tokens: TokenBatch, prompts: Iterable[str], signs: bool = False) -> TokenBatch:
    """Replace words of responses that their prompts have by :data:`MARK`; punctuation marks stay as they are."""
    known = (set(_numbers_of(_LETTERS[signs], prompt)) for prompt in prompts)
    found = (map(own.__contains__, numbers.tolist()) for own, numbers in zip(known, tokens, strict=True))
    copied = np.fromiter(chain.from_iterable(found), bool, len(tokens.numbers))
    return TokenBatch(np.where(copied, MARK, tokens.numbers), tokens.ends)


_SAYS_HOW = "tokenizer_config.json"
"""File that names a tokenizer's class; the chat template is in it or beside it."""
_MOST_TOKENS = 2048
"""Tokens of a row that are read if rows are cut and no limit is set."""


def chat_of(settings: NgramSettings) -> "Chat | None":
    """Return the chat format of a model of which only the tokenizer is loaded; None without tokenizer_config.json.

    ConfigError: the tokenizer, or its chat template, cannot be used.
    """
    folder = tokenizer_file(settings.tokenizer, (_SAYS_HOW, "chat_template.jinja")).parent
    if not (folder / _SAYS_HOW).is_file():
        return None
    from airrep.lm.chat import Chat
    from airrep.lm.files import load_tokenizer, recorded_reading  # torch, which other tokens do not need

    recorded = recorded_reading(folder)
    cut, template = settings.cut or recorded.get("cut"), settings.template or recorded.get("template")
    most = settings.max_tokens or (sys.maxsize if cut is None else _MOST_TOKENS)
    tokenizer = load_tokenizer(folder, settings.tokenizer)
    return Chat(tokenizer, settings.tokenizer, most, sys.maxsize, template, cut or "prompt")


class LearntTokens:
    """Tokenizes responses as a chat template writes them; responses that it does not write, as plain text.

    What the template writes after an answer is left out: the end symbol stands for it.
    """

    def __init__(self, chat: "Chat", split: Split) -> None:
        self.chat = chat
        self._split = split

    @property
    def reading(self) -> dict[str, Any]:
        """Settings that decide how the template writes examples, and what is cut."""
        chat = self.chat
        return {
            "template": chat.tokenizer.chat_template,
            "form": chat.template,
            "cut": chat.cut,
            "max": chat.max_tokens,
        }

    def find(self, examples: Sequence[Example]) -> list[FoundTokens]:
        """Return the tokens of each response, with their places in it; places of other tokens are empty."""
        written = [one for one in examples if self.chat.writes(one)]
        documents, places = self.chat.tokenise_with_places(written)
        learnt = iter(range(len(written)))
        return [
            _found(documents.sequence(row)[documents.starts[row] :], places[row], len(one.response))
            if self.chat.writes(one) and (row := next(learnt)) is not None
            else self._split.find(one.response)
            for one in examples
        ]


def _found(ids: np.ndarray, places: "TokenPlaces", length: int) -> FoundTokens:
    """Cut learnt tokens after the last one that begins within the response."""
    within = np.flatnonzero(places.starts < length)
    count = int(within[-1]) + 1 if len(within) else 0
    return FoundTokens(ids[:count] + FIRST, places.starts[:count], places.stops[:count])

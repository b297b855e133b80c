"""Base class of encoders: render, encode in windows, save."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import numpy as np

from airrep.arrays import DenseFeatures, Rows
from airrep.corpus.corpus import Example
from airrep.encoder.cards import NO_PROMPTS, Card, Prompts, choose_prompts, write_prompts
from airrep.encoder.folders import Storage
from airrep.encoder.tokens import check_texts
from airrep.errors import ConfigError, DataError, need
from airrep.runtime.devices import ResolvedPrecision
from airrep.runtime.remote.outputs import new_folder

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Progress: TypeAlias = Callable[[int], None]
"""Called now and then with the number of rows done since its last call."""

Format: TypeAlias = Literal["sentence-transformers", "airrep"]
"""A format that encoders are saved in."""

_WINDOW = 4096
"""Texts that are sorted by length together; bounds the memory that a call needs beside its result."""

_FIELD = re.compile(r"(\{prompt\}|\{response\})")


class Encoder(ABC):
    """Turns examples into features whose inner product is an influence score: higher = more helpful.

    Made by :func:`airrep.encoder.load.load_encoder`. The same call gives the same bytes on the same machine, and equal
    texts of a call equal rows. The order of rows, the size of batches and the processor move a row by rounding alone:
    by less than 1e-5 of its length in float32 and 1e-2 in bfloat16.

    Attributes:
        name: the name that the encoder was loaded by.
        max_tokens: longest text; the rest is cut off.
        precision: type of the large matrix products.
        device: device that they run on.
        prompts: texts put before queries and before training examples.

    The other attributes are those of its :class:`airrep.encoder.cards.Card`.
    """

    packed: bool
    """True if it runs packed; if not, ``sentence_transformers`` runs it, or NumPy if it is static."""

    def __init__(
        self, name: str, card: Card, max_tokens: int, precision: ResolvedPrecision, device: str, prompts: Prompts
    ) -> None:
        self.name = name
        self.prompts = prompts
        self.card = card
        self.template = card.template
        self.prompt_words = card.prompt_words
        self.trained_for_attribution = card.trained_for_attribution
        self.trained_group_sizes = card.trained_group_sizes
        self.trained_pool = card.trained_pool
        self.caution = card.caution
        self.max_tokens = max_tokens
        self.precision = precision
        self.device = device
        self._pieces = _FIELD.split(card.template)

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Number of features, ``d``."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """64 hex digits over all that determines features: weights, tokenizer, template, limits, pooling, prompts.

        It does not depend on where the model lies, how its weights are stored, precision, device or batches.
        """

    def _decisive(self) -> dict[str, object]:
        """Return what every fingerprint covers; prompts only if there are any, to keep older fingerprints valid."""
        prompts = {"prompts": [self.prompts.query, self.prompts.train]} if self.prompts != NO_PROMPTS else {}
        limits = {"max_tokens": self.max_tokens, "template": self.template, "prompt_words": self.prompt_words}
        return limits | prompts

    def sentence_transformer(self) -> "SentenceTransformer":
        """Return the same encoder as a ``SentenceTransformer``; give it texts made by :meth:`render`, and prompts."""
        need(f"encoder {self.name} as a SentenceTransformer", "encoders", "torch", "sentence_transformers")
        from sentence_transformers import SentenceTransformer

        with TemporaryDirectory() as folder:
            self._write(Path(folder), "sentence-transformers", "float32")
            return SentenceTransformer(folder, device=self.device, local_files_only=True)

    @abstractmethod
    def _write(self, folder: Path, model_format: Format, storage: Storage) -> None:
        """Write the model into an empty folder."""

    @property
    def symmetric(self) -> bool:
        """True if queries are encoded in the same way as training examples."""
        return self.prompts.query == self.prompts.train

    @abstractmethod
    def _encode_window(self, texts: Sequence[str], queries: bool) -> Iterator[tuple[Rows, DenseFeatures]]:
        """Yield row numbers and features of texts, part by part; each text is read behind its prompt."""

    def encode(
        self, examples: Sequence[Example], progress: Progress | None = None, *, queries: bool = False
    ) -> DenseFeatures:
        """Return features of examples, in their order: float32, ``(n, d)``; *progress* gets counts of finished rows.

        With *queries*, the encoder's prompt for queries is used in place of that for training examples.
        """
        return self._encode(len(examples), lambda part: list(map(self.render, examples[part])), progress, queries)

    def encode_texts(
        self, texts: Sequence[str], progress: Progress | None = None, *, queries: bool = False
    ) -> DenseFeatures:
        """Return features of rendered texts, which lack only the encoder's prompt; all else as in :meth:`encode`."""
        if isinstance(texts, str):
            raise DataError("texts: is a single string. Pass a list of strings.")
        return self._encode(len(texts), lambda part: texts[part], progress, queries)

    def _encode(
        self, count: int, texts_of: Callable[[slice], Sequence[str]], progress: Progress | None, queries: bool
    ) -> DenseFeatures:
        features, first = np.empty((count, self.dimension), np.float32), dict[bytes, int]()
        report = progress or (lambda _: None)
        for start in range(0, count, _WINDOW):
            texts = texts_of(slice(start, start + _WINDOW))
            check_texts(texts, start)
            # Equal texts are encoded once: in other places of a batch they would differ by rounding, and not tie.
            keys = (blake2b(text.encode(), digest_size=16).digest() for text in texts)
            firsts = np.array([first.setdefault(key, row) for row, key in enumerate(keys, start)])
            new = np.flatnonzero(firsts == np.arange(start, start + len(texts)))
            for places, part in self._encode_window([texts[place] for place in new.tolist()], queries):
                features[start + new[places]] = part
                report(len(places))
            features[start : start + len(texts)] = features[firsts]
            report(len(texts) - len(new))
        if not np.isfinite(features).all():
            raise DataError(
                f"encoder {self.name}: makes features that are not finite (NaN or infinite). "
                "Use precision='float32', or another checkpoint."
            )
        return features

    def render(self, example: Example) -> str:
        """Return the text that is encoded: the template filled with the example's cut prompt and its response. The
        encoder's own prompt is not included."""
        values = self._values(example)
        return "".join(values.get(piece, piece) for piece in self._pieces)

    def _values(self, example: Example) -> dict[str, str]:
        """Return the values of the template's fields; the prompt is cut after ``prompt_words`` words."""
        prompt, parts = example.prompt, example.prompt.split(None, self.prompt_words)
        if len(parts) > self.prompt_words:
            prompt = prompt[: len(prompt) - len(parts[-1])].rstrip()
        return {"{prompt}": prompt, "{response}": example.response}

    def unknown_shares(self, examples: Sequence[Example]) -> np.ndarray:
        """Return the share of each example's own text, ``(n,)``, that the vocabulary lacks: of its tokens or of its
        characters, whichever is more. The encoder cannot tell unknown text apart. 0 if nothing is unknown."""
        texts = []
        for example in examples:
            values = self._values(example)
            texts.append("\n".join(values[piece] for piece in self._pieces if piece in values))
        check_texts(texts)
        return self._unknown_shares(texts)

    def _unknown_shares(self, texts: Sequence[str]) -> np.ndarray:
        """Return the share of each text that the vocabulary lacks, ``(texts,)``; 0 if that is not known."""
        return np.zeros(len(texts))

    def save(
        self, path: str | Path, model_format: Format = "sentence-transformers", *, storage: Storage = "float32"
    ) -> None:
        """Write the encoder as a new folder, whole or not at all; a path that exists is refused.

        The format ``"airrep"`` is that of the published checkpoints. float32 storage keeps every bit of the weights.
        """
        asked = (("model_format", model_format, get_args(Format)), ("storage", storage, get_args(Storage)))
        for name, value, known in asked:
            if value not in known:
                raise ConfigError(f"{path}: cannot save with {name}='{value}'. Use one of {', '.join(known)}.")
        with new_folder(Path(path)) as folder:
            self._write(folder, model_format, storage)
            if choose_prompts(folder, self.name, None, None) != self.prompts:
                write_prompts(folder, self.prompts)

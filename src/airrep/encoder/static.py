"""Encoders of one vector a word piece and no layers, run by NumPy alone."""

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from airrep.arrays import DenseFeatures, Rows
from airrep.encoder.base import Encoder, Format
from airrep.encoder.cards import NO_PROMPTS, Card, Prompts
from airrep.encoder.static_files import LinearHead, Storage, StoredStatic, write_static
from airrep.encoder.tokens import Pieces, PieceTokenizer
from airrep.errors import ConfigError, DataError, caution
from airrep.runtime.artifacts.manifests import json_digest
from airrep.shapes import Float32, Int64
from airrep.sparse import SparseRows

_CHUNK = 512
"""Texts whose pieces are held at a time."""
_SHORTEST = 1e-12
"""Mean that is still scaled to length 1, as sentence_transformers and torch have it."""
_log = logging.getLogger(__name__)


class StaticEncoder(Encoder):
    """The mean of the vectors of a text's word pieces, of unit length or not, and a linear map where there is one.

    It knows no order of words. Rows have the same bits whatever is encoded beside them, and texts of the same pieces
    have the same row. A text of no known piece has a row of zeros, where sentence_transformers gives all such texts the
    vector of the unknown piece: they would be alike.
    """

    packed = False

    def __init__(self, name: str, stored: StoredStatic, prompts: Prompts = NO_PROMPTS) -> None:
        super().__init__(name, stored.card, stored.max_tokens, "float32", "cpu", prompts)
        self._tokenize = PieceTokenizer(stored.tokenizer, name)
        vocabulary = _vocabulary_digest(self._tokenize.vocabulary)
        self.checkpoint = replace(stored, vocabulary=_checked(name, stored, self._tokenize, vocabulary))

    @classmethod
    def of(
        cls,
        name: str,
        matrix: Float32[np.ndarray, "v h"],
        tokenizer: dict[str, Any],
        card: Card | None = None,
        *,
        normalise: bool = True,
    ) -> Self:
        """Make an encoder of a matrix, the vectors of the pieces of a ``tokenizer.json``; :meth:`save` writes it."""
        return cls(name, StoredStatic(matrix, tokenizer | {"padding": None}, card or Card(), normalise))

    @property
    def dimension(self) -> int:
        head = self.checkpoint.head
        return int(self.checkpoint.matrix.shape[1] if head is None else head.weight.shape[0])

    @cached_property
    def fingerprint(self) -> str:
        stored = self.checkpoint
        parts = {
            "kind": "static, mean over word pieces",
            "weights": _array_digest(stored.matrix),
            "unit_length": stored.normalise,
            "head": None if stored.head is None else [_array_digest(part) for part in stored.head],
            "tokenizer": self._tokenize.digest,
        }
        return json_digest(parts | self._decisive())

    def token_ids(self, texts: Sequence[str]) -> list[Int64[np.ndarray, " length"]]:
        """Word pieces of each text, without any prompt."""
        ids, offsets = self._tokenize(texts)
        return np.split(ids.astype(np.int64), offsets[1:-1]) if len(texts) else []

    def _encode_window(self, texts: Sequence[str], queries: bool) -> Iterator[tuple[Rows, DenseFeatures]]:
        prompt = self._prompt(queries)
        for start in range(0, len(texts), _CHUNK):
            part = [prompt + text for text in texts[start : start + _CHUNK]]
            pieces = self._tokenize(part)
            features, known = self._features(pieces), self._any_known(pieces)
            features[~known] = 0
            if any(text.strip() for text, some in zip(part, known.tolist(), strict=True) if not some):
                caution(
                    _log,
                    f"encoder {self.name}: some texts have no word piece that its vocabulary knows; their features are "
                    "0, so they are like no other text.",
                )
            yield np.arange(start, start + len(part)), features

    def _features(self, pieces: Pieces) -> DenseFeatures:
        stored, lengths = self.checkpoint, np.diff(pieces.offsets)
        # Sparse products add row by row, so that a row does not depend on those beside it, and in the order of pieces,
        # so that texts of the same ones tie; BLAS does not.
        means: DenseFeatures = SparseRows.counts(pieces.ids, pieces.offsets, len(stored.matrix)) @ stored.matrix
        means /= np.maximum(lengths, 1)[:, None].astype(np.float32)
        if stored.normalise:
            means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), np.float32(_SHORTEST))
        return means if stored.head is None else _mapped(means, stored.head)

    def _any_known(self, pieces: Pieces) -> np.ndarray:
        """True for each text with a piece that the vocabulary knows, ``(texts,)``."""
        own = np.concatenate([[0], np.cumsum(pieces.ids != (-1 if (n := self._tokenize.unknown) is None else n))])
        return np.asarray(np.diff(own[pieces.offsets]) > 0)

    def _unknown_shares(self, texts: Sequence[str]) -> np.ndarray:
        return self._tokenize.unknown_shares(texts)

    def _write(self, folder: Path, model_format: Format, storage: Storage) -> None:
        if model_format == "airrep":
            raise ConfigError(
                f"saving {self.name}: the airrep format holds BERT-type encoders alone, and this one has no layers. "
                "Use model_format='sentence-transformers'."
            )
        write_static(self.checkpoint, folder, storage)


def _mapped(means: DenseFeatures, head: LinearHead) -> DenseFeatures:
    """x Wᵀ + b, row by row."""
    weight = np.ascontiguousarray(head.weight.T)
    mapped = np.empty((len(means), weight.shape[1]), np.float32)
    for mean, out in zip(means, mapped, strict=True):
        np.einsum("k,kd->d", mean, weight, out=out)
    mapped += head.bias
    return mapped


def _checked(name: str, stored: StoredStatic, tokenizer: PieceTokenizer, vocabulary: str) -> str:
    """Refuse a matrix that does not fit its tokenizer or is not finite; return the digest of the vocabulary."""
    rows, largest = len(stored.matrix), max(tokenizer.vocabulary.values(), default=-1)
    if largest >= rows or stored.vocabulary not in (None, vocabulary):
        what = f"has a token number {largest}, its matrix {rows} rows only" if largest >= rows else "is another one"
        raise DataError(
            f"encoder {name}: its tokenizer {what}; expected the one that its vectors were made for. Restore the "
            "folder, or download the model again."
        )
    for what, part in (("matrix", stored.matrix), *zip(("head", "head"), stored.head or (), strict=False)):
        if not np.isfinite(part).all():
            raise DataError(
                f"encoder {name}: its {what} has values that are not finite (NaN or infinite), as a failed training "
                "leaves them. Use an earlier checkpoint."
            )
    width = None if stored.head is None else stored.head.weight.shape[1]
    if not stored.matrix.shape[1] or width not in (None, stored.matrix.shape[1]):
        raise DataError(
            f"encoder {name}: its vectors are of {stored.matrix.shape[1]} numbers; expected "
            f"{width or 'some'}, as what follows them takes. Restore the folder, or download the model again."
        )
    if rows > largest + 1 and stored.vocabulary is None:
        caution(
            _log,
            f"encoder {name}: its matrix has {rows} rows, its tokenizer {largest + 1} tokens. Check that it is the "
            "tokenizer that the vectors were made for.",
        )
    return vocabulary


def _vocabulary_digest(vocabulary: Mapping[str, int]) -> str:
    """Digest of tokens in order of their numbers, and of these."""
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    numbers = np.array([vocabulary[token] for token in tokens], "<i8")
    return hashlib.sha256("\0".join(tokens).encode() + numbers.tobytes()).hexdigest()


def _array_digest(array: np.ndarray) -> str:
    values = np.ascontiguousarray(array, "<f4")
    digest = hashlib.sha256(f"{values.shape}\n".encode())
    digest.update(values.ravel().data)
    return digest.hexdigest()

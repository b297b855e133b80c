"""Attribution by precomputed features, read from files."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from safetensors import SafetensorError

from airrep.arrays import DenseFeatures, Rows
from airrep.attributors.base import MethodAttributor, OnRows
from airrep.attributors.datamodels import shift_of
from airrep.attributors.settings import PrecomputedSettings
from airrep.corpus.corpus import Corpus, Example, read_corpus
from airrep.corpus.records import content_hash
from airrep.encoder.static import stored_tensors
from airrep.errors import ConfigError, DataError, many
from airrep.runtime.artifacts import canonical_json, file_digest, json_digest
from airrep.scoring.pooling import Pool

_SMALL, _LARGE = 2.0**-4, 2.0**15
"""Features are scaled unless the largest is between these: an index stores float16, which would lose their digits."""

_DIGESTED = 2**14
"""Rows of keys that are hashed at a time."""

_BLOCK_BYTES = 2**26
"""Bytes of float32 features that are read at a time."""


class FeatureFile:
    """Features in a file: one array ``(n, d)`` of floating-point numbers, ``.npy`` or the only one of ``.safetensors``.

    DataError: the file does not exist, or holds something else.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_file() or path.suffix not in (".npy", ".safetensors"):
            kind = "is not a .npy or .safetensors file" if path.exists() else "does not exist"
            raise DataError(f"{path}: {kind}. Give the path of a .npy or .safetensors file of features.")
        array = _read(path)
        if array.ndim != 2 or array.dtype.kind != "f" or array.dtype.itemsize > 8:
            raise DataError(
                f"{path}: holds {array.dtype} of shape {array.shape}. Write float16, float32 or float64 of shape "
                "(examples, features), with numpy.save."
            )
        self.path, self._array = path, array
        self.rows, self.dimension = array.shape

    @cached_property
    def fingerprint(self) -> str:
        """64 hex digits: a hash of the file's content."""
        return json_digest([file_digest(self.path)])

    def take(self, rows: Rows) -> DenseFeatures:
        """Return the features of some rows: float32, ``(k, d)`` (DataError: one is not finite in float32)."""
        with np.errstate(over="ignore"):
            features = np.asarray(self._array[rows], np.float32)
        good = np.isfinite(features).all(axis=1)
        if not good.all():
            raise DataError(
                f"{self.path}: row {int(rows[np.argmin(good)])} has a feature that is not finite (NaN or infinite) in "
                "float32. Make the features again, or leave that example out."
            )
        return features

    def largest(self) -> float:
        """The largest absolute value of all (DataError: a feature is not finite)."""
        step = max(1, _BLOCK_BYTES // (4 * max(1, self.dimension)))
        blocks = (np.arange(first, min(first + step, self.rows)) for first in range(0, self.rows, step))
        return max((float(np.abs(self.take(block)).max(initial=0.0)) for block in blocks), default=0.0)

    def rows_of(self, corpus: Corpus, where: str) -> Rows:
        """Return the row of each example's features, which is its place in the corpus.

        DataError: the numbers of rows and of examples differ.
        """
        if self.rows != len(corpus):
            raise DataError(
                f"{self.path}: has {many(self.rows, 'row')}, but the {where} has {many(len(corpus), 'example')}. "
                "There must be one row for each example, in order. Give the data that the features were made from."
            )
        return np.arange(self.rows)


def _read(path: Path) -> np.ndarray:
    """Read the array of a file; ``.npy`` is mapped from the disk."""
    try:
        if path.suffix == ".npy":
            return np.load(path, mmap_mode="r", allow_pickle=False)
        (array,) = stored_tensors(path)[0].values()
    except (OSError, TypeError, AttributeError, ValueError, EOFError, SafetensorError) as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
        raise DataError(
            f"{path}: cannot be read as {path.suffix}: {reason}. Write it again, with one float32 array."
        ) from error
    return array


@dataclass(frozen=True)
class _KnownExamples:
    """Examples whose features are known, found by id and text or by text alone.

    Attributes:
        keys: hash of each example's id and text, and of its text alone, ``(n, 2)``.
        rows: row of its features, ``(n,)``.
    """

    keys: np.ndarray
    rows: Rows

    @cached_property
    def _sorted(self) -> list[tuple[np.ndarray, Rows]]:
        orders = [np.argsort(column, kind="stable") for column in self.keys.T]
        return [(column[order], self.rows[order]) for column, order in zip(self.keys.T, orders, strict=True)]

    def find(self, examples: Sequence[Example], where: str) -> Rows:
        """Find the rows of examples by id and text, else by text alone (DataError: an example is not known)."""
        found = np.full(len(examples), -1, np.int64)
        for asked, (keys, rows) in zip(_keys(examples).T, self._sorted, strict=True):
            places = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
            found = np.where((found < 0) & (keys[places] == asked), rows[places], found)
        if (found < 0).any():
            unseen = examples[int(np.argmax(found < 0))].id
            raise DataError(
                f'precomputed: example "{unseen}" is not in {where}, so it has no features. '
                "Leave it out, or make its features and build the index again."
            )
        return found


def _keys(examples: Sequence[Example]) -> np.ndarray:
    """Return 64-bit hashes of each example's id and text, and of its text alone, ``(n, 2)``."""
    texts = ((example.id, example.content_hash) for example in examples)
    keys = (int(key, 16) for id_, text in texts for key in (content_hash(id_, text), text))
    return np.fromiter(keys, np.uint64).reshape(-1, 2)


def _digest(keys: np.ndarray) -> str:
    """Compute ``json_digest(keys.tolist())`` without the whole JSON text, which has 50 bytes for each example."""
    digest, between = hashlib.sha256(b"["), b""
    for start in range(0, len(keys), _DIGESTED):
        digest.update(between + json.dumps(keys[start : start + _DIGESTED].tolist(), indent=1)[1:-2].encode())
        between = b","
    digest.update(b"\n]\n" if between else b"]\n")
    return digest.hexdigest()


class PrecomputedAttributor(MethodAttributor[PrecomputedSettings]):
    """Inner products of features from files; examples are recognised by id and text, or else by text alone.

    Queries have features of their own if ``queries`` is set; otherwise they are training examples. Very small or
    large training features are multiplied by the power of two of :func:`shift_of`, and query features divided by it:
    scores stay the same.
    """

    name = "precomputed"
    pool: ClassVar[Pool] = "sum"

    def __init__(self, settings: PrecomputedSettings) -> None:
        super().__init__(settings)
        self._learnt: dict[str, Any] | None = None
        self._train: _KnownExamples
        self._queries: _KnownExamples | None = None
        self._query_features: DenseFeatures | None = None

    @property
    def symmetric(self) -> bool:
        """True unless queries have features of their own."""
        return self._settings.queries is None

    @property
    def own_pool(self) -> Pool:
        return self._settings.pool

    @property
    def fingerprint(self) -> str:
        return json_digest({"method": self.name, **self._fitted()})

    def fit(self, train: Corpus) -> None:
        """Match the features to the examples, and read the features of queries.

        ConfigError: only one of ``queries`` and ``query_data`` is set. DataError: a file is missing, damaged, of
        another shape, or holds features that are not finite.
        """
        chosen = self._settings
        if (chosen.queries is None) != (chosen.query_data is None):
            given, lacking = ("queries", "query_data") if chosen.query_data is None else ("query_data", "queries")
            raise ConfigError(f"precomputed: {given} is set without {lacking}. Set {lacking} too.")
        file = self._file
        self._train = _KnownExamples(_keys(train), file.rows_of(train, "training corpus"))
        self._learnt = {
            "shift": 0 if _SMALL <= (largest := file.largest()) < _LARGE else shift_of(largest),
            "train": file.fingerprint,
            "dimension": file.dimension,
            "examples": _digest(self._train.keys),
            **self._fit_queries(file.dimension),
        }
        self.feature_scale = 2.0 ** self._learnt["shift"]

    def _fit_queries(self, dimension: int) -> dict[str, Any]:
        if self._settings.queries is None or self._settings.query_data is None:
            return {}
        file, data = FeatureFile(Path(self._settings.queries)), read_corpus(self._settings.query_data)
        if file.dimension != dimension:
            raise DataError(
                f"{file.path}: has {many(file.dimension, 'feature')} in each row, but the training features have "
                f"{dimension:,}. Make the features of queries and training examples with the same method."
            )
        self._query_features = file.take(file.rows_of(data, self._settings.query_data))
        self._queries = _KnownExamples(_keys(data), np.arange(len(data)))
        return {"queries": file.fingerprint, "query_examples": _digest(self._queries.keys)}

    @cached_property
    def _file(self) -> FeatureFile:
        """The training features (DataError: the file is missing, or changed since :meth:`fit`)."""
        file = FeatureFile(Path(self._settings.train))
        if self._learnt is not None and file.fingerprint != self._learnt["train"]:
            raise DataError(f"{file.path}: was changed after the index was built from it. Restore the file.")
        return file

    def encode_train(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> DenseFeatures:
        """φ_train of each example, ``(rows, d)``.

        DataError: an example has no features, or the file is missing or changed.
        """
        return self._encode(examples, on_rows, self._fitted()["shift"])

    def encode_queries(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> DenseFeatures:
        """φ_query of each example, ``(rows, d)``; errors as for :meth:`encode_train`."""
        shift = self._fitted()["shift"]
        if self._queries is None or self._query_features is None:
            return self._encode(examples, on_rows, -shift)
        rows = self._queries.find(examples, f"{self._settings.query_data}")
        return self._scaled(self._query_features[rows], -shift, on_rows)

    def _encode(self, examples: Sequence[Example], on_rows: OnRows | None, shift: int) -> DenseFeatures:
        if not len(examples):
            return np.empty((0, self._fitted()["dimension"]), np.float32)
        rows = self._train.find(examples, "the training corpus")
        return self._scaled(self._file.take(rows), shift, on_rows)

    @staticmethod
    def _scaled(features: DenseFeatures, shift: int, on_rows: OnRows | None) -> DenseFeatures:
        if on_rows is not None and len(features):
            on_rows(len(features))
        return np.ldexp(features, shift) if shift else features

    def save_state(self, folder: Path) -> None:
        """Write the keys of known examples, and the features of queries; training features stay where they are."""
        (folder / "precomputed.json").write_bytes(canonical_json(self._fitted()))
        np.save(folder / "keys.npy", self._train.keys)
        np.save(folder / "rows.npy", self._train.rows)
        if self._queries is not None and self._query_features is not None:
            np.save(folder / "query_keys.npy", self._queries.keys)
            np.save(folder / "query_features.npy", self._query_features)

    def load_state(self, folder: Path) -> None:
        self._learnt = json.loads((folder / "precomputed.json").read_bytes())
        self.feature_scale = 2.0 ** self._fitted()["shift"]
        self._train = _KnownExamples(_load(folder / "keys.npy"), _load(folder / "rows.npy"))
        if (folder / "query_keys.npy").exists():
            keys = _load(folder / "query_keys.npy")
            self._queries = _KnownExamples(keys, np.arange(len(keys)))
            self._query_features = _load(folder / "query_features.npy")

    def _fitted(self) -> dict[str, Any]:
        return self.check_fitted(self._learnt)


def _load(path: Path) -> np.ndarray:
    return np.load(path, allow_pickle=False)

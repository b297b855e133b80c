"""Static encoders, with one vector for each word piece, run by NumPy alone."""

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from safetensors import SafetensorError, deserialize, safe_open

from airrep.arrays import DenseFeatures, Rows
from airrep.encoder.base import Encoder, Format
from airrep.encoder.cards import (
    NO_PROMPTS,
    Card,
    Prompts,
    read_card,
    write_card,
    write_head_config,
    write_modules,
    write_settings,
)
from airrep.encoder.folders import WEIGHTS, Layout, Storage, read_json
from airrep.encoder.tokens import Pieces, PieceTokenizer
from airrep.errors import ConfigError, DataError, caution
from airrep.runtime.artifacts import json_digest
from airrep.shapes import Float32, Int64
from airrep.sparse import SparseRows

TOKENIZER = "tokenizer.json"
ROWS = "embedding.weight"
"""Name of the matrix; the next three are the names of its parts in model2vec's folders."""
_MODEL2VEC, _MAPPING, _FACTORS = "embeddings", "mapping", "weights"
VOCABULARY = "vocabulary"
"""Key, in the matrix's metadata, of the digest of the vocabulary that its rows belong to."""
_WAY_OUT = "Restore it or download the model again."

_BFLOAT16 = "BF16"
_NAMES: Mapping[Storage, str] = {"float32": "F32", "float16": "F16", "bfloat16": _BFLOAT16}


class LinearHead(NamedTuple):
    """A linear map, x Wᵀ + b."""

    weight: Float32[np.ndarray, "d h"]
    bias: Float32[np.ndarray, " d"]


@dataclass(frozen=True, eq=False)
class StoredStatic:
    """A static encoder as its folder holds it."""

    matrix: Float32[np.ndarray, "v h"]
    """The vector of each word piece."""
    tokenizer: dict[str, Any]
    """Content of ``tokenizer.json``, without padding; its truncation limits the length of texts."""
    card: Card
    normalise: bool
    """True if means are scaled to unit length."""
    head: LinearHead | None = None
    """Linear map after the mean; None if there is none."""
    vocabulary: str | None = None
    """Digest of the vocabulary that the rows belong to; None if the folder does not hold it."""

    @property
    def max_tokens(self) -> int:
        """Longest text in word pieces; 0 if there is no limit."""
        return int((self.tokenizer.get("truncation") or {}).get("max_length") or 0)


def cut_after(tokenizer: Mapping[str, Any], most: int) -> dict[str, Any]:
    """Return the content of a ``tokenizer.json`` that cuts texts off after *most* tokens."""
    usual = {"direction": "Right", "strategy": "LongestFirst", "stride": 0}
    return {**tokenizer, "truncation": usual | (tokenizer.get("truncation") or {}) | {"max_length": most}}


def read_static(layout: Layout) -> StoredStatic:
    """Read the folder of a static encoder."""
    path = layout.transformer / WEIGHTS
    tensors, metadata = read_tensors(path)
    return StoredStatic(
        _matrix(path, tensors),
        read_json(layout.transformer / TOKENIZER) | {"padding": None},
        read_card(layout.folder),
        None in layout.heads,
        next((_read_head(folder) for folder in layout.heads if folder is not None), None),
        metadata.get(VOCABULARY),
    )


def _matrix(path: Path, tensors: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return one vector for each token; model2vec's files may share rows among tokens and weigh them."""
    name = ROWS if ROWS in tensors else _MODEL2VEC
    rows = tensors.get(name)
    if rows is None:
        raise DataError(f"{path}: lacks tensor {ROWS}, which holds the vectors of word pieces. {_WAY_OUT}")
    _check_kind(path, name, rows, 2)
    kind = rows.dtype
    if name == _MODEL2VEC and (mapping := tensors.get(_MAPPING)) is not None:
        if mapping.ndim != 1 or mapping.dtype.kind not in "iu" or np.any(mapping >= len(rows)) or np.any(mapping < 0):
            raise DataError(
                f"{path}: tensor {_MAPPING} must hold row numbers of {name} (0 to {len(rows) - 1}). {_WAY_OUT}"
            )
        rows = rows[mapping]
    if name == _MODEL2VEC and (factors := tensors.get(_FACTORS)) is not None:
        _check_kind(path, _FACTORS, factors, 1)
        if len(factors) != len(rows):
            raise DataError(
                f"{path}: tensor {_FACTORS} has {len(factors)} numbers for {len(rows)} word pieces. {_WAY_OUT}"
            )
        rows = (rows.astype(np.float32) * factors[:, None]).astype(kind)  # rounded as sentence_transformers does
    return np.ascontiguousarray(rows, np.float32)


def _check_kind(path: Path, name: str, array: np.ndarray, axes: int) -> None:
    if array.ndim != axes or array.dtype.kind != "f":
        raise DataError(
            f"{path}: tensor {name} has type {array.dtype} and shape {array.shape}; must be float32, float16 or "
            f"bfloat16 with {axes} axes. {_WAY_OUT}"
        )


def _read_head(folder: Path) -> LinearHead:
    path = folder / WEIGHTS
    config, (tensors, _) = read_json(folder / "config.json"), read_tensors(path)
    outputs, inputs = config.get("out_features"), config.get("in_features")
    expected = {"linear.weight": (outputs, inputs)} | ({"linear.bias": (outputs,)} if config.get("bias", True) else {})
    for name, shape in expected.items():
        found = tensors.get(name)
        if found is None or found.shape != shape or found.dtype.kind != "f":
            raise DataError(f"{path}: does not fit its config.json: tensor {name} is not of shape {shape}. {_WAY_OUT}")
    weight = tensors["linear.weight"].astype(np.float32)
    bias = tensors["linear.bias"] if "linear.bias" in expected else np.zeros(len(weight))
    return LinearHead(weight, bias.astype(np.float32))


def write_static(stored: StoredStatic, folder: Path, storage: Storage = "float32") -> None:
    """Write into an empty folder what ``SentenceTransformer`` loads: StaticEmbedding, Normalize, Dense."""
    metadata = {} if stored.vocabulary is None else {VOCABULARY: stored.vocabulary}
    write_tensors(folder / WEIGHTS, {ROWS: stored.matrix}, storage, metadata)
    content = json.dumps(stored.tokenizer, ensure_ascii=False, sort_keys=True)  # the digest uses this order of keys too
    (folder / TOKENIZER).write_text(content, encoding="utf-8")
    kinds = [*(["Normalize"] if stored.normalise else []), *([] if stored.head is None else ["Dense"])]
    for kind, path in zip(kinds, write_modules(folder, ["StaticEmbedding", *kinds])[1:], strict=True):
        if kind == "Normalize" or stored.head is None:
            write_head_config(path)
            continue
        weight, bias = stored.head
        write_tensors(path / WEIGHTS, {"linear.weight": weight, "linear.bias": bias}, storage)
        write_head_config(path, weight.shape)
    write_settings(folder)
    write_card(stored.card, folder)


def read_tensors(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Read the arrays of a model's safetensors file, bfloat16 as float32, and its metadata."""
    try:
        return stored_tensors(path)
    except FileNotFoundError as error:
        raise DataError(f"{path}: is missing; it should hold weights of the model. {_WAY_OUT}") from error
    except (SafetensorError, OSError, TypeError, AttributeError) as error:
        raise DataError(
            f"{path}: is a damaged or incomplete safetensors file ({str(error).partition(chr(10))[0]}). {_WAY_OUT}"
        ) from error


def stored_tensors(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Do what :func:`read_tensors` does; errors are SafetensorError, OSError, TypeError, AttributeError."""
    with safe_open(path, "np") as stored:
        types = {name: stored.get_slice(name).get_dtype() for name in stored.keys()}  # noqa: SIM118 - no mapping
        arrays = {name: stored.get_tensor(name) for name, kind in types.items() if kind != _BFLOAT16}
        metadata = stored.metadata() or {}
    return arrays | (_read_bfloat16(path) if _BFLOAT16 in types.values() else {}), metadata


def _read_bfloat16(path: Path) -> dict[str, np.ndarray]:
    found = {}
    for name, tensor in deserialize(path.read_bytes()):  # type: ignore[no-untyped-call]
        if tensor["dtype"] == _BFLOAT16:
            bits = np.frombuffer(tensor["data"], "<u2").astype(np.uint32) << 16
            found[name] = bits.view(np.float32).reshape(tensor["shape"])
    return found


def write_tensors(
    path: Path, tensors: Mapping[str, np.ndarray], storage: Storage, metadata: Mapping[str, str] | None = None
) -> None:
    """Write float32 arrays as a safetensors file."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt", **(metadata or {})}}
    parts, end = list[bytes](), 0
    for name, array in tensors.items():
        parts.append(_stored(path, array, storage))
        header[name] = {"dtype": _NAMES[storage], "shape": array.shape, "data_offsets": (end, end + len(parts[-1]))}
        end += len(parts[-1])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    # Python's write raises OSError on a full disk; safetensors has its own error, and writes no bfloat16 from NumPy.
    path.write_bytes(b"".join([len(text).to_bytes(8, "little"), text, *parts]))


def _stored(path: Path, array: np.ndarray, storage: Storage) -> bytes:
    values = np.ascontiguousarray(array, "<f4")
    if storage == "float32":
        return values.tobytes()
    if storage == "bfloat16":
        bits = values.view("<u4").astype(np.uint64)
        rounded: np.ndarray = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16  # to the nearest, ties to even
        return rounded.astype("<u2").tobytes()
    with np.errstate(over="ignore"):
        small = values.astype("<f2")
    if not np.isfinite(small).all():
        raise ConfigError(f"{path}: has weights above 65,504, which float16 cannot hold. Use storage='float32'.")
    return small.tobytes()


_CHUNK = 512
"""Texts that are encoded at a time."""
_SHORTEST = 1e-12
"""Length of the shortest mean that is scaled to length 1, as in torch and sentence_transformers."""
_log = logging.getLogger(__name__)


class StaticEncoder(Encoder):
    """Mean of the vectors of a text's word pieces, scaled to unit length or not, then an optional linear map.

    The order of words does not count. A row has the same bits whatever is encoded beside it, and texts with the same
    pieces have equal rows. A text without a known piece has a row of zeros. In sentence_transformers all these texts
    have the vector of the unknown piece, so that they look alike.
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
        """Make an encoder of a matrix with a vector for each token of a ``tokenizer.json``; :meth:`save` writes it."""
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
        """Return the ids of each text's word pieces, without any prompt."""
        ids, offsets = self._tokenize(texts)
        return np.split(ids.astype(np.int64), offsets[1:-1]) if len(texts) else []

    def _encode_window(self, texts: Sequence[str], queries: bool) -> Iterator[tuple[Rows, DenseFeatures]]:
        prompt = self.prompts.query if queries else self.prompts.train
        unknown = -1 if self._tokenize.unknown is None else self._tokenize.unknown
        for start in range(0, len(texts), _CHUNK):
            part = [prompt + text for text in texts[start : start + _CHUNK]]
            pieces = self._tokenize(part)
            features = self._features(pieces)
            own = np.concatenate([[0], np.cumsum(pieces.ids != unknown)])
            known = np.diff(own[pieces.offsets]) > 0  # at least one piece of the text is in the vocabulary
            features[~known] = 0
            if any(text.strip() for text, some in zip(part, known.tolist(), strict=True) if not some):
                caution(
                    _log,
                    f"encoder {self.name}: some texts have no word piece that is in its vocabulary. Their features are "
                    "0, so they score 0 with every text.",
                )
            yield np.arange(start, start + len(part)), features

    def _features(self, pieces: Pieces) -> DenseFeatures:
        stored, lengths = self.checkpoint, np.diff(pieces.offsets)
        # Sparse products add up each row by itself, so that rows do not depend on each other, and in the order of
        # piece numbers, so that texts with the same pieces tie; BLAS does neither.
        means: DenseFeatures = SparseRows.counts(pieces.ids, pieces.offsets, len(stored.matrix)) @ stored.matrix
        means /= np.maximum(lengths, 1)[:, None].astype(np.float32)
        if stored.normalise:
            means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), np.float32(_SHORTEST))
        return means if stored.head is None else _mapped(means, stored.head)

    def _unknown_shares(self, texts: Sequence[str]) -> np.ndarray:
        return self._tokenize.unknown_shares(texts)

    def _write(self, folder: Path, model_format: Format, storage: Storage) -> None:
        if model_format == "airrep":
            raise ConfigError(
                f"saving {self.name}: the airrep format holds only BERT-type encoders, and this encoder is static. "
                "Use model_format='sentence-transformers'."
            )
        write_static(self.checkpoint, folder, storage)


def _mapped(means: DenseFeatures, head: LinearHead) -> DenseFeatures:
    """Compute x Wᵀ + b, row by row."""
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
        many = (
            f" (which has token number {largest}, but there are vectors for {rows} tokens)" if largest >= rows else ""
        )
        raise DataError(
            f"encoder {name}: its word vectors do not fit its tokenizer{many}. Restore the folder, or download the "
            "model again."
        )
    for what, part in (("matrix", stored.matrix), *zip(("head", "head"), stored.head or (), strict=False)):
        if not np.isfinite(part).all():
            raise DataError(
                f"encoder {name}: its {what} has values that are not finite (NaN or infinite), as happens when "
                "training fails. Use an earlier checkpoint."
            )
    width = None if stored.head is None else stored.head.weight.shape[1]
    if not stored.matrix.shape[1] or width not in (None, stored.matrix.shape[1]):
        raise DataError(
            f"encoder {name}: its vectors have {stored.matrix.shape[1]} numbers each; the next module needs "
            f"{width or 'at least 1'}. Restore the folder, or download the model again."
        )
    if rows > largest + 1 and stored.vocabulary is None:
        caution(
            _log,
            f"encoder {name}: it has {rows} vectors, but its tokenizer has {largest + 1} tokens. Check that the "
            "vectors were made for this tokenizer.",
        )
    return vocabulary


def _vocabulary_digest(vocabulary: Mapping[str, int]) -> str:
    """Return a digest of the tokens in order of their numbers, and of these numbers."""
    tokens, numbers = list(vocabulary), np.fromiter(vocabulary.values(), "<i8", len(vocabulary))
    order = np.argsort(numbers, kind="stable")
    ordered = "\0".join([tokens[place] for place in order.tolist()])
    return hashlib.sha256(ordered.encode() + numbers[order].tobytes()).hexdigest()


def _array_digest(array: np.ndarray) -> str:
    values = np.ascontiguousarray(array, "<f4")
    digest = hashlib.sha256(f"{values.shape}\n".encode())
    digest.update(values.ravel().data)
    return digest.hexdigest()

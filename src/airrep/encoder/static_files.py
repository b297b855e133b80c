"""The folder of a static encoder; tensors of safetensors files without torch."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from safetensors import SafetensorError, deserialize, safe_open

from airrep.encoder.cards import Card, read_card, write_card, write_head_config, write_modules, write_settings
from airrep.encoder.folders import WEIGHTS, Layout, read_json
from airrep.errors import ConfigError, DataError
from airrep.shapes import Float32

TOKENIZER = "tokenizer.json"
ROWS = "embedding.weight"
"""Name of the matrix, and in model2vec's folders those of its parts."""
_MODEL2VEC, _MAPPING, _FACTORS = "embeddings", "mapping", "weights"
VOCABULARY = "vocabulary"
"""In the metadata of the matrix: the digest of the vocabulary that its rows are of."""
_WAY_OUT = "Restore it or download the model again."


Storage: TypeAlias = Literal["float32", "float16", "bfloat16"]
"""A type that weights are stored in; they are loaded as float32 whatever it is."""

_BFLOAT16 = "BF16"
_NAMES: Mapping[Storage, str] = {"float32": "F32", "float16": "F16", "bfloat16": _BFLOAT16}


class LinearHead(NamedTuple):
    """A linear map of vectors."""

    weight: Float32[np.ndarray, "d h"]
    bias: Float32[np.ndarray, " d"]


@dataclass(frozen=True, eq=False)
class StoredStatic:
    """A static encoder as its folder holds it."""

    matrix: Float32[np.ndarray, "v h"]
    """The vector of each word piece."""
    tokenizer: dict[str, Any]
    """Content of ``tokenizer.json``, without padding; a text is cut off where its truncation says."""
    card: Card
    normalise: bool
    """True if means are scaled to unit length."""
    head: LinearHead | None = None
    """Linear map after the mean; None if there is none."""
    vocabulary: str | None = None
    """Digest of the vocabulary that the rows are of; None where the folder does not tell it."""

    @property
    def max_tokens(self) -> int:
        """Longest text in word pieces; 0 where there is no end."""
        return int((self.tokenizer.get("truncation") or {}).get("max_length") or 0)


def cut_after(tokenizer: Mapping[str, Any], most: int) -> dict[str, Any]:
    """Content of a ``tokenizer.json`` that cuts texts off after so many tokens."""
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
    """The vectors; of model2vec, which may share rows and weigh them, one for each token."""
    name = ROWS if ROWS in tensors else _MODEL2VEC
    rows = tensors.get(name)
    if rows is None:
        raise DataError(f"{path}: has no tensor {ROWS}, the vectors of word pieces. {_WAY_OUT}")
    _check_kind(path, name, rows, 2)
    kind = rows.dtype
    if name == _MODEL2VEC and (mapping := tensors.get(_MAPPING)) is not None:
        if mapping.ndim != 1 or mapping.dtype.kind not in "iu" or np.any(mapping >= len(rows)) or np.any(mapping < 0):
            raise DataError(
                f"{path}: {_MAPPING} does not name rows of {name}, of which there are {len(rows)}. {_WAY_OUT}"
            )
        rows = rows[mapping]
    if name == _MODEL2VEC and (factors := tensors.get(_FACTORS)) is not None:
        _check_kind(path, _FACTORS, factors, 1)
        if len(factors) != len(rows):
            raise DataError(f"{path}: has {len(factors)} {_FACTORS} for {len(rows)} word pieces. {_WAY_OUT}")
        rows = (rows.astype(np.float32) * factors[:, None]).astype(kind)  # rounded as sentence_transformers does
    return np.ascontiguousarray(rows, np.float32)


def _check_kind(path: Path, name: str, array: np.ndarray, axes: int) -> None:
    if array.ndim != axes or array.dtype.kind != "f":
        raise DataError(
            f"{path}: tensor {name} is of type {array.dtype} and shape {array.shape}; expected {axes} axes of float32, "
            f"float16 or bfloat16. {_WAY_OUT}"
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
    content = json.dumps(stored.tokenizer, ensure_ascii=False)
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
    """Arrays of a safetensors file, bfloat16 as float32, and its metadata."""
    try:
        with safe_open(path, "np") as stored:
            types = {name: stored.get_slice(name).get_dtype() for name in stored.keys()}  # noqa: SIM118 - no mapping
            arrays = {name: stored.get_tensor(name) for name, kind in types.items() if kind != _BFLOAT16}
            metadata = stored.metadata() or {}
        return arrays | (_read_bfloat16(path) if _BFLOAT16 in types.values() else {}), metadata
    except FileNotFoundError as error:
        raise DataError(f"{path}: is missing; a model folder has its weights there. {_WAY_OUT}") from error
    except (SafetensorError, OSError, TypeError) as error:
        raise DataError(
            f"{path}: is damaged or cut short ({str(error).partition(chr(10))[0]}); expected a whole safetensors file. "
            f"{_WAY_OUT}"
        ) from error


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
    # Written by Python, a full disk is an OSError; safetensors has an error of its own, and no bfloat16 of NumPy's.
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

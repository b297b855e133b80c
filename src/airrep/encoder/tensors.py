"""Tensors of safetensors files as arrays, without torch."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from safetensors import SafetensorError, deserialize, safe_open

from airrep.errors import ConfigError, DataError

Storage: TypeAlias = Literal["float32", "float16", "bfloat16"]
"""A type that weights are stored in; they are loaded as float32 whatever it is."""

_BFLOAT16 = "BF16"
_NAMES: Mapping[Storage, str] = {"float32": "F32", "float16": "F16", "bfloat16": _BFLOAT16}
_WAY_OUT = "Restore it or download the model again."


def read_tensors(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Arrays of a safetensors file, bfloat16 as float32, and its metadata.

    Raises:
        DataError: it is missing, damaged or cut short, or has a type that NumPy lacks.
    """
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
    """Write float32 arrays as a safetensors file.

    Raises:
        ConfigError: a value is too large for the type that they are stored in.
    """
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

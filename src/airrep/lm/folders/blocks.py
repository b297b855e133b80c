"""Where a GGUF file has the matrices of an LM, by transformers' names."""

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from airrep.arrays import Rows

PLACES = "blocks.json"
"""File of a folder that says where weights are, which it lacks itself."""

_MATRIX = 2  # dimensions of a weight that stays in the file
_UNKNOWN = (ImportError, AttributeError, NotImplementedError, TypeError, ValueError, KeyError)
"""Errors where transformers has not the names by which it is asked, or not for a type of LM."""


class Place(NamedTuple):
    """A matrix in a GGUF file."""

    type: str
    """As gguf names it: Q4_K, F16, …"""
    offset: int
    """Where it begins, in bytes."""
    rows: int
    row_bytes: int
    width: int
    """Numbers of a row."""
    order: list[int] | None
    """The file's row of each row of the model's weight; None: they are in the same order."""


def read_places(folder: Path) -> tuple[Path, dict[str, Place]] | None:
    """The GGUF file, and the places of weights by their names; None where a folder has no such table."""
    path = folder / PLACES
    if not path.is_file():
        return None
    found = json.loads(path.read_bytes())
    return Path(found["file"]), {name: Place(*place) for name, place in found["weights"].items()}


def write_places(file: Path, out: Path) -> bool:
    """Write an LM's configuration, the places of its matrices in a GGUF file, and its other weights as float32.

    transformers knows the names, and what the file's writer did to some weights; it is asked for one after another. A
    matrix stays in the file if that is nothing, or another order of rows. False, and nothing is written, for types of
    LMs that it reads in some other way.
    """
    try:
        config, places, plain = _read(file)
    except _UNKNOWN:
        return False
    from safetensors.numpy import save_file

    config.save_pretrained(out)
    save_file(plain, out / "model.safetensors", metadata={"format": "pt"})
    (out / PLACES).write_text(json.dumps({"file": str(file.resolve()), "weights": places}), "utf-8")
    return True


def _read(file: Path) -> tuple[Any, dict[str, Place], dict[str, np.ndarray]]:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    gguf, library = import_module("gguf"), import_module("transformers.modeling_gguf_pytorch_utils")
    reader = gguf.GGUFReader(file)
    if reader.byte_order == "S":
        raise NotImplementedError  # numbers are the other way round than this machine has them
    config = AutoConfig.from_pretrained(file.parent, gguf_file=file.name, local_files_only=True)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    kind = library.read_field(reader, "general.architecture")[0]
    if {kind, config.model_type}.isdisjoint(library.GGUF_SUPPORTED_ARCHITECTURES):
        raise NotImplementedError  # of the library's other loader
    processor = library.TENSOR_PROCESSORS.get(kind, library.TensorProcessor)(config=config.to_dict())
    names: Mapping[str, str] = library.get_gguf_hf_weights_map(model, processor)
    places: dict[str, Place] = {}
    plain: dict[str, Any] = {}
    for tensor in reader.tensors:
        if (order := _order(processor, tensor)) is not None:
            if tensor.name in names:
                kept = None if (np.diff(order) == 1).all() else order.tolist()
                rows, width = len(order), int(tensor.shape[0])
                size = int(tensor.n_bytes) // rows
                places[names[tensor.name]] = Place(
                    tensor.tensor_type.name, int(tensor.data_offset), rows, size, width, kept
                )
            continue
        weights = gguf.dequantize(tensor.data, tensor.tensor_type)
        told = {"tensor_key_mapping": names, "parsed_parameters": {"tensors": plain}}
        found = processor.process(weights=weights, name=tensor.name, **told)
        if found.name in names:
            plain[names[found.name]] = found.weights
    return config, places, {name: np.array(each, np.float32, order="C") for name, each in plain.items()}


def _order(processor: Any, tensor: Any) -> Rows | None:
    """The file's row of each row of the model's weight; None for tensors that do not stay in the file.

    transformers is given numbers of rows, and of columns, in place of weights.
    """
    if len(tensor.shape) != _MATRIX:
        return None
    width, count = map(int, tensor.shape)
    rows = np.broadcast_to(np.arange(count, dtype=np.float32)[:, None], (count, width))
    columns = np.broadcast_to(np.arange(width, dtype=np.float32), (count, width))
    moved, crossed = (
        processor.process(weights=given, name=tensor.name, parsed_parameters={"tensors": {}})
        for given in (rows, columns)
    )
    if moved.name != tensor.name:
        return None
    if moved.weights is rows:
        return np.arange(count)
    if moved.weights.shape != rows.shape or not np.array_equal(crossed.weights, columns):
        return None
    order: Rows = moved.weights[:, 0].astype(np.int64)
    return order if np.array_equal(moved.weights, np.repeat(order[:, None], width, 1)) else None

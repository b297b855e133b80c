"""Read GGUF files as target LMs, once, into the cache."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from airrep.errors import LM, ConfigError, first_line, many, need
from airrep.runtime.artifacts import json_digest
from airrep.runtime.hub import without_bars
from airrep.runtime.publishing import new_place
from airrep.runtime.remote.places import cache

if TYPE_CHECKING:
    import numpy as np

    from airrep.arrays import Rows


PLACES = "blocks.json"
"""File in an LM's folder that says where in a GGUF file the matrices lie."""

_MATRIX = 2  # dimensions of a weight that stays in the file
_UNKNOWN = (ImportError, AttributeError, NotImplementedError, TypeError, ValueError, KeyError)
"""Errors if transformers lacks functions that are used here, or does not support a type of LM."""


class Place(NamedTuple):
    """A matrix in a GGUF file."""

    type: str
    """Name of the type in gguf: Q4_K, F16, …"""
    offset: int
    """First byte of the matrix in the file."""
    rows: int
    row_bytes: int
    width: int
    """Numbers in a row."""
    order: list[int] | None
    """The file's row for each row of the model's weight; None if the order is the same."""


def read_places(folder: Path) -> tuple[Path, dict[str, Place]] | None:
    """Return the GGUF file and the places of weights by name; None if a folder has no :data:`PLACES`."""
    path = folder / PLACES
    if not path.is_file():
        return None
    found = json.loads(path.read_bytes())
    return Path(found["file"]), {name: Place(*place) for name, place in found["weights"].items()}


def write_places(file: Path, out: Path) -> bool:
    """Write an LM's configuration, the places of its matrices in a GGUF file, and its other weights as float32.

    transformers converts each tensor of the file to a weight of the model. A matrix stays in the file if the conversion
    changes at most the order of its rows. Return False, and write nothing, for types of LMs that transformers reads in
    another way.
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


def _read(file: Path) -> "tuple[Any, dict[str, Place], dict[str, np.ndarray]]":
    import numpy as np
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    gguf, library = import_module("gguf"), import_module("transformers.modeling_gguf_pytorch_utils")
    reader = gguf.GGUFReader(file)
    if reader.byte_order == "S":
        raise NotImplementedError  # another byte order than this machine's
    config = AutoConfig.from_pretrained(file.parent, gguf_file=file.name, local_files_only=True)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    kind = library.read_field(reader, "general.architecture")[0]
    if {kind, config.model_type}.isdisjoint(library.GGUF_SUPPORTED_ARCHITECTURES):
        raise NotImplementedError  # transformers has another loader for these
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


def _order(processor: Any, tensor: Any) -> "Rows | None":
    """Return the file's row for each row of the model's weight; None for tensors that do not stay in the file.

    To find the order, transformers converts row numbers, and column numbers, in place of weights.
    """
    if len(tensor.shape) != _MATRIX:
        return None
    import numpy as np

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


_ENDING = ".gguf"
_PACKAGES = ("gguf", "accelerate")
_PROJECTOR = "mmproj"  # beside the LM of a model that reads images
_SCALED = "gpt-oss."  # the only type whose scaling transformers reads
_NAMED = 5


def gguf_of(name: str, path: Path) -> Path | None:
    """Return the GGUF file at a path, or the only one in a folder without safetensors weights; None without one."""
    if path.is_file():
        return path if path.suffix == _ENDING else None
    if not path.is_dir() or any(path.glob("*.safetensors")) or (path / "adapter_config.json").is_file():
        return None
    found = sorted(each for each in path.glob(f"*{_ENDING}") if not each.name.startswith(_PROJECTOR))
    if len(found) > 1:
        names = ", ".join(each.name for each in found[:_NAMED]) + (", …" if found[_NAMED:] else "")
        raise ConfigError(
            f"lm {name}: holds {len(found)} GGUF files ({names}). Choose one of them: --lm {path / found[0].name}"
        )
    return found[0] if found else None


def unpacked(name: str, file: Path) -> Path:
    """Return a folder of the cache with a GGUF file's configuration, tokenizer, chat template, and weights.

    Matrices stay in the file, and a table says where they are (:func:`airrep.lm.folders.gguf.write_places`). Other
    weights, and all weights of LMs that transformers reads in another way, are in the folder as float32. The folder is
    made at first use, and found again until the file changes.
    """
    need(f"lm {name}", "lm", *LM)
    import transformers

    state = file.stat()
    known = [str(file.resolve()), state.st_size, state.st_mtime_ns, transformers.__version__, "blocks"]
    out = cache() / "gguf" / json_digest(known)[:16]
    if not out.is_dir():
        missing = [package for package in _PACKAGES if find_spec(package) is None]
        if missing:
            raise ConfigError(
                f"lm {name}: is a GGUF file, which needs the package {' and '.join(missing)}. Install it with: pip "
                f"install {' '.join(_PACKAGES)}"
            )
        with new_place(out) as made:  # another process may have made it by then
            _unpack(name, file, made)
    return out


def _unpack(name: str, file: Path, out: Path) -> None:
    from transformers import AutoTokenizer

    with _reading(name):
        _check_rotation(name, file)
        AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name, local_files_only=True).save_pretrained(out)
        kept = write_places(file, out)
    if not kept:
        _convert(name, file, out)
    config = json.loads((out / "config.json").read_bytes())
    config.pop("quantization_config", None)  # it describes the file; these weights are plain, or in the table
    (out / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True), "utf-8")


def _convert(name: str, file: Path, out: Path) -> None:
    """Write the LM of a GGUF file with float32 weights, as transformers reads and writes it."""
    import torch
    import transformers
    from transformers import AutoModelForCausalLM

    plain = getattr(transformers, "GgufConfig", None)  # later versions keep weights quantised without it
    with _reading(name):
        model, report = AutoModelForCausalLM.from_pretrained(
            file.parent,
            gguf_file=file.name,
            local_files_only=True,
            dtype=torch.float32,
            output_loading_info=True,
            **({} if plain is None else {"quantization_config": plain(dequantize=True)}),
        )
        absent = sorted(report["missing_keys"])  # transformers would draw these at random
        if absent:
            raise ConfigError(f"lm {name}: lacks {many(len(absent), 'weight')}, first {absent[0]}. Give another file.")
        model.hf_quantizer = None  # else transformers takes the weights for quantised, and writes none
        model.save_pretrained(out)


def _check_rotation(name: str, file: Path) -> None:
    """Refuse files with RoPE scaling, which transformers ignores without a warning."""
    reader = import_module("gguf").GGUFReader(file)
    found = [tensor.name for tensor in reader.tensors if tensor.name.startswith(("rope_freqs", "rope_factors"))]
    found += [field for field in reader.fields if ".rope.scaling." in field and not field.startswith(_SCALED)]
    if found:
        raise ConfigError(
            f"lm {name}: uses RoPE scaling ({found[0]}), which transformers does not read from GGUF, so losses would "
            "be wrong. Give the LM that the GGUF file was made from."
        )


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """Read without progress bars; turn all errors into a one-line ConfigError."""
    try:
        with without_bars():
            yield
    except ConfigError:
        raise
    except Exception as error:  # the parsers raise errors of many types
        raise ConfigError(
            f"lm {name}: cannot be read as a GGUF file: {first_line(error)}. Give the LM that this file was made from."
        ) from error

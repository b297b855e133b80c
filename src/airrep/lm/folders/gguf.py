"""GGUF files as target LMs, read once into a folder of the cache."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from airrep.errors import LM, ConfigError, first_line, need
from airrep.lm.folders.blocks import write_places
from airrep.runtime.artifacts.manifests import json_digest
from airrep.runtime.hub import without_bars
from airrep.runtime.publishing import new_place
from airrep.runtime.remote.places import cache

_ENDING = ".gguf"
_PACKAGES = ("gguf", "accelerate")
_PROJECTOR = "mmproj"  # of images, beside the LM of a model that sees
_SCALED = "gpt-oss."  # the only type whose scaling transformers reads
_NAMED = 5


def gguf_of(name: str, path: Path) -> Path | None:
    """The GGUF file that a path is, or the only one of a folder without weights in safetensors; None if it has none."""
    if path.is_file():
        return path if path.suffix == _ENDING else None
    if not path.is_dir() or any(path.glob("*.safetensors")) or (path / "adapter_config.json").is_file():
        return None
    found = sorted(each for each in path.glob(f"*{_ENDING}") if not each.name.startswith(_PROJECTOR))
    if len(found) > 1:
        names = ", ".join(each.name for each in found[:_NAMED]) + (", …" if found[_NAMED:] else "")
        raise ConfigError(
            f"lm {name}: holds {len(found)} GGUF files ({names}); expected one LM. Give one: --lm "
            f"{path / found[0].name}"
        )
    return found[0] if found else None


def unpacked(name: str, file: Path) -> Path:
    """A folder of the cache with what a GGUF file holds: configuration, tokenizer, chat template, and weights.

    Matrices stay in the file: a table says where they are (:func:`airrep.lm.folders.blocks.write_places`). All else,
    and all weights of LMs that transformers reads in some other way, lies there as float32. The folder is made when it
    is first needed, and found again as long as the file stays as it is.
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
        with new_place(out, replace=True) as made:  # another process may have made it by then
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
    config.pop("quantization_config", None)  # of the file; these weights are plain, or in the table
    (out / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True), "utf-8")


def _convert(name: str, file: Path, out: Path) -> None:
    """Write the LM of a GGUF file with float32 weights, as transformers reads and writes it."""
    import torch
    import transformers
    from transformers import AutoModelForCausalLM

    plain = getattr(transformers, "GgufConfig", None)  # of later versions, which leave weights quantised otherwise
    with _reading(name):
        model, report = AutoModelForCausalLM.from_pretrained(
            file.parent,
            gguf_file=file.name,
            local_files_only=True,
            dtype=torch.float32,
            output_loading_info=True,
            **({} if plain is None else {"quantization_config": plain(dequantize=True)}),
        )
        absent = sorted(report["missing_keys"])  # transformers draws such weights at random
        if absent:
            raise ConfigError(f"lm {name}: lacks {len(absent)} weights, the first {absent[0]}. Give another file.")
        model.hf_quantizer = None  # by which transformers holds the weights to be quantised still, and writes none
        model.save_pretrained(out)


def _check_rotation(name: str, file: Path) -> None:
    """Refuse what rotates positions by factors of its own, which transformers passes over without a word."""
    reader = import_module("gguf").GGUFReader(file)
    found = [tensor.name for tensor in reader.tensors if tensor.name.startswith(("rope_freqs", "rope_factors"))]
    found += [field for field in reader.fields if ".rope.scaling." in field and not field.startswith(_SCALED)]
    if found:
        raise ConfigError(
            f"lm {name}: scales the rotation of positions ({found[0]}), which transformers does not read from GGUF, so "
            "that losses would be wrong. Give the LM that it was made from."
        )


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """Read without progress bars; what goes wrong becomes a one-line ConfigError."""
    try:
        with without_bars():
            yield
    except ConfigError:
        raise
    except Exception as error:  # of parsers of a format with many forms
        raise ConfigError(
            f"lm {name}: cannot be read as a GGUF file: {first_line(error)}. Give the LM that it was made from."
        ) from error

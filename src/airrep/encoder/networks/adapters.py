"""Run a model folder with the adapter that lies in it."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from airrep.encoder.folders import ADAPTER_CONFIG, WEIGHTS, find_model, read_json
from airrep.errors import DataError, need

_ADAPTER = "adapter_model.safetensors"
_BASE = ("config.json", WEIGHTS, "model-*.safetensors", "model.safetensors.index.json")


def base_of(transformer: Path) -> Path | None:
    """Folder of the weights that the adapter in a folder changes; None without an adapter.

    They are those beside it, or else those of the model that it names.
    """
    if not (transformer / ADAPTER_CONFIG).exists():
        return None
    if (transformer / "config.json").exists() and any(transformer.glob("model*.safetensors")):
        return transformer
    return find_model(str(read_json(transformer / ADAPTER_CONFIG).get("base_model_name_or_path")))


def base_files(base: Path) -> list[Path]:
    """Files of a base that decide what it computes."""
    return sorted(path for pattern in _BASE for path in base.glob(pattern))


@contextmanager
def without_adapter(folder: Path, transformer: Path, base: Path) -> Iterator[Path]:
    """A copy of a model folder, made of links, with the weights of the base and without the adapter.

    transformers puts adapters in itself, but only with releases of peft that it knows.
    """
    with TemporaryDirectory() as place:
        view = Path(place)
        paths = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("adapter_")]
        places = {view / path.relative_to(folder): path for path in paths}
        inside = view / transformer.relative_to(folder)
        for link, path in ({inside / path.name: path for path in base_files(base)} | places).items():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path.resolve())
        yield view


def merged(model: Any, transformer: Path, where: str) -> Any:
    """A transformer with the adapter of a folder merged into its weights.

    Raises:
        DataError: the adapter is damaged, belongs to another model or cannot be merged.
        MissingExtraError: the package peft is missing.
    """
    need(f"{where}: the adapter beside its weights", "peft", "peft")
    from peft import PeftModel, get_peft_model_state_dict

    try:
        stored = load_file(transformer / _ADAPTER)
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of names that do not fit, which are refused below
            adapted = PeftModel.from_pretrained(model, transformer, torch_device="cpu")
            put = get_peft_model_state_dict(adapted, save_embedding_layers=any(".lora_" not in name for name in stored))
            whole = adapted.merge_and_unload(safe_merge=True)
    # Any of these, depending on the kind of adapter and on what is wrong with it.
    except (SafetensorError, OSError, ValueError, RuntimeError, LookupError, AttributeError, TypeError) as error:
        raise DataError(
            f"{where}: the adapter beside its weights cannot be merged into them: {first_line(error)}. Merge it with "
            "peft's own merge_and_unload, and give the model that this makes."
        ) from error
    missing = next((name for name in sorted(put.keys() ^ stored.keys()) if ".lora_" in name or name in stored), None)
    if missing is not None:
        raise DataError(
            f"{where}: the adapter beside its weights belongs to another model ({missing} is in one of them alone). "
            "Restore the folder, or take the adapter out."
        )
    return whole


def first_line(error: Exception) -> str:
    """The first line of what an error says."""
    return str(error).strip().partition("\n")[0].rstrip(".")

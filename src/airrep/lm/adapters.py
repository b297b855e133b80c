"""Load a target LM whole: adapters that peft wrote are merged into their base."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from airrep.errors import ConfigError, MissingExtraError
from airrep.lm.files import load_network, make_plain
from airrep.lm.folders.forms import ADAPTER, ADAPTER_CONFIG, LmFiles, read_config
from airrep.lm.lora import tied_layers

_NAME = "default"
_CHANGED_BASES = ("pissa", "olora", "corda", "loftq", "lora_ga")
"""Beginnings of peft's ``init_lora_weights`` that change the base's weights before training."""


def load_whole(files: LmFiles, trusted: bool = False) -> Any:
    """Load a causal LM as :func:`airrep.lm.files.load_network` does, adapters merged into its weights.

    Raises:
        ConfigError: it cannot be loaded, or the adapters are not low-rank ones, do not fit, or are not finite.
        MissingExtraError: it has adapters, and the package peft is missing.
    """
    if files.adapter is None:
        return load_network(files.weights, files.name, trusted)
    _check_kind(files.name, read_config(files.adapter / ADAPTER_CONFIG))
    stored = _read(files.name, files.adapter / ADAPTER)
    return _merged(load_network(files.weights, files.name, trusted), files, stored)


def _check_kind(name: str, config: Mapping[str, Any]) -> None:
    """Refuse adapters that are no LoRA, that name code, or whose base was changed before they were trained."""
    if config.get("peft_type") != "LORA":
        kind = str(config.get("peft_type"))[:40]
        raise ConfigError(
            f"lm {name}: its adapters are of type {kind!r}; expected LORA (also with DoRA or rsLoRA). Merge them "
            "with peft's own merge_and_unload where it can, and give that LM."
        )
    start = config.get("init_lora_weights", True)
    if isinstance(start, str) and start.lower().startswith(_CHANGED_BASES):
        raise ConfigError(
            f"lm {name}: its adapters began as {start[:40]!r}, which changes the base too. Save them again with "
            "path_initial_model_for_weight_conversion of peft's save_pretrained, as ordinary LoRA."
        )
    if config.get("megatron_config") is not None:
        raise ConfigError(f"lm {name}: its {ADAPTER_CONFIG} names program code (megatron_config). Take that out.")


def _read(name: str, path: Path) -> dict[str, Tensor]:
    try:
        stored = load_file(path)
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"lm {name}: {path.name} cannot be read: {_first_line(error)}. Save it again.") from error
    damaged = next((key for key, tensor in stored.items() if not bool(torch.isfinite(tensor).all())), None)
    if damaged is not None:
        raise ConfigError(f"lm {name}: weight {damaged} of its adapters is not finite. Use another checkpoint.")
    return stored


def _merged(model: Any, files: LmFiles, stored: Mapping[str, Tensor]) -> Any:
    """The model with its adapters merged; every number of their file is checked to be there before."""
    try:
        from peft import PeftModel
    except ImportError as error:
        raise MissingExtraError(f"lm {files.name}: its adapters", "peft") from error
    try:
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of names that do not fit, which _check_loaded refuses
            adapted = PeftModel.from_pretrained(
                model, files.adapter, adapter_name=_NAME, is_trainable=False, torch_device="cpu"
            )
            _check_untied(adapted, files)
            _check_loaded(adapted, stored, files)
            whole = adapted.merge_and_unload(safe_merge=True)
    except (OSError, ValueError, RuntimeError, KeyError, TypeError, AttributeError, ImportError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(
            f"lm {files.name}: its adapters cannot be merged into a {type(model).__name__}: {_first_line(error)}. "
            "Name the LM that they were trained on: --set base=MODEL"
        ) from error
    return make_plain(whole.requires_grad_(True))


def _check_untied(adapted: Any, files: LmFiles) -> None:
    """Refuse adapters of a weight that two layers have: merging would change both."""
    if (tied := tied_layers(adapted)) is not None:
        raise ConfigError(
            f"lm {files.name}: its adapters change {tied[0]}, whose weight is that of {tied[1]} too, so they cannot be "
            "merged; expected layers with weights of their own. Name a copy of the LM in which they are not tied: "
            "--set base=MODEL"
        )


def _check_loaded(adapted: Any, stored: Mapping[str, Tensor], files: LmFiles) -> None:
    """Refuse adapters in a model that are not those of their file: peft passes over names that do not fit."""
    from peft import get_peft_model_state_dict

    embeddings = any(".lora_" not in name for name in stored)
    loaded = get_peft_model_state_dict(adapted, adapter_name=_NAME, save_embedding_layers=False)
    if embeddings:  # whole layers beside the low-rank maps
        loaded = {**get_peft_model_state_dict(adapted, adapter_name=_NAME, save_embedding_layers=True), **loaded}
        loaded = {name: tensor for name, tensor in loaded.items() if name in stored or ".lora_" in name}
    absent = next((name for name in loaded if name not in stored), None)
    if absent is not None:
        raise ConfigError(
            f"lm {files.name}: {ADAPTER} has no {absent}, which would be random; expected all that {ADAPTER_CONFIG} "
            "names. Save the adapters again."
        )
    for name, tensor in stored.items():
        if name not in loaded or not torch.equal(loaded[name].detach().cpu(), tensor.to(loaded[name].dtype)):
            raise ConfigError(
                f"lm {files.name}: {name} of its adapters is not in the LM after loading, so they belong to another. "
                "Name the LM that they were trained on: --set base=MODEL"
            )


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".:")[:300] or type(error).__name__

"""Load a target LM whole: adapters that peft wrote are merged into their base."""

from collections.abc import Mapping
from typing import Any

from airrep.errors import ConfigError
from airrep.lm.files import load_network, make_plain
from airrep.lm.folders.forms import ADAPTER_CONFIG, LmFiles, read_config
from airrep.lm.lora import tied_layers
from airrep.lm.peft_loading import StoredAdapters

_CHANGED_BASES = ("pissa", "olora", "corda", "loftq", "lora_ga")
"""Beginnings of peft's ``init_lora_weights`` that change the base's weights before training."""

_INSTEAD = "Give the LM before training, which is what data are asked about: the base of the adapters."
_NOT_MERGED = {
    "alora_invocation_tokens": "they count behind certain tokens alone (aLoRA)",
    "layer_replication": "they are of an LM in which layers of the base stand several times",
    "arrow_config": "they are mixed anew for each token (Arrow)",
}
"""Settings of peft's LoRA that merging has no place for, with what they do."""


def load_whole(files: LmFiles, trusted: bool = False) -> Any:
    """Load a causal LM as :func:`airrep.lm.files.load_network` does, adapters merged into its weights.

    Raises:
        ConfigError: it cannot be loaded, or the adapters are not low-rank ones, do not fit, or are not finite.
        MissingExtraError: it has adapters, and the package peft is missing.
    """
    if files.adapter is None:
        return load_network(files.weights, files.name, trusted)
    _check_kind(files.name, read_config(files.adapter / ADAPTER_CONFIG))
    remedy = "Name the LM that they were trained on: --set base=MODEL"
    stored = StoredAdapters(files.adapter, f"lm {files.name}", remedy)
    return _merged(load_network(files.weights, files.name, trusted), stored, files)


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
    feature = next((name for name in _NOT_MERGED if config.get(name)), None)
    if feature is not None:
        raise ConfigError(
            f"lm {name}: its adapters have {feature}: {_NOT_MERGED[feature]}, so they cannot be merged; expected LoRA "
            f"without it. {_INSTEAD}"
        )
    if config.get("megatron_config") is not None:
        raise ConfigError(f"lm {name}: its {ADAPTER_CONFIG} names program code (megatron_config). Take that out.")


def _merged(model: Any, stored: StoredAdapters, files: LmFiles) -> Any:
    """The model with its adapters merged."""
    adapted = stored.put_into(model)
    _check_untied(adapted, files)
    _check_biases(adapted, files.name)
    with stored.fitting(model, "merged"):
        whole = adapted.merge_and_unload(safe_merge=True)
    return make_plain(whole.requires_grad_(True))


def _check_biases(adapted: Any, name: str) -> None:
    """Refuse adapters with a bias on a layer that has none: there is no place to merge it into."""
    for place, module in adapted.named_modules():
        if any(getattr(module, "lora_bias", {}).values()) and getattr(module.get_base_layer(), "bias", None) is None:
            layer = place.removeprefix("base_model.model.")
            raise ConfigError(
                f"lm {name}: its adapters have a bias of their own (lora_bias) on {layer}, which has none, so they "
                f"cannot be merged; expected lora_bias=false. {_INSTEAD}"
            )


def _check_untied(adapted: Any, files: LmFiles) -> None:
    """Refuse adapters of a weight that two layers have: merging would change both."""
    if (tied := tied_layers(adapted)) is not None:
        raise ConfigError(
            f"lm {files.name}: its adapters change {tied[0]}, whose weight is that of {tied[1]} too, so they cannot be "
            "merged; expected layers with weights of their own. Name a copy of the LM in which they are not tied: "
            "--set base=MODEL"
        )

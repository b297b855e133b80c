"""Names that trainers have for settings, and their defaults, as transformers' names."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from airrep.lm.trainer.written import KIND

_DEFAULTS = {
    "learning_rate": 5e-5,
    "num_train_epochs": 3,
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "lr_scheduler_type": "linear",
    "warmup_steps": 0,
    "weight_decay": 0.0,
    "adam_beta1": 0.9,
    "adam_beta2": 0.999,
    "adam_epsilon": 1e-8,
    "max_grad_norm": 1.0,
    "optim": "adamw_torch",
}
"""Those of transformers' TrainingArguments, for what a config leaves out; pickles and JSON have all."""
_AXOLOTL_NAMES = {
    "num_epochs": "num_train_epochs",
    "micro_batch_size": "per_device_train_batch_size",
    "lr_scheduler": "lr_scheduler_type",
    "optimizer": "optim",
}
_AXOLOTL_DEFAULTS = {"num_train_epochs": 1, "per_device_train_batch_size": 1, "lr_scheduler_type": "cosine"}
_AXOLOTL_WARMUP = 0.03
_LEFT = (
    *("neftune_noise_alpha", "packing", "sample_packing", "neat_packing", "label_smoothing_factor", "group_by_length"),
    *("loraplus_lr_ratio", "lorap_lr_ratio", "embedding_lr", "load_in_4bit", "load_in_8bit", "quantization_bit"),
    *(
        "quant_bits",
        "lr_scheduler_kwargs",
        "cosine_min_lr_ratio",
        "cosine_constant_lr_ratio",
        "optim_args",
        "use_galore",
    ),
    *("use_apollo", "use_badam", "use_dft_loss", "train_on_inputs", "train_on_prompt", "rl", "rlhf_type"),
)
"""Settings of a training that our fine-tunes have not, where they are in use."""
_LEFT_OF_LORA = (
    *("lora_dropout", "use_dora", "peft_use_dora", "rank_pattern", "alpha_pattern", "modules_to_save"),
    *("lora_modules_to_save", "target_parameters", "lora_target_parameters", "layers_to_transform", "exclude_modules"),
)
_LENGTHS = ("max_length", "sequence_len", "cutoff_len", "max_seq_length")
_KINDS = ("TrainingArguments", "SFTConfig", "AxolotlTrainingArguments", "AxolotlSFTConfig")
"""Ends of the names of the classes of arguments whose loss is that of responses."""


class LowRank(NamedTuple):
    """Low-rank adapters as a trainer has them."""

    rank: Any
    alpha: Any
    targets: Any
    by_root: bool
    """Whether they are scaled by alpha / √rank (rsLoRA)."""


def as_transformers(said: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments with transformers' names and the trainer's defaults; none where nothing is said."""
    given = {name: value for name, value in said.items() if value is not None}
    if not given or not _is_axolotl(said):
        return {**_DEFAULTS, **given} if given else {}
    named = {_AXOLOTL_NAMES.get(name, name): value for name, value in given.items()}
    if "warmup_steps" not in named:
        named.setdefault("warmup_ratio", _AXOLOTL_WARMUP)
    if "batch_size" in named and "gradient_accumulation_steps" not in named:
        named |= {"per_device_train_batch_size": named["batch_size"]}
    return {**_DEFAULTS, **_AXOLOTL_DEFAULTS, **named}


def _is_axolotl(said: Mapping[str, Any]) -> bool:
    return "num_epochs" in said or "base_model" in said


def lora_of(said: Mapping[str, Any], adapters: Mapping[str, Any]) -> LowRank | None:
    """The low-rank adapters that were trained; None where all weights were, or where that is not told."""
    if adapters.get("peft_type") == "LORA":
        rank, alpha, targets = (adapters.get(name) for name in ("r", "lora_alpha", "target_modules"))
        return LowRank(rank, alpha, targets, bool(adapters.get("use_rslora")))
    if not _trains_lora(said):
        return None
    factory = "finetuning_type" in said or "stage" in said
    rank = _first(said, "lora_r", "lora_rank") or 8
    alpha = said.get("lora_alpha") or (2 * int(rank) if factory else 8)
    targets = _first(said, "lora_target_modules", "lora_target", "target_modules")
    if said.get("lora_target_linear"):
        targets = None
    return LowRank(rank, alpha, targets, bool(_first(said, "use_rslora", "peft_use_rslora")))


def _trains_lora(said: Mapping[str, Any]) -> bool:
    if "finetuning_type" in said or "stage" in said:  # LLaMA-Factory
        return bool(said.get("finetuning_type", "lora") == "lora")
    if (tuner := _first(said, "tuner_type", "train_type")) is not None:  # ms-swift
        return bool(tuner == "lora")
    return said.get("adapter") in ("lora", "qlora") or bool(said.get("use_peft"))  # axolotl, trl


def _first(said: Mapping[str, Any], *names: str) -> Any:
    return next((said[name] for name in names if said.get(name) is not None), None)


def unfollowed(said: Mapping[str, Any], adapters: Mapping[str, Any]) -> Iterator[str]:
    """What a training had and our fine-tunes have not, as the trainer names it."""
    trained = lora_of(said, adapters) is not None
    for name in (*_LEFT, *(_LEFT_OF_LORA if trained else ())):
        value = adapters.get(name) or said.get(name)
        if value and value != "none":
            yield name if value is True else f"{name} {value}"
    if adapters.get("peft_type", "LORA") != "LORA":
        yield f"adapters of type {adapters['peft_type']} (all weights here)"
    if (kind := said.get("finetuning_type")) not in (None, "lora", "full"):
        yield f"finetuning_type {kind} (all weights here)"
    if (kind := _first(said, "tuner_type", "train_type")) not in (None, "lora", "full"):
        yield f"tuner {kind} (all weights here)"
    if said.get("stage") not in (None, "sft", "pt"):
        yield f"stage {said['stage']}"
    if said.get("train_sampling_strategy") not in (None, "random"):
        yield f"train_sampling_strategy {said['train_sampling_strategy']}"
    if said.get("completion_only_loss") is False:
        yield "completion_only_loss false"
    if KIND in said and not str(said[KIND]).endswith(_KINDS):
        yield f"the loss of {str(said[KIND]).rpartition('.')[2]}"
    if (length := _first(said, *_LENGTHS)) is not None:
        yield f"a length of {length} (--set max_tokens={length})"

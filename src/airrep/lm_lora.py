"""Low-rank adapters by the optional package peft."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from airrep.errors import ConfigError, MissingExtraError, TrainingError
from airrep.lm_settings import FineTuneSettings
from airrep.seeding import stream_seed


@contextmanager
def adapted(model: Any, settings: FineTuneSettings, seed: int) -> Iterator[None]:
    """Give a model low-rank adapters, W + (alpha / rank) B A, and add them to its weights in the end.

    A is drawn from *seed*, B starts as 0. Inside, only adapters ask for a gradient; afterwards the model has the
    modules it had before, and all its weights ask for one.

    Raises:
        MissingExtraError: peft is not installed.
        ConfigError: the model has no linear maps of the names asked for.
        TrainingError: the adapters are as they were before.
    """
    adapters = _attach(model, settings, seed)
    try:
        yield
        _check_trained(model)
    except BaseException:
        adapters.unload()
        raise
    else:
        adapters.merge_and_unload()
    finally:
        model.requires_grad_(True)


def _attach(model: Any, settings: FineTuneSettings, seed: int) -> Any:
    try:
        from peft import LoraConfig, LoraModel
    except ImportError as error:
        raise MissingExtraError("lora_rank", "peft") from error
    from transformers.pytorch_utils import Conv1D

    config = LoraConfig(
        task_type="CAUSAL_LM",
        r=settings.lora_rank,
        lora_alpha=settings.lora_alpha,
        target_modules=list(settings.lora_targets) if settings.lora_targets else "all-linear",
        fan_in_fan_out=any(isinstance(module, Conv1D) for module in model.modules()),
    )
    try:
        with torch.random.fork_rng():  # peft draws from the global generator
            adapters = LoraModel(model, config, "default")
    except ValueError as error:
        raise ConfigError(
            f"lora_targets: {str(error).partition(chr(10))[0]}. Give names of linear maps of this LM."
        ) from error
    _draw(model, seed)
    return adapters


def _draw(model: Any, seed: int) -> None:
    """Draw every A anew, uniformly within ±1/√inputs, on the CPU."""
    generator = torch.Generator().manual_seed(stream_seed(seed, "lora"))
    for name, parameter in model.named_parameters():
        if "lora_A" in name:
            bound = 1 / math.sqrt(parameter.shape[1])
            drawn = torch.rand(parameter.shape, generator=generator).mul_(2 * bound).sub_(bound)
            with torch.no_grad():
                parameter.copy_(drawn)


def _check_trained(model: Any) -> None:
    moved = [bool(parameter.any()) for name, parameter in model.named_parameters() if "lora_B" in name]
    if not any(moved):
        raise TrainingError("fine-tune: adapters did not change. Choose other lora_targets, or lora_rank=null.")

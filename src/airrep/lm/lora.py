"""Low-rank adapters by the optional package peft."""

import copy
import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from airrep.errors import ConfigError, TrainingError, first_line, need
from airrep.lm.adapters import NAME, PREFIX, StoredAdapters, tied_layers
from airrep.lm.files import make_plain
from airrep.lm.folders.forms import ADAPTER, ADAPTER_CONFIG
from airrep.lm.settings import FineTuneSettings
from airrep.runtime.seeding import stream_seed

MOMENTS = "moments.safetensors"
"""Adam's moments of each number of the adapters, beside them."""

_A, _B = (f".lora_{letter}.weight" for letter in "AB")


@contextmanager
def adapted(model: Any, settings: FineTuneSettings, seed: int) -> Iterator[None]:
    """Give a model low-rank adapters, W + (alpha / rank) B A, and add them to its weights in the end.

    A is drawn from *seed*, B starts as 0. Inside, only adapters ask for a gradient; afterwards the model has the
    modules it had before, and all its weights ask for one.

    Raises:
        ConfigError: a target is missing, is no linear map, or has the weight of another layer too.
    """
    adapters = _attach(model, settings, seed)
    try:
        _check_targets(model)
        yield
        _check_trained(model)
    except BaseException:  # an interruption too: the next fine-tune finds the model without adapters
        adapters.unload()
        raise
    else:
        adapters.merge_and_unload()
    finally:
        model.requires_grad_(True)


def _attach(model: Any, settings: FineTuneSettings, seed: int) -> Any:
    need("lora_rank", "peft", "peft")
    from peft import LoraConfig, LoraModel
    from transformers.pytorch_utils import Conv1D

    config = LoraConfig(
        task_type="CAUSAL_LM",
        r=settings.lora_rank,
        lora_alpha=settings.lora_alpha,
        target_modules=list(settings.lora_targets) if settings.lora_targets else "all-linear",
        fan_in_fan_out=any(isinstance(module, Conv1D) for module in model.modules()),
    )
    try:
        # peft draws from the global generator, on the CPU.
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Model has `tie_word_embeddings=True`")  # _check_targets refuses it
            warnings.filterwarnings("ignore", "fan_in_fan_out is set to")  # peft takes that of each layer's type
            adapters = LoraModel(model, config, NAME)
    except ValueError as error:
        raise ConfigError(f"lora_targets: {first_line(error)}. Give names of linear maps of this LM.") from error
    _draw(model, seed)
    return adapters


def _check_targets(model: Any) -> None:
    """Refuse adapters that :func:`_draw` does not draw, and those that would change another layer when merged."""
    from peft.tuners.lora import LoraLayer
    from transformers.pytorch_utils import Conv1D

    for name, layer in model.named_modules():
        if isinstance(layer, LoraLayer) and not isinstance(layer.get_base_layer(), torch.nn.Linear | Conv1D):
            kind = type(layer.get_base_layer()).__name__
            raise ConfigError(f"lora_targets: {name} is of type {kind}; expected linear maps. Leave it out.")
    if (tied := tied_layers(model)) is not None:
        raise ConfigError(
            f"lora_targets: {tied[0]} has one weight with {tied[1]}, which would change with it when adapters are "
            "merged; expected layers with weights of their own. Leave it out."
        )


def _draw(model: Any, seed: int) -> None:
    """Draw every A anew, uniformly within ±1/√inputs; on the CPU, so that every device has the same."""
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


def adapter_weights(model: Any) -> dict[str, torch.nn.Parameter]:
    """Weights of a model's adapters, by the names that peft gives them in files."""
    return {file_name(name): parameter for name, parameter in model.named_parameters() if ".lora_" in name}


def file_name(name: str) -> str:
    """Name in peft's files of an adapter's weight, given by its name in the model."""
    return PREFIX + name.replace(f".{NAME}.", ".")


def whole_weights(model: Any) -> dict[str, Tensor]:
    """All weights of a model by their names, adapters added where it has some; the model stays as it is."""
    found = {
        name.replace(".base_layer.", "."): parameter.detach()
        for name, parameter in model.named_parameters()
        if ".lora_" not in name
    }
    for name, module in model.named_modules():
        if hasattr(module, "get_delta_weight"):
            with torch.no_grad():
                found[f"{name}.weight"] = found[f"{name}.weight"] + module.get_delta_weight(NAME)
    return found


def save_adapters(model: Any, optimizer: torch.optim.Optimizer, folder: Path, base: str) -> None:
    """Write a model's adapters into a new folder as peft does, and beside them Adam's moments of their weights.

    The optimizer has taken a step at least; *base* names the model without adapters.
    """
    config = copy.copy(model.peft_config[NAME])
    config.base_model_name_or_path, config.inference_mode = base, True
    config.save_pretrained(folder)
    weights = adapter_weights(model)
    _save({name: parameter.detach() for name, parameter in weights.items()}, folder / ADAPTER)
    states = {name: optimizer.state[parameter] for name, parameter in weights.items()}
    moments = {
        f"{order}.{name}": state[key]
        for name, state in states.items()
        for order, key in (("first", "exp_avg"), ("second", "exp_avg_sq"))
    }
    _save(moments, folder / MOMENTS)


def load_moments(folder: Path) -> dict[str, tuple[Tensor, Tensor]]:
    """First and second moments that :func:`save_adapters` wrote, by the names of the adapters in that folder."""
    path = folder / MOMENTS
    try:
        stored = load_file(path)
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{path}: cannot be read: {first_line(error)}. Run `airrep warmup` again.") from error
    names = (name.removeprefix("first.") for name in stored if name.startswith("first."))
    return {name: (stored[f"first.{name}"], stored[f"second.{name}"]) for name in names}


def _save(tensors: Mapping[str, Tensor], path: Path) -> None:
    held = {name: tensor.to("cpu", torch.float32).contiguous() for name, tensor in tensors.items()}
    save_file(held, path, metadata={"format": "pt"})


def load_adapters(model: Any, folder: Path) -> None:
    """Put adapters between the weights of a model, where they stay, from a folder that peft or we wrote.

    Raises:
        ConfigError: there are none, they do not fit the model, they are not finite or more than low-rank adapters of
            linear maps, or they were never trained.
        MissingExtraError: the package peft is missing.
    """
    for name in (ADAPTER_CONFIG, ADAPTER):
        if not (folder / name).is_file():
            raise ConfigError(
                f"adapters {folder}: there is no {name}; expected what save_pretrained of peft writes. Give its folder."
            )
    stored = StoredAdapters(folder, f"adapters {folder}", "Give the LM that they were trained on.")
    _check_kind(stored.weights, folder)
    stored.put_into(model)
    make_plain(model)


def _check_kind(weights: Mapping[str, Tensor], folder: Path) -> None:
    """Refuse weights of more than linear maps, whose moments are not known, and those that were not trained."""
    foreign = next((name for name in weights if not name.endswith((_A, _B))), None)
    if foreign is not None:
        raise ConfigError(
            f"adapters {folder}: hold {foreign}; expected low-rank adapters of linear maps (LoRA) and nothing else. "
            "Train adapters without DoRA, embeddings or modules_to_save."
        )
    if not any(bool(tensor.any()) for name, tensor in weights.items() if name.endswith(_B)):
        raise ConfigError(f"adapters {folder}: every B is 0, so they were not trained. Train them.")

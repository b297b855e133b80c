"""Low-rank adapters by the optional package peft: trained, read, checked, merged."""

import copy
import logging
import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from airrep.errors import ConfigError, TrainingError, caution, first_line, need
from airrep.lm.files import FAILURES, load_network, make_plain, read_weights
from airrep.lm.folders.forms import ADAPTER, ADAPTER_CONFIG, LmFiles, read_config
from airrep.lm.held import make_whole
from airrep.lm.packed import is_packed, load_packed
from airrep.lm.settings import FineTuneSettings
from airrep.runtime.seeding import stream_seed

_log = logging.getLogger(__name__)

_COMPARED, _ALIKE = 4096, 0.5
"""Rows of embeddings that are compared with the base's, and the least cosine of embeddings that were made of them."""

MOMENTS = "moments.safetensors"
"""File of Adam's moments of the adapters' weights, beside the adapters."""

_A, _B = (f".lora_{letter}.weight" for letter in "AB")


@contextmanager
def adapted(model: Any, settings: FineTuneSettings, seed: int) -> Iterator[None]:
    """Give a model low-rank adapters, W + (alpha / rank) B A, and merge them into its weights when the context ends.

    A is drawn from *seed*, B starts as 0. Inside, only adapters require a gradient. Afterwards the model has its former
    modules, and all its weights require a gradient; after an exception the adapters are dropped.
    """
    adapters = _attach(model, settings, seed)
    try:
        _check_targets(model)
        yield
        if not any(bool(parameter.any()) for name, parameter in model.named_parameters() if "lora_B" in name):
            raise TrainingError("fine-tune: adapters did not change. Choose other lora_targets, or lora_rank=null.")
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
            warnings.filterwarnings("ignore", "fan_in_fan_out is set to")  # peft sets it by each layer's type
            adapters = LoraModel(model, config, NAME)
    except ValueError as error:
        raise ConfigError(f"lora_targets: {first_line(error)}. Give names of linear layers of this LM.") from error
    _draw(model, seed)
    return adapters


def _check_targets(model: Any) -> None:
    """Refuse adapters of layers that are not linear, and adapters that would change another layer when merged."""
    from peft.tuners.lora import LoraLayer
    from transformers.pytorch_utils import Conv1D

    for name, layer in model.named_modules():
        if isinstance(layer, LoraLayer) and not isinstance(layer.get_base_layer(), torch.nn.Linear | Conv1D):
            kind = type(layer.get_base_layer()).__name__
            raise ConfigError(f"lora_targets: {name} is of type {kind}, not linear. Remove it from lora_targets.")
    if (tied := tied_layers(model)) is not None:
        raise ConfigError(
            f"lora_targets: {tied[0]} shares its weight with {tied[1]}, so merging the adapters would change both "
            f"layers. Remove {tied[0]} from lora_targets."
        )


def _draw(model: Any, seed: int) -> None:
    """Draw every A anew, uniformly within ±1/√inputs; on the CPU, so that A is the same on every device."""
    generator = torch.Generator().manual_seed(stream_seed(seed, "lora"))
    for name, parameter in model.named_parameters():
        if "lora_A" in name:
            bound = 1 / math.sqrt(parameter.shape[1])
            drawn = torch.rand(parameter.shape, generator=generator).mul_(2 * bound).sub_(bound)
            with torch.no_grad():
                parameter.copy_(drawn)


def adapter_weights(model: Any) -> dict[str, torch.nn.Parameter]:
    """Weights of a model's adapters, by the names that peft gives them in files."""
    return {file_name(name): parameter for name, parameter in model.named_parameters() if ".lora_" in name}


def file_name(name: str) -> str:
    """Return the name that peft's files give an adapter's weight, from its name in the model."""
    return PREFIX + name.replace(f".{NAME}.", ".")


def whole_weights(model: Any) -> dict[str, Tensor]:
    """Return all weights of a model by name, with adapters added to them; the model itself is not changed."""
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

    The optimizer must have taken at least one step; *base* names the model without adapters.
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
    stored = read_weights(path, f"{path}:", "Run `airrep warmup` again.")
    names = (name.removeprefix("first.") for name in stored if name.startswith("first."))
    return {name: (stored[f"first.{name}"], stored[f"second.{name}"]) for name in names}


def _save(tensors: Mapping[str, Tensor], path: Path) -> None:
    held = {name: tensor.to("cpu", torch.float32).contiguous() for name, tensor in tensors.items()}
    save_file(held, path, metadata={"format": "pt"})


def load_adapters(model: Any, folder: Path) -> None:
    """Load adapters into a model without merging them, from a folder that peft or :func:`save_adapters` wrote."""
    for name in (ADAPTER_CONFIG, ADAPTER):
        if not (folder / name).is_file():
            raise ConfigError(
                f"adapters {folder}: there is no {name}. Give the folder that peft's save_pretrained wrote."
            )
    stored = StoredAdapters(folder, f"adapters {folder}", "Give the LM that they were trained on.")
    _check_kind(stored.weights, folder)
    stored.put_into(model)
    make_plain(model)


def _check_kind(weights: Mapping[str, Tensor], folder: Path) -> None:
    """Refuse adapters with weights other than LoRA's A and B, and adapters that were not trained."""
    foreign = next((name for name in weights if not name.endswith((_A, _B))), None)
    if foreign is not None:
        raise ConfigError(
            f"adapters {folder}: hold {foreign}, but may hold only LoRA weights of linear layers. Train the adapters "
            "without DoRA, embeddings or modules_to_save."
        )
    if not any(bool(tensor.any()) for name, tensor in weights.items() if name.endswith(_B)):
        raise ConfigError(f"adapters {folder}: every LoRA matrix B is 0, so they are not trained. Train them.")


NAME = "default"
"""Name of adapters inside a model."""
PREFIX = "base_model.model."
"""Prefix that peft puts before the name of a layer."""


class StoredAdapters:
    """Adapters in a folder; every number of their file is checked to be finite, and to be in the model after loading.

    Errors begin with *where*, and end with *remedy* if the adapters belong to another LM.
    """

    def __init__(self, folder: Path, where: str, remedy: str) -> None:
        self._folder, self._where, self._remedy = folder, where, remedy
        self.weights = read_weights(folder / ADAPTER, f"{where}: {ADAPTER}", "Save the adapters again.")
        damaged = next((key for key, tensor in self.weights.items() if not bool(torch.isfinite(tensor).all())), None)
        if damaged is not None:
            raise ConfigError(f"{where}: weight {damaged} in {ADAPTER} is not finite. Use another checkpoint.")

    def put_into(self, model: Any) -> Any:
        """Return the model wrapped by peft, with the adapters loaded but not merged."""
        need(f"{self._where}: {ADAPTER}", "peft", "peft")
        from peft import PeftModel

        with self.fitting(model, "loaded"):
            rows = len(model.get_input_embeddings().weight)
            self._note_other_base(model)
            self._resize(model, rows)
            # peft would read the file onto a CUDA device wherever there is one, whatever device the LM is on.
            wrapped = PeftModel.from_pretrained(
                model, self._folder, adapter_name=NAME, is_trainable=False, torch_device="cpu"
            )
            self._check_loaded(wrapped)
            unknown = next((name for name, weight in _embeddings(wrapped) if not weight[rows:].isfinite().all()), None)
            if unknown is not None:
                raise ConfigError(
                    f"{self._where}: its adapters were trained with added tokens, but {ADAPTER} has no rows of "
                    f"{unknown.removeprefix(PREFIX)} for these tokens. Save the adapters again with peft's "
                    "save_embedding_layers=True."
                )
        return wrapped

    def _note_other_base(self, model: Any) -> None:
        """Give a warning if the adapters hold embeddings that hardly resemble the model's, so were not made of them."""
        for name, weight in _embeddings(model):
            own = self.weights.get(PREFIX + name)
            if own is None or own.shape[1:] != weight.shape[1:]:
                continue
            rows = min(len(own), len(weight), _COMPARED)  # the model may be on another device than the file
            one, other = (table.detach()[:rows].flatten().to("cpu", torch.float32) for table in (own, weight))
            if functional.cosine_similarity(one, other, 0) < _ALIKE:
                told = f"{self._where}: {name} of its adapters ({len(own):,} tokens) hardly resembles that of its base"
                caution(_log, f"{told} ({len(weight):,} tokens). Were they trained on another LM? {self._remedy}")
                return

    def _resize(self, model: Any, rows: int) -> None:
        """Give a model with *rows* embeddings as many as the adapters hold; new rows are NaN until they are loaded."""
        names = tuple(f"{PREFIX}{name.rpartition('.')[0]}." for name, _ in _embeddings(model))
        found = (name for name in self.weights if name.startswith(names) and ".lora_" not in name)
        held = {len(self.weights[name]) for name in found if name.endswith(".weight")}
        if len(held) == 1 and held != {rows}:
            model.resize_token_embeddings(held.pop(), mean_resizing=False)
            for _, weight in _embeddings(model):
                weight.data[rows:] = torch.nan

    @contextmanager
    def fitting(self, model: Any, done: str) -> Iterator[None]:
        """Turn peft's errors into a one-line ConfigError: the adapters cannot be *done* ("loaded") into the model."""
        kind = type(model).__name__
        try:
            with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about unknown names and tied weights, which are refused
                yield
        except ConfigError:
            raise
        except FAILURES as error:
            raise ConfigError(
                f"{self._where}: {ADAPTER} cannot be {done} into a {kind}: {first_line(error)}. {self._remedy}"
            ) from error

    def _check_loaded(self, wrapped: Any) -> None:
        """Refuse adapters that differ between model and file, since peft skips names that do not fit."""
        from peft import get_peft_model_state_dict

        stored = self.weights
        loaded = get_peft_model_state_dict(wrapped, adapter_name=NAME, save_embedding_layers=False)
        if any(".lora_" not in name for name in stored):  # whole layers beside the low-rank maps
            loaded = {**get_peft_model_state_dict(wrapped, adapter_name=NAME, save_embedding_layers=True), **loaded}
            loaded = {name: tensor for name, tensor in loaded.items() if name in stored or ".lora_" in name}
        absent = next((name for name in loaded if name not in stored), None)
        if absent is not None:
            raise ConfigError(
                f"{self._where}: {ADAPTER} has no {absent}, although {ADAPTER_CONFIG} asks for it, so this weight "
                "would be random. Save the adapters again."
            )
        for name, tensor in stored.items():
            if name not in loaded or not torch.equal(loaded[name].detach().cpu(), tensor.to(loaded[name].dtype)):
                raise ConfigError(
                    f"{self._where}: {name} of {ADAPTER} does not fit into this LM, so the adapters belong to another "
                    f"LM. {self._remedy}"
                )


def _embeddings(model: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield names and parameters of the layers of a model that have a row for each token."""
    layers = model.get_input_embeddings(), model.get_output_embeddings()
    for place, module in model.named_modules():
        for name, weight in module.named_parameters(place) if module in layers else ():
            if ".original_module." not in name:
                yield name, weight


_CHANGED_BASES = ("pissa", "olora", "corda", "loftq", "lora_ga")
"""Beginnings of peft's ``init_lora_weights`` that change the base's weights before training."""

_INSTEAD = "Give the LM before training instead, which is the base of the adapters."
_NOT_MERGED = {
    "alora_invocation_tokens": "they act only after certain tokens (aLoRA)",
    "layer_replication": "they belong to an LM that repeats layers of the base",
    "arrow_config": "they are mixed differently for each token (Arrow)",
}
"""LoRA settings of peft that make merging impossible, with what they do."""


def load_whole(files: LmFiles, trusted: bool = False) -> Any:
    """Load a causal LM as :func:`airrep.lm.files.load_network` does, adapters merged into its weights."""
    if files.adapter is None:
        return _load_base(files, trusted)
    where = f"lm {files.name}"
    _check_mergeable(files.name, read_config(files.adapter / ADAPTER_CONFIG))
    stored = StoredAdapters(files.adapter, where, "Name the LM that they were trained on: --set base=MODEL")
    model = _load_base(files, trusted)
    with_adapters = stored.put_into(model)
    if (tied := tied_layers(with_adapters)) is not None:
        raise ConfigError(
            f"{where}: its adapters change {tied[0]}, which shares its weight with {tied[1]}, so they cannot be "
            "merged. Give a copy of the base LM in which these weights are not tied: --set base=MODEL"
        )
    for place, module in with_adapters.named_modules():
        if any(getattr(module, "lora_bias", {}).values()) and getattr(module.get_base_layer(), "bias", None) is None:
            raise ConfigError(
                f"{where}: its adapters add a bias (lora_bias) to {place.removeprefix(PREFIX)}, a layer without a "
                f"bias, so they cannot be merged. {_INSTEAD}"
            )
    with stored.fitting(model, "merged"):
        whole = with_adapters.merge_and_unload(safe_merge=True)
    return make_plain(whole.requires_grad_(True))


def _load_base(files: LmFiles, trusted: bool) -> Any:
    """Load a causal LM without adapters; quantised weights become float32."""
    if not is_packed(files.weights):
        return load_network(files.weights, files.name, trusted)
    model = load_packed(files.weights, files.name, trusted)
    make_whole(model)
    return model


def _check_mergeable(name: str, config: Mapping[str, Any]) -> None:
    """Refuse adapters that are not LoRA, changed the base before training, cannot be merged, or name code."""
    if config.get("peft_type") != "LORA":
        kind = str(config.get("peft_type"))[:40]
        raise ConfigError(
            f"lm {name}: its adapters are of type {kind!r}, but airrep merges only LORA (also with DoRA or rsLoRA). If "
            "peft can merge them, run its merge_and_unload and give the merged LM."
        )
    start = config.get("init_lora_weights", True)
    if isinstance(start, str) and start.lower().startswith(_CHANGED_BASES):
        raise ConfigError(
            f"lm {name}: its adapters were initialised with {start[:40]!r}, which changes the base too. Save them as "
            "ordinary LoRA, with path_initial_model_for_weight_conversion of peft's save_pretrained."
        )
    feature = next((name for name in _NOT_MERGED if config.get(name)), None)
    if feature is not None:
        raise ConfigError(
            f"lm {name}: its adapters were trained with {feature}: {_NOT_MERGED[feature]}, so they cannot be merged. "
            f"{_INSTEAD}"
        )
    if config.get("megatron_config") is not None:
        raise ConfigError(
            f"lm {name}: airrep refuses megatron_config in {ADAPTER_CONFIG}, because peft would import the Python "
            "module named there. Remove megatron_config."
        )


def tied_layers(model: Any) -> tuple[str, str] | None:
    """Return the names of a layer with adapters and of a layer that shares its weight; None if no weight is shared."""
    from peft.tuners.lora import LoraLayer

    holders: dict[Any, dict[Any, str]] = {}
    for name, weight in model.named_parameters(remove_duplicate=False):
        if ".original_module." not in name:  # merging replaces it by a trained copy
            path = name.rpartition(".")[0].partition(".base_layer")[0]
            holders.setdefault(weight, {}).setdefault(model.get_submodule(path), path.removeprefix(PREFIX))
    for layers in holders.values():
        for layer, name in layers.items():
            if len(layers) > 1 and isinstance(layer, LoraLayer):
                return name, next(other for other in layers.values() if other != name)
    return None

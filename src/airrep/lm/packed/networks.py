"""The network of an LM around weights that are held packed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from airrep.lm.files import GENERATION, make_plain, stored_weights, with_attention
from airrep.lm.folders.blocks import PLACES, read_places
from airrep.lm.folders.forms import CONFIG, read_config
from airrep.lm.folders.quantised import quantised
from airrep.lm.held import Stored, put, size_read, whole, without_weights
from airrep.lm.packed.blocks import Blocks
from airrep.lm.packed.tensors import packed_weights


def is_packed(folder: Path) -> bool:
    """True if the weights of an LM's folder are quantised, in a form that is held as it is."""
    return (folder / PLACES).is_file() or quantised(read_config(folder / CONFIG)) is not None


def size_packed(folder: Path, name: str) -> int:
    """Bytes in memory of the weights of a packed LM."""
    places = read_places(folder)
    own = 0 if places is None else sum(place.rows * place.row_bytes for place in places[1].values())
    return own + size_read(folder, name, half=True)


def load_packed(folder: Path, name: str, trusted: bool) -> Any:
    """Load a causal LM whose linear maps and tables are held packed, as :func:`airrep.lm.files.load_network` does.

    Numbers that are not finite are found where they are used: every token meets all of a linear map's, and a loss that
    is not finite is refused.
    """
    stored: dict[str, Stored] = {}
    plain = stored_weights(folder, name)
    if (found := read_places(folder)) is not None:
        file, places = found
        stored |= {key: Blocks(file, place) for key, place in places.items()}
    elif (method := quantised(config := read_config(folder / CONFIG))) is not None:
        stored, plain = packed_weights(method, config["quantization_config"], plain, f"lm {name}:")
    return make_plain(with_attention(name, lambda attention: _build(folder, trusted, attention, stored, plain)))


def _build(
    folder: Path,
    trusted: bool,
    attention: str | None,
    stored: Mapping[str, Stored],
    plain: Mapping[str, Tensor],
) -> tuple[Any, Mapping[str, Any]]:
    """Make the LM of a configuration, give it weights, and tell which are missing or of another shape."""
    from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=trusted)
    vars(config).pop("quantization_config", None)
    with without_weights():
        model = AutoModelForCausalLM.from_config(
            config, dtype=torch.float32, attn_implementation=attention, trust_remote_code=trusted
        )
    if (folder / GENERATION).is_file():
        model.generation_config = GenerationConfig.from_pretrained(folder, local_files_only=True)
    model.tie_weights()  # weights of two names are two as long as they have no numbers
    return model, _fill(model, stored, plain)


def _fill(model: Any, stored: Mapping[str, Stored], plain: Mapping[str, Tensor]) -> Mapping[str, Any]:
    """Give a model without weights those that there are, in place; a weight with several names has one of them.

    Returns the names of weights that are missing, or of another shape; then the model is as it was.
    """
    from transformers.pytorch_utils import Conv1D

    given: dict[str, Stored | Tensor] = {**stored, **plain}
    shapes = {name: tuple(each.shape) for name, each in given.items()}
    names: dict[nn.Parameter, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if name in shapes:
            names.setdefault(parameter, name)
    missing = [name for name, parameter in model.named_parameters() if parameter not in names]
    other = [(name,) for parameter, name in names.items() if shapes[name] != tuple(parameter.shape)]
    turned = [f"{name}.weight" for name, module in model.named_modules() if isinstance(module, Conv1D)]
    other += [(name,) for name in turned if name in stored and stored[name].kind is None]  # quantised as (out, in)
    if missing or other:
        return {"missing_keys": missing, "mismatched_keys": other}
    put(model, lambda weight: stored.get(names[weight]))
    made: dict[str, nn.Parameter] = {}
    for module in model.modules():
        for key, parameter in module._parameters.items():
            if parameter is not None and parameter.is_meta:
                name = names[parameter]
                if name not in made:
                    made[name] = nn.Parameter(whole(stored[name]) if name in stored else plain[name].float())
                module._parameters[key] = made[name]
    for name, buffer in model.named_buffers():
        if name in plain:
            buffer.copy_(plain[name])
    return {"missing_keys": (), "mismatched_keys": ()}

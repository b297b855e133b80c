"""Files of every model folder: its list of modules, settings and card."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airrep.encoder.folders import CARD, MODULES, SETTINGS, Card, write_json

_TYPES = {
    "Transformer": "sentence_transformers.base.modules.transformer.Transformer",
    "StaticEmbedding": "sentence_transformers.sentence_transformer.modules.static_embedding.StaticEmbedding",
    "Pooling": "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
    "Dense": "sentence_transformers.base.modules.dense.Dense",
    "Normalize": "sentence_transformers.base.modules.normalize.Normalize",
}
_OF_SENTENCE = {"module_input_name": "sentence_embedding", "module_output_name": "sentence_embedding"}


def write_modules(folder: Path, kinds: Sequence[str]) -> list[Path]:
    """Write ``modules.json`` and make the folder of each module; the first one's is the model's."""
    names = ["", *(f"{number}_{kind}" for number, kind in enumerate(kinds) if number)]
    entries = [
        {"idx": number, "name": str(number), "path": name, "type": _TYPES[kind]}
        for number, (kind, name) in enumerate(zip(kinds, names, strict=True))
    ]
    write_json(folder / MODULES, entries)
    for name in names[1:]:
        (folder / name).mkdir()
    return [folder / name for name in names]


def write_head_config(folder: Path, shape: tuple[int, int] | None = None, *, bias: bool = True) -> None:
    """Write the settings of a module behind the mean: of unit length, or linear with (outputs, inputs)."""
    config: dict[str, Any] = dict(_OF_SENTENCE)
    if shape is not None:
        outputs, inputs = shape
        config |= {
            "in_features": inputs,
            "out_features": outputs,
            "bias": bias,
            "activation_function": "torch.nn.modules.linear.Identity",
        }
    write_json(folder / "config.json", config)


def write_settings(folder: Path) -> None:
    """Write the settings of a model whose vectors are compared by their inner product."""
    settings: dict[str, Any] = {
        "model_type": "SentenceTransformer",
        "prompts": {},
        "default_prompt_name": None,
        "similarity_fn_name": "dot",
    }
    write_json(folder / SETTINGS, settings)


def write_card(card: Card, folder: Path) -> None:
    """Write ``airrep.json``."""
    write_json(folder / CARD, card.to_dict())

"""Recognise the format of a model folder, and which code can run it."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from airrep.encoder.model_folders import parse_json, read_json
from airrep.errors import ConfigError, DataError

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
"""Names the file of each tensor where the weights are in several."""

_PICKLES = ("pytorch_model*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
_GENERATORS = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
_BERT_ONLY = {
    "hidden_act": "gelu",
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the parts of a model lie, and which code can run it."""

    folder: Path
    format: Literal["sentence-transformers", "airrep", "library"]
    """The first two run packed; ``"library"`` means: by sentence_transformers itself."""
    transformer: Path
    """Folder of the configuration, the weights and the tokenizer."""
    heads: tuple[Path | None, ...] = ()
    """What follows the mean, first to last: folders of dense modules; None is scaling to unit length."""


def read_layout(folder: Path) -> Layout:
    """Recognise the format of a model folder.

    Raises:
        ConfigError: the model is a language model, not an encoder.
        DataError: it is no model folder, has no weights, or has pickled ones only.
    """
    modules = folder / "modules.json"
    if modules.exists():
        layout = _library_layout(folder, modules)
    elif (folder / "config.json").exists():
        layout = _plain_layout(folder, read_json(folder / "config.json"))
    else:
        raise DataError(
            f"{folder}: is not a model folder: it has neither modules.json nor config.json. "
            "Give the folder of an encoder, such as SentenceTransformer.save writes."
        )
    _check_weights(folder, layout)
    return layout


def _plain_layout(folder: Path, config: dict[str, Any]) -> Layout:
    """Layout of a folder without ``modules.json``: the published AirRep format, or a bare transformer."""
    if config.get("model_type") == "airrep":
        return Layout(folder, "airrep", folder)
    architectures = [str(name) for name in config.get("architectures") or ()]
    if any(name.endswith(_GENERATORS) for name in architectures):
        raise ConfigError(
            f"{folder}: holds a language model ({architectures[0]}), not an encoder; expected a BERT-type "
            "encoder or a sentence-transformers folder. Give the folder of an encoder."
        )
    return Layout(folder, "sentence-transformers" if _is_packable(folder) else "library", folder)


def _library_layout(folder: Path, modules: Path) -> Layout:
    """Layout of a sentence-transformers folder: packed if BERT, mean, and linear or unit-length heads."""
    entries = parse_json(modules)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise DataError(f"{modules}: is not a list of modules. Restore it or download the model again.")
    kinds = [str(entry.get("type", "")).rpartition(".")[2] for entry in entries]
    paths = [folder / str(entry.get("path", "")) for entry in entries]
    by_library = Layout(folder, "library", paths[0] if paths else folder)
    if re.fullmatch(r"Transformer Pooling( Dense| Normalize)*", " ".join(kinds)) is None:
        return by_library
    dense = [path for kind, path in zip(kinds, paths, strict=True) if kind == "Dense"]
    if not (_is_packable(paths[0]) and _is_mean(paths[1]) and all(map(_is_linear, dense))) or _has_prompt(folder):
        return by_library
    heads = [path if path in dense else None for path in paths[2:]]
    return Layout(folder, "sentence-transformers", paths[0], tuple(heads))


def _is_packable(transformer: Path) -> bool:
    """Whether the transformer is a BERT as :mod:`airrep.encoder.bert` computes it, with a tokenizer it can read."""
    config = read_json(transformer / "config.json")
    settings = transformer / "sentence_bert_config.json"
    lowers = settings.exists() and bool(read_json(settings).get("do_lower_case"))
    older_tokenizer = not (transformer / "tokenizer.json").exists() and (transformer / "vocab.txt").exists()
    is_bert = config.get("model_type") == "bert" and is_plain_bert(config)
    return is_bert and not (lowers or older_tokenizer)


def is_plain_bert(config: dict[str, Any]) -> bool:
    """Whether a configuration describes the BERT that :mod:`airrep.encoder.bert` computes, apart from its sizes."""
    return all(config.get(key, value) == value for key, value in _BERT_ONLY.items())


def _is_mean(pooling: Path) -> bool:
    """Whether a pooling module takes the mean over tokens and nothing else."""
    config = read_json(pooling / "config.json")
    mode = config.get("pooling_mode")
    if mode is None:
        active = [key for key, value in config.items() if key.startswith("pooling_mode_") and value is True]
        return active in ([], ["pooling_mode_mean_tokens"])
    return mode in ("mean", ["mean"])


def _is_linear(dense: Path) -> bool:
    """Whether a dense module is a plain linear map of the sentence's features."""
    config = read_json(dense / "config.json")
    names = {config.get(key) or "sentence_embedding" for key in ("module_input_name", "module_output_name")}
    activation = str(config.get("activation_function", "")).rpartition(".")[2]
    return activation == "Identity" and not config.get("use_residual") and names == {"sentence_embedding"}


def _has_prompt(folder: Path) -> bool:
    """Whether ``SentenceTransformer.encode`` would put a text before each text on its own."""
    path = folder / "config_sentence_transformers.json"
    return path.exists() and bool(read_json(path).get("default_prompt_name"))


def _check_weights(folder: Path, layout: Layout) -> None:
    """Refuse a model whose weights are missing or pickled; a pickle can run any program."""
    for part in {folder, layout.transformer, *filter(None, layout.heads)}:
        pickles = sorted(path for pattern in _PICKLES for path in part.glob(pattern))
        if pickles and not any(part.glob("*.safetensors")):
            raise DataError(
                f"{pickles[0]}: are pickled weights, which can run any program and are refused; expected "
                "safetensors. Convert them where you trust them: SentenceTransformer(folder).save(new_folder)"
            )
    if not any(layout.transformer.rglob("*.safetensors")):
        raise DataError(
            f"{layout.transformer}: has no weights; expected {WEIGHTS} (pickled weights are neither read nor "
            "downloaded). Restore it, or convert the model: SentenceTransformer(folder).save(new_folder)"
        )

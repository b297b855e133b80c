"""Find a model folder, read its card, recognise its format."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from airrep.errors import ConfigError, DataError, near, near_path
from airrep.runtime.hub import NoModelError, download, model_folder

Storage: TypeAlias = Literal["float32", "float16", "bfloat16"]
"""A type that weights are stored in; they are always loaded as float32."""
DEFAULT, UNTRAINED, STATIC = BUNDLED = ("default", "untrained", "static")
"""Bundled encoders: one trained for attribution, the one that its training started from, and one without layers."""
MODELS = Path(__file__).parents[1] / "models"
CARD = "airrep.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
"""File that names each tensor's file, if the weights are in several files."""
DOWNLOADED = ("*.safetensors", "*.json", "*.txt")
"""Files that are fetched from the Hub: no pickles, no programs."""
ADAPTER_CONFIG = "adapter_config.json"
MODULES = "modules.json"
SETTINGS = "config_sentence_transformers.json"
"""File in which sentence-transformers keeps a model's own prompts, each with a name."""
_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
_PICKLED_WEIGHTS = {"pytorch_model*.bin": "model", "adapter_model*.bin": "adapter_model"}
"""Names of pickled weights that libraries load, and of the safetensors that they prefer in the same folder."""
_PICKLES = ("*.pt", "*.pth", "*.ckpt", "*.pkl")
"""Further names of pickled weights."""
_EXPORTS = ("*.onnx", "openvino*.xml")
"""Names of weights that were exported for ONNX Runtime or OpenVINO."""
_SAFE = (".safetensors", ".safetensors.index.json")
_FIRST = {
    "static": (re.compile("StaticEmbedding( Normalize)?( Dense)?"), 1),
    "packed": (re.compile("Transformer Pooling( Dense| Normalize)*"), 2),
}
"""Lists of modules that airrep's own code runs, and how many of these modules come before the heads."""
_BERT_ONLY = {
    "hidden_act": "gelu",
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "quantization_config": None,
}
PLAIN = {
    "transformer_task": "feature-extraction",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    "module_output_name": "token_embeddings",
}
"""Settings of a transformer module, apart from its longest text, that change nothing; models are saved with them."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Places of the parts of a model, and the code that can run it."""

    folder: Path
    format: Literal["sentence-transformers", "airrep", "static", "library"]
    """The first two run packed, the third without torch; ``"library"`` means: by sentence_transformers itself."""
    transformer: Path
    """Folder of the configuration, the weights and the tokenizer; a static encoder has no configuration."""
    heads: tuple[Path | None, ...] = ()
    """Heads behind the mean, first to last: folders of dense modules; None is scaling to unit length."""
    modules: tuple[Path, ...] = ()
    """Folders of all modules, where they are listed."""
    weighted: bool = True
    """True if the encoder has weights; a bag of words has none."""


def find_model(name: str, extra: tuple[str, ...] = ()) -> Path:
    """Return the folder of a model: a bundled one, a folder, or ``owner/name`` on the Hub with *extra* files."""
    if name in BUNDLED:
        return MODELS / name
    path = model_folder("encoder", name)
    if path.is_dir():
        return path
    if path.exists():
        raise ConfigError(f"encoder {name}: is a file. Give the folder of the model.")
    if _HUB_ID.fullmatch(name) is None:
        raise NoModelError(
            f"encoder {name}: there is no such folder. Give 'default', a folder, or owner/name on the "
            f"Hugging Face Hub. {near(name, BUNDLED, near_path(path))}"
        )
    instead = "Use 'default', which needs no network, or download it elsewhere (hf download) and give its folder."
    return download("encoder", name, (*DOWNLOADED, *extra), instead)


def read_layout(folder: Path) -> Layout:
    """Recognise the format of a model folder."""
    modules = folder / MODULES
    if modules.exists():
        layout = _library_layout(folder, modules)
    elif (folder / "config.json").exists():
        if read_json(folder / "config.json").get("model_type") == "airrep":
            layout = Layout(folder, "airrep", folder)
        else:
            layout = Layout(folder, "sentence-transformers" if _is_packable(folder) else "library", folder)
    else:
        raise DataError(
            f"{folder}: is not a model folder: it has neither modules.json nor config.json. "
            "Give the folder of an encoder, such as a folder that SentenceTransformer.save wrote."
        )
    _check_weights(folder, layout)
    return layout


def _library_layout(folder: Path, modules: Path) -> Layout:
    """Return the layout of a sentence-transformers folder: packed if it is BERT, mean, and linear or unit-length heads;
    static if it is word-piece vectors, their mean, and at most one head of each kind."""
    entries = parse_json(modules)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise DataError(f"{modules}: is not a list of modules. Restore it or download the model again.")
    kinds = [str(entry.get("type", "")).rpartition(".")[2] for entry in entries]
    paths = [folder / str(entry.get("path", "")) for entry in entries]
    outside = next((path for path in paths if not path.resolve().is_relative_to(folder.resolve())), None)
    if outside is not None:
        raise DataError(f"{modules}: names a module outside the model's folder ({outside}). Correct its path.")
    weighted = kinds[:1] != ["BoW"]
    by_library = Layout(folder, "library", paths[0] if paths else folder, modules=tuple(paths), weighted=weighted)
    names = " ".join(kinds)
    found = next(((kind, first) for kind, (form, first) in _FIRST.items() if form.fullmatch(names)), None)
    if found is None:
        return by_library
    kind, first = found
    dense = [path for name, path in zip(kinds, paths, strict=True) if name == "Dense"]
    heads = tuple(path if path in dense else None for path in paths[first:])
    plain = all(map(_is_linear, dense)) and all(map(_reads_sentence, paths[first:]))
    settings = read_optional(folder / SETTINGS)
    if not plain or settings.get("truncate_dim") is not None:  # ``SentenceTransformer.encode`` cuts features off
        return by_library
    if kind == "static":
        return Layout(folder, "static", paths[0], heads, tuple(paths))
    if _is_packable(paths[0]) and _is_mean(paths[1]) and not settings.get("default_prompt_name"):
        return Layout(folder, "sentence-transformers", paths[0], heads, tuple(paths))
    return by_library


def _is_packable(transformer: Path) -> bool:
    """Return True if the transformer is a BERT that ``networks/bert.py`` computes and has a tokenizer that airrep can
    read."""
    if (transformer / ADAPTER_CONFIG).exists():
        return False
    config = read_json(transformer / "config.json")
    library = read_optional(transformer / "sentence_bert_config.json")
    other_ways = any(value and value != PLAIN.get(key) for key, value in library.items() if key != "max_seq_length")
    older_tokenizer = not (transformer / "tokenizer.json").exists() and (transformer / "vocab.txt").exists()
    is_bert = config.get("model_type") == "bert" and is_plain_bert(config)
    return is_bert and not (other_ways or older_tokenizer)


def is_plain_bert(config: dict[str, Any]) -> bool:
    """Return True if a configuration describes the BERT of ``networks/bert.py``, of any size."""
    return all(config.get(key, value) == value for key, value in _BERT_ONLY.items())


def _is_mean(pooling: Path) -> bool:
    """Return True if a pooling module takes the mean over tokens and nothing else."""
    config = read_json(pooling / "config.json")
    mode = config.get("pooling_mode")
    if mode is None:
        active = [key for key, value in config.items() if key.startswith("pooling_mode_") and value]
        return active in ([], ["pooling_mode_mean_tokens"])
    return mode in ("mean", ["mean"])


def _is_linear(dense: Path) -> bool:
    """Return True if a dense module is a plain linear map."""
    config = read_json(dense / "config.json")
    activation = str(config.get("activation_function", "")).rpartition(".")[2]
    return activation == "Identity" and not config.get("use_residual")


def _reads_sentence(head: Path) -> bool:
    """Return True if a module after the mean maps the sentence's features, not the tokens'."""
    config = read_optional(head / "config.json")
    names = {config.get(key) or "sentence_embedding" for key in ("module_input_name", "module_output_name")}
    return names == {"sentence_embedding"}


def _check_weights(folder: Path, layout: Layout) -> None:
    """Refuse a model whose weights are missing or pickled; a pickle can run any program."""
    pickle = next(_pickles(folder, layout), None)
    if pickle is not None:
        raise DataError(
            f"{pickle}: holds pickled weights, which airrep refuses because they can run any program. If you trust "
            "them, convert the model to safetensors: SentenceTransformer(folder).save(new_folder)"
        )
    if layout.weighted and not any(folder.rglob("*.safetensors")):
        exported = next((path for kind in _EXPORTS for path in sorted(folder.rglob(kind))), None)
        raise DataError(
            f"{layout.transformer}: has no {WEIGHTS} (pickled weights are neither read nor downloaded). Restore it, or "
            "convert the model: SentenceTransformer(folder).save(new_folder)"
            if exported is None
            else f"{exported}: is an export for ONNX or OpenVINO, and the folder has no {WEIGHTS}. Give the folder "
            "of the model that was exported."
        )


def _pickles(folder: Path, layout: Layout) -> Iterator[Path]:
    """Yield pickled weights that a library could load, since no safetensors file of the same name is there."""
    for pattern, preferred in _PICKLED_WEIGHTS.items():
        for path in sorted(folder.rglob(pattern)):
            if not any((path.parent / f"{preferred}{suffix}").exists() for suffix in _SAFE):
                yield path
    for part in (folder, *layout.modules):
        if not any(part.glob("*.safetensors")):
            yield from sorted(path for pattern in _PICKLES for path in part.glob(pattern))


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; DataError without one."""
    value = parse_json(path)
    if not isinstance(value, dict):
        raise DataError(f"{path}: does not hold a JSON object. Restore it or download the model again.")
    return value


def read_optional(path: Path) -> dict[str, Any]:
    """Read a JSON object; an empty one if there is no such file."""
    return read_json(path) if path.exists() else {}


def parse_json(path: Path) -> object:
    """Read a JSON value; DataError without one."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise DataError(f"{path}: is missing. Restore it or download the model again.") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}. Correct its permissions.") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: is not valid JSON. Restore it or download the model again.") from error


def write_json(path: Path, content: object) -> None:
    """Write a JSON value, indented."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

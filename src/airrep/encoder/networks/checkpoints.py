"""Read a packed encoder from a model folder; write one in two formats."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor, nn

from airrep.encoder.cards import Card, read_card, write_card, write_head_config, write_modules, write_settings
from airrep.encoder.folders import INDEX, PLAIN, WEIGHTS, Layout, is_plain_bert, read_json, read_optional, write_json
from airrep.encoder.networks.bert import BertShape, HeadShape, SentenceBert
from airrep.encoder.static import read_tensors
from airrep.errors import ConfigError, DataError

_SIZES = {
    "vocabulary": "vocab_size",
    "positions": "max_position_embeddings",
    "types": "type_vocab_size",
    "width": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "inner": "intermediate_size",
}
_OLD_NAMES = {".gamma": ".weight", ".beta": ".bias"}
_WAY_OUT = "Restore it or download the model again."


@dataclass(frozen=True, slots=True)
class StoredEncoder:
    """A packed encoder as its folder holds it."""

    model: SentenceBert
    """The network, float32 on the CPU."""
    tokenizer: dict[str, Any]
    """Content of ``tokenizer.json``, without truncation and padding."""
    tokenizer_settings: dict[str, Any]
    """Content of ``tokenizer_config.json``, which other libraries read; empty where there is none."""
    max_tokens: int
    """Longest text; the rest is cut off."""
    card: Card
    """Template, word limit and training."""


def read_checkpoint(layout: Layout) -> StoredEncoder:
    """Read a model that runs packed: of format ``"sentence-transformers"`` or ``"airrep"``."""
    config = read_json(layout.transformer / "config.json")
    shape = _read_shape(layout.transformer / "config.json", config)
    weights = layout.transformer / WEIGHTS
    tensors = _bert_named(_read_weights(weights))
    heads = (
        _airrep_heads(weights, config, tensors)
        if layout.format == "airrep"
        else [_dense_head(folder) for folder in layout.heads]
    )
    sizes = [_head_shape(head) for head in heads]
    model = SentenceBert(shape, sizes)
    _check_fit(weights, model.bert_shapes(), tensors)
    _check_heads(layout.folder, shape.width, sizes)
    model.load_bert(tensors, heads)
    _check_finite(layout.folder, model.state_dict())
    settings = read_optional(layout.transformer / "tokenizer_config.json")
    max_tokens = _read_max_tokens(layout, settings, shape)
    # A checkpoint in the published AirRep format without a card was trained for attribution.
    given = layout.format != "airrep" or (layout.folder / "airrep.json").exists()
    card = read_card(layout.folder) if given else Card(trained_for_attribution=True)
    return StoredEncoder(model, _read_tokenizer(layout), settings, max_tokens, card)


def is_finite(tensor: Tensor) -> bool:
    """Return True if all values are finite."""
    # A finite sum proves it without a mask of all values; but finite values can have a sum that overflows.
    return bool(torch.isfinite(tensor.sum())) or bool(torch.isfinite(tensor).all())


def weights_digest(model: SentenceBert) -> str:
    """Return the sha256 over name, shape and float32 values of every weight, 64 hex digits."""
    summed = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        values = np.ascontiguousarray(tensor.float().cpu().numpy(), "<f4")
        summed.update(f"{name} {values.shape}\n".encode())
        summed.update(values.tobytes())
    return summed.hexdigest()


def _read_shape(path: Path, config: dict[str, Any]) -> BertShape:
    sizes = {name: _read_size(path, key, config.get(key)) for name, key in _SIZES.items()}
    epsilon = config.get("layer_norm_eps", 1e-12)
    if not isinstance(epsilon, float) or not math.isfinite(epsilon) or epsilon < 0:
        raise DataError(f"{path}: layer_norm_eps is {epsilon!r}; must be a number of 0 or more. {_WAY_OUT}")
    shape = BertShape(**sizes, epsilon=epsilon)
    if shape.width % shape.heads:
        raise DataError(
            f"{path}: hidden_size ({shape.width}) is not a multiple of num_attention_heads ({shape.heads}). {_WAY_OUT}"
        )
    return shape


def _read_size(path: Path, key: str, size: object) -> int:
    if type(size) is not int or size < 1:
        raise DataError(f"{path}: {key} is {size!r}; must be a whole number, at least 1. {_WAY_OUT}")
    return size


def _read_weights(path: Path) -> dict[str, Tensor]:
    """Read the weights of a transformer: one file, or the files that an index beside it names."""
    index = path.with_name(INDEX)
    if path.exists() or not index.exists():
        return _read_tensors(path)
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(place, str) for place in places.values()):
        raise DataError(f"{index}: has no weight_map that names the file of each tensor. {_WAY_OUT}")
    files = {place: _read_tensors(path.parent / place) for place in sorted(set(places.values()))}
    for name, place in places.items():
        if name not in files[place]:
            raise DataError(f"{path.parent / place}: lacks tensor {name}, which {INDEX} lists. {_WAY_OUT}")
    return {name: files[place][name] for name, place in places.items()}


def _read_tensors(path: Path) -> dict[str, Tensor]:
    return {name: torch.from_numpy(array) for name, array in read_tensors(path)[0].items()}


def _bert_named(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename tensors as in a bare BERT: no ``bert.`` in front, and no older names ``gamma`` and ``beta``."""
    named = {}
    for name, tensor in tensors.items():
        bare = name.removeprefix("bert.")
        for old, new in _OLD_NAMES.items():
            bare = bare.removesuffix(old) + new if bare.endswith(old) else bare
        named[bare] = tensor
    return named


def _airrep_heads(path: Path, config: dict[str, Any], tensors: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    """Return the head of the published AirRep format: ``projector``."""
    if not is_plain_bert(config):
        raise ConfigError(
            f"{path.parent}: this AirRep checkpoint must be a BERT encoder with hidden_act gelu and absolute "
            "positions, and is not. Save the model as a sentence-transformers folder."
        )
    head = {kind: tensors.get(f"projector.{kind}") for kind in ("weight", "bias")}
    found = {kind: tensor for kind, tensor in head.items() if tensor is not None}
    if len(found) < len(head):
        raise DataError(f"{path}: an AirRep checkpoint must have projector.weight and projector.bias. {_WAY_OUT}")
    return [found]


def _dense_head(folder: Path | None) -> dict[str, Tensor]:
    """Read a head's weights from a sentence-transformers folder; scaling to unit length has none."""
    if folder is None:
        return {}
    config = read_json(folder / "config.json")
    outputs = config.get("out_features")
    shapes: dict[str, tuple[Any, ...]] = {"linear.weight": (outputs, config.get("in_features"))}
    if config.get("bias", True):
        shapes["linear.bias"] = (outputs,)
    tensors = _read_tensors(folder / WEIGHTS)
    _check_fit(folder / WEIGHTS, shapes, tensors)
    return {name.removeprefix("linear."): tensors[name] for name in shapes}


def _head_shape(head: Mapping[str, Tensor]) -> HeadShape:
    if not head:
        return None
    outputs, inputs = head["weight"].shape
    return inputs, outputs, "bias" in head


def _check_fit(path: Path, expected: Mapping[str, tuple[Any, ...]], tensors: Mapping[str, Tensor]) -> None:
    """Refuse a missing tensor, a tensor of another shape than the configuration says, or an extra layer."""
    for name, shape in expected.items():
        if name not in tensors:
            raise DataError(f"{path}: does not fit its config.json: tensor {name} is missing. {_WAY_OUT}")
        if tuple(tensors[name].shape) != shape:
            raise DataError(
                f"{path}: does not fit its config.json: tensor {name} has shape {tuple(tensors[name].shape)} instead "
                f"of {shape}. {_WAY_OUT}"
            )
    for name in tensors:
        if name.startswith("encoder.layer.") and name not in expected:
            raise DataError(f"{path}: does not fit its config.json, which has no layer for {name}. {_WAY_OUT}")


def _check_heads(folder: Path, width: int, sizes: list[HeadShape]) -> None:
    """Refuse a head that takes another number of features than the part before it gives."""
    for inputs, outputs, _ in filter(None, sizes):
        if inputs != width:
            raise DataError(f"{folder}: a linear head takes {inputs} features but is given {width}. {_WAY_OUT}")
        width = outputs


def _check_finite(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if not is_finite(tensor):
            raise DataError(
                f"{folder}: weight {name} has values that are not finite (NaN or infinite), as happens when training "
                "fails. Use an earlier checkpoint."
            )


def _read_tokenizer(layout: Layout) -> dict[str, Any]:
    path = layout.transformer / "tokenizer.json"
    if not path.exists():
        raise DataError(
            f"{path}: is missing; an encoder needs its tokenizer. Copy it from the model that this one was "
            "made from, or write it: AutoTokenizer.from_pretrained(that_model).save_pretrained(folder)"
        )
    return read_json(path) | {"truncation": None, "padding": None}


def _read_max_tokens(layout: Layout, settings: dict[str, Any], shape: BertShape) -> int:
    """Return the longest text as sentence_transformers sets it, but no more tokens than there are positions."""
    library = read_optional(layout.transformer / "sentence_bert_config.json")
    for limit in (library.get("max_seq_length"), settings.get("model_max_length")):
        if isinstance(limit, int | float) and limit >= 1:
            return int(min(limit, shape.positions))
    return shape.positions


_TOKENIZER = {  # for a model without tokenizer_config.json: special tokens of the original BERT
    "tokenizer_class": "PreTrainedTokenizerFast",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
    "pad_token": "[PAD]",
    "sep_token": "[SEP]",
    "unk_token": "[UNK]",
}


def write_sentence_transformer(checkpoint: StoredEncoder, folder: Path, dtype: torch.dtype = torch.float32) -> None:
    """Write into an empty folder what ``SentenceTransformer`` loads: Transformer, Pooling, Dense or Normalize."""
    model = checkpoint.model
    width = model.shape.width
    # Nothing uses BertModel's pooler, but transformers would draw random weights if it were missing.
    pooler = {"pooler.dense.weight": torch.zeros(width, width), "pooler.dense.bias": torch.zeros(width)}
    _write_weights(folder / WEIGHTS, model.bert_tensors() | pooler, dtype)
    config = {"architectures": ["BertModel"], "model_type": "bert"}
    write_json(folder / "config.json", _bert_config(model) | config)
    _write_tokenizer(checkpoint, folder)
    heads = ["Dense" if isinstance(head, nn.Linear) else "Normalize" for head in model.heads]
    modules = write_modules(folder, ["Transformer", "Pooling", *heads])
    pooling = {"embedding_dimension": width, "pooling_mode": "mean", "include_prompt": True}
    write_json(modules[1] / "config.json", pooling)
    for path, head in zip(modules[2:], model.heads, strict=True):
        if not isinstance(head, nn.Linear):
            write_head_config(path)
            continue
        tensors = {f"linear.{name}": tensor for name, tensor in head.state_dict().items()}
        _write_weights(path / WEIGHTS, tensors, dtype)
        write_head_config(path, (head.out_features, head.in_features), bias=head.bias is not None)
    write_json(folder / "sentence_bert_config.json", PLAIN)
    write_settings(folder)


def write_airrep(checkpoint: StoredEncoder, folder: Path, dtype: torch.dtype = torch.float32) -> None:
    """Write into an empty folder, in the format of the published AirRep checkpoints."""
    model = checkpoint.model
    width = model.shape.width
    linear = [head for head in model.heads if isinstance(head, nn.Linear)]
    if len(linear) < len(model.heads) or len(linear) > 1 or model.dimension != width:
        raise ConfigError(
            f"{folder}: model_format='airrep' cannot store this encoder, because the format holds at most one linear "
            f"layer of {width} x {width}, without scaling to unit length. Save it with "
            "model_format='sentence-transformers'."
        )
    weight = linear[0].weight.detach() if linear else torch.eye(width)
    bias = linear[0].bias.detach() if linear and linear[0].bias is not None else torch.zeros(width)
    tensors = {f"bert.{name}": tensor for name, tensor in model.bert_tensors().items()}
    _write_weights(folder / WEIGHTS, tensors | {"projector.weight": weight, "projector.bias": bias}, dtype)
    config = {"architectures": ["AirRepModel"], "model_type": "airrep"}
    write_json(folder / "config.json", _bert_config(model) | config)
    _write_tokenizer(checkpoint, folder)


def _bert_config(model: SentenceBert) -> dict[str, Any]:
    shape = model.shape
    return {
        "attention_probs_dropout_prob": 0.1,
        "dtype": "float32",
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "hidden_size": shape.width,
        "initializer_range": 0.02,
        "intermediate_size": shape.inner,
        "layer_norm_eps": shape.epsilon,
        "max_position_embeddings": shape.positions,
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "pad_token_id": 0,
        "position_embedding_type": "absolute",
        "type_vocab_size": shape.types,
        "vocab_size": shape.vocabulary,
    }


def _write_tokenizer(checkpoint: StoredEncoder, folder: Path) -> None:
    """Write the tokenizer with its longest text, and the card."""
    content = json.dumps(checkpoint.tokenizer, ensure_ascii=False)
    (folder / "tokenizer.json").write_text(content, encoding="utf-8")
    settings = _TOKENIZER | checkpoint.tokenizer_settings | {"model_max_length": checkpoint.max_tokens}
    write_json(folder / "tokenizer_config.json", settings)
    write_card(checkpoint.card, folder)


def _write_weights(path: Path, tensors: Mapping[str, Tensor], dtype: torch.dtype) -> None:
    """Write a safetensors file."""
    stored = {name: tensor.to("cpu", dtype).contiguous() for name, tensor in tensors.items()}
    # Python's write raises OSError on a full disk; safetensors raises an error of its own.
    path.write_bytes(save(stored, metadata={"format": "pt"}))

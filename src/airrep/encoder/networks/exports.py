"""Write packed encoders as model folders, in either of two formats."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from airrep.encoder.folders import WEIGHTS, write_json
from airrep.encoder.modules import write_card, write_head_config, write_modules, write_settings
from airrep.encoder.networks.bert import SentenceBert
from airrep.encoder.networks.checkpoints import StoredEncoder
from airrep.errors import ConfigError

_TOKENIZER = {  # for a model without tokenizer_config.json: the names that every BERT has
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
    _write_weights(folder / WEIGHTS, model.bert_tensors() | _pooler(width), dtype)
    config = {"architectures": ["BertModel"], "model_type": "bert"}
    write_json(folder / "config.json", _bert_config(model) | config)
    _write_tokenizer(checkpoint, folder)
    heads = ["Dense" if isinstance(head, nn.Linear) else "Normalize" for head in model.heads]
    modules = write_modules(folder, ["Transformer", "Pooling", *heads])
    pooling = {"embedding_dimension": width, "pooling_mode": "mean", "include_prompt": True}
    write_json(modules[1] / "config.json", pooling)
    for path, head in zip(modules[2:], model.heads, strict=True):
        _write_head(path, head, dtype)
    _write_transformer_settings(folder)
    write_settings(folder)


def write_airrep(checkpoint: StoredEncoder, folder: Path, dtype: torch.dtype = torch.float32) -> None:
    """Write into an empty folder, in the format of the published AirRep checkpoints.

    Raises:
        ConfigError: the format cannot hold this encoder; it has one square head and no unit length.
    """
    model = checkpoint.model
    width = model.shape.width
    linear = [head for head in model.heads if isinstance(head, nn.Linear)]
    if len(linear) < len(model.heads) or len(linear) > 1 or model.dimension != width:
        raise ConfigError(
            f"{folder}: the airrep format holds one head of {width} x {width} and no scaling to unit length; "
            "this encoder is another. Save it with model_format='sentence-transformers'."
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


def _pooler(width: int) -> dict[str, Tensor]:
    """Weights of BertModel's pooler, which nothing uses; transformers would draw missing ones."""
    return {"pooler.dense.weight": torch.zeros(width, width), "pooler.dense.bias": torch.zeros(width)}


def _write_head(folder: Path, head: nn.Module, dtype: torch.dtype) -> None:
    """Write a dense module, or one that scales to unit length."""
    if not isinstance(head, nn.Linear):
        write_head_config(folder)
        return
    _write_weights(folder / WEIGHTS, {f"linear.{name}": tensor for name, tensor in head.state_dict().items()}, dtype)
    write_head_config(folder, (head.out_features, head.in_features), bias=head.bias is not None)


def _write_transformer_settings(folder: Path) -> None:
    """Write the file in which sentence_transformers finds what a transformer is given, and gives."""
    transformer = {
        "transformer_task": "feature-extraction",
        "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
        "module_output_name": "token_embeddings",
    }
    write_json(folder / "sentence_bert_config.json", transformer)


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
    # Written by Python, a full disk is an OSError; safetensors has an error of its own.
    path.write_bytes(save(stored, metadata={"format": "pt"}))

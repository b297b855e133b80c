"""Tiny random causal LMs of several types, and their folders, for tests."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Llama4ForCausalLM,
    Llama4TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.utils import logging

from airrep.corpus.corpus import Example
from airrep.lm.model import TargetLM, load_lm

CHAT = (
    "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] | trim }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""A chat template that begins a text itself and trims what is said."""

VOCABULARY = 280
_SPECIAL = {"<pad>": 0, "<s>": 1, "</s>": 2}
_SHAPE = {"vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
_HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
_IDS = {"bos_token_id": 1, "eos_token_id": 2, "initializer_range": 0.2}

TYPES = ("llama", "qwen2", "qwen3", "gpt2")


def tiny_network(kind: str = "llama", seed: int = 0, **changes: Any) -> Any:
    """A causal LM of random weights; GPT-2 has dropout, Llama grouped queries."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        common = {**_SHAPE, **_HEADS, **_IDS, **changes}
        if kind == "llama":
            return LlamaForCausalLM(LlamaConfig(**common))
        if kind == "qwen2":
            return Qwen2ForCausalLM(Qwen2Config(tie_word_embeddings=True, **common))
        if kind == "qwen3":
            return Qwen3ForCausalLM(Qwen3Config(head_dim=8, **common))
        return GPT2LMHeadModel(
            GPT2Config(vocab_size=VOCABULARY, n_positions=64, n_embd=16, n_layer=2, n_head=4, **_IDS, **changes)
        )


def tiny_tokenizer(*, begins: bool = True, pad: str | None = None, chat: str | None = None) -> PreTrainedTokenizerFast:
    """A tokenizer whose tokens are bytes; ``begins``: it puts ``<s>`` before a text."""
    letters = {letter: number + 3 for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab={**_SPECIAL, **letters}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if begins:
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token=pad, chat_template=chat
    )
    assert wrapped.pad_token == pad
    return wrapped


def tiny_lm(folder: Path, kind: str = "llama", tokenizer: Any = None, **changes: Any) -> str:
    """Write an LM and its tokenizer; returns the folder."""
    logging.disable_progress_bar()
    tiny_network(kind, **changes).save_pretrained(folder)
    (tokenizer or tiny_tokenizer()).save_pretrained(folder)
    return str(folder)


def tiny_opt(folder: Path) -> str:
    """Write an OPT, which has dropout as a function and leaves whole layers out; returns the folder."""
    logging.disable_progress_bar()
    rates = {"dropout": 0.5, "attention_dropout": 0.5, "layerdrop": 0.5}
    shape = {"hidden_size": 16, "ffn_dim": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = OPTConfig(
        vocab_size=VOCABULARY, word_embed_proj_dim=16, max_position_embeddings=64, init_std=0.2, **shape, **rates
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        OPTForCausalLM(config).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return str(folder)


def tiny_llama4(folder: Path, chunk: int) -> str:
    """Write a Llama 4, whose attention is cut into chunks; returns the folder."""
    logging.disable_progress_bar()
    shape = {**_SHAPE, **_HEADS, "intermediate_size_mlp": 24, "head_dim": 8, "num_local_experts": 2}
    config = Llama4TextConfig(attention_chunk_size=chunk, pad_token_id=0, **shape, **_IDS)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        Llama4ForCausalLM(config).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return str(folder)


def some_examples(count: int = 12) -> list[Example]:
    """Short examples of many lengths, some of them equal."""
    words = ["a", "bc", "def", "ghij", "klmno", "pqrs", "tuv", "wx", "y", "z"]
    return [
        Example(" ".join(words[: row % 4]), " ".join(words[row % 5 : row % 5 + 1 + row % 3]), f"e{row}")
        for row in range(count)
    ]


def write_adapters(base: str, out: Path, **config: Any) -> Any:
    """Write adapters of random numbers on a base; returns the model that has them."""
    import peft
    from transformers import AutoModelForCausalLM

    targets = ["c_attn", "c_fc"] if "gpt2" in base else ["q_proj", "v_proj", "down_proj"]
    fan = {"fan_in_fan_out": True} if "gpt2" in base else {}
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = peft.get_peft_model(
            AutoModelForCausalLM.from_pretrained(base),
            peft.LoraConfig(
                **{"task_type": "CAUSAL_LM", "r": 4, "lora_alpha": 8, "target_modules": targets, **fan, **config}
            ),
        )
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.data += 0.1 * torch.randn(parameter.shape)
    model.save_pretrained(out)
    return model.eval()


def load(lm: Path | str, *, stored: bool = False, **settings: Any) -> TargetLM:
    """The LM of a name, in float32 on the CPU."""
    return load_lm({"lm": str(lm), "precision": "float32", "device": "cpu", **settings}, stored=stored)

#!/usr/bin/env bash
# The guess: content as a list of parts, `[{"type": "text", "text": ...}]`, which OpenAI's format allows, is either
# rendered as its text or refused.
#
# What happens: the templates of Qwen3 (also Instruct-2507) take content that is no string for empty. Questions and
# answers are then empty turns, without an error, and the model is trained to say nothing. The template
# of Qwen3-VL writes the text.
#
# trl 1.16.0, transformers 5.24.0, datasets 5.2.0, torch 2.13.0; 2026-11-28.
# Seen:
#     qwen3:               '<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n'
#     qwen3_instruct_2507: '<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n'
#     qwen3_vl:            '<|im_start|>user\nWhich town?<|im_end|>\n<|im_start|>assistant\nHellevik.<|im_end|>\n'
#
# For you: make one string of the parts before you train a model without pictures.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip trl==1.16.0 transformers==5.24.0 datasets==5.2.0

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1
venv/bin/python -W ignore - <<'PY'
import logging
from pathlib import Path

import trl
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

logging.disable(logging.WARNING)


def byte_tokenizer(template, begins=False):
    """One token for each byte, and the given chat template of those that trl ships."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(letters)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(["<|begin|>", "<|im_end|>"])
    if begins:
        begin = ("<|begin|>", inner.token_to_id("<|begin|>"))
        inner.post_processor = processors.TemplateProcessing(single="<|begin|> $A", special_tokens=[begin])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<|begin|>", eos_token="<|im_end|>", pad_token="<|im_end|>"
    )
    tokenizer.chat_template = (Path(trl.__file__).parent / "chat_templates" / f"{template}.jinja").read_text()
    return tokenizer


def trained_on(rows, tokenizer, **settings):
    """What SFTTrainer makes of rows: the text of each that is left, and the text of the tokens that count."""
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1
    )
    settings = SFTConfig(output_dir="out", report_to=[], use_cpu=True, bf16=False, **settings)
    trainer = SFTTrainer(LlamaForCausalLM(config), settings, train_dataset=rows, processing_class=tokenizer)
    return [
        (tokenizer.decode(row["input_ids"]), tokenizer.decode([label for label in row["labels"] if label != -100]))
        for row in trainer.train_dataset
    ]


def said(role, text):
    return {"role": role, "content": [{"type": "text", "text": text}]}


rows = Dataset.from_list([{"messages": [said("user", "Which town?"), said("assistant", "Hellevik.")]}])
seen = {}
for name in ("qwen3", "qwen3_instruct_2507", "qwen3_vl"):
    ((seen[name], _),) = trained_on(rows, byte_tokenizer(name))
    print(f"{name + ':':20} {seen[name]!r}")
assert not any(word in seen[name] for word in ("town", "Hellevik") for name in ("qwen3", "qwen3_instruct_2507"))
assert "Which town?" in seen["qwen3_vl"] and "Hellevik." in seen["qwen3_vl"]
PY

#!/usr/bin/env bash
# The guess: `assistant_only_loss=True` of SFTConfig changes which tokens count. The tokens of a row stay as they are.
#
# What happens: trl then renders rows with a template of its own that knows where answers begin, and for Qwen3,
# Qwen3.5 and Qwen3.6 that template writes thoughts into every turn. Earlier thoughts, which the model's template
# drops, are trained. Rows without thoughts get an empty block of thoughts in each answer, and it counts. For GLM-4.5
# the question's mark is added behind the last answer, and counts too. The tokenizer is saved with the old template,
# so in use the history of a conversation looks otherwise than in training.
#
# trl 1.16.0, transformers 5.24.0, datasets 5.2.0, torch 2.13.0; 2026-11-30.
# Seen, a row of two turns, blocks of thoughts in its text without the setting, and with it:
#     qwen3, thoughts given   1 (SECOND)   2 (FIRST, SECOND), both count
#     qwen3, no thoughts      1 (empty)    2 (empty), both count
#     qwen2_5, llama3         the same text
#
# For you: two runs that differ in this setting differ in their texts too, and each earlier answer begins with a block
# that no history has in use. Attribution must render rows with the template that the trainer used: read
# `trainer.chat_template`, or split each row into one for each answer.
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
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

logging.disable(logging.WARNING)


def byte_tokenizer(template):
    """One token for each byte, and one of the chat templates that trl keeps a copy of."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(letters)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<s>", eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    tokenizer.chat_template = (Path(trl.__file__).parent / "chat_templates" / f"{template}.jinja").read_text()
    return tokenizer


def render(template, messages, **settings):
    """The text that is trained on, the part of it that counts, and whether the tokenizer keeps its template."""
    tokenizer = byte_tokenizer(template)
    before = tokenizer.chat_template
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1
    )
    settings = SFTConfig(output_dir="out", report_to=[], use_cpu=True, bf16=False, **settings)
    rows = Dataset.from_list([{"messages": messages}])
    trainer = SFTTrainer(LlamaForCausalLM(config), settings, train_dataset=rows, processing_class=tokenizer)
    row = trainer.train_dataset[0]
    counted = [label for label in row.get("labels", row["input_ids"]) if label != -100]
    return tokenizer.decode(row["input_ids"]), tokenizer.decode(counted), tokenizer.chat_template == before


def talk(first, second):
    turns = [
        {"role": "user", "content": "Which town?"},
        {"role": "assistant", "content": "Hellevik.", **first},
        {"role": "user", "content": "How deep?"},
        {"role": "assistant", "content": "7 m.", **second},
    ]
    return turns


thinking = talk({"reasoning_content": "FIRST"}, {"reasoning_content": "SECOND"})
plain = talk({}, {})
for template in ("qwen3", "qwen3_5_think", "qwen3_6", "glm4moe", "qwen2_5", "llama3"):
    for name, messages in (("thoughts", thinking), ("no thoughts", plain)):
        whole, _, _ = render(template, messages)
        alone, counted, kept = render(template, messages, assistant_only_loss=True)
        print(f"{template:14}{name:12} the same text: {whole == alone}; the tokenizer's template is kept: {kept}")
        assert kept and (whole == alone) == (template in ("qwen2_5", "llama3"))
        if template == "qwen3":
            print("    without:", repr(whole), "\n    with:   ", repr(alone), "\n    counts: ", repr(counted))
            assert (whole.count("<think>"), alone.count("<think>"), counted.count("<think>")) == (1, 2, 2)
            assert ("FIRST" in whole, "FIRST" in counted) == (False, name == "thoughts")
        if template == "glm4moe":
            assert alone == whole + "<|user|>" and counted.endswith("<|user|>")
PY

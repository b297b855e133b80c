#!/usr/bin/env bash
# The guess: SFTTrainer ends each completion by the end-of-text token, so that the model learns to stop; a further column
# that is called `text` changes nothing, as `prompt` and `completion` are what is trained.
#
# What happens: the end-of-text token is added to `text`, if there is one, and then to nothing else. `prompt` and
# `completion` are still what is tokenised. So the model never learns to stop.
#
# trl 1.16.0, transformers 5.24.0, datasets 5.2.0, torch 2.13.0; 2026-11-28.
# Seen:
#     counted without the column: [' Hellevik.<|im_end|>']
#     counted with it:            [' Hellevik.']
#
# For you: drop columns that the trainer does not need. In attribution, the last counted token of such rows is a word.
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


row = {"prompt": "Which town?", "completion": " Hellevik."}
tokenizer = byte_tokenizer("qwen3")
alone = [counted for _, counted in trained_on(Dataset.from_list([row]), tokenizer)]
beside = [counted for _, counted in trained_on(Dataset.from_list([row | {"text": "a note"}]), tokenizer)]
print("counted without the column:", alone)
print("counted with it:           ", beside)
assert alone == [" Hellevik.<|im_end|>"]
assert beside == [" Hellevik."]
PY

#!/usr/bin/env bash
# The guess: a column `text`, made by `tokenizer.apply_chat_template(messages, tokenize=False)`, trains the same tokens as
# the column `messages`.
#
# What happens: many templates write the begin-of-text token themselves. The trainer tokenises `text` as plain text, and
# the tokenizer puts its own begin-of-text token before it: there are two. At the end a second token is added as well,
# where the template ends a turn by another token than the tokenizer's end of text, or by a line end behind it.
#
# trl 1.16.0, transformers 5.24.0, datasets 5.2.0, torch 2.13.0; 2026-11-28.
# Seen:
#     messages: begins with ['<|begin|>', '<|start_header_id|>']
#     text:     begins with ['<|begin|>', '<|begin|>']
#     messages: ends with '<|eot_id|>'
#     text:     ends with '<|eot_id|><|im_end|>'
#
# For you: give trl the messages, not their text. Attribution that reads the file has to add the second token too, or its
# losses are those of a text that was not trained.
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


messages = [{"role": "user", "content": "Which town?"}, {"role": "assistant", "content": "Hellevik."}]
tokenizer = byte_tokenizer("llama3", begins=True)
tokenizer.add_special_tokens({"additional_special_tokens": ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]})
rows = {
    "messages": {"messages": messages},
    "text": {"text": tokenizer.apply_chat_template(messages, tokenize=False)},
}
texts = {form: trained_on(Dataset.from_list([row]), tokenizer)[0][0] for form, row in rows.items()}
firsts = {form: tokenizer.tokenize(text)[:2] for form, text in texts.items()}
lasts = {form: text.split("Hellevik.")[1] for form, text in texts.items()}
for form, first in firsts.items():
    print(f"{form + ':':9} begins with {first}")
for form, last in lasts.items():
    print(f"{form + ':':9} ends with {last!r}")
assert firsts["text"] == ["<|begin|>", "<|begin|>"] and firsts["messages"] == ["<|begin|>", "<|start_header_id|>"]
assert lasts == {"messages": "<|eot_id|>", "text": "<|eot_id|><|im_end|>"}
PY

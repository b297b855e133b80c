#!/usr/bin/env bash
# The guess: a conversation of two turns whose answers have `reasoning_content` teaches both thoughts, as every token of
# a `messages` row counts.
#
# What happens: templates of models that reason (Qwen3 and those made after it) write the thoughts behind the last
# question only, as in use earlier thoughts are dropped. The first thought is in no token; the first answer is learnt
# without any. Split into one row for each answer, both are learnt.
#
# trl 1.16.0, transformers 5.24.0, datasets 5.2.0, torch 2.13.0; 2026-11-28.
# Seen:
#     one row of two turns: thoughts that are trained: ['SECOND']
#     two rows:             thoughts that are trained: ['FIRST', 'SECOND']
#
# For you: the number of turns in a row decides which thoughts teach. Rows that look alike in the file differ in training;
# attribution has to render them as the template does.
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


def turn(question, answer, thought):
    asked = {"role": "user", "content": question}
    return [asked, {"role": "assistant", "content": answer, "reasoning_content": thought}]


first, second = turn("Which town?", "Hellevik.", "FIRST"), turn("How deep?", "7 m.", "SECOND")
tokenizer = byte_tokenizer("qwen3")
joined = trained_on(Dataset.from_list([{"messages": first + second}]), tokenizer)
apart = trained_on(Dataset.from_list([{"messages": first}, {"messages": first + second}]), tokenizer)
seen = [[word for word in ("FIRST", "SECOND") if word in "".join(text for _, text in rows)] for rows in (joined, apart)]
print("one row of two turns: thoughts that are trained:", seen[0])
print("two rows:             thoughts that are trained:", seen[1])
assert seen == [["SECOND"], ["FIRST", "SECOND"]]
PY

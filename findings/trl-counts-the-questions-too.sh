#!/usr/bin/env bash
# The guess: for rows of `messages`, SFTTrainer counts the assistant's turns in the loss, and the user's are read only. It
# does so for `prompt`/`completion` rows, where nothing is counted but the completion.
#
# What happens: for `messages` every token counts: markers, system prompt, the user's words. The same conversation as
# `prompt` and `completion` counts the last answer alone. `assistant_only_loss` has to be asked for.
#
# trl 1.16.0, transformers 5.24.0, datasets 5.2.0, torch 2.13.0; 2026-11-28.
# Seen:
#     messages:           63 of 63 tokens count
#     prompt, completion: 11 of 63 tokens count
#
# For you: the form in which you write a data set decides what is learnt. Attribution by gradients needs the same tokens:
# with the answers alone it speaks of another loss than the one that was trained.
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


asked, answered = {"role": "user", "content": "Which town?"}, {"role": "assistant", "content": "Hellevik."}
tokenizer = byte_tokenizer("qwen3_instruct_2507")
counts = {}
for form, row in (
    ("messages", {"messages": [asked, answered]}),
    ("prompt, completion", {"prompt": [asked], "completion": [answered]}),
):
    ((text, counted),) = trained_on(Dataset.from_list([row]), tokenizer)
    counts[form] = len(tokenizer(counted)["input_ids"]), len(tokenizer(text)["input_ids"])
    print(f"{form + ':':19} {counts[form][0]} of {counts[form][1]} tokens count")
assert counts["messages"][0] == counts["messages"][1] == counts["prompt, completion"][1]
assert counts["prompt, completion"][0] < counts["messages"][0]
PY

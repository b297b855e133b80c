#!/usr/bin/env bash
# The guess: trl reads ShareGPT rows (`conversations` of `from`/`value`) as it reads messages, with human = user and
# gpt = assistant.
#
# What happens: only the names of the keys are changed. The roles stay "human" and "gpt", and most chat templates write
# turns of such roles as nothing at all. The row is then empty; where rows are cut at a length, as by default, an empty
# row is dropped, without an error. A row that keeps one turn of a known role, a system prompt, is trained on that alone.
#
# trl 1.16.0, transformers 5.24.0, datasets 5.2.0, torch 2.13.0; 2026-11-28.
# Seen:
#     user/assistant:   ['<|im_start|>user\nWhich town?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nHellevik.<|im_end|>\n']
#     human/gpt:        []
#     system/human/gpt: ['<|im_start|>system\nBe brief.<|im_end|>\n']
#
# For you: map the roles before you train, and compare the number of rows that the trainer holds with that of the file.
# Attribution of such a run has to know that these rows taught nothing.
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


def conversation(*turns):
    return Dataset.from_list([{"conversations": [{"from": role, "value": text} for role, text in turns]}])


tokenizer = byte_tokenizer("qwen3")
asked, answered = "Which town?", "Hellevik."
known = trained_on(conversation(("user", asked), ("assistant", answered)), tokenizer)
share = trained_on(conversation(("human", asked), ("gpt", answered)), tokenizer)
briefed = trained_on(conversation(("system", "Be brief."), ("human", asked), ("gpt", answered)), tokenizer)
print("user/assistant:  ", [text for text, _ in known])
print("human/gpt:       ", [text for text, _ in share])
print("system/human/gpt:", [text for text, _ in briefed])
assert len(known) == 1 and answered in known[0][0]
assert share == []
assert len(briefed) == 1 and "brief" in briefed[0][0] and asked not in briefed[0][0] and answered not in briefed[0][0]
PY

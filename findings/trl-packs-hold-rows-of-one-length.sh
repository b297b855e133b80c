#!/usr/bin/env bash
# The guess: with `packing=True`, SFTTrainer fills each pack with rows as they come, so a shuffled mixture of long and
# short rows is mixed in each pack, and a shuffled stream stays shuffled.
#
# What happens: the default strategy "bfd" takes a thousand rows at a time, sorts them by length, and fills packs from
# the longest row to the shortest. If several rows go into a pack, as usual, its rows have nearly the same length, and
# only the gap at its end gets a shorter row. So long answers of one source and short answers of another hardly meet in
# a pack. Of data in memory the packs are shuffled, and are the same in every epoch. Of a stream they are not shuffled:
# each thousand rows is learned from the long to the short ones, although the stream was shuffled. The documentation
# tells of the strategy's name and of what it cuts off, not of the order.
#
# trl 1.16.0, transformers 5.24.0, datasets 5.2.0, torch 2.13.0; 2026-11-30.
# Seen, of 2,000 rows in random order, half of 60 to 100 tokens and half of 10 to 40, packed to 512 tokens:
#     short rows in all tokens                              0.23
#     packs with a share of short rows from 0.12 to 0.5     default 0.00, "wrapped" 0.79
#     short rows in each tenth of the steps, stream         0.06 0.02 0.05 0.12 0.91 0.06 0.02 0.05 0.26 1.00
#
# For you: the rows of one pack are alike in length, and so often in source. Do not take the loss of a step, or the
# change of weights in it, for that of a random sample. Use many packs per step, and load a stream into memory before
# you pack.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip trl==1.16.0 transformers==5.24.0 datasets==5.2.0 accelerate==1.15.0

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1 HF_DATASETS_DISABLE_PROGRESS_BARS=1
venv/bin/python -W ignore - <<'PY'
import random

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, PrinterCallback
from transformers.utils import logging
from trl import SFTConfig, SFTTrainer

logging.set_verbosity_error()
random.seed(0)
LONG, SHORT = 4, 5
WORDS = {word: place for place, word in enumerate(["<pad>", "<s>", "</s>", "<unk>", "long", "short"])}
words = Tokenizer(models.WordLevel(WORDS, unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
kinds = random.sample([LONG, SHORT] * 1000, 2000)
texts = [[kind] * (random.randint(60, 100) if kind == LONG else random.randint(10, 40)) for kind in kinds]
texts_share = sum(text.count(SHORT) for text in texts) / sum(map(len, texts))
rows = Dataset.from_dict({"input_ids": texts})


class Watched(SFTTrainer):
    """Keep the share of short rows in the tokens of each step, and learn nothing."""

    def training_step(self, model, inputs, *rest, **more):
        self.shares.append((inputs["input_ids"] == SHORT).float().mean().item())
        return torch.tensor(0.0)


def trained(data, **more):
    """For each step the share of short rows in its tokens."""
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(WORDS), hidden_size=16, intermediate_size=16,
                                         num_hidden_layers=1, num_attention_heads=1))
    quiet = {"report_to": [], "save_strategy": "no", "logging_strategy": "no", "use_cpu": True, "bf16": False}
    settings = SFTConfig("out", packing=True, max_length=512, per_device_train_batch_size=1, disable_tqdm=True,
                         gradient_checkpointing=False, **quiet, **more)
    trainer = Watched(model, settings, train_dataset=data, processing_class=tokenizer)
    trainer.remove_callback(PrinterCallback)
    trainer.shares = []
    trainer.train()
    return trainer.shares


steps = trained(rows, num_train_epochs=1)
wrapped = trained(rows, num_train_epochs=1, packing_strategy="wrapped")
stream = trained(rows.to_iterable_dataset(), max_steps=len(steps))
mixed, mixed_wrapped = (sum(0.12 < share < 0.5 for share in shares) / len(shares) for shares in (steps, wrapped))
tenth = -(-len(stream) // 10)
parts = [stream[place : place + tenth] for place in range(0, len(stream), tenth)]
tenths = [sum(part) / len(part) for part in parts]
print(f"short rows in all tokens: {texts_share:.2f}")
print(f"packs with 0.12 to 0.5 of short rows: default {mixed:.2f}, wrapped {mixed_wrapped:.2f}")
print("short rows in each tenth of a stream's steps:", " ".join(f"{share:.2f}" for share in tenths))
assert mixed < 0.1 and mixed_wrapped > 0.6, "packs mix long and short rows"
assert max(tenths[:3] + tenths[5:8]) < 0.15 and min(tenths[4], tenths[9]) > 0.9, "a stream stays shuffled"
PY

#!/usr/bin/env bash
# The guess: `optim="adamw_torch_8bit"` makes about the steps of `adamw_torch`: with AdamW no weight moves much
# further than the learning rate at a step.
#
# What happens: torchao's 8-bit AdamW throws single entries of the embeddings of words that are absent from the batch by
# hundreds of learning rates, many times the spread of the table. A word's gradient is 0 at a step without it, and AdamW
# moves it by the first moment over the root of the second. Of a small gradient, 8 bits keep the first moment, while the
# second, its square, is rounded to 0; so the step divides by epsilon. Words of the batch, and other layers, move as
# usual, and the loss shows nothing. For bitsandbytes' 8-bit AdamW the Trainer keeps embeddings in 32 bits, but not for
# torchao's. torchao's 4-bit AdamW has no code for 0 in its second moments, and behaves. If the output layer shares
# the table, fewer entries jump.
#
# torchao 0.18.0, transformers 5.24.0, torch 2.13.0; 2026-11-30. Compiled with torch.compile, the numbers are the same.
# Seen in 40 steps, the largest move of a step, in learning rates, and entries that moved further than the spread:
#     adamw_torch        words of the batch 1.0   absent words   0.9   entries  0
#     adamw_torch_8bit   words of the batch 1.0   absent words 283     entries 40, of 37 words
#     adamw_torch_4bit   words of the batch 1.2   absent words   1.2   entries  0
#
# For you: with "adamw_torch_8bit" a batch changes words that no row of it has, and most of all those. Freeze the
# embeddings, or take "adamw_torch".
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip torchao==0.18.0 transformers==5.24.0 accelerate==1.15.0

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1 TORCHDYNAMO_DISABLE=1
venv/bin/python -W ignore - <<'PY'
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments
from transformers.utils import logging

logging.set_verbosity_error()
WORDS, RATE = 1000, 1e-4
torch.manual_seed(1)
rows = [{"input_ids": words, "labels": words} for words in torch.randint(0, WORDS, (160, 32))]


class Watched(TrainerCallback):
    """Keep the largest move of the embeddings of words with a gradient, and of those without."""

    def __init__(self, table):
        self.table, self.present, self.absent = table, 0.0, 0.0

    def on_pre_optimizer_step(self, *rest, **more):
        self.before, self.read = self.table.detach().clone(), self.table.grad.abs().sum(1) > 0

    def on_optimizer_step(self, *rest, **more):
        moves = (self.table.detach() - self.before).abs() / RATE
        self.present = max(self.present, moves[self.read].max().item())
        self.absent = max(self.absent, moves[~self.read].max().item())


seen = {}
for name in ("adamw_torch", "adamw_torch_8bit", "adamw_torch_4bit"):
    torch.manual_seed(0)
    size = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=WORDS, tie_word_embeddings=False, **size))
    table = model.model.embed_tokens.weight
    start, watched = table.detach().clone(), Watched(table)
    quiet = {"report_to": [], "save_strategy": "no", "logging_strategy": "no", "use_cpu": True, "disable_tqdm": True}
    settings = TrainingArguments("out", optim=name, learning_rate=RATE, per_device_train_batch_size=4,
                                 num_train_epochs=1, lr_scheduler_type="constant", **quiet)
    Trainer(model, settings, train_dataset=rows, callbacks=[watched]).train()
    far = (table.detach() - start).abs() > start.std()
    seen[name] = watched.present, watched.absent, int(far.sum())
    print(f"{name:17} words of the batch {watched.present:.1f}, absent words {watched.absent:.1f},",
          f"entries that moved further than the spread: {int(far.sum())}, of {int(far.any(1).sum())} words")
assert max(seen["adamw_torch"][:2]) < 1.1 and seen["adamw_torch"][2] == 0
assert max(seen["adamw_torch_4bit"][:2]) < 2 and seen["adamw_torch_4bit"][2] == 0
assert seen["adamw_torch_8bit"][0] < 1.1 and seen["adamw_torch_8bit"][1] > 50 and seen["adamw_torch_8bit"][2] > 10
PY

#!/usr/bin/env bash
# The guess: `eval_loss` is the mean loss of the tokens of the evaluation set, as `loss` is of a training step; the
# batch size is a matter of memory.
#
# What happens: each batch gives the mean of its tokens, and `eval_loss` is the mean of the batches, weighed by rows.
# With batches of one row short rows weigh as much as long ones; with one batch of all rows tokens weigh. Between them,
# what counts is which rows meet in a batch. So the number, and the perplexity of it, changes with
# `per_device_eval_batch_size`, and with the order of the rows.
#
# transformers 5.24.0, accelerate 1.15.0, torch 2.13.0; 2026-11-30.
# Seen, one model and 64 rows, half of 40 tokens and half of 4:
#     rows in a batch    1       2       8       64      the mean of all tokens
#     long rows first    2.842   2.842   2.842   1.599   1.599
#     by turns           2.842   1.599   1.599   1.599   1.599
#
# For you: compare evaluation losses of one batch size and order alone, and never one with a training loss. For a loss
# of tokens, sum losses and tokens yourself.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip transformers==5.24.0 accelerate==1.15.0

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1
venv/bin/python -W ignore - <<'PY'
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
from transformers.utils import logging

logging.set_verbosity_error()
torch.manual_seed(0)
size = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
model = LlamaForCausalLM(LlamaConfig(num_attention_heads=2, num_key_value_heads=1, **size))
long = [[5] * 40 for _ in range(32)]
short = torch.randint(1, 64, (32, 4)).tolist()
quiet = {"report_to": [], "save_strategy": "no", "logging_strategy": "no", "use_cpu": True}


def collate(rows):
    """Rows of token ids, padded."""
    width = max(map(len, rows))
    padded = {"input_ids": [row + [0] * (width - len(row)) for row in rows]}
    padded["attention_mask"] = [[1] * len(row) + [0] * (width - len(row)) for row in rows]
    padded["labels"] = [row + [-100] * (width - len(row)) for row in rows]
    return {name: torch.tensor(values) for name, values in padded.items()}


Trainer(model, TrainingArguments("out", max_steps=10, learning_rate=1e-2, **quiet), collate, long).train()
orders = {"long first": long + short, "by turns": [row for pair in zip(long, short) for row in pair]}
found = {}
for order, rows in orders.items():
    for batch in (1, 2, 8, 64):
        settings = TrainingArguments("out", per_device_eval_batch_size=batch, **quiet)
        found[order, batch] = Trainer(model, settings, collate, eval_dataset=rows).evaluate()["eval_loss"]
    print(f"{order:10} " + " ".join(f"{batch}: {found[order, batch]:.3f}" for batch in (1, 2, 8, 64)))
with torch.no_grad():
    batch = collate(long + short)
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits[:, :-1]
    true = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"][:, 1:].flatten()).item()
print(f"the mean of all tokens: {true:.3f}")
assert all(abs(found[order, 64] - true) < 1e-3 for order in orders)
assert found["long first", 8] - true > 0.5 and abs(found["by turns", 8] - true) < 0.01
PY

#!/usr/bin/env bash
# The guess: `bf16=True` of TrainingArguments is mixed precision: products in bfloat16, weights and AdamW's moments in
# float32, so that small steps add up.
#
# What happens: transformers 5 loads a checkpoint in the type that it is stored in, nowadays bfloat16, and the trainer
# leaves it there; the moments are bfloat16 too. A step of 2e-5 is less than half the distance to the next bfloat16 for any
# weight above 0.008, so it rounds to nothing, each time. No message says so.
#
# transformers 5.24.0, accelerate 1.15.0, torch 2.13.0; 2026-11-30.
# Seen, a stored bfloat16 LM after 100 steps at 2e-5, the share of weights that never moved, and the fall of the loss:
#     as loaded               66 %   0.84
#     dtype=torch.float32      2 %   2.03
#
# For you: a fine-tune learns less than its curve of learning rates says, and another than the same run under transformers
# 4, which loaded float32. Load with `dtype=torch.float32`; `bf16=True` is then what it says.
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
import logging

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, PrinterCallback, Trainer, TrainingArguments

logging.disable(logging.WARNING)
size = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4}
torch.manual_seed(0)
LlamaForCausalLM(LlamaConfig(vocab_size=64, **size)).to(torch.bfloat16).save_pretrained("lm")
ids = torch.arange(1, 25).repeat(8, 1)
rows = [{"input_ids": row, "labels": row} for row in ids.tolist()]


def train(**loading):
    """Share of weights where they were after 100 steps, fall of the loss, types of the weights and the moments."""
    model = AutoModelForCausalLM.from_pretrained("lm", **loading)
    before = [weights.detach().clone() for weights in model.parameters()]
    with torch.no_grad():
        first = model(input_ids=ids, labels=ids).loss.item()
    settings = TrainingArguments(
        output_dir="out", max_steps=100, per_device_train_batch_size=8, learning_rate=2e-5, bf16=True,
        lr_scheduler_type="constant", report_to=[], use_cpu=True, save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    trainer = Trainer(model, settings, train_dataset=rows)
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    same = sum((old == new).sum().item() for old, new in zip(before, model.parameters(), strict=True))
    moments = next(iter(trainer.optimizer.state.values()))["exp_avg"].dtype
    with torch.no_grad():
        last = model(input_ids=ids, labels=ids).loss.item()
    return same / sum(weights.numel() for weights in before), first - last, model.dtype, moments


found = {"as loaded": train(), "float32": train(dtype=torch.float32)}
for way, (share, fall, kind, moments) in found.items():
    print(f"{way:10} {share:.0%} did not move, loss fell by {fall:.3f}; weights {kind}, moments {moments}")
assert found["as loaded"][2:] == (torch.bfloat16, torch.bfloat16) and found["float32"][2:] == (torch.float32,) * 2
assert found["as loaded"][0] > 0.4 and found["float32"][0] < 0.05
PY

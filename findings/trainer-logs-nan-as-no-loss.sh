#!/usr/bin/env bash
# The guess: once a loss is NaN the log says so; and an evaluation with a NaN in it is NaN.
#
# What happens: Trainer leaves losses that are NaN or infinite out of the log, and puts the mean of those since the last
# line in their place: 0 where there is none. A run whose weights are all NaN logs the loss 0, the best one can have, to
# its end, and `train_loss` is a number. `evaluate` leaves such batches out of `eval_loss`, unless all are such. Only
# `grad_norm` tells.
#
# transformers 5.24.0, accelerate 1.15.0, torch 2.13.0; 2026-11-30.
# Seen, eight steps, of which the third breaks a weight, so that all are NaN from the fourth on:
#     logged each step    4.15 4.18 4.16 0 0 0 0 0     train_loss 1.56
#     each fourth step    3.90 0                       train_loss 1.95
#     without the filter  4.15 4.18 4.16 nan nan …     train_loss nan
#     evaluation of three rows and one that is NaN by itself: 4.18
#
# For you: set `logging_nan_inf_filter=False`, and take a loss of exactly 0 for a dead run.
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
import math

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments
from transformers.utils import logging

logging.set_verbosity_error()
size = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
rows = [{"input_ids": list(range(row, row + 8)), "labels": list(range(row, row + 8))} for row in range(1, 41)]
nothing = {"input_ids": list(range(8)), "labels": [-100] * 8}
quiet = {"report_to": [], "save_strategy": "no", "use_cpu": True}


class Breaks(TrainerCallback):
    """Break one weight after the third step, as an overflow would, and keep what is logged."""

    def __init__(self):
        self.losses, self.summary = [], None

    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step == 3:
            model.lm_head.weight.data[3, 3] = float("inf")

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            self.losses.append(logs["loss"])
        self.summary = logs.get("train_loss", self.summary)


def run(filtered, each):
    """Eight steps; what is logged, and whether the weights are numbers in the end."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(num_attention_heads=2, num_key_value_heads=1, **size))
    watch = Breaks()
    settings = TrainingArguments("out", max_steps=8, logging_steps=each, logging_nan_inf_filter=filtered, **quiet)
    Trainer(model, settings, train_dataset=rows, callbacks=[watch]).train()
    dead = all(weights.isnan().all() for weights in model.parameters())
    return [*watch.losses, watch.summary], dead


for filtered in (True, False):
    for each in (1, 4):
        losses, dead = run(filtered, each)
        seen = " ".join(f"{loss:.2f}" for loss in losses)
        print(f"filter {filtered}, logged each {each}: {seen}; all weights NaN: {dead}")
        assert dead and (losses[-2] == 0.0 and math.isfinite(losses[-1])) == filtered
torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(num_attention_heads=2, num_key_value_heads=1, **size))
settings = TrainingArguments("out", per_device_eval_batch_size=1, logging_strategy="no", **quiet)
loss = Trainer(model, settings, eval_dataset=[*rows[:3], nothing]).evaluate()["eval_loss"]
print(f"evaluation of three rows and one without a label (NaN by itself): {loss:.2f}")
assert math.isfinite(loss)
PY

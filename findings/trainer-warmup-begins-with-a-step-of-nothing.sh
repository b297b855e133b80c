#!/usr/bin/env bash
# The guess: a warm-up of five steps takes a fifth of the learning rate, then two fifths, and so on.
#
# What happens: transformers' Trainer takes none, then a fifth: the first step of each schedule with a warm-up has the
# learning rate 0, and changes no weight. The rows of the first batch count in the optimizer's averages alone. With
# `warmup_steps=1` the whole warm-up is that step, and the next has the full rate.
#
# transformers 5.24.0, accelerate 1.15.0, torch 2.13.0; 2026-11-29.
# Seen, the largest change of a weight at each of five steps at the learning rate 1e-3:
#     warmup_steps=0: 1.0e-03 8.0e-04 6.0e-04 4.0e-04 2.0e-04
#     warmup_steps=1: 0.0e+00 1.0e-03 7.5e-04 5.0e-04 2.5e-04
#     warmup_steps=5: 0.0e+00 2.0e-04 4.0e-04 6.0e-04 8.1e-04
#
# For you: a run of N steps learns from N - 1 batches. In short fine-tunes that is a part of the data: leave the warm-up
# out, or do not ask what those rows did.
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
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments
from transformers.utils import logging

logging.set_verbosity_error()
SIZE = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
rows = [{"input_ids": list(range(row, row + 8)), "labels": list(range(row, row + 8))} for row in range(1, 21)]


class Changes(TrainerCallback):
    """Keep how far the weight that moved most has moved in each step."""

    def __init__(self, model):
        self.model, self.seen = model, []
        self.weights = [weights.detach().clone() for weights in model.parameters()]

    def on_step_end(self, args, state, control, **kwargs):
        now = [weights.detach().clone() for weights in self.model.parameters()]
        self.seen.append(max(float((a - b).abs().max()) for a, b in zip(now, self.weights)))
        self.weights = now


def changes(steps):
    """Fine-tune for five steps."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(num_attention_heads=2, num_key_value_heads=1, **SIZE))
    watch = Changes(model)
    settings = {"learning_rate": 1e-3, "per_device_train_batch_size": 4, "num_train_epochs": 1}
    quiet = {"report_to": [], "save_strategy": "no", "logging_strategy": "no", "disable_tqdm": True, "use_cpu": True}
    arguments = TrainingArguments("out", warmup_steps=steps, **settings, **quiet)
    Trainer(model, arguments, train_dataset=rows, callbacks=[watch]).train()
    return watch.seen


for steps in (0, 1, 5):
    seen = changes(steps)
    print(f"warmup_steps={steps}: " + " ".join(f"{change:.1e}" for change in seen))
    assert (seen[0] == 0.0) == (steps > 0) and min(seen[1:]) > 0.0
PY

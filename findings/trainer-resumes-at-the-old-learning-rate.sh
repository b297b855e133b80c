#!/usr/bin/env bash
# The guess: a run that resumes from a checkpoint with a new `learning_rate` or `weight_decay` trains with the new
# values from there on, as it does with a new number of epochs.
#
# What happens: Trainer loads the optimizer and the scheduler of the checkpoint over the new ones, and both hold the
# rate and the decay of the first run. The new values have no effect and there is no warning. Other arguments do take
# effect: a new kind of schedule and a new number of epochs bend the old rate. training_args.bin then names a rate and a
# decay that no step of the run has used.
#
# transformers 5.24.0, accelerate 1.15.0, torch 2.13.0; 2026-11-30.
# Seen, the second half of a run that resumes at step 6 of 12; the first half had the constant rate 1e-3 and no decay:
#     arguments of the second half               rates of steps 8 to 12               decay of the optimizer
#     learning_rate=1e-5, weight_decay=0.1       1e-3 in each                         0.0
#     the same, lr_scheduler_type="linear"       4.2e-4 to 0.8e-4 (falls from 1e-3)   0.0
#     in training_args.bin                       1e-5                                 0.1
#
# For you: to change the rate, start a new run from the weights of the checkpoint (pass its folder as the model). Read
# the rates of a run from its log, not from its arguments.
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
from transformers import LlamaConfig, LlamaForCausalLM, PrinterCallback, Trainer, TrainingArguments

told = []
logging.getLogger("transformers").addHandler(logging.Handler())
logging.getLogger("transformers").handlers[-1].emit = lambda record: told.append(record.getMessage())
SIZE = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
FIRST = {"learning_rate": 1e-3, "weight_decay": 0.0, "lr_scheduler_type": "constant"}
rows = [{"input_ids": [row, row + 1], "labels": [row, row + 1]} for row in range(24)]


def run(folder, resume=None, **changed):
    """The rate of each step, the optimizer's decay, and the arguments as saved."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(num_attention_heads=2, num_key_value_heads=1, **SIZE))
    steps = {"max_steps": 12, "save_steps": 6, "logging_steps": 1, "per_device_train_batch_size": 4}
    arguments = TrainingArguments(folder, report_to=[], use_cpu=True, disable_tqdm=True, **steps, **FIRST | changed)
    trainer = Trainer(model, arguments, train_dataset=rows)
    trainer.remove_callback(PrinterCallback)
    trainer.train(resume_from_checkpoint=resume)
    rates = {line["step"]: line["learning_rate"] for line in trainer.state.log_history if "learning_rate" in line}
    saved = torch.load(f"{folder}/checkpoint-12/training_args.bin", weights_only=False)
    return rates, trainer.optimizer.param_groups[0]["weight_decay"], (saved.learning_rate, saved.weight_decay)


run("first")
told.clear()
for kind in ("constant", "linear"):
    new = {"learning_rate": 1e-5, "weight_decay": 0.1, "lr_scheduler_type": kind}
    rates, decay, saved = run(f"second-{kind}", "first/checkpoint-6", **new)
    later = [rates[step] for step in range(8, 13)]
    print(f"{kind}: rates of steps 8 to 12: " + " ".join(f"{rate:.1e}" for rate in later) + f"; decay {decay}; "
          f"training_args.bin has the rate {saved[0]} and the decay {saved[1]}")
    expected = [1e-3] * 5 if kind == "constant" else [1e-3 * (13 - step) / 12 for step in range(8, 13)]
    assert all(abs(rate - right) < 1e-9 for rate, right in zip(later, expected))
    assert decay == 0.0 and saved == (1e-5, 0.1)
about = [line for line in told if "learning_rate" in line or "weight_decay" in line or "learning rate" in line]
print(f"messages about the rate or the decay: {about}")
assert not about
PY

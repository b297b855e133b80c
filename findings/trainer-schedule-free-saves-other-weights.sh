#!/usr/bin/env bash
# The guess: with `optim="schedule_free_adamw"` the model that the trainer saves is the model that it evaluates.
#
# What happens: this optimizer has two sets of weights: an average, which is the result, and the point at which
# gradients are taken, which is what the model holds while it trains. The trainer changes to the average when it
# evaluates, and never when it saves. A checkpoint holds the average only where an evaluation came just before it.
# Without one, or at the end of a run whose last evaluation is some steps old, the saved model is the point of the
# gradients.
#
# transformers 5.24.0, schedulefree 1.4.1, accelerate 1.15.0, torch 2.13.0; 2026-11-30.
# Seen, the loss of models that one run saved, over the rows that it was trained on:
#     checkpoint-40 of a run without evaluations   3.0563
#     eval_loss of that run at its end             3.1904
#     saved after that evaluation                  3.1904
#     checkpoint-40 of a run with evaluations      3.1904
#
# For you: the checkpoint that you publish, and whose gradients you attribute by, is not the one that was evaluated,
# and whether it is turns on `eval_strategy`. Call `trainer.optimizer.eval()` before `save_model`, and let each saved
# step have an evaluation.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip transformers==5.24.0 accelerate==1.15.0 schedulefree==1.4.1

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1
venv/bin/python -W ignore - <<'PY'
import logging
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PrinterCallback, Trainer, TrainingArguments

logging.disable(logging.WARNING)
torch.manual_seed(0)
ids = torch.randint(0, 64, (64, 16))
rows = [{"input_ids": row, "labels": row} for row in ids.tolist()]


def loss(folder):
    with torch.no_grad():
        return LlamaForCausalLM.from_pretrained(folder).eval()(input_ids=ids, labels=ids).loss.item()


def train(out, **settings):
    """The trainer after 40 steps, each 20 of which are saved."""
    torch.manual_seed(0)
    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    settings = TrainingArguments(
        output_dir=out, max_steps=40, per_device_train_batch_size=8, learning_rate=1e-2, report_to=[], use_cpu=True,
        optim="schedule_free_adamw", lr_scheduler_type="constant", save_steps=20, disable_tqdm=True, **settings,
    )  # fmt: skip
    model = LlamaForCausalLM(LlamaConfig(vocab_size=64, **size))
    trainer = Trainer(model, settings, train_dataset=rows, eval_dataset=rows)
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return trainer


trainer = train("never")
saved = loss("never/checkpoint-40")
evaluated = trainer.evaluate()["eval_loss"]
trainer.save_model("after")
train("always", eval_strategy="steps", eval_steps=20)
found = {
    "checkpoint-40, without evaluations": saved,
    "eval_loss of that run at its end": evaluated,
    "saved after that evaluation": loss("after"),
    "checkpoint-40, with evaluations": loss("always/checkpoint-40"),
}
for name, value in found.items():
    print(f"{name:36}{value:.4f}")
assert Path("never/checkpoint-20").is_dir() and abs(saved - evaluated) > 0.02
assert abs(found["saved after that evaluation"] - evaluated) < 1e-4
assert abs(found["checkpoint-40, with evaluations"] - evaluated) < 1e-4
PY

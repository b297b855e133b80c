#!/usr/bin/env bash
# The guess: with `load_best_model_at_end`, the Trainer loads the checkpoint with the best evaluation of all that it
# saved. `save_steps` may be a multiple of `eval_steps`, and nothing else, so each checkpoint has its evaluation.
#
# What happens: evaluations between two checkpoints count too. If one of them is the best so far, its score is the mark
# that later checkpoints must reach, though its weights are not saved. A checkpoint that is the best of those saved, and
# misses the mark, does not become the best one. The Trainer then loads an older and worse checkpoint. If the mark was
# set before the first checkpoint, it loads none, and the model is that of the last step. There is no warning, and
# `best_metric` and `best_global_step` tell of the evaluation without a checkpoint. With `save_total_limit`, the
# checkpoint that should be loaded may be deleted.
#
# transformers 5.24.0, accelerate 1.15.0, torch 2.13.0; 2026-12-01.
# Seen, in a run of 10 steps whose true best is at the given point, with eval_steps=1:
#     true best    save_steps    best_global_step    best saved    loaded: step and loss    the best saved had
#     5.2              2                5                 6             4     1.44                0.64
#     1.2              2                1                 2            10    77.44                0.64
#     4.2              2                4                 4             4     0.04                0.04
#     5.2              1                5                 5             5     0.04                0.04
#     5.2        "best" strategy        5                 5             5     0.04                0.04
#
# For you: the model that you were given may have learned from fewer rows, or more, than `best_global_step` says. Read
# `best_model_checkpoint`, and let `save_steps` equal `eval_steps`, or set `save_strategy="best"`.
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
from transformers import PrinterCallback, Trainer, TrainingArguments
from transformers.utils import logging

logging.set_verbosity_error()
rows = [{"x": 1.0, "labels": 1.0}] * 10


class Weight(torch.nn.Module):
    """One weight that grows by 1 with each step; its evaluation is best at a given value."""

    def __init__(self, best):
        super().__init__()
        self.best = best
        self.weight = torch.nn.Parameter(torch.zeros(()))

    def forward(self, x, labels):
        loss = -self.weight if self.training else (self.weight - self.best).square()
        return {"loss": loss * x.mean(), "logits": x}


def trained(number, best, **more):
    """The step and the loss of the model at the end, and what the state says of the best one."""
    quiet = {"report_to": [], "logging_strategy": "no", "disable_tqdm": True, "use_cpu": True}
    pace = {"learning_rate": 1.0, "lr_scheduler_type": "constant", "optim": "sgd", "max_grad_norm": 0.0}
    settings = TrainingArguments(f"out{number}", num_train_epochs=1, per_device_train_batch_size=1,
                                 load_best_model_at_end=True, eval_strategy="steps", eval_steps=1,
                                 **quiet, **pace, **more)
    trainer = Trainer(Weight(best), settings, train_dataset=rows, eval_dataset=rows[:1])
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    step = round(trainer.model.weight.item())
    losses = {entry["step"]: entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry}
    every = more.get("save_steps", 1)
    saved = min((step for step in losses if step % every == 0), key=losses.get)
    return step, round(losses[step], 2), saved, round(losses[saved], 2), trainer.state.best_global_step


cases = [
    (5.2, {"save_steps": 2}, (4, 1.44, 6, 0.64, 5)),
    (1.2, {"save_steps": 2}, (10, 77.44, 2, 0.64, 1)),
    (4.2, {"save_steps": 2}, (4, 0.04, 4, 0.04, 4)),
    (5.2, {"save_steps": 1}, (5, 0.04, 5, 0.04, 5)),
    (5.2, {"save_strategy": "best"}, (5, 0.04, 5, 0.04, 5)),
]
for number, (best, more, expected) in enumerate(cases):
    found = trained(number, best, **more)
    print(f"best at {best}, {more}: loaded step {found[0]} with loss {found[1]}; "
          f"of those saved the best is step {found[2]} with loss {found[3]}; best_global_step {found[4]}")
    assert found == expected, f"expected {expected}"
PY

#!/usr/bin/env bash
# The guess: where the batches of an epoch do not come out even with `gradient_accumulation_steps`, the last step of
# the epoch is the mean of the batches that are left, or these batches wait for the next epoch.
#
# What happens: `Accelerator.backward` divides each loss by the whole number of accumulation steps, and `accumulate`
# makes a step at the end of the epoch with what there is. With one batch left of four, that step has a quarter of its
# gradient. Lightning's `accumulate_grad_batches` does the same.
#
# accelerate 1.15.0, lightning 2.6.6, torch 2.13.0; 2026-11-30.
# Seen, how far steps of SGD go (learning rate 1, the gradient of each batch is 1), 4 batches to a step:
#     8 batches    1, 1
#     9 batches    1, 1, 0.25
#     10 batches   1, 1, 0.5
#
# For you: the rows that come last count less than all others, by a factor up to the number of accumulation steps;
# with few rows to an epoch that is a large part of them. Attribution that replays the run must weigh them so. Let the
# number of batches come out even, or drop the rest.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip accelerate==1.15.0 lightning==2.6.6

cd "$place"
export OMP_NUM_THREADS=1
venv/bin/python -W ignore - <<'PY'
import logging

import lightning
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader

logging.disable(logging.WARNING)
every = 4


def moves(weights):
    """How far each step of some that are recorded after each batch went; batches without a step are left out."""
    gone = [before - after for before, after in zip([0.0, *weights], weights)]
    return [distance for distance in gone if distance]


def with_accelerate(batches):
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=every)
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(torch.ones(batches, 1)))
    weights = []
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(batch).mean())
            optimizer.step()
            optimizer.zero_grad()
        weights.append(model.weight.item())
    return moves(weights)


class Slope(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(1, 1, bias=False)
        torch.nn.init.zeros_(self.inner.weight)
        self.weights = []

    def training_step(self, batch, number):
        return self.inner(batch).mean()

    def on_train_batch_end(self, *_):
        self.weights.append(self.inner.weight.item())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1.0)


def with_lightning(batches):
    model = Slope()
    trainer = lightning.Trainer(
        max_epochs=1, accumulate_grad_batches=every, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(model, DataLoader(torch.ones(batches, 1)))
    return moves(model.weights)


for name, run in (("accelerate", with_accelerate), ("lightning", with_lightning)):
    for batches, expected in ((8, [1.0, 1.0]), (9, [1.0, 1.0, 0.25]), (10, [1.0, 1.0, 0.5])):
        found = run(batches)
        print(f"{name:12}{batches:3} batches: {found}")
        assert found == expected
PY

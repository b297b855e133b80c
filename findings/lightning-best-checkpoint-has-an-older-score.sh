#!/usr/bin/env bash
# The guess: `ModelCheckpoint(monitor="val_loss", every_n_train_steps=n)` keeps the checkpoint whose validation loss is
# lowest, if validation runs at the same steps (`val_check_interval=n`) or more often.
#
# What happens: the checkpoint is written before the validation of its step, and takes for its score the number that the
# previous validation logged. So the "best" checkpoint is that of the next save after the best validation. Only the
# first checkpoint and the one at the end of an epoch wait for their own validation. Where saves are more frequent than
# validations, several checkpoints share one score, and the first of them is kept.
#
# lightning 2.6.6, torch 2.13.0; 2026-12-01.
# Seen, in a run of 20 steps whose validation loss is the square of the distance from step 9:
#     every_n_train_steps    val_check_interval    best checkpoint    best_model_score    its validation loss
#              4                     4                step 12                1                    9
#              5                     3                step 10                0                    1
#              3                     5                step 12                1                    9
#           left out                 4                step 8                 1                    1
#
# For you: the model of `best_model_path` has learned from more rows than the model that was evaluated. Leave
# `every_n_train_steps` out: with `val_check_interval` set, Lightning then saves after each validation.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip lightning==2.6.6

cd "$place"
export OMP_NUM_THREADS=1
venv/bin/python -W ignore - <<'PY'
import logging

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader

for name in ("lightning.pytorch", "lightning.pytorch.utilities.rank_zero"):
    logging.getLogger(name).setLevel(logging.ERROR)


class Weight(lightning.LightningModule):
    """One weight that grows by 1 with each step; its validation loss is lowest at 9."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))

    def training_step(self, batch, number):
        return -self.weight * batch.mean()

    def validation_step(self, batch, number):
        self.log("val_loss", (self.weight - 9).square())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1.0)


def best(saves, validations):
    """Step, score and validation loss of the checkpoint that is called the best."""
    keep = ModelCheckpoint(f"kept-{saves}-{validations}", monitor="val_loss", every_n_train_steps=saves)
    trainer = lightning.Trainer(
        max_epochs=1, val_check_interval=validations, accelerator="cpu", logger=False, callbacks=[keep],
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
    )  # fmt: skip
    trainer.fit(Weight(), DataLoader(torch.ones(20)), DataLoader(torch.ones(1)))
    weights = torch.load(keep.best_model_path, weights_only=False)["state_dict"]["weight"].item()
    return round(weights), float(keep.best_model_score), (weights - 9) ** 2


cases = {(4, 4): (12, 1.0, 9.0), (5, 3): (10, 0.0, 1.0), (3, 5): (12, 1.0, 9.0), (None, 4): (8, 1.0, 1.0)}
for (saves, validations), expected in cases.items():
    found = best(saves, validations)
    print(f"saves every {saves}, validations every {validations} steps: best checkpoint of step {found[0]}, "
          f"score {found[1]}, its validation loss {found[2]}")
    assert found == expected, f"expected {expected}"
PY

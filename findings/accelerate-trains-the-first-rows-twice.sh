#!/usr/bin/env bash
# The guess: with two processes each row is trained once an epoch, and the last batches are smaller; or the rest is left
# out.
#
# What happens: accelerate, and so Trainer and all that is built on it, makes all batches of all processes the same
# size: where rows do not come out even, it fills the last batches up with rows of the epoch's first ones. Those are
# trained twice, at the first step of the epoch and at its last. In a small set that is a large part: of 17 rows over
# two processes with batches of 8, 15.
#
# accelerate 1.15.0, transformers 5.24.0, torch 2.13.0; 2026-11-30.
# Seen, over two processes:
#     21 rows in batches of 4    3 are trained twice
#     17 rows in batches of 8   15 are trained twice
#     16 rows in batches of 8    none
#
# For you: `dataloader_drop_last=True` leaves rows out in place of that; or make the number of rows a multiple of the
# processes times the batch size. Count rows by what a step was given, not by epochs.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip transformers==5.24.0 accelerate==1.15.0

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1
cat > train.py <<'PY'
import collections
import os

import torch
import torch.distributed
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
from transformers.utils import logging

logging.set_verbosity_error()
SIZE = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
quiet = {"report_to": [], "save_strategy": "no", "logging_strategy": "no", "use_cpu": True, "ddp_backend": "gloo"}


class Watched(Trainer):
    """Keep the first token of each row that is trained."""

    def training_step(self, model, inputs, *rest, **more):
        self.rows.append(inputs["input_ids"][:, 0].tolist())
        return super().training_step(model, inputs, *rest, **more)


for count, batch in ((21, 4), (17, 8), (16, 8)):
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(num_attention_heads=2, num_key_value_heads=1, **SIZE))
    data = [{"input_ids": [row] * 8, "labels": [row] * 8} for row in range(1, count + 1)]
    Watched.rows = []
    settings = TrainingArguments("out", per_device_train_batch_size=batch, num_train_epochs=1, **quiet)
    Watched(model, settings, train_dataset=data).train()
    gathered = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(gathered, Watched.rows)
    times = collections.Counter(row for rows in gathered for step in rows for row in step)
    again = sorted(row for row, often in times.items() if often > 1)
    first = {row for rows in gathered for row in rows[0]}
    if os.environ["RANK"] == "0":
        print(f"{count} rows, batches of {batch}, {len(gathered)} processes: {len(again)} trained twice: {again}")
    assert len(times) == count and set(again) <= first
    assert len(again) == -count % (batch * len(gathered))
PY
venv/bin/python -W ignore -m torch.distributed.run --standalone --nproc-per-node 2 train.py

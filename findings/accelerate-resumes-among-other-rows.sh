#!/usr/bin/env bash
# The guess: a loop that calls `Accelerator.save_state` in the middle of an epoch, and in a new process `load_state` and
# `skip_first_batches`, as the documentation has it, goes on with the rows that are left of the epoch. A loader with a
# state (`use_stateful_dataloader`) does so without the skipping.
#
# What happens: a shuffled loader draws the order of an epoch when the epoch begins, from random numbers that have gone
# on by the time the state is saved. The run that resumes draws another order from them, and skips as many batches of
# this one as were trained. The loader with a state keeps only the number of batches that it gave, not their order. With
# `use_seedable_sampler` the loader counts epochs from 0 again, unless the loop calls `set_epoch` itself. There is no
# warning. The development version documents that it saves the order; the release does not.
#
# accelerate 1.15.0, torchdata 0.11.0, torch 2.13.0; 2026-12-01.
# Seen, of 480 rows in 60 steps an epoch, resumed after 30 steps: rows that were trained never, and as many twice
#                                                  in the first epoch    in the second
#     default                                             118                 117
#     use_stateful_dataloader                             118                 117
#     use_seedable_sampler                                  0                 113
#     use_seedable_sampler, and `set_epoch` called          0                   0
#
# For you: of a run that was resumed so you do not know which rows it has seen. Set `use_seedable_sampler=True` and call
# `set_epoch` on the loader at the start of each epoch, or save only at the end of an epoch. The Trainer of transformers
# does the former.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip accelerate==1.15.0 torchdata==0.11.0

cd "$place"
export OMP_NUM_THREADS=1
cat > loop.py <<'PY'
"""A loop that stops half-way through an epoch, or goes on from there, and prints the rows of this epoch."""

import json
import sys

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.utils import set_seed
from torch.utils.data import DataLoader

kind, stop, resumed = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "rest"
set_seed(1)
kinds = {"stateful": {"use_stateful_dataloader": True}, "seedable": {"use_seedable_sampler": True}}
settings = DataLoaderConfiguration(**kinds.get(kind.split("+")[0], {}))
accelerator = Accelerator(cpu=True, dataloader_config=settings)
model = torch.nn.Sequential(torch.nn.Dropout(0.1), torch.nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(torch.arange(480), batch_size=8, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
rows = []
if resumed:
    accelerator.load_state("state")
for epoch in range(stop if resumed else 0, stop + 1):
    if kind.endswith("+set_epoch"):
        loader.set_epoch(epoch)
    batches = accelerator.skip_first_batches(loader, 30) if resumed and kind != "stateful" else loader
    for step, batch in enumerate(batches, 30 if resumed else 0):
        accelerator.backward(model(batch[:, None] / 480).square().mean())
        optimizer.step()
        optimizer.zero_grad()
        rows += batch.tolist() if epoch == stop else []
        if epoch == stop and step == 29 and not resumed:
            accelerator.save_state("state")
            break
print(json.dumps(rows))
PY
venv/bin/python -W ignore - <<'PY'
import json
import subprocess
import sys
from collections import Counter


def part(*words):
    """The rows that one process has trained in the epoch."""
    command = [sys.executable, "-W", "ignore", "loop.py", *words]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


for kind in ("default", "stateful", "seedable", "seedable+set_epoch"):
    never = []
    for stop in "01":
        rows = part(kind, stop, "begin") + part(kind, stop, "rest")
        assert len(rows) == 480, f"{kind}: {len(rows)} rows to an epoch"
        times = Counter(rows)
        never.append(480 - len(times))
        assert never[-1] == sum(count == 2 for count in times.values())
    print(f"{kind:20} never, and twice, in the first epoch: {never[0]:3}, in the second: {never[1]:3}")
    right = {"seedable": [True, False], "seedable+set_epoch": [True, True]}.get(kind, [False, False])
    assert [count == 0 for count in never] == right and max(never) < 160, f"{kind} resumes among other rows than seen"
PY

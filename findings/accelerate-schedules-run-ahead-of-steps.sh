#!/usr/bin/env bash
# The guess: `scheduler.step()` after each `optimizer.step()` makes one step of the schedule, as without accelerate: a
# linear decay over N steps ends at the N-th.
#
# What happens: a scheduler that went through `Accelerator.prepare` makes one step for each process: with two processes
# the decay over N steps is over after N/2, and the other half trains with the rate 0, without a word; with eight it is
# over after an eighth. It reckons that N counts the batches of one process. With N as the steps that you make, as the
# length of the prepared loader gives, it runs ahead.
#
# accelerate 1.15.0, torch 2.13.0; 2026-11-30.
# Seen, the rate at each of the 10 steps of one process of two:
#     prepared                               1.0 0.8 0.6 0.4 0.2 0.0 0.0 0.0 0.0 0.0
#     step_scheduler_with_optimizer=False    1.0 0.9 0.8 0.7 0.6 0.5 0.4 0.3 0.2 0.1
#
# For you: do not prepare the scheduler, or say `Accelerator(step_scheduler_with_optimizer=False)`.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip accelerate==1.15.0

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1
cat > train.py <<'PY'
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader

ROWS, BATCH = 80, 4
for adjusted in (True, False):
    accelerator = Accelerator(cpu=True, step_scheduler_with_optimizer=adjusted)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(torch.randn(ROWS, 2), batch_size=BATCH))
    count = len(loader)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step, count=count: max(0.0, 1 - step / count))
    schedule = accelerator.prepare(schedule)
    before = []
    for rows in loader:
        before.append(round(optimizer.param_groups[0]["lr"], 2))
        accelerator.backward(model(rows).sum())
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    if accelerator.is_main_process:
        kind = "as it is" if adjusted else "step_scheduler_with_optimizer=False"
        print(f"{accelerator.num_processes} processes, {count} steps, {kind}: {before}")
    plain = [round(1 - step / count, 2) for step in range(count)]
    assert accelerator.num_processes == 2 and (before == plain) != adjusted
    assert not adjusted or before[count // 2 :] == [0.0] * (count - count // 2)
PY
venv/bin/python -W ignore -m torch.distributed.run --standalone --nproc-per-node 2 train.py

#!/usr/bin/env bash
# The guess: `get_state_dict` and `get_optimizer_state_dict` of torch.distributed.checkpoint read an optimizer and leave
# it as it is. A checkpoint of the start, before the first step, changes nothing about the run.
#
# What happens: if the optimizer has no state yet, these functions make it one by a step with gradients and a learning
# rate of 0. The weights stay, but Adam and AdamW count the step: the first true step is corrected as the second, and
# so are all that follow. With Adam's own weight decay, the averages are not even 0 any more. `state_dict()` of the
# optimizer does not do this.
#
# torch 2.13.0; 2026-11-30.
# Seen, a gradient that is always the same, so that each step should be one learning rate long:
#                                           step 1   step 2   step 3   step 10
#     AdamW                                  1.000    1.000    1.000     1.000
#     AdamW, state_dict() before step 1      1.000    1.000    1.000     1.000
#     AdamW, get_state_dict before step 1    0.744    0.858    0.910     0.995
#     Adam's first average after the reading, weights of 1 and a weight decay of 0.1: 0.01
#
# For you: two runs that differ only in a checkpoint of the start are different runs, most so for the rows that come
# first, and a replay from that checkpoint is not the run without it. Save the weights alone before the first step, or
# set each `step` and both averages back to 0.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check torch==2.13.0

cd "$place"
OMP_NUM_THREADS=1 venv/bin/python -W ignore - <<'PY'
import torch
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, get_state_dict

rate = 1e-3


def start(kind, **settings):
    model = torch.nn.Linear(4, 1, bias=False)
    torch.nn.init.ones_(model.weight)
    return model, kind(model.parameters(), lr=rate, **settings)


def lengths(read):
    """How far each of ten steps goes, in learning rates; `read` is called before the first."""
    model, optimizer = start(torch.optim.AdamW, weight_decay=0.0)
    read(model, optimizer)
    gone = []
    for _ in range(10):
        before = model.weight.detach().clone()
        optimizer.zero_grad()
        model.weight.sum().backward()
        optimizer.step()
        gone.append((before - model.weight).mean().item() / rate)
    return gone


readings = {
    "nothing": lambda model, optimizer: None,
    "state_dict": lambda model, optimizer: optimizer.state_dict(),
    "get_state_dict": get_state_dict,
    "get_optimizer_state_dict": get_optimizer_state_dict,
}
for name, read in readings.items():
    gone = lengths(read)
    print(f"{name + ':':26}", *(f"{gone[at]:.3f}" for at in (0, 1, 2, 9)))
    if name.startswith("get_"):
        assert gone[0] < 0.75 and gone[1] < 0.87, "get_state_dict no longer makes a step"
    else:
        assert all(abs(length - 1) < 1e-3 for length in gone)

model, optimizer = start(torch.optim.Adam, weight_decay=0.1)
get_optimizer_state_dict(model, optimizer)
state = optimizer.state[model.weight]
print("Adam with weight decay: step", state["step"].item(), "and average", round(state["exp_avg"].mean().item(), 6))
assert state["step"].item() == 1 and state["exp_avg"].abs().min() > 0
PY

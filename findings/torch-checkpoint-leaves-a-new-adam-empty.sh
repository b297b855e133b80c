#!/usr/bin/env bash
# The guess: `torch.distributed.checkpoint.load` puts back what `save` wrote, the optimizer's moments too, or raises an
# error, as `load_state_dict` does where keys are missing.
#
# What happens: it reads only what the given state asks for. The state of an Adam that has made no step holds no moments
# and no number of steps, so they stay in the file, while weights, learning rate and the other settings come back. It is
# the same if the optimizer itself is passed instead of its `state_dict()`. No warning is given. Adam then begins anew:
# its first step moves nearly every weight by the whole learning rate, however small the gradients are by now.
#
# torch 2.13.0, numpy 2.4.6; 2026-11-30.
# Seen, of a small model after 300 steps of AdamW, gone on with the same rows:
#                                          steps in Adam's state    length of the next step    loss after 20 steps
#     the run itself                               300                      0.0079                   0.00096
#     resumed by the states of both               none                      0.6223                   0.00001
#     resumed by both objects                     none                      0.6223                   0.00001
#     by get_state_dict, set_state_dict            300                      0.0079                   0.00096
#
# For you: the rows that follow a resume weigh far more than in the run that was not broken off. Use `get_state_dict`
# and `set_state_dict` of torch.distributed.checkpoint.state_dict, which fill the new state before it is loaded, but
# only as long as no weight has a gradient.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0 numpy==2.4.6

cd "$place"
export OMP_NUM_THREADS=1
venv/bin/python -W ignore - <<'PY'
import copy

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

generator = torch.Generator().manual_seed(0)
words = torch.randint(0, 50, (64, 4), generator=generator)
labels = torch.randint(0, 50, (64,), generator=generator)


def made():
    """A new model that predicts the next word from four words, and its optimizer."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(50, 16), torch.nn.Flatten(), torch.nn.Linear(64, 50))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def train(model, optimizer, steps):
    """How far the first of the steps moves the weights, and the loss after all of them."""
    before = torch.nn.utils.parameters_to_vector(model.parameters()).clone()
    for step in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(words), labels).backward()
        optimizer.step()
        if not step:
            moved = (torch.nn.utils.parameters_to_vector(model.parameters()) - before).norm().item()
    return moved, torch.nn.functional.cross_entropy(model(words), labels).item()


def by_dict(model, optimizer):
    """Load into the states of both, and give them back to both."""
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    dcp.load(state, checkpoint_id="saved", no_dist=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])


def by_object(model, optimizer):
    """Pass both as they are."""
    dcp.load({"model": model, "optimizer": optimizer}, checkpoint_id="saved", no_dist=True)


def by_functions(model, optimizer):
    """Use the functions that are made for it."""
    states = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)))
    dcp.load(states, checkpoint_id="saved by functions", no_dist=True)
    set_state_dict(model, optimizer, model_state_dict=states["model"], optim_state_dict=states["optimizer"])


model, optimizer = made()
train(model, optimizer, 300)
dcp.save({"model": model, "optimizer": optimizer}, checkpoint_id="saved", no_dist=True)
states = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)))
dcp.save(states, checkpoint_id="saved by functions", no_dist=True)
weights = copy.deepcopy(model.state_dict())
moved, loss = train(model, optimizer, 20)
print(f"the run itself   length of the next step {moved:.4f}, loss after 20 {loss:.5f}")
for way in (by_dict, by_object, by_functions):
    model, optimizer = made()
    optimizer.param_groups[0]["lr"] = 1.0
    way(model, optimizer)
    assert all(torch.equal(model.state_dict()[name], weights[name]) for name in weights)
    assert optimizer.param_groups[0]["lr"] == 1e-2, "the learning rate comes back"
    steps = [int(state["step"]) for state in optimizer.state.values()]
    again, then = train(model, optimizer, 20)
    print(f"{way.__name__:16} steps in Adam's state {steps}, length of the next step {again:.4f}, loss after 20 {then:.5f}")
    if way is by_functions:
        assert steps == [300, 300, 300] and abs(again - moved) < 1e-5 and abs(then - loss) < 1e-5
    else:
        assert steps == [] and again > 10 * moved, (steps, again, moved)
PY

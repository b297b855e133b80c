#!/usr/bin/env bash
# The guess: a `TracInAttributor` of dattri without `projector_kwargs` takes products of the whole gradients, and the
# same attributor made twice gives the same scores.
#
# What happens: without `projector_kwargs` it multiplies random projections of the gradients to 512 numbers. The settings
# that one attributor is given are written into the defaults of the class's module, so every later TracInAttributor of
# the process has them too, with a smaller projection or another kind, also if it is given none. `TRAKAttributor` does
# the same with its own defaults. There is no warning. The documentation calls `projector_kwargs` "the keyword arguments
# for the projector" and names neither the default of TracIn nor that settings stay.
#
# dattri 0.3.0, torch 2.13.0; 2026-12-01.
# Seen, of 200 training rows and 20 queries, a model with 1,994 weights, against products of whole gradients:
#                                             correlation   of the true first 10 rows found
#     no settings                             0.95          0.90
#     proj_dim 16                             0.48          0.46
#     no settings, after that                 0.48          0.46
#     proj_type "identity"                    1.00          1.00
#     no settings, after that                 1.00          1.00
#
# For you: two calls that look alike give other rankings, by what ran before in the same process or notebook. Pass
# `projector_kwargs` to every attributor, with all of its keys; `{"proj_type": "identity"}` reads whole gradients.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip numpy==2.4.6 scipy==1.17.1 pyyaml tqdm
pip --no-deps dattri==0.3.0

cd "$place"
export OMP_NUM_THREADS=1 TQDM_DISABLE=1
venv/bin/python -W ignore - <<'PY'
import torch
from dattri.algorithm.tracin import TracInAttributor
from dattri.algorithm.trak import TRAKAttributor
from dattri.task import AttributionTask
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10))
inputs, classes = torch.randn(200, 20), torch.randint(0, 10, (200,))
asked = inputs[:20] + 0.1 * torch.randn(20, 20)
train = DataLoader(TensorDataset(inputs, classes), batch_size=50)
queries = DataLoader(TensorDataset(asked, classes[:20]), batch_size=20)


def loss(weights, row):
    one, wanted = row
    scores = torch.func.functional_call(model, weights, (one.unsqueeze(0),))
    return nn.functional.cross_entropy(scores, wanted.unsqueeze(0))


def gradients(rows, wanted):
    """The gradient of each row, by torch alone."""
    losses = [nn.functional.cross_entropy(model(row[None]), one[None]) for row, one in zip(rows, wanted, strict=True)]
    parts = [torch.autograd.grad(one, list(model.parameters())) for one in losses]
    return torch.stack([torch.cat([part.flatten() for part in one]) for one in parts])


task = AttributionTask(loss_func=loss, model=model, checkpoints=model.state_dict())
true = gradients(inputs, classes) @ gradients(asked, classes[:20]).T


def first(scores):
    return [set(column.topk(10).indices.tolist()) for column in scores.T]


def compared(name, **settings):
    """Correlation with the true products, and the share of the true first ten rows."""
    tracin = TracInAttributor(task, weight_list=torch.ones(1), normalized_grad=False, **settings)
    scores = tracin.attribute(train, queries)
    likeness = torch.corrcoef(torch.stack([scores.flatten(), true.flatten()]))[0, 1].item()
    found = sum(len(one & other) for one, other in zip(first(scores), first(true), strict=True)) / 200
    print(f"{name}: correlation {likeness:.2f}, first ten found {found:.2f}")
    return scores, likeness


print("weights:", sum(weights.numel() for weights in model.parameters()))
plain, plain_like = compared("no settings")
small, small_like = compared("proj_dim 16", projector_kwargs={"proj_dim": 16})
after_small, _ = compared("no settings, after that")
whole, whole_like = compared('proj_type "identity"', projector_kwargs={"proj_type": "identity"})
after_whole, _ = compared("no settings, after that")
TRAKAttributor(task, correct_probability_func=loss, projector_kwargs={"proj_dim": 16})
trak = TRAKAttributor(task, correct_probability_func=loss).projector_kwargs["proj_dim"]
print("TRAK without settings, after one with proj_dim 16: proj_dim", trak)
assert plain_like < 0.999 and small_like < 0.8 and whole_like > 0.9999, "TracIn reads whole gradients by default"
assert torch.equal(small, after_small) and torch.equal(whole, after_whole), "TracIn forgets earlier settings"
assert not torch.allclose(plain, after_small) and trak == 16, "each attributor has settings of its own"
PY

#!/usr/bin/env bash
# The guess: the loader that `IFAttributorExplicit.cache` and `IFAttributorCG.cache` get holds the training data; its batch
# size is a matter of memory.
#
# What happens: dattri inverts the Hessian of each batch apart, and adds the results. So scores grow with the number of
# batches, and below some size with the batches' worst inverse: another order. One batch of all rows gives the influence
# function, H⁻¹ of the mean loss.
#
# dattri 0.3.0, torch 2.13.0; 2026-11-29.
# Seen, a regression of 200 rows and 5 features, against the closed form:
#     rows in a batch   times too large   order of rows (Spearman)   lowest Spearman of a query
#     200                     1.0               1.000                      1.000
#      50                     4.3               0.999                      0.998
#       8                    72                 0.956                      0.904
#       4                 6,068                 0.923                      0.889
#
# For you: scores of runs with other batch sizes cannot be compared, and small batches rank by noise. Give `cache` one
# batch of all rows, or a sample that fits.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip numpy==2.4.6 scipy==1.17.1 pyyaml tqdm
pip --no-deps dattri==0.3.0

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1
venv/bin/python -W ignore - 2> errors <<'PY' || { cat errors; exit 1; }
import torch
from dattri.algorithm.influence_function import IFAttributorCG, IFAttributorExplicit
from dattri.task import AttributionTask
from scipy.stats import spearmanr
from torch.utils.data import DataLoader, TensorDataset

ROWS, QUERIES, SMALL = 200, 20, 1e-3
torch.manual_seed(0)
features = torch.randn(ROWS, 5) * torch.tensor([3.0, 1, 1, 0.3, 0.3])
targets = features @ torch.randn(5) + 0.5 * torch.randn(ROWS)
asked = (features[:QUERIES] + 0.1, targets[:QUERIES])
model = torch.nn.Linear(5, 1, bias=False)
model.weight.data = torch.linalg.lstsq(features, targets[:, None]).solution.T.clone()


def mean_loss(parameters, rows):
    """The mean squared error of a batch."""
    inputs, wanted = rows
    return (torch.func.functional_call(model, parameters, (inputs,)).squeeze(-1) - wanted).square().mean()


def gradients(inputs, wanted):
    """Gradients of each row's squared error, (rows, 5)."""
    return 2 * ((inputs @ model.weight.data.T).squeeze(-1) - wanted)[:, None] * inputs


hessian = 2 * features.T @ features / ROWS + SMALL * torch.eye(5)
true = gradients(features, targets) @ torch.linalg.solve(hessian, gradients(*asked).T)
train, test = TensorDataset(features, targets), TensorDataset(*asked)
found = {}
for kind in (IFAttributorExplicit, IFAttributorCG):
    for size in (200, 50, 8, 4):
        task = AttributionTask(loss_func=mean_loss, model=model, checkpoints=model.state_dict())
        attributor = kind(task=task, device="cpu", regularization=SMALL)
        attributor.cache(DataLoader(train, batch_size=size))
        scores = attributor.attribute(DataLoader(train, batch_size=ROWS), DataLoader(test, batch_size=QUERIES)).detach()
        factor = ((scores * true).sum() / true.square().sum()).item()
        orders = [spearmanr(scores[:, query], true[:, query])[0] for query in range(QUERIES)]
        found[kind.__name__, size] = factor, sum(orders) / QUERIES
        rank = f"Spearman {sum(orders) / QUERIES:.3f}, lowest {min(orders):.3f}"
        print(f"{kind.__name__:21} {size:4} rows: {factor:8.1f} times, {rank}")
for kind in ("IFAttributorExplicit", "IFAttributorCG"):
    assert abs(found[kind, 200][0] - 1) < 1e-2 and found[kind, 200][1] > 0.999
    assert 3.5 < found[kind, 50][0] < 6 and found[kind, 8][0] > 30 and found[kind, 4][1] < 0.97
PY

#!/usr/bin/env bash
# The guess: pydvl's `EkfacInfluence` takes any linear layer, with or without a bias. Whatever it approximates, the order
# of the inputs of the first layer does not matter: if the columns of the data and of the weights change places together,
# each influence stays what it was.
#
# What happens: this is so with a bias. Without one, as in most layers of Llama, Qwen and Mistral, the last numbers of the
# gradient of the weights are taken for the bias's. The gradient is read in another shape than it has, and its parts
# are divided by eigenvalues of others. There is no error and no warning.
#
# pydvl 0.10.0, torch 2.13.0; 2026-11-30.
# Seen, a classifier of one layer, 20 queries and 200 rows:
#                       change by another order of the columns    correlation with DirectInfluence
#     bias=True                        0.00                                  0.79
#     bias=False                       0.83                                  0.37
#
# For you: do not rank rows by it where layers have no bias. Use DirectInfluence or CgInfluence, and try what you use on
# a small model of the same kind of layers first, against DirectInfluence.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip "pydvl[influence]==0.10.0"

cd "$place"
export OMP_NUM_THREADS=1
venv/bin/python -W ignore - <<'PY'
import copy

import torch
from pydvl.influence.torch import DirectInfluence, EkfacInfluence
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
inputs, queries = (torch.randn(count, 6) * torch.linspace(0.3, 2, 6) for count in (200, 20))
weights = torch.randn(6, 4)
labels, wanted = (torch.multinomial(torch.softmax(part @ weights, 1), 1)[:, 0] for part in (inputs, queries))
order = torch.tensor([3, 0, 5, 1, 4, 2])


def trained(bias):
    model = torch.nn.Sequential(torch.nn.Linear(6, 4, bias=bias))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(300):
        optimizer.zero_grad()
        cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    optimizer.zero_grad()
    return model


def influences(kind, rows, questions):
    loader = DataLoader(TensorDataset(rows, labels), batch_size=50)
    return kind.fit(loader).influences(questions, wanted, rows, labels)


for bias in (True, False):
    model = trained(bias)
    moved = copy.deepcopy(model)
    moved[0].weight.data = model[0].weight.data[:, order]

    def ekfac(of):
        return EkfacInfluence(of, update_diagonal=True, hessian_regularization=1e-3)

    plain = influences(ekfac(model), inputs, queries)
    other = influences(ekfac(moved), inputs[:, order], queries[:, order])
    exact = influences(DirectInfluence(model, cross_entropy, regularization=1e-3), inputs, queries)
    change = ((plain - other).norm() / plain.norm()).item()
    alike = torch.corrcoef(torch.stack([plain.flatten(), exact.flatten()]))[0, 1].item()
    print(f"bias={bias}: change {change:.2f}, correlation {alike:.2f}")
    assert (change < 0.01) if bias else (change > 0.1), "the order of columns"
PY

#!/usr/bin/env bash
# The guess: `DirectInfluence` of pydvl with the second order mode Gauss-Newton takes the mean over all rows, as it does
# with the Hessian. The batch size of the loader is a matter of memory.
#
# What happens: the sum over all rows is divided by the number of weights times the number of batches after the first.
# So influences grow with the number of batches, and a regularization means another one for each batch size. If all
# rows are in one batch, the sum is divided by 0, and each influence is NaN. With the Hessian all is as one expects.
#
# pydvl 0.10.0, torch 2.13.0; 2026-11-30.
# Seen, the length of all influences of 200 rows on 20 queries, a layer of 28 weights:
#     batch size                        200      100       50       20
#     Gauss-Newton                      NaN      102      294      815
#     the mean over the rows            660      660      660      660
#     Hessian                           405      405      405      405
#
# For you: do not compare such influences between loaders or with a threshold. Multiply both the regularization and the
# influences by rows / ((batches - 1) * weights), or use the Hessian.
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
import torch
from pydvl.influence.torch import DirectInfluence
from pydvl.influence.torch.util import SecondOrderMode
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
inputs, queries = (torch.randn(count, 6) * torch.linspace(0.3, 2, 6) for count in (200, 20))
weights = torch.randn(6, 4)
labels, wanted = (torch.multinomial(torch.softmax(part @ weights, 1), 1)[:, 0] for part in (inputs, queries))

model = torch.nn.Sequential(torch.nn.Linear(6, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
for _ in range(300):
    optimizer.zero_grad()
    cross_entropy(model(inputs), labels).backward()
    optimizer.step()
optimizer.zero_grad()


def influences(mode, size, regularization=1e-3):
    loader = DataLoader(TensorDataset(inputs, labels), batch_size=size)
    kind = DirectInfluence(model, cross_entropy, regularization=regularization, second_order_mode=mode)
    return kind.fit(loader).influences(queries, wanted, inputs, labels)


def gradients(rows, answers):
    """One row of gradients for each row of data, by hand: the difference of the probabilities times the input."""
    errors = torch.softmax(model(rows), 1).detach() - torch.nn.functional.one_hot(answers, 4)
    return torch.cat([(errors[:, :, None] * rows[:, None, :]).flatten(1), errors], dim=1)


rows, questions = gradients(inputs, labels), gradients(queries, wanted)
matrix = rows.T @ rows / len(rows) + 1e-3 * torch.eye(rows.shape[1])
true = (questions @ torch.linalg.solve(matrix, rows.T)).norm().item()
found = {}
for size in (200, 100, 50, 20):
    found[size] = influences(SecondOrderMode.GAUSS_NEWTON, size).norm().item()
    hessian = influences(SecondOrderMode.HESSIAN, size).norm().item()
    print(f"batch size {size}: Gauss-Newton {found[size]:.1f}, the mean {true:.1f}, Hessian {hessian:.1f}")
assert found[200] != found[200], "one batch is divided by its rows"
factor = len(rows) / ((4 - 1) * rows.shape[1])
mended = factor * influences(SecondOrderMode.GAUSS_NEWTON, 50, factor * 1e-3).norm().item()
print(f"batch size 50, mended: {mended:.1f}")
assert abs(mended - true) < 0.01 * true
assert found[20] > 2 * found[50] > 4 * found[100] > 0
PY

#!/usr/bin/env bash
# The guess: pydvl's influences take the curvature as a mean over all rows, whatever the batches of the loader.
#
# What happens: `DirectInfluence` does so, but `CgInfluence` and `ArnoldiInfluence` take the mean of the batches'
# means. With 201 rows in batches of 100, the row that is left over counts as much as 100 others in the Hessian.
# `InverseHarmonicMeanInfluence` (DataInf) means to weigh each batch by its rows, but takes another number for them
# (that of the rows to be explained or of the queries, the larger), and weighs all batches but the first. So the first
# batch hardly counts, and the influences are too small by its share; if it is the only one, by that number.
#
# pydvl 0.10.0, torch 2.13.0; 2026-11-30.
# Seen, 201 rows on 20 queries, 28 weights; the distance to the influences by hand as a share of their length,
# and the share of queries with the same first row:
#     batch size            201            100            67
#     DirectInfluence       0, 100%        0, 100%        0, 100%
#     CgInfluence           0, 100%        0.39, 80%      0, 100%
#     ArnoldiInfluence      0, 100%        0.39, 80%      0, 100%
# Seen, DataInf of 200 rows:
#     batch size                                       200      100      20
#     length, as a share of that by hand               0.005    0.50     0.90
#     change if the first 100 rows are others                   0.0004            (by hand: 0.039)
#
# For you: choose a batch size that divides the number of rows, or drop the rest (`drop_last=True`). For DataInf choose
# small batches, since only the first one is left out, and do not compare its influences between loaders.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip "pydvl[influence]==0.10.0"

cd "$place"
export OMP_NUM_THREADS=1 TQDM_DISABLE=1
venv/bin/python -W ignore - <<'PY'
import torch
from pydvl.influence.torch import ArnoldiInfluence, CgInfluence, DirectInfluence, InverseHarmonicMeanInfluence
from torch.nn.functional import cross_entropy, one_hot
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
inputs, queries = (torch.randn(count, 6) * torch.linspace(0.3, 2, 6) for count in (201, 20))
truth = torch.randn(6, 4)
labels, wanted = (torch.multinomial(torch.softmax(part @ truth, 1), 1)[:, 0] for part in (inputs, queries))
model = torch.nn.Sequential(torch.nn.Linear(6, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
for _ in range(300):
    optimizer.zero_grad()
    cross_entropy(model(inputs), labels).backward()
    optimizer.step()
optimizer.zero_grad()
flat = torch.cat([weights.detach().flatten() for weights in model.parameters()])


def losses(weights, rows, answers):
    return cross_entropy(rows @ weights[:24].view(4, 6).T + weights[24:], answers, reduction="none")


def gradients(rows, answers):
    errors = torch.softmax(model(rows), 1).detach() - one_hot(answers, 4)
    return torch.cat([(errors[:, :, None] * rows[:, None, :]).flatten(1), errors], dim=1)


def by_hand(shares):
    """The influences with these shares of the rows in the Hessian."""
    matrix = torch.autograd.functional.hessian(lambda weights: (shares * losses(weights, inputs, labels)).sum(), flat)
    matrix = matrix + 0.01 * torch.eye(len(flat))
    return gradients(queries, wanted) @ torch.linalg.solve(matrix, gradients(inputs, labels).T)


def pydvl(kind, size, rows=inputs, answers=labels, damping=0.01, **more):
    loader = DataLoader(TensorDataset(rows, answers), batch_size=size)
    method = kind(model, cross_entropy, regularization=damping, **more).fit(loader)
    return method.influences(queries, wanted, inputs, labels)


def distance(one, other):
    return ((one - other).norm() / other.norm()).item()


equal = by_hand(torch.full((201,), 1 / 201))
uneven = by_hand(torch.cat([torch.full((200,), 1 / 300), torch.full((1,), 1 / 3)]))
for kind, more in ((DirectInfluence, {}), (CgInfluence, {}), (ArnoldiInfluence, {"rank": 27})):
    found = {size: pydvl(kind, size, **more) for size in (201, 100, 67)}
    for size, values in found.items():
        same = (values.argmax(1) == equal.argmax(1)).float().mean().item()
        to_uneven = distance(values, uneven)
        print(f"{kind.__name__}, batch size {size}: to the mean over rows {distance(values, equal):.3f},", end=" ")
        print(f"to the mean over batches {to_uneven:.3f}; the same first row {same:.0%}")
    assert distance(found[201], equal) < 0.02 and distance(found[67], equal) < 0.02
    assert distance(found[100], equal if kind is DirectInfluence else uneven) < 0.02

inputs, labels = inputs[:200], labels[:200]
others = torch.randn(100, 6) * 3, torch.randint(0, 4, (100,))
mixed = [torch.cat([new, old[100:]]) for new, old in zip(others, (inputs, labels))]


def datainf_by_hand(rows, answers):
    ranks = (torch.outer(row, row) + 0.01 * torch.eye(28) for row in gradients(rows, answers))
    inverse = sum(torch.linalg.inv(matrix) for matrix in ranks) / len(rows)
    return gradients(queries, wanted) @ inverse @ gradients(inputs, labels).T


true = datainf_by_hand(inputs, labels)
for size, share in ((200, 1 / 200), (100, 1 / 2), (20, 9 / 10)):
    found = (pydvl(InverseHarmonicMeanInfluence, size, inputs, labels).norm() / true.norm()).item()
    print(f"DataInf, batch size {size}: {found:.4f} of the length by hand")
    assert abs(found - share) < 0.01 * share + 0.005 * (size < 200)
by_hand_too = distance(datainf_by_hand(*mixed), true)
found = (pydvl(InverseHarmonicMeanInfluence, 100, *rows) for rows in ((*mixed,), (inputs, labels)))
change = distance(*found)
print(f"DataInf, other rows in the first batch of two: change {change:.4f}, by hand {by_hand_too:.4f}")
assert change < by_hand_too / 20
PY

#!/usr/bin/env bash
# The guess: `TracInCPFast` of the last layer gives the scores of `TracInCP(layers=[that layer])`, only faster: "exactly
# the same as when naive back-propagation is used", its documentation says.
#
# What happens: it multiplies the products of the layer's inputs and of the gradients of its outputs, which is the
# weights' part. The bias's part, the product of the gradients of outputs alone, is left out. Where the layer has a
# bias, as `torch.nn.Linear` has by default, scores are others, and rank others first. Without a bias they are the same.
# The same holds for `self_influence`.
#
# captum 0.8.0, torch 2.13.0; 2026-11-30.
# Seen, 200 rows of three classes and 20 queries, against TracInCP of the same layer:
#                       order of rows (Spearman)   lowest of a query   of the ten first, shared
#     bias=True               0.908                    0.781                  7.7
#     bias=False              1.000                    1.000                 10.0
#
# For you: compare with `TracInCP` on a few rows, or give the layer's input a column of ones in place of the bias.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip captum==0.8.0 numpy==1.26.4 scipy==1.16.3

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1
venv/bin/python -W ignore - <<'PY'
import torch
from captum.influence import TracInCP, TracInCPFast
from scipy.stats import spearmanr
from torch.utils.data import TensorDataset

ROWS, QUERIES = 200, 20
torch.manual_seed(0)
inputs, labels = torch.randn(ROWS, 5), torch.randint(0, 3, (ROWS,))
data, asked = TensorDataset(inputs, labels), (inputs[:QUERIES] + 0.1, labels[:QUERIES])
found = {}
for bias in (True, False):
    model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3, bias=bias))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(200):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    torch.save(model.state_dict(), "checkpoint.pt")

    def load(model, path):
        """Load a checkpoint; its learning rate."""
        model.load_state_dict(torch.load(path))
        return 1.0

    each, total = (torch.nn.CrossEntropyLoss(reduction=kind) for kind in ("none", "sum"))
    more = {"checkpoints": ["checkpoint.pt"], "checkpoints_load_func": load, "batch_size": 50}
    slow = TracInCP(model, data, layers=["2"], loss_fn=each, **more).influence(asked).detach()
    fast = TracInCPFast(model, model[2], data, loss_fn=total, **more).influence(asked).detach()
    hidden = [model[:2](rows).detach() for rows in (inputs, asked[0])]
    errors = []
    for rows, truth in ((inputs, labels), asked):
        errors.append(model(rows).softmax(1).detach() - torch.nn.functional.one_hot(truth, 3))
    true = (errors[1] @ errors[0].T) * (hidden[1] @ hidden[0].T + bias)
    assert torch.allclose(slow, true, rtol=1e-3, atol=1e-5)
    order = sum(spearmanr(fast[query], slow[query])[0] for query in range(QUERIES)) / QUERIES
    lowest = min(spearmanr(fast[query], slow[query])[0] for query in range(QUERIES))
    first = [[set(row.topk(10).indices.tolist()) for row in scores] for scores in (fast, slow)]
    shared = [len(one & other) for one, other in zip(*first)]
    found[bias] = order
    shared = sum(shared) / QUERIES
    print(f"bias={bias}: Spearman {order:.3f}, lowest {lowest:.3f}; shared of the first 10 {shared:.1f}")
assert found[False] > 0.9999 and found[True] < 0.99
PY

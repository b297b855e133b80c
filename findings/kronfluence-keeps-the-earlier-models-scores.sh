#!/usr/bin/env bash
# The guess: `fit_all_factors` and `compute_pairwise_scores` of kronfluence work on the model, the rows and the
# queries that they are called with.
#
# What happens: where the folder holds factors or scores of that name, both return what is there, with a line at the
# level INFO. Nothing of the model or the rows is compared. After a further epoch, with other rows, or with other
# queries, a script that is run again gets the scores of the first run, in the old shape if the number of queries has
# changed.
#
# kronfluence 1.0.1, torch 2.13.0, numpy 2.4.6; 2026-11-30.
# Seen, products of gradients, by one script that is run again in the same folder:
#     first run, 4 queries                   (4, 64)
#     another model                          (4, 64), the scores of the first run
#     other rows                             (4, 64), the scores of the first run
#     8 other queries                        (4, 64), the scores of the first run
#     another model, overwrite_output_dir    (4, 64), scores of its own
#
# For you: the second model of a comparison has the scores of the first. Pass `overwrite_output_dir=True`, to both, or
# put a digest of the weights and rows into `analysis_name`.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip numpy==2.4.6 accelerate==1.15.0 einops==0.8.2 einconv==0.1.0 opt-einsum==3.4.0
pip --no-deps kronfluence==1.0.1

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1
venv/bin/python -W ignore - <<'PY' 2> messages
import torch
from kronfluence.analyzer import Analyzer, prepare_model
from kronfluence.arguments import FactorArguments
from kronfluence.task import Task
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

torch.manual_seed(0)
inputs, labels = torch.randn(96, 8), torch.randint(0, 3, (96,))


class Loss(Task):
    def compute_train_loss(self, batch, model, sample=False):
        return cross_entropy(model(batch[0]), batch[1], reduction="sum")

    def compute_measurement(self, batch, model):
        return self.compute_train_loss(batch, model)


def some(first, last):
    return TensorDataset(inputs[first:last], labels[first:last])


def scores(seed, rows, queries, **how):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3))
    task = Loss()
    analyzer = Analyzer("study", prepare_model(model, task), task, cpu=True, disable_tqdm=True, output_dir="kept")
    identity = FactorArguments(strategy="identity")
    analyzer.fit_all_factors("factors", rows, per_device_batch_size=16, factor_args=identity, **how)
    found = analyzer.compute_pairwise_scores(
        "scores", "factors", queries, rows, per_device_query_batch_size=8, per_device_train_batch_size=16, **how
    )
    return found["all_modules"] if found else analyzer.load_pairwise_scores("scores")["all_modules"]


first = scores(0, some(0, 64), some(64, 68))
again = {
    "another model": scores(1, some(0, 64), some(64, 68)),
    "other rows": scores(0, some(16, 80), some(64, 68)),
    "other queries, and more": scores(0, some(0, 64), some(68, 76)),
    "another model, overwrite_output_dir": scores(1, some(0, 64), some(64, 68), overwrite_output_dir=True),
}
print(f"{'first run':38}{tuple(first.shape)}")
for name, found in again.items():
    same = found.shape == first.shape and torch.equal(found, first)
    print(f"{name:38}{tuple(found.shape)}, the scores of the first run: {same}")
    assert same == ("overwrite" not in name)
PY
! grep -i -E "exist|skip|warn" messages

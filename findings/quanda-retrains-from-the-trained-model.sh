#!/usr/bin/env bash
# The guess: quanda's LinearDatamodelingMetric trains a fresh model on each subset, so that the model has not seen the
# rows that the subset leaves out. The score asks how well attribution foretells such models.
#
# What happens: it copies the model that it is given, which is the trained one, and trains the copy further on the
# subset. What the left out rows taught stays in it. The outputs that attribution is judged by are those of a model
# that has seen every row, with some rows seen more often.
#
# quanda 0.5.0, lightning 2.6.6, torch 2.13.0, numpy 2.4.6; 2026-11-30. (quanda imports torchvision for benchmarks of
# images; the script puts an empty stand-in in its place.)
# Seen, a linear model of 24 rows, 6 subsets of half the rows, mean loss of
#                                rows of the subset   rows left out
#     the whole model            0.015                0.021
#     quanda's subset models     0.003                0.090
#     trained from the start     0.004                2.108
#
# For you: a method's score by this metric is not the one of the literature, and for rows that the model has learnt
# well the outputs hardly differ from one subset to another. Train the subset models yourself, from the start that the
# model had, and pass them as `subset_ckpt_filenames` with their `subset_ids`.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip numpy==2.4.6 lightning==2.6.6 torchmetrics==1.9.0 omegaconf==2.4.0 datasets==4.8.4 transformers==5.24.0
pip torcheval==0.0.7 tiktoken==0.14.0 pillow==13.0.0 scipy==1.17.1 matplotlib accelerate==1.15.0
pip einops==0.8.2 einconv==0.1.0 opt-einsum==3.4.0 annoy==1.17.3
pip --no-deps quanda==0.5.0 captum==0.8.0 dattri==0.3.0 kronfluence==1.0.1 traker==0.3.2

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1
venv/bin/python -W ignore - <<'PY'
import contextlib
import importlib.machinery
import io
import logging
import sys
from unittest.mock import MagicMock

import torch
import transformers  # noqa: F401, before the stand-in, which it would take for the library
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Subset, TensorDataset

for name in ("torchvision", "torchvision.transforms", "torchvision.models", "torchvision.models.resnet"):
    sys.modules[name] = MagicMock(ResNet=torch.nn.Module, __spec__=importlib.machinery.ModuleSpec(name, None))

from quanda.metrics.ground_truth.linear_datamodeling import LinearDatamodelingMetric
from quanda.utils.training import Trainer

logging.disable(logging.WARNING)
torch.manual_seed(0)
inputs, labels = torch.randn(24, 40), torch.randint(0, 2, (24,))
rows = TensorDataset(inputs, labels)


def trainer():
    criterion = torch.nn.CrossEntropyLoss()
    return Trainer(torch.optim.SGD, 1.0, 60, criterion, enable_progress_bar=False, logger=False)


def train(numbers):
    """A model that is trained on some rows from the common start."""
    torch.manual_seed(0)
    model = torch.nn.Linear(40, 2)
    with contextlib.redirect_stdout(io.StringIO()):
        trainer().fit(model, DataLoader(Subset(rows, numbers), batch_size=24, shuffle=True))
    return model


def loss(model, numbers):
    with torch.no_grad():
        return cross_entropy(model(inputs[numbers]), labels[numbers]).item()


def load(model, file):
    model.load_state_dict(torch.load(file))
    return 1.0


whole = train(list(range(24)))
torch.save(whole.state_dict(), "whole.pt")
with contextlib.redirect_stdout(io.StringIO()):
    metric = LinearDatamodelingMetric(
        whole, rows, trainer=trainer(), alpha=0.5, m=6, checkpoints="whole.pt", checkpoints_load_func=load,
        batch_size=24, cache_dir=".",
    )  # fmt: skip
means = {}
for name, models in (
    ("the whole model", [whole] * 6),
    ("quanda's subset models", [metric.load_counterfactual_model(number) for number in range(6)]),
    ("trained from the start", [train(numbers) for numbers in metric.subset_ids]),
):
    inside, outside = [], []
    for model, numbers in zip(models, metric.subset_ids, strict=True):
        inside.append(loss(model, numbers))
        outside.append(loss(model, [number for number in range(24) if number not in numbers]))
    means[name] = sum(inside) / 6, sum(outside) / 6
    print(f"{name:24} rows of the subset {means[name][0]:.3f}, rows left out {means[name][1]:.3f}")
assert max(inside for inside, _ in means.values()) < 0.1
assert means["quanda's subset models"][1] < 0.2 and means["trained from the start"][1] > 0.7
PY

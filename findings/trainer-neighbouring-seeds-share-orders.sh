#!/usr/bin/env bash
# The guess: runs of the Trainer with the seeds 1, 2, 3, 4 and 5 read the rows in orders that have nothing to do with
# each other, whatever the way of drawing them.
#
# What happens: accelerate shuffles a pass by the seed plus the number of the epoch. So the second epoch of seed 1 has
# the order of the first epoch of seed 2, row by row. The same holds for `data_seed`, and PyTorch's DistributedSampler
# adds the two as well. With `train_sampling_strategy="batch_rebalance"` all seeds have one order, since the Trainer
# passes no seed to that sampler and it takes 42. With "group_by_length" the orders differ, but do not depend on
# `data_seed`: they come from torch's common random numbers. No warning is given.
#
# transformers 5.24.0, accelerate 1.15.0, torch 2.13.0; 2026-11-30.
# Seen, the different orders among the 15 passes of five runs of 3 epochs over 48 rows:
#                            seed 1, 2, 3, 4, 5    data_seed 1, 2, 3, 4, 5    seed 0, 1000, 2000, 3000, 4000
#     random                          7                       7                            15
#     batch_rebalance                 3                       3                             3
#     group_by_length                15                       3                            15
#     DistributedSampler              7                       -                            15
#
# For you: if you train several times to see how much of a loss or a score is chance, the order varies less than you
# think, and so does the result. Take seeds that lie further apart than the number of epochs. If you use
# "batch_rebalance" and want another order, shuffle the data set yourself.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip transformers==5.24.0 accelerate==1.15.0

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1
venv/bin/python -W ignore - <<'PY'
import torch
from torch.utils.data import DistributedSampler
from transformers import LlamaConfig, LlamaForCausalLM, PrinterCallback, Trainer, TrainingArguments
from transformers.utils import logging

logging.set_verbosity_error()
ROWS, EPOCHS = 48, 3
lengths = torch.randint(4, 40, (ROWS,), generator=torch.Generator().manual_seed(0)).tolist()
rows = [{"input_ids": [row] + [1] * (length - 1)} for row, length in enumerate(lengths)]
size = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
config = LlamaConfig(vocab_size=ROWS, **size)


def padded(batch):
    """A batch of rows, filled up on the right."""
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(row["input_ids"]) for row in batch], True, -100)
    return {"input_ids": ids.clamp(min=0), "attention_mask": (ids >= 0).long(), "labels": ids}


class Watched(Trainer):
    """Note the first token of each row, which is its number."""

    def training_step(self, model, inputs, *rest, **more):
        self.seen.extend(inputs["input_ids"][:, 0].tolist())
        return super().training_step(model, inputs, *rest, **more)


def passes(strategy, **seeds):
    """The order of rows in each epoch of a run."""
    quiet = {"report_to": [], "save_strategy": "no", "logging_strategy": "no", "use_cpu": True, "disable_tqdm": True}
    settings = TrainingArguments(
        "out", num_train_epochs=EPOCHS, per_device_train_batch_size=8, train_sampling_strategy=strategy, **seeds, **quiet
    )
    trainer = Watched(LlamaForCausalLM(config), settings, train_dataset=rows, data_collator=padded)
    trainer.remove_callback(PrinterCallback)
    trainer.seen = []
    trainer.train()
    orders = [tuple(trainer.seen[start : start + ROWS]) for start in range(0, ROWS * EPOCHS, ROWS)]
    assert all(sorted(order) == list(range(ROWS)) for order in orders)
    return orders


def sampled(seed):
    """The orders of PyTorch's sampler for several processes, with one process."""
    sampler = DistributedSampler(rows, num_replicas=1, rank=0, seed=seed)
    return [(sampler.set_epoch(epoch), tuple(sampler))[1] for epoch in range(EPOCHS)]


def count(runs):
    """How many different orders there are."""
    return len({order for run in runs for order in run})


near, far = range(1, 6), range(0, 5000, 1000)
for strategy, expected in {"random": (7, 7, 15), "batch_rebalance": (3, 3, 3), "group_by_length": (15, 3, 15)}.items():
    runs = [passes(strategy, seed=seed) for seed in near]
    by_data = [passes(strategy, seed=0, data_seed=seed) for seed in near]
    found = count(runs), count(by_data), count(passes(strategy, seed=seed) for seed in far)
    print(f"{strategy:20} seeds 1 to 5: {found[0]}, data_seeds 1 to 5: {found[1]}, seeds far apart: {found[2]} of 15")
    assert found == expected, found
    if strategy == "random":
        assert runs[0][1:] == runs[1][:-1], "the second epoch of one seed is not the first of the next"
found = count(map(sampled, near)), count(map(sampled, far))
print(f"DistributedSampler   seeds 1 to 5: {found[0]}, seeds far apart: {found[1]} of 15")
assert found == (7, 15), found
PY

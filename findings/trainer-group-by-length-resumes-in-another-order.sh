#!/usr/bin/env bash
# The guess: a run that resumes from a checkpoint goes on with the rows that are left of the epoch, even if the Trainer
# groups rows by length.
#
# What happens: with `train_sampling_strategy="group_by_length"`, the order of an epoch is drawn from torch's common
# random numbers as they are when the epoch begins, and the checkpoint holds them as they were when it was saved. A run
# that resumes in the middle of an epoch draws the order before it loads them. So from the second epoch on it draws
# another order, and skips as many batches of this one as were trained: some rows are trained twice in this epoch,
# others not at all. The loss looks as before, and no warning is given.
#
# transformers 5.24.0, accelerate 1.15.0, torch 2.13.0; 2026-11-30.
# Seen, of 480 rows in 60 steps for each of 3 epochs, resumed in the middle of the second epoch:
#                           rows trained in this epoch
#                           never      once      twice
#     random                  0         480         0
#     batch_rebalance         0         480         0
#     group_by_length       120         240       120
# Resumed in the middle of the first epoch or at its end, all three go on as the whole run does. In the middle of the
# first, "group_by_length" does so only if the script draws as many random numbers before the training as it did then.
#
# For you: of such a run you do not know which rows were seen how often. Save once an epoch (`save_strategy="epoch"`),
# or use "random" or, with one process, "batch_rebalance".
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
from collections import Counter

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PrinterCallback, Trainer, TrainingArguments
from transformers.utils import logging

logging.set_verbosity_error()
logging.disable_progress_bar()
ROWS, BATCH, EPOCHS = 480, 8, 3
STEPS = ROWS // BATCH
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


def seen(strategy, start=None):
    """The rows in order of training, from the start or from a checkpoint."""
    torch.manual_seed(0)
    quiet = {"report_to": [], "logging_strategy": "no", "use_cpu": True, "disable_tqdm": True}
    settings = TrainingArguments(
        strategy,
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=BATCH,
        train_sampling_strategy=strategy,
        save_strategy="no" if start else "steps",
        save_steps=STEPS // 2,
        **quiet,
    )
    trainer = Watched(LlamaForCausalLM(config), settings, train_dataset=rows, data_collator=padded)
    trainer.remove_callback(PrinterCallback)
    trainer.seen = []
    trainer.train(resume_from_checkpoint=f"{strategy}/checkpoint-{start}" if start else None)
    return trainer.seen


for strategy in ("random", "batch_rebalance", "group_by_length"):
    whole = seen(strategy)
    assert all(sorted(whole[first : first + ROWS]) == list(range(ROWS)) for first in range(0, ROWS * EPOCHS, ROWS))
    for start in (STEPS // 2, STEPS):
        assert seen(strategy, start) == whole[start * BATCH :], "not as the whole run"
    middle = STEPS + STEPS // 2
    second = Counter(whole[ROWS : middle * BATCH] + seen(strategy, middle)[: ROWS // 2])
    times = Counter(second[row] for row in range(ROWS))
    print(f"{strategy:16} rows trained never: {times[0]}, once: {times[1]}, twice: {times[2]}")
    if strategy == "group_by_length":
        assert times[0] == times[2] > ROWS // 8
    else:
        assert times == {1: ROWS}
PY

#!/usr/bin/env bash
# The guess: a loss of pairs reads two columns, `anchor` and `positive`, and leaves a column such as `id` alone, as
# the trainers of transformers leave out columns that a model does not take.
#
# What happens: every column that is not a label is an input of the loss, by its place, whatever its name. The third
# column of MultipleNegativesRankingLoss is a negative, so the model learns to move each anchor away from all
# identifiers of the batch, and their tokens are trained. The names count for nothing: with the columns `positive`,
# `anchor`, the loss takes `positive` for the question. No message says which column is read as what.
#
# sentence-transformers 6.2.0, transformers 5.24.0, datasets 5.2.0, torch 2.13.0; 2026-11-30.
# Seen, words whose vectors one step moved, and the loss before it:
#     anchor, positive        3.5655   the words of both
#     anchor, positive, id    5.7267   the words of both, row1, row2
#     positive, anchor        3.3221   the words of both
#
# For you: a source, a date or a number that you keep beside your pairs is training data. `select_columns` what the
# loss shall read, in its order, before you train.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip sentence-transformers==6.2.0 transformers==5.24.0 datasets==5.2.0 accelerate==1.15.0

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1
venv/bin/python -W ignore - <<'PY'
import logging

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer, models, pre_tokenizers

logging.disable(logging.WARNING)
questions, answers, numbers = ("how deep", "which town"), ("seven metres", "hellevik"), ("row1", "row2")
words = ["[unknown]", *" ".join(questions + answers + numbers).split()]
tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[unknown]"))
tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()


def train(columns):
    """The loss of one step, and the words that it moved."""
    torch.manual_seed(0)
    model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=16)])
    table = model[0].embedding.weight
    before = table.detach().clone()
    settings = SentenceTransformerTrainingArguments(
        output_dir="out", max_steps=1, per_device_train_batch_size=2, learning_rate=0.1, report_to=[], use_cpu=True,
        save_strategy="no", disable_tqdm=True, seed=0,
    )  # fmt: skip
    loss = MultipleNegativesRankingLoss(model)
    trainer = SentenceTransformerTrainer(model, settings, train_dataset=Dataset.from_dict(columns), loss=loss)
    done = trainer.train()
    moved = [word for number, word in enumerate(words) if not torch.equal(table[number], before[number])]
    return done.training_loss, moved


pairs = {"anchor": questions, "positive": answers}
rows = {
    "anchor, positive": pairs,
    "anchor, positive, id": {**pairs, "id": numbers},
    "positive, anchor": {"positive": answers, "anchor": questions},
}
found = {name: train(columns) for name, columns in rows.items()}
for name, (loss, moved) in found.items():
    print(f"{name:24}{loss:.4f}  {' '.join(moved)}")
texts = [word for word in words if word not in ("[unknown]", *numbers)]
assert found["anchor, positive"][1] == found["positive, anchor"][1] == texts
assert found["anchor, positive, id"][1] == texts + list(numbers)
assert len({round(loss, 3) for loss, _ in found.values()}) == 3
PY

#!/usr/bin/env bash
# The guess: `batch_sampler="no_duplicates"` only deals the rows into batches in another way: rows that share a text come
# into different batches, and each epoch still reads every row once, as without it.
#
# What happens: rows that share a text are put off to later batches. If a text stands in more rows than an epoch has full
# batches, the last batches are small, and there are more of them than rows divided by batch size. But the trainer stops
# after that number of steps, so the rows that were put off longest are never read in that epoch. These are only rows of
# the common texts. There is no warning: the sampler warns only if it has too few batches. The last batches that are read
# are small, and each of their rows weighs more. A comment in the source says that there may be more batches than
# promised; the documentation tells of no rows that are left out.
#
# sentence-transformers 6.2.0, transformers 5.24.0, datasets 5.2.0, torch 2.13.0; 2026-12-01.
# Seen, of 100 questions with one answer each and 5 questions with 20 answers each, in batches of 20:
#                                            batch_sampler   no_duplicates
#     steps of one epoch                     10              10
#     reads of a row of the 100 questions    1.00            1.00
#     reads of a row of the 5 questions      1.00            0.50
#     rows never read in three epochs        0               10
#     rows in the last step                  20              5
#
# For you: an influence or a count by epochs is wrong for rows of common questions. Keep the rows of one text below the
# number of steps of an epoch, by a smaller batch or by fewer rows of it, and count the rows that the loss sees.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip sentence-transformers==6.2.0 transformers==5.24.0 datasets==5.2.0 accelerate==1.15.0

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1 HF_DATASETS_DISABLE_PROGRESS_BARS=1
venv/bin/python -W ignore - <<'PY'
from collections import Counter

from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PrinterCallback

questions = [f"question{row}" for row in range(100)] + [f"common{row % 5}" for row in range(100)]
answers = [f"answer{row}" for row in range(200)]
rows = Dataset.from_dict({"anchor": questions, "positive": answers})
known = {word: place for place, word in enumerate(["<unk>", *answers, *dict.fromkeys(questions)])}
words = Tokenizer(models.WordLevel(known, unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()


class Watched(MultipleNegativesRankingLoss):
    """Keep the answers of each step."""

    def forward(self, features, labels):
        features = list(features)
        self.steps.append(features[1]["input_ids"].tolist())
        return super().forward(features, labels)


def trained(sampler, epochs):
    """For each step the rows that the loss saw."""
    model = SentenceTransformer(modules=[StaticEmbedding(words, embedding_dim=8)], device="cpu")
    loss = Watched(model)
    loss.steps = []
    quiet = {"report_to": [], "save_strategy": "no", "logging_strategy": "no", "use_cpu": True, "disable_tqdm": True}
    settings = SentenceTransformerTrainingArguments("out", num_train_epochs=epochs, per_device_train_batch_size=20,
                                                    batch_sampler=sampler, **quiet)
    trainer = SentenceTransformerTrainer(model, settings, train_dataset=rows, loss=loss)
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return loss.steps


found = {}
for sampler in ("batch_sampler", "no_duplicates"):
    steps = trained(sampler, 1)
    reads = Counter(answer for step in steps for answer in step)
    later = {answer for step in trained(sampler, 3) for answer in step}
    rare, common = (sum(reads[known[answer]] for answer in part) / 100 for part in (answers[:100], answers[100:]))
    never = sum(known[answer] not in later for answer in answers)
    found[sampler] = (len(steps), rare, common, never, len(steps[-1]))
    print(f"{sampler}: {len(steps)} steps; reads of a row with a rare question {rare:.2f}, with a common one "
          f"{common:.2f}; rows never read in three epochs {never}; rows in the last step {len(steps[-1])}")
assert found["batch_sampler"] == (10, 1.0, 1.0, 0, 20), "the default reads other rows"
steps, rare, common, never, last = found["no_duplicates"]
assert steps == 10 and rare == 1 and common < 0.7 and never > 0 and last < 10, "no_duplicates reads all rows"
PY

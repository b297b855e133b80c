#!/usr/bin/env bash
# The guess: KTOTrainer shuffles its rows as other trainers do, and of preference pairs it mixes the wanted and the
# unwanted answers.
#
# What happens: it reads rows in the order of the file, the same in each epoch, since the answers that it estimates the
# KL term with are drawn up beforehand; `train_sampling_strategy` is "sequential", and the loss "kto" refuses another.
# Pairs are taken apart by the thousand: a thousand wanted answers, then the thousand unwanted ones, and so on. So a
# step sees one kind. In steps of wanted answers the KL term grows as their gain does, and the loss stays at its start.
#
# trl 1.16.0, transformers 5.24.0, datasets 5.2.0, torch 2.13.0; 2026-11-30.
# Seen, of 1,500 pairs in batches of 100:
#     in order of training             wanted 1000, unwanted 1000, wanted 500, unwanted 500
#     the other epoch                  the same rows in the same order
#     losses of the first 10 steps     0.500 in each
#     losses of the 10 steps after     0.500 to 0.27
#
# For you: shuffle the file. Take pairs apart yourself (`trl.unpair_preference_dataset`) before you shuffle.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip trl==1.16.0 transformers==5.24.0 datasets==5.2.0 accelerate==1.15.0

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1 HF_DATASETS_DISABLE_PROGRESS_BARS=1
venv/bin/python -W ignore - <<'PY'
from itertools import groupby

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging
from trl import KTOConfig, KTOTrainer

logging.set_verbosity_error()
PAIRS, BATCH = 1500, 100
WORDS = ["<unk>", "<s>", "</s>", *(f"w{word}" for word in range(50))]
words = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def made():
    """A small Llama, always the same."""
    torch.manual_seed(0)
    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=len(WORDS), **size))


class Watched(KTOTrainer):
    """Keep the prompts, labels and losses of each step."""

    def compute_loss(self, model, inputs, *rest, **more):
        loss = super().compute_loss(model, inputs, *rest, **more)
        self.steps.append((inputs["input_ids"][:, :2].tolist(), inputs["label"].tolist(), float(loss)))
        return loss


asked = [f"w{pair % 50} w{pair // 50} " for pair in range(PAIRS)]
pairs = Dataset.from_dict({"prompt": asked, "chosen": ["w1 w2"] * PAIRS, "rejected": ["w3 w4"] * PAIRS})
quiet = {"report_to": [], "save_strategy": "no", "logging_strategy": "no", "use_cpu": True, "bf16": False}
settings = KTOConfig("out", per_device_train_batch_size=BATCH, num_train_epochs=2, learning_rate=1e-2, **quiet)
Watched.steps = steps = []
Watched(made(), ref_model=made(), args=settings, train_dataset=pairs, processing_class=tokenizer).train()

epoch = 2 * PAIRS // BATCH
labels = [label for _, kinds, _ in steps[:epoch] for label in kinds]
blocks = [("wanted" if label else "unwanted", len(list(rows))) for label, rows in groupby(labels)]
again = [prompts for prompts, _, _ in steps[:epoch]] == [prompts for prompts, _, _ in steps[epoch:]]
losses = [loss for _, _, loss in steps]
print(f"in order of training: {blocks}; the other epoch has the same order: {again}")
print("losses of the first 10 steps: ", " ".join(f"{loss:.3f}" for loss in losses[:10]))
print("losses of the 10 steps after: ", " ".join(f"{loss:.3f}" for loss in losses[10:20]))
assert blocks == [("wanted", 1000), ("unwanted", 1000), ("wanted", 500), ("unwanted", 500)] and again
assert min(losses[:10]) > 0.45 and min(losses[10:20]) < 0.3
PY

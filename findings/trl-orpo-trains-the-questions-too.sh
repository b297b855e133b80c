#!/usr/bin/env bash
# The guess: trl's ORPO learns from the answers only, as its CPO, SimPO and DPO do: the rows have a column `prompt`, and
# the paper's first term is the likelihood of the chosen answer.
#
# What happens: the term of the odds uses the answers, but the first term, which is the larger one, is a mean over all
# tokens of question and answer. So long questions are most of the loss, and the model learns to write them. There is no
# setting for it, and the documentation does not tell of it. The metric `nll_loss` is this mean as well, and not
# comparable with that of CPO, which reads answers only.
#
# trl 1.16.0, transformers 5.24.0, datasets 5.2.0, torch 2.13.0; 2026-11-30.
# Seen, the mean loss of a token after 60 steps on questions of 24 words and answers of 6, all of random words:
#                questions    chosen answers
#     before     5.33         5.32
#     ORPO       0.96         0.64
#     CPO        6.16         0.35
#
# For you: the questions are training data too: look there for copied text, and attribute with labels on all tokens. If
# the answers alone shall count, use CPO with `cpo_alpha`, or SimPO.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip trl==1.16.0 transformers==5.24.0 datasets==5.2.0 accelerate==1.15.0

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1 TRL_EXPERIMENTAL_SILENCE=1
venv/bin/python -W ignore - <<'PY'
import random

import torch
from datasets import Dataset, disable_progress_bars
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, PrinterCallback
from transformers.utils import logging
from trl.experimental.cpo import CPOConfig, CPOTrainer
from trl.experimental.orpo import ORPOConfig, ORPOTrainer

logging.set_verbosity_error()
disable_progress_bars()
random.seed(0)
WORDS = [f"w{number}" for number in range(200)]
words = {word: place for place, word in enumerate(["<pad>", "<s>", "</s>", "<unk>", *WORDS])}
splitter = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
splitter.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=splitter, pad_token="<pad>", bos_token="<s>", eos_token="</s>")


def text(length):
    return " ".join(random.choices(WORDS, k=length))


rows = [{"prompt": text(24) + " ", "chosen": text(6), "rejected": text(6)} for _ in range(16)]


def losses(model):
    """The mean loss of a token of the questions, and of the chosen answers."""
    found = []
    for first in (True, False):
        total, count = 0.0, 0
        for row in rows:
            question, answer = tokenizer(row["prompt"]).input_ids, tokenizer(row["chosen"]).input_ids
            ids = torch.tensor([question + answer])
            with torch.no_grad():
                logits = model.eval()(input_ids=ids).logits[0, :-1]
            each = torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="none")
            part = each[: len(question) - 1] if first else each[len(question) - 1 :]
            total, count = total + part.sum().item(), count + len(part)
        found.append(total / count)
    return found


def tiny_lm():
    torch.manual_seed(0)
    size = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    return LlamaForCausalLM(LlamaConfig(vocab_size=len(words), bos_token_id=1, eos_token_id=2, pad_token_id=0, **size))


def train(config, trainer):
    """The losses after 60 steps."""
    model = tiny_lm()
    quiet = {"report_to": [], "save_strategy": "no", "logging_strategy": "no", "use_cpu": True, "disable_tqdm": True}
    settings = config("out", max_steps=60, per_device_train_batch_size=16, learning_rate=3e-3, bf16=False,
                      max_length=64, **quiet)
    trainer = trainer(model, settings, train_dataset=Dataset.from_list(rows), processing_class=tokenizer)
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return losses(model)


seen = {"before": losses(tiny_lm()), "ORPO": train(ORPOConfig, ORPOTrainer), "CPO": train(CPOConfig, CPOTrainer)}
for name, (questions, answers) in seen.items():
    print(f"{name:6}   questions {questions:.3f}   chosen answers {answers:.3f}")
assert seen["ORPO"][0] < seen["before"][0] - 2 and seen["CPO"][0] > seen["before"][0] - 0.5
assert max(seen["ORPO"][1], seen["CPO"][1]) < 2
PY

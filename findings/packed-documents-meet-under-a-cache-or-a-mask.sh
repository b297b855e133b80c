#!/usr/bin/env bash
# The guess: what keeps documents of a packed batch of `DataCollatorWithFlattening` apart is its position numbers; so
# the batch has one loss, in the Trainer, in a loop of one's own, and in an evaluation.
#
# What happens: with attention "sdpa", "eager" and "flex_attention", models such as Llama, Qwen3, Mistral and Gemma
# look at these numbers only if the call makes no cache and has no attention mask. The default is to make a cache, in
# training mode too: `model(**batch)` lets each document read all that stand before it. The Trainer sets `use_cache`
# to False for its run, so it trains another loss than the same model and batch have elsewhere. A mask of ones, which
# says that nothing is padding, does the same in the Trainer too. Gradient checkpointing changes nothing. No warning
# is given.
#
# transformers 5.24.0, accelerate 1.15.0, torch 2.13.0; 2026-11-30.
# Seen, the loss of four packed documents, and the cosine of its gradient with that of the documents one by one
# ("eager" gives the same numbers as "sdpa"):
#     one by one                               5.2631   1.000        the Trainer                  5.2632
#     packed, use_cache=False                  5.2632   1.000        the Trainer, mask of ones    5.6464 (it shuffles)
#     packed, as it is                         5.4031   0.273
#     packed, use_cache=False, mask of ones    5.4031   0.273
#
# For you: gradients of a loop of your own, as attribution takes them, are not those of the run. Pass
# `use_cache=False` and no attention mask, or read the documents one by one.
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
from transformers import DataCollatorWithFlattening, LlamaConfig, LlamaForCausalLM
from transformers import PrinterCallback, Trainer, TrainingArguments
from transformers.utils import logging

logging.set_verbosity_error()
LENGTH, DOCUMENTS = 16, 4
torch.manual_seed(1)
rows = [{"input_ids": words} for words in torch.randint(0, 64, (DOCUMENTS, LENGTH)).tolist()]


def tiny_lm(attention):
    """A small Llama with weights that are not too even, so that what it reads shows."""
    torch.manual_seed(0)
    size = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlamaConfig(vocab_size=64, initializer_range=0.2, **size)
    return LlamaForCausalLM._from_config(config, attn_implementation=attention).train()


def gradient(model, batches):
    """The mean loss of batches, and its gradient."""
    model.zero_grad()
    loss = sum(model(**batch).loss for batch in batches) / len(batches)
    loss.backward()
    return loss.item(), torch.cat([weights.grad.flatten() for weights in model.parameters()])


def run(attention, ones):
    """The loss that the Trainer logs for one step on the packed batch."""

    def packed(rows):
        batch = DataCollatorWithFlattening()(rows)
        return dict(batch) | ({"attention_mask": torch.ones_like(batch["input_ids"])} if ones else {})

    settings = TrainingArguments("out", per_device_train_batch_size=DOCUMENTS, max_steps=1, report_to=[], use_cpu=True,
                                 save_strategy="no", logging_strategy="no", disable_tqdm=True)  # fmt: skip
    trainer = Trainer(tiny_lm(attention), settings, packed, train_dataset=rows)
    trainer.remove_callback(PrinterCallback)
    return trainer.train().training_loss


for attention in ("sdpa", "eager"):
    model = tiny_lm(attention)
    alone = [{"input_ids": words, "labels": words} for words in (torch.tensor([row["input_ids"]]) for row in rows)]
    batch = dict(DataCollatorWithFlattening()(rows))
    ones = {"attention_mask": torch.ones_like(batch["input_ids"])}
    true, right = gradient(model, alone)
    seen = {
        "one by one": (true, right),
        "packed, use_cache=False": gradient(model, [batch | {"use_cache": False}]),
        "packed, as it is": gradient(model, [batch]),
        "packed, use_cache=False, mask of ones": gradient(model, [batch | ones | {"use_cache": False}]),
    }
    for name, (loss, vector) in seen.items():
        near = torch.cosine_similarity(vector, right, dim=0).item()
        print(f"{attention:6} {name:38} {loss:.4f}   {near:.3f}")
        apart = name in ("one by one", "packed, use_cache=False")
        assert abs(loss - true) < 1e-4 and near > 0.9999 if apart else abs(loss - true) > 0.05 and near < 0.9, name
    trained, masked = run(attention, False), run(attention, True)
    print(f"{attention:6} {'the Trainer':38} {trained:.4f}")
    print(f"{attention:6} {'the Trainer, mask of ones':38} {masked:.4f}")
    assert abs(trained - true) < 1e-4 and abs(masked - true) > 0.05
PY

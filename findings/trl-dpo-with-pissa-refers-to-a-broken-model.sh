#!/usr/bin/env bash
# The guess: with a `peft_config` DPOTrainer compares the model with the model before training, so that the first step has
# the loss ln 2 and no rewards; and `disable_adapter()` gives the base model.
#
# What happens: so it is with LoRA's usual start, where the adapter is 0. PiSSA, OLoRA and others start with an adapter
# that is not 0 and subtract it from the base's weights. The reference is the model without the adapter: the remainder,
# a broken model that nobody trained. Rewards begin far from 0, also with `precompute_ref_log_probs`.
#
# trl 1.16.0, peft 0.21.2, transformers 5.24.0, torch 2.13.0; 2026-11-29.
# Seen, in the first step of DPO, and the largest change of a logit when the adapter is disabled:
#                   loss      margin of rewards   change of a logit
#     LoRA          0.6931    0.000               0.00
#     orthogonal    0.6931    0.000               0.00
#     pissa         0.8171    -0.121              7.42
#     olora         0.7050    -0.011              6.23
#
# For you: the policy is held near to a broken model, and pairs that the remainder happens to order well are passed over.
# Give preference training an adapter with the usual start, or a `ref_model` of its own. Do not take `disable_adapter()`
# of such an adapter for the base in comparisons either.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip trl==1.16.0 peft==0.21.2 transformers==5.24.0 datasets==5.2.0

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1
export HF_DATASETS_DISABLE_PROGRESS_BARS=1
venv/bin/python -W ignore - <<'PY'
import logging
import math

import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, PrinterCallback
from trl import DPOConfig, DPOTrainer

logging.disable(logging.WARNING)
words = ["<unk>", "</s>", "<pad>", *(f"w{number}" for number in range(60))]
by_word = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
by_word.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=by_word, eos_token="</s>", pad_token="<pad>", unk_token="<unk>"
)
rows = [
    {"prompt": f"w{i} w{i + 3} ", "chosen": f"w{i + 20} w{i + 4}", "rejected": f"w{i + 7} w{i + 11}"} for i in range(16)
]


def tiny_lm():
    """A small Llama with random weights."""
    torch.manual_seed(0)
    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=64, pad_token_id=2, **size)).eval()
    for weights in model.parameters():
        if weights.dim() > 1:
            weights.data.normal_(0, 0.3)
    return model


def first_step(start, precomputed):
    """What DPO logs at its first step, with an adapter that starts so."""
    settings = DPOConfig(
        output_dir="out", max_steps=1, per_device_train_batch_size=4, learning_rate=1e-9, logging_steps=1,
        report_to=[], use_cpu=True, bf16=False, save_strategy="no", disable_tqdm=True, gradient_checkpointing=False,
        precompute_ref_log_probs=precomputed,
    )  # fmt: skip
    adapter = LoraConfig(r=8, init_lora_weights=start, target_modules="all-linear", task_type="CAUSAL_LM")
    trainer = DPOTrainer(
        tiny_lm(), args=settings, train_dataset=Dataset.from_list(rows), processing_class=tokenizer, peft_config=adapter
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return trainer.state.log_history[0]


def change(start):
    """The largest change of a logit from the base to the model with the adapter, and to that with it disabled."""
    base, ids = tiny_lm(), torch.arange(1, 12)[None]
    with torch.no_grad():
        true = base(ids).logits
        model = get_peft_model(base, LoraConfig(r=8, init_lora_weights=start, target_modules="all-linear")).eval()
        adapted = model(ids).logits
        with model.disable_adapter():
            return [(logits - true).abs().max().item() for logits in (adapted, model(ids).logits)]


for start in (True, "orthogonal", "pissa", "olora"):
    logs, (adapted, disabled) = [first_step(start, precomputed) for precomputed in (False, True)], change(start)
    loss, margin = logs[0]["loss"], logs[0]["rewards/margins"]
    print(f"{start!s:10} loss {loss:.4f}, margin {margin:+.3f}, disabled {disabled:.2f}")
    assert adapted < 1e-3 and abs(logs[1]["loss"] - loss) < 1e-5
    if start in ("pissa", "olora"):
        assert abs(loss - math.log(2)) > 0.005 and disabled > 0.5
    else:
        assert abs(loss - math.log(2)) < 1e-4 and disabled < 1e-3
PY

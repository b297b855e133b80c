#!/usr/bin/env bash
# The guess: `label_smoothing_factor` softens the targets of next tokens, whatever the model's class is, compiled or not.
#
# What happens: with label smoothing transformers' Trainer computes the loss itself, and shifts labels by one token only
# if the name of the model's class is in its list of causal models. A compiled model is named `OptimizedModule`, and most
# models with images are `…ForConditionalGeneration` (Qwen2.5-VL, Qwen3.5, Mistral 3, Llama 4), also where they are tuned
# on texts alone. Their labels are not shifted: each token is trained to repeat itself, without a
# warning.
#
# transformers 5.24.0, accelerate 1.15.0, torch 2.13.0; 2026-11-29.
# Seen, 20 epochs over 64 rows of which each token says the next, share of tokens that are foretold:
#     Llama                      next token 1.00, the same token 0.00
#     Llama, smoothed            next token 1.00, the same token 0.00
#     Llama, compiled            next token 1.00, the same token 0.00
#     Llama, compiled, smoothed  next token 0.00, the same token 1.00
#     Qwen2.5-VL                 next token 1.00, the same token 0.00
#     Qwen2.5-VL, smoothed       next token 0.00, the same token 1.00
#
# For you: leave `label_smoothing_factor` at 0 where you compile, or tune such a class; else compare one evaluation loss
# with the model's own. A model that repeats its question may have been trained so.
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
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Trainer,
    TrainingArguments,
)
from transformers.utils import logging

logging.set_verbosity_error()
SIZE = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
SIZE |= {"num_attention_heads": 2, "num_key_value_heads": 1}
rows = [[(7 * row + place) % 58 + 1 for place in range(12)] for row in range(64)]


def tiny(name):
    """A model with random weights."""
    torch.manual_seed(0)
    if name == "Llama":
        return LlamaForCausalLM(LlamaConfig(**SIZE))
    images = {"depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 32}
    texts = SIZE | {"rope_parameters": {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 1e4}}
    marks = {"image_token_id": 63, "video_token_id": 62, "vision_start_token_id": 61, "vision_end_token_id": 60}
    return Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(text_config=texts, vision_config=images, **marks))


def foretold(name, smoothed, compiled):
    """Fine-tune, and return the shares of next tokens and of same tokens that the model says."""
    model = tiny(name)
    settings = {"learning_rate": 1e-2, "num_train_epochs": 20, "per_device_train_batch_size": 16}
    quiet = {"report_to": [], "save_strategy": "no", "logging_strategy": "no", "disable_tqdm": True, "use_cpu": True}
    if compiled:
        settings |= {"torch_compile": True, "torch_compile_backend": "eager"}
    if smoothed:
        settings["label_smoothing_factor"] = 0.1
    data = [{"input_ids": row, "labels": row} for row in rows]
    Trainer(model, TrainingArguments("out", **settings, **quiet), train_dataset=data).train()
    ids = torch.tensor(rows)
    with torch.no_grad():
        said = model.eval()(input_ids=ids).logits.argmax(-1)
    following = float((said[:, :-1] == ids[:, 1:]).float().mean())
    return following, float((said == ids).float().mean())


seen = {}
for name, compiled in (("Llama", False), ("Llama", True), ("Qwen2.5-VL", False)):
    for smoothed in (False, True):
        shown = name + ", compiled" * compiled + ", smoothed" * smoothed
        seen[shown] = foretold(name, smoothed, compiled)
        print(f"{shown:26} next token {seen[shown][0]:.2f}, the same token {seen[shown][1]:.2f}")
for shown, (following, same) in seen.items():
    wrong = "compiled, smoothed" in shown or shown == "Qwen2.5-VL, smoothed"
    assert (following < 0.1 and same > 0.9) if wrong else (following > 0.9 and same < 0.1), shown
PY

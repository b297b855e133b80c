#!/usr/bin/env bash
# The guess: gradient accumulation changes memory, not the step: two batches of one row are a batch of two.
#
# What happens: so it is for text models, whose loss is divided by the tokens of the whole step. Classes that also read
# images (Qwen2.5-VL, Gemma 4 and others) say `accepts_loss_kwargs = False`; for them each small batch has a mean of its
# own, and these means are averaged. Where they are tuned on texts, each token of a short row counts many times a
# token of a long one, as long as they lie in different small batches. `AutoModelForCausalLM` gives such a class for
# Gemma 4. There is no warning.
#
# transformers 5.24.0, accelerate 1.15.0, torch 2.13.0; 2026-11-29.
# Seen, one step of SGD over a row of 3 tokens and one of 30, one batch of two against two batches of one:
#     Qwen2       cosine of the two steps 1.00, lengths 1.00
#     Qwen2.5-VL  cosine of the two steps 0.47, lengths 2.13
#     Gemma 4     cosine of the two steps 0.59, lengths 1.11
#
# For you: with these classes compare runs only at the same batch size and accumulation, put rows of like length
# together, or pass a `compute_loss_func` that divides by `num_items_in_batch`.
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
    Gemma4Config,
    Gemma4ForConditionalGeneration,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2Config,
    Qwen2ForCausalLM,
    Trainer,
    TrainingArguments,
)
from transformers.utils import logging

logging.set_verbosity_error()
SIZE = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
SIZE |= {"num_attention_heads": 2, "num_key_value_heads": 1, "pad_token_id": 0}
rows = [list(range(1, 4)), list(range(5, 35))]


def tiny(name):
    """A model with random weights."""
    torch.manual_seed(0)
    if name == "Qwen2":
        return Qwen2ForCausalLM(Qwen2Config(**SIZE))
    if name == "Gemma 4":
        texts = SIZE | {"head_dim": 16, "global_head_dim": 16, "hidden_size_per_layer_input": 0}
        texts |= {"layer_types": ["full_attention"], "num_kv_shared_layers": 0}
        return Gemma4ForConditionalGeneration(Gemma4Config(text_config=texts, vision_config=None, audio_config=None))
    images = {"depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 32}
    texts = SIZE | {"rope_parameters": {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 1e4}}
    marks = {"image_token_id": 63, "video_token_id": 62, "vision_start_token_id": 61, "vision_end_token_id": 60}
    return Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(text_config=texts, vision_config=images, **marks))


def batch(name, some):
    """Pad rows on the right; only the classes with images are told that all tokens are text."""
    longest = max(map(len, some))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in some])
    made = {"input_ids": ids, "labels": ids.masked_fill(ids == 0, -100), "attention_mask": (ids > 0).long()}
    return made if name == "Qwen2" else made | {"mm_token_type_ids": torch.zeros_like(ids)}


def step(name, size):
    """Change the text's weights by one step over both rows, in batches of this size."""
    model = tiny(name)
    before = {key: weights.detach().clone() for key, weights in model.named_parameters()}
    settings = {"optim": "sgd", "learning_rate": 1.0, "lr_scheduler_type": "constant", "max_grad_norm": 1e9}
    settings |= {"per_device_train_batch_size": size, "gradient_accumulation_steps": 2 // size, "num_train_epochs": 1}
    quiet = {"report_to": [], "save_strategy": "no", "logging_strategy": "no", "disable_tqdm": True, "use_cpu": True}
    arguments = TrainingArguments("out", remove_unused_columns=False, **settings, **quiet)
    Trainer(model, arguments, train_dataset=rows, data_collator=lambda some: batch(name, some)).train()
    after = [(key, weights) for key, weights in model.named_parameters() if "visual" not in key]
    return torch.cat([(weights.detach() - before[key]).flatten() for key, weights in after])


alike = {}
for name in ("Qwen2", "Qwen2.5-VL", "Gemma 4"):
    whole, halves = step(name, 2), step(name, 1)
    alike[name] = float(torch.nn.functional.cosine_similarity(whole, halves, dim=0))
    print(f"{name:11} cosine of the two steps {alike[name]:.2f}, lengths {float(halves.norm() / whole.norm()):.2f}")
assert alike["Qwen2"] > 0.9999 and alike["Qwen2.5-VL"] < 0.9 and alike["Gemma 4"] < 0.9
PY

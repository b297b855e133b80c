#!/usr/bin/env bash
# The guess: a text's logits do not turn on the other texts of its batch, if padding is masked and attention is causal.
#
# What happens: models with a rope of type "longrope" (Phi-3 and Phi-4 with 128k positions, MiniCPM and others) have two
# sets of frequencies. The longest text of a batch chooses for all: beyond the original length each gets the long set.
# "dynamic" does likewise beyond the model's positions. "yarn" and "llama3" do not.
#
# transformers 5.24.0, torch 2.13.0; 2026-11-29.
# Seen, the largest change of a logit of a text of 40 tokens, beside one of 100, original length 64:
#     Phi-3, longrope    2.15
#     Llama, longrope    1.63
#     Llama, dynamic     0.56
#     Llama, yarn        0.00
#     Llama, llama3      0.00
#
# For you: the loss, the gradient and the score of a short example turn on the batch that it stands in, and evaluations on
# their batch size. Put texts of either side of `original_max_position_embeddings` in batches of their own.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip transformers==5.24.0

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1
venv/bin/python -W ignore - <<'PY'
import logging

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Phi3Config, Phi3ForCausalLM

logging.disable(logging.WARNING)
LENGTH, HALF = 64, 16
ROPES = {
    "longrope": {"short_factor": [1.0] * HALF, "long_factor": [4.0] * HALF},
    "dynamic": {"factor": 4.0},
    "yarn": {"factor": 4.0},
    "llama3": {"factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
}


def tiny_lm(kind, config_class, model_class):
    """A small LM with random weights and a rope of some kind, which had 64 positions before it was made longer."""
    torch.manual_seed(0)
    rope = {"rope_type": kind, "rope_theta": 1e4, "original_max_position_embeddings": LENGTH} | ROPES[kind]
    size = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    positions = LENGTH if kind == "dynamic" else 4 * LENGTH
    size["original_max_position_embeddings"] = LENGTH
    config = config_class(
        vocab_size=64, pad_token_id=0, eos_token_id=0, max_position_embeddings=positions, rope_parameters=rope, **size
    )
    model = model_class(config).eval()
    for weights in model.parameters():
        if weights.dim() > 1:
            weights.data.normal_(0, 0.1)
    return model


changes = {}
for kind, config_class, model_class in [("longrope", Phi3Config, Phi3ForCausalLM)] + [
    (kind, LlamaConfig, LlamaForCausalLM) for kind in ROPES
]:
    model = tiny_lm(kind, config_class, model_class)
    short, long = torch.randint(1, 64, (1, 40)), torch.randint(1, 64, (1, 100))
    both = torch.cat([torch.nn.functional.pad(short, (0, 60)), long])
    with torch.no_grad():
        alone = model(short).logits
        beside = model(both, attention_mask=(both > 0).long()).logits[:1, :40]
    name = f"{model_class.__name__}, {kind}"
    changes[name] = (beside - alone).abs().max().item()
    print(f"{name:28} {changes[name]:.2f} (largest logit {alone.abs().max().item():.1f})")
for name, change in changes.items():
    assert (change > 0.1) if name.endswith(("longrope", "dynamic")) else change < 1e-3, name
PY

#!/usr/bin/env bash
# The guess: `add_weighted_adapter(["a", "b"], [0.5, 0.5], "mean", combination_type="linear")` gives the mean of what the
# two adapters change.
#
# What happens: "linear" combines the factors, A with A and B with B, not their products. The product of the two means
# holds terms of a's B with b's A, which neither adapter has. "cat" gives the mean exactly, at twice the rank; "svd", the
# default, the best approximation of the given rank.
#
# peft 0.21.2, transformers 5.24.0, torch 2.13.0; 2026-11-28.
# Seen, the largest difference from the mean of the changes (of which the largest is 5.1e-01):
#     linear: 3.7e-01
#     svd:    1.4e-01
#     cat:    3.0e-08
#
# For you: a mean of checkpoints' adapters, made so, is no point between them. Take "cat".
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip peft==0.21.2 transformers==5.24.0

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1
venv/bin/python -W ignore - <<'PY'
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM


def tiny_lm(tied):
    """A small Llama with random weights, whose output map may be its table of embeddings."""
    torch.manual_seed(0)
    size = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=64, tie_word_embeddings=tied, **size)).eval()


def fill(model):
    """Give all adapters random weights, as if trained."""
    torch.manual_seed(1)
    for name, weights in model.named_parameters():
        if "lora_" in name:
            weights.data.normal_(0, 0.2)


settings = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"])
model = get_peft_model(tiny_lm(False), settings, adapter_name="a")
model.add_adapter("b", settings)
fill(model)
layer = model.base_model.model.model.layers[0].self_attn.q_proj
with torch.no_grad():
    mean = (layer.get_delta_weight("a") + layer.get_delta_weight("b")) / 2
    differences = {}
    for kind in ("linear", "svd", "cat"):
        model.add_weighted_adapter(["a", "b"], [0.5, 0.5], kind, combination_type=kind)
        differences[kind] = (layer.get_delta_weight(kind) - mean).abs().max().item()
        print(f"{kind + ':':7} {differences[kind]:.1e}")
assert differences["cat"] < 1e-6
assert differences["linear"] > 0.5 * mean.abs().max() > 0
PY

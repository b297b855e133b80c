#!/usr/bin/env bash
# The guess: with `target_modules="all-linear"` LoRA adapts the experts of a mixture, whichever mixture it is.
#
# What happens: transformers 5 keeps experts in weights of three dimensions, which are no linear layers. In some
# types peft adapts them nevertheless (Mixtral, Qwen3-MoE, OLMoE, DeepSeek V3). In others it adapts the attention and
# what is shared, and leaves the experts, most of the model, alone: Qwen2-MoE, Qwen3.5-MoE, gpt-oss, Llama 4, GraniteMoE,
# Phi-MoE. So of two releases of one family one learns in its experts, the other does not. No warning.
#
# peft 0.21.2, transformers 5.24.0, torch 2.13.0; 2026-11-29.
# Seen, share of the weights (without embeddings) that lies in experts, at the sizes of the types' own configs:
#     mixtral           0.97  adapted
#     olmoe             0.98  adapted
#     deepseek_v3       0.85  adapted
#     qwen3_moe         0.98  adapted
#     qwen2_moe         0.91  not adapted
#     qwen3_5_moe_text  0.96  not adapted
#     gpt_oss           0.99  not adapted
#     llama4_text       0.91  not adapted
#     granitemoe        0.94  not adapted
#     phimoe            0.97  not adapted
#
# For you: print the names of what is trained. Where experts are not among them and should be, name them in
# `target_parameters` (`mlp.experts.gate_up_proj`, `mlp.experts.down_proj`).
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip peft==0.21.2 transformers==5.24.0

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1
venv/bin/python -W ignore - 2> errors.txt <<'PY' || { cat errors.txt; exit 1; }
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM

ADAPTED = ["mixtral", "olmoe", "deepseek_v3", "qwen3_moe"]
PASSED_OVER = ["qwen2_moe", "qwen3_5_moe_text", "gpt_oss", "llama4_text", "granitemoe", "phimoe"]

for name in ADAPTED + PASSED_OVER:
    config = AutoConfig.for_model(name)
    config.num_hidden_layers, config.vocab_size = 4, 512
    for each_layer in ("layer_types", "mlp_layer_types"):
        if getattr(config, each_layer, None):
            setattr(config, each_layer, getattr(config, each_layer)[:4])
    with torch.device("meta"):  # shapes without memory
        model = AutoModelForCausalLM.from_config(config)
        sizes = {key: w.numel() for key, w in model.named_parameters() if not ("embed" in key or "lm_head" in key)}
        experts = [key for key, w in model.named_parameters() if w.dim() == 3 and "experts" in key]
        peft = get_peft_model(model, LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM"))
    share = sum(sizes[key] for key in experts) / sum(sizes.values())
    trained = [key for key, w in peft.named_parameters() if w.requires_grad]
    adapted = any("experts" in key and "shared_expert" not in key for key in trained)
    print(f"{name:17} {share:.2f}  {'adapted' if adapted else 'not adapted'}")
    assert trained and share > 0.8 and adapted == (name in ADAPTED), name
PY

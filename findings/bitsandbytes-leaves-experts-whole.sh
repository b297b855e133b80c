#!/usr/bin/env bash
# The guess: `load_in_4bit` brings a mixture of experts to a quarter of its bfloat16 size, as it does other models.
#
# What happens: transformers 5 keeps all experts of a layer in two weights of three dimensions. bitsandbytes replaces
# linear layers, which these are not, so 4 and 8 bit bring the attention down and leave the experts, nine tenths of
# the model and more, as they were. There is no warning; `is_loaded_in_4bit` is true.
#
# bitsandbytes 0.50.2, transformers 5.24.0, accelerate 1.15.0, torch 2.13.0; 2026-11-29.
# Seen, bytes of weights in float32, of a Llama and of a Mixtral with eight experts and random weights:
#     Llama    1,247,744 whole, 8 bit 0.29, 4 bit 0.17 of it
#     Mixtral  6,760,960 whole, 8 bit 0.96, 4 bit 0.95 of it
#     Mixtral, experts: torch.float32 in 4 bit
#
# For you: reckon with the whole size of the experts before you choose the machine, and look at the types of
# `model.named_parameters()`. A run said to be of 4 bits read its experts in full precision.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip bitsandbytes==0.50.2 transformers==5.24.0 accelerate==1.15.0

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1 HF_HUB_DISABLE_PROGRESS_BARS=1
venv/bin/python -W ignore - <<'PY'
import torch
from transformers import (
    AutoModelForCausalLM,
    BitsAndBytesConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
)
from transformers.utils import logging

logging.set_verbosity_error()
logging.disable_progress_bar()
SIZE = {"vocab_size": 64, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2}
SIZE |= {"num_attention_heads": 4, "num_key_value_heads": 2}


def size(model):
    """Count the bytes of the weights."""
    return sum(weights.numel() * weights.element_size() for weights in model.parameters())


shares = {}
for name, model in (
    ("Llama", LlamaForCausalLM(LlamaConfig(**SIZE))),
    ("Mixtral", MixtralForCausalLM(MixtralConfig(num_local_experts=8, **SIZE))),
):
    model.save_pretrained(name)
    for bits in (8, 4):
        asked = BitsAndBytesConfig(load_in_8bit=bits == 8, load_in_4bit=bits == 4)
        read = AutoModelForCausalLM.from_pretrained(name, quantization_config=asked, dtype=torch.float32)
        shares[name, bits] = size(read) / size(model)
    shown = ", ".join(f"{bits} bit {shares[name, bits]:.2f}" for bits in (8, 4))
    print(f"{name:8} {size(model):,} whole, {shown} of it")
types = {weights.dtype for key, weights in read.named_parameters() if "experts" in key}
print("Mixtral, experts: " + ", ".join(map(str, types)) + " in 4 bit")
assert read.is_loaded_in_4bit and types == {torch.float32}
assert max(shares["Llama", bits] for bits in (8, 4)) < 0.4 and min(shares["Mixtral", bits] for bits in (8, 4)) > 0.9
PY

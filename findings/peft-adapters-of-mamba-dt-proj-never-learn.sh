#!/usr/bin/env bash
# The guess: each linear map that LoRA is put on learns: `all-linear` adapts all of them, and peft refuses those of
# Mamba-type models that it cannot adapt (`out_proj`, `conv1d`).
#
# What happens: the code of Mamba, Falcon Mamba and Jamba multiplies with `dt_proj.weight` itself and never calls
# `dt_proj`, so the adapter on it is never run. It is made, counted as trainable, optimised and saved, gets no gradient,
# and its B is 0 for ever; no warning. Adapters of `dt_proj` from elsewhere count for nothing until they are merged:
# merging writes them into the weight, and the model is another one.
#
# peft 0.21.2, transformers 5.24.0, torch 2.13.0; 2026-11-29.
# Seen:
#     jamba, all-linear, 20 steps: largest number of B at in_proj 2.1e-02, at dt_proj 0.0e+00
#     falcon_mamba, adapters with numbers: logits change by 0.0e+00 with the adapter, by 3.5e-02 merged
#
# For you: leave `dt_proj` out of `target_modules`; to train it, name it in `modules_to_save`.
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
from transformers import FalconMambaConfig, FalconMambaForCausalLM, JambaConfig, JambaForCausalLM
from transformers.utils import logging

logging.set_verbosity_error()
ids = torch.arange(1, 13)[None]


def tiny_jamba():
    """A layer of Mamba and one of attention, with random weights."""
    torch.manual_seed(0)
    size = {"hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2, "num_key_value_heads": 1}
    mamba = {"mamba_d_state": 4, "mamba_dt_rank": 4, "use_mamba_kernels": False}
    order = {"num_hidden_layers": 2, "attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 2}
    return JambaForCausalLM(JambaConfig(vocab_size=64, **size, **mamba, **order))


def tiny_mamba():
    """Two layers of Mamba with random weights."""
    torch.manual_seed(0)
    size = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "state_size": 4, "time_step_rank": 4}
    return FalconMambaForCausalLM(FalconMambaConfig(vocab_size=64, **size)).eval()


model = get_peft_model(tiny_jamba(), LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"))
trained = [weights for weights in model.parameters() if weights.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=1e-3)
for _ in range(20):
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
largest = {
    name: max(float(w.abs().max()) for key, w in model.named_parameters() if f"{name}.lora_B" in key)
    for name in ("in_proj", "dt_proj")
}
print(f"jamba, all-linear, 20 steps: largest number of B at in_proj {largest['in_proj']:.1e}, ", end="")
print(f"at dt_proj {largest['dt_proj']:.1e}")

model = get_peft_model(tiny_mamba(), LoraConfig(r=4, target_modules=["dt_proj"], init_lora_weights=False)).eval()
with torch.no_grad():
    adapted = model(input_ids=ids).logits
    with model.disable_adapter():
        base = model(input_ids=ids).logits
    merged = model.merge_and_unload()(input_ids=ids).logits
change, after = float((adapted - base).abs().max()), float((merged - base).abs().max())
print(f"falcon_mamba, adapters with numbers: logits change by {change:.1e} with the adapter, by {after:.1e} merged")
assert largest["in_proj"] > 1e-3 and largest["dt_proj"] == 0.0
assert change == 0.0 and after > 1e-3
PY

#!/usr/bin/env bash
# The guess: `add_weighted_adapter(["a"], [1.0], "copy")` gives an adapter that changes the model as "a" does, to the
# rounding of the kind of combination.
#
# What happens: it does for plain LoRA. With rsLoRA (`use_rslora`) the new adapter is scaled by the root of its rank: four
# times too strong at rank 16, by any kind of combination. Its factors hold the change already; its config sets alpha to
# the rank, which means 1 in LoRA, and keeps `use_rslora`, where it means the root.
#
# peft 0.21.2, transformers 5.24.0, torch 2.13.0; 2026-11-29.
# Seen, how many times the change of "a" the copy makes, at rank 16, and the mean of "a" and "b" by "cat", at rank 32:
#               cat     svd     linear    mean by cat
#     LoRA      1.00    1.00    1.00      1.00
#     rsLoRA    4.00    4.00    4.00      5.66
#
# For you: a mean or a sum of rsLoRA adapters is far from all of them. Divide the weights by the root of the new rank (for
# "cat" the sum of the ranks), and compare a delta before you save.
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


def adapted(by_root):
    """A small Llama with two adapters of rank 16 and random weights, and one of its adapted maps."""
    torch.manual_seed(0)
    size = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    settings = LoraConfig(r=16, lora_alpha=16, use_rslora=by_root, target_modules=["q_proj", "v_proj"])
    model = get_peft_model(LlamaForCausalLM(LlamaConfig(vocab_size=64, **size)), settings, adapter_name="a")
    model.add_adapter("b", settings)
    for name, weights in model.named_parameters():
        if "lora_" in name:
            weights.data.normal_(0, 0.2)
    return model, model.base_model.model.model.layers[0].self_attn.q_proj


def times(change, true):
    """The factor by which a change is the true one, by least squares."""
    return ((change * true).sum() / (true * true).sum()).item()


for by_root in (False, True):
    model, layer = adapted(by_root)
    with torch.no_grad():
        one, other = layer.get_delta_weight("a"), layer.get_delta_weight("b")
        found = {}
        for kind in ("cat", "svd", "linear"):
            model.add_weighted_adapter(["a"], [1.0], kind, combination_type=kind)
            found[kind] = times(layer.get_delta_weight(kind), one)
        model.add_weighted_adapter(["a", "b"], [0.5, 0.5], "mean", combination_type="cat")
        found["mean by cat"] = times(layer.get_delta_weight("mean"), (one + other) / 2)
    print("rsLoRA" if by_root else "LoRA", {way: round(factor, 2) for way, factor in found.items()})
    expected = [4, 4, 4, 32**0.5] if by_root else [1, 1, 1, 1]
    assert all(abs(factor / true - 1) < 1e-3 for factor, true in zip(found.values(), expected, strict=True)), found
PY

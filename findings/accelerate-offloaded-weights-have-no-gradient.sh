#!/usr/bin/env bash
# The guess: a model whose layers accelerate keeps on the disk or in main memory has gradients for all its weights, or
# `backward` refuses.
#
# What happens: the weights are fetched for a layer's forward call and put away behind it. The loss has a graph, and
# `backward` runs through all layers, but the gradients of fetched copies go away with the copies. The weights that
# are put away keep the gradient None, without a word. Gradients of the layers that stay are right.
#
# accelerate 1.15.0, transformers 5.24.0, torch 2.13.0; 2026-11-30.
# Seen, weights with a gradient after `loss.backward()`, of 21:
#     as loaded                                    21
#     device_map that puts one layer on the disk   12, none of that layer
#     cpu_offload, disk_offload                     0
#
# For you: attribution by the gradients that it finds reads a part of a model that a `device_map` took apart, and
# its scores look as they should. Count the weights without a gradient, or ask for them with `torch.autograd.grad`,
# which fails.
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
import logging

import torch
from accelerate import cpu_offload, disk_offload
from transformers import LlamaConfig, LlamaForCausalLM

logging.disable(logging.WARNING)
torch.manual_seed(0)
size = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2, "num_attention_heads": 1}
LlamaForCausalLM(LlamaConfig(vocab_size=32, **size)).save_pretrained("lm")
ids = torch.arange(8)[None]
places = dict.fromkeys(("model.embed_tokens", "model.norm", "model.rotary_emb", "lm_head", "model.layers.0"), "cpu")
ways = {
    "as loaded": {},
    "device_map, one layer on the disk": {"device_map": {**places, "model.layers.1": "disk"}, "offload_folder": "put"},
    "cpu_offload": {},
    "disk_offload": {},
}
whole = None
for name, loading in ways.items():
    model = LlamaForCausalLM.from_pretrained("lm", **loading)
    if name == "cpu_offload":
        cpu_offload(model, execution_device=torch.device("cpu"))
    if name == "disk_offload":
        disk_offload(model, "away", execution_device=torch.device("cpu"))
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    gradients = {name: weights.grad for name, weights in model.named_parameters()}
    found = {name: gradient for name, gradient in gradients.items() if gradient is not None}
    whole = whole or found
    same = all(torch.allclose(gradient, whole[name]) for name, gradient in found.items())
    print(f"{name:36}loss {loss.item():.4f}, {len(found):3} of {len(gradients)} weights have a gradient; right: {same}")
    assert same and len(found) == {"as loaded": 21, "cpu_offload": 0, "disk_offload": 0}.get(name, 12)
    if name.startswith("device_map"):
        assert all(("layers.1" in each) == (each not in found) for each in gradients)
    try:
        torch.autograd.grad(model(input_ids=ids, labels=ids).loss, list(model.parameters()))
        asked = "all gradients"
    except RuntimeError as error:
        asked = str(error)[:60]
    print("    torch.autograd.grad:", asked)
    assert (asked == "all gradients") == (name == "as loaded")
PY

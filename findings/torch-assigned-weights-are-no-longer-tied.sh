#!/usr/bin/env bash
# The guess: `load_state_dict(..., assign=True)` and `to_empty` only save memory and time. A model whose output layer is
# tied to its embeddings, as most small ones, is the same model afterwards.
#
# What happens: each name gets a parameter of its own. After `assign=True` both parameters lie on the same numbers, so
# the outputs are right, but an optimizer steps on them twice: with half of the gradient each time, which AdamW scales
# up again, and weight decay acts twice. Embeddings that you freeze move all the same, with the output layer. After
# `to_empty` and a usual `load_state_dict`, the two are trained apart.
#
# torch 2.13.0, transformers 5.24.0; 2026-11-30.
# Seen, a Llama with tied embeddings, AdamW at a rate of 1e-3:
#                                      copied    assigned    to_empty
#     weights that `parameters()` counts 12,384     14,432      14,432
#     first step of the embeddings        0.045      0.062       0.041
#     first step of the output layer      0.045      0.062       0.045
#     as above, embeddings frozen         0          0.045       0
#     decay of 10 steps without gradient  0.990      0.980       0.990
#
# For you: call `model.tie_weights()` before you make the optimizer, and look whether both layers hold one parameter.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip transformers==5.24.0

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1
venv/bin/python -W ignore - <<'PY'
import torch
from transformers import LlamaConfig, LlamaForCausalLM

SIZE = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
CONFIG = LlamaConfig(tie_word_embeddings=True, **SIZE)
torch.manual_seed(0)
torch.save(LlamaForCausalLM(CONFIG).state_dict(), "weights.pt")
ids = torch.randint(0, 64, (16, 8))


def loaded(way, tied=False):
    """The saved model, loaded in one of three ways; `tied` ties its weights again afterwards."""
    model, weights = LlamaForCausalLM(CONFIG), torch.load("weights.pt")
    if way == "to_empty":
        positions = model.model.rotary_emb
        with torch.device("meta"):
            model = LlamaForCausalLM(CONFIG)
        model.to_empty(device="cpu").load_state_dict(weights)
        model.model.rotary_emb = positions
    else:
        model.load_state_dict(weights, assign=way == "assigned")
    if tied:
        model.tie_weights()
    return model


def first_step(way, frozen=False, tied=False):
    """How far the first step moves the embeddings and the output layer, and the loss before it."""
    model = loaded(way, tied)
    layers = (model.model.embed_tokens.weight, model.lm_head.weight)
    layers[0].requires_grad_(not frozen)
    before = [layer.detach().clone() for layer in layers]
    optimizer = torch.optim.AdamW([w for w in model.parameters() if w.requires_grad], lr=1e-3, weight_decay=0)
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    return [(layer - old).norm().item() for layer, old in zip(layers, before)] + [loss.item()]


def faded(way):
    """The share of the embeddings that ten steps of decay alone leave."""
    model = loaded(way)
    weights = model.model.embed_tokens.weight
    before = weights.norm().item()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    for _ in range(10):
        (0 * model(input_ids=ids, labels=ids).loss).backward()
        optimizer.step()
    return weights.norm().item() / before


count, steps, frozen, left = {}, {}, {}, {}
for way in ("copied", "assigned", "to_empty"):
    count[way] = sum(weights.numel() for weights in loaded(way).parameters())
    steps[way], frozen[way], left[way] = first_step(way), first_step(way, frozen=True), faded(way)
    print(f"{way}: {count[way]} weights; loss {steps[way][2]:.4f}; step of the embeddings {steps[way][0]:.3f}, of the")
    print(f"    output layer {steps[way][1]:.3f}; of frozen embeddings {frozen[way][0]:.3f}; left by decay {left[way]:.3f}")
    mended = first_step(way, tied=True)
    assert abs(mended[0] - steps["copied"][0]) + abs(mended[1] - steps["copied"][1]) < 1e-4, "tie_weights mends it"

assert max(abs(steps[way][2] - steps["copied"][2]) for way in steps) < 1e-4, "all give the same loss"
assert count["assigned"] == count["to_empty"] == count["copied"] + 64 * 32
assert steps["assigned"][0] > 1.2 * steps["copied"][0] and steps["to_empty"][0] != steps["to_empty"][1]
assert frozen["copied"][0] == frozen["to_empty"][0] == 0 and frozen["assigned"][0] > 0.03
assert abs(left["copied"] - 0.999**10) < 1e-3 and abs(left["assigned"] - 0.999**20) < 1e-3
PY

#!/usr/bin/env bash
# The guess: gradient checkpointing changes memory and time, not what hooks see; or, as each layer runs twice, each hook
# in it is called twice.
#
# What happens: forward hooks of the modules within a layer are called twice a step, as the backward pass runs the layer
# again; but that run stops as soon as all that backward needs is there, which is before the last module's end. So the
# last map of each layer, `down_proj`, is counted once and all others twice, by the default (`use_reentrant=False`).
# Hooks of the layer itself and of the output layer are called once. Sums over activations, such as the covariances of
# K-FAC, EK-FAC or of pruning, come out double for some maps and not for others. Backward hooks are called once.
#
# transformers 5.24.0, torch 2.13.0; 2026-11-30.
# Seen, calls of forward hooks of a Llama's first layer in one step:
#                           q_proj   o_proj   up_proj   down_proj   the layer
#     no checkpointing        1        1        1         1           1
#     use_reentrant=False     2        2        2         1           1
#     use_reentrant=True      2        2        2         2           1
#
# For you: gather statistics without checkpointing, or count calls for each module and divide.
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
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.utils import logging

logging.set_verbosity_error()
SIZE = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
ids = torch.arange(16)[None]
WATCHED = ["self_attn.q_proj", "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj", ""]


def hooked(checkpointing):
    """Calls of hooks of modules of the first layer, and the sum of squares of the inputs of its maps."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(num_attention_heads=2, num_key_value_heads=1, **SIZE)).train()
    if checkpointing is not None:
        model.gradient_checkpointing_enable({"use_reentrant": checkpointing})
        model.enable_input_require_grads()
    calls, squares = {}, {}
    for name in WATCHED:
        module = model.get_submodule(f"model.layers.0.{name}".strip("."))

        def see(module, given, out, name=name):
            calls[name or "the layer"] = calls.get(name or "the layer", 0) + 1
            squares[name] = squares.get(name, 0.0) + float(given[0].detach().square().sum())

        module.register_forward_hook(see)
    model(input_ids=ids, labels=ids).loss.backward()
    return calls, squares


plain, true = hooked(None)
for checkpointing in (None, False, True):
    calls, squares = hooked(checkpointing)
    times = {name: round(squares[name] / true[name], 2) for name in WATCHED if name}
    kind = "no checkpointing" if checkpointing is None else f"use_reentrant={checkpointing}"
    print(f"{kind}: {calls}\n    squares of inputs, times the true ones: {times}")
    if checkpointing is not None:
        expected = [2, 2, 2, 2 if checkpointing else 1, 1]
        assert list(calls.values()) == expected, calls
PY

#!/usr/bin/env bash
# The guess: a model whose code does not call attention functions that are registered with transformers refuses the name
# of one, or goes on with its own attention, and gives the same numbers. `set_attn_implementation` does so: it warns.
#
# What happens: Bloom takes the name at loading without a word, and its configuration says it from then on. The function is
# never called. Bloom's own attention runs, but transformers makes no mask for a name that it knows none for: each token
# sees those that come after it. The numbers stay plausible, and losses are those of another model.
#
# transformers 5.24.0, torch 2.13.0; 2026-11-28.
# Seen:
#     Bloom says "mine"; the function was called 0 times; another last token changes earlier logits: True
#     Bloom says "eager"; the function was called 0 times; another last token changes earlier logits: False
#
# For you: after you choose an attention for a model by name, change the last token of a text and compare the logits before
# it. They must be equal. Otherwise losses, gradients and attribution are of a model that reads ahead.
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
import sys

import torch
from transformers import AttentionInterface, AutoModelForCausalLM, BloomConfig

calls = []


def mine(module, query, key, value, attention_mask, **given):
    """Scaled dot products that see no later token, whatever mask comes."""
    calls.append(module)
    mixed = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    return mixed.transpose(1, 2), None


def reads_ahead(name):
    """Whether another last token changes the logits before it."""
    torch.manual_seed(0)
    shape = BloomConfig(vocab_size=50, hidden_size=32, n_layer=2, n_head=2, initializer_range=0.5)
    model = AutoModelForCausalLM.from_config(shape, attn_implementation=name).eval()
    calls.clear()
    with torch.no_grad():
        one, other = (model(torch.tensor([[1, 2, 3, last]])).logits[:, :3] for last in (4, 9))
    differs = not torch.allclose(one, other, atol=1e-5)
    said = model.config._attn_implementation
    print(f'Bloom says "{said}"; the function was called {len(calls)} times; another last token changes earlier logits: {differs}')
    return said, len(calls), differs


AttentionInterface.register("mine", mine)
found = [reads_ahead(name) for name in ("mine", "eager")]
sys.exit(found != [("mine", 0, True), ("eager", 0, False)])
PY

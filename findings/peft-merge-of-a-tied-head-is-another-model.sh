#!/usr/bin/env bash
# The guess: `merge_and_unload()` gives the model that was trained, to rounding.
#
# What happens: if an adapter is on `lm_head` and the head shares its weights with the input embeddings (small models do:
# Llama 3.2 1B, Qwen up to 4B, Gemma), merging writes the change into both. The embeddings were never adapted in training:
# the merged model is another one. peft warns when the adapter is made.
#
# peft 0.21.2, transformers 5.24.0, torch 2.13.0; 2026-11-28.
# Seen, the largest difference of a logit before and after merging:
#     head of its own: 7.2e-07
#     tied head:       6.3e+00
#
# For you: do not target `lm_head` of a tied model, or untie before (`ensure_weight_tying` does not help: see
# peft-tied-adapters-merge-twice.sh). Scores of a merged folder speak of a model that nobody trained; read base and adapter
# instead.
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


ids, differences = torch.arange(1, 12)[None], {}
for tied in (False, True):
    model = get_peft_model(tiny_lm(tied), LoraConfig(r=4, lora_alpha=8, target_modules=["lm_head"])).eval()
    fill(model)
    with torch.no_grad():
        before = model(ids).logits
        differences[tied] = (model.merge_and_unload()(ids).logits - before).abs().max().item()
print(f"head of its own: {differences[False]:.1e}")
print(f"tied head:       {differences[True]:.1e}")
assert differences[False] < 1e-4 and differences[True] > 1
PY

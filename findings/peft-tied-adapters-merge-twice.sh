#!/usr/bin/env bash
# The guess: an adapter with `ensure_weight_tying=True`, which peft's warning advises if the output layer shares its
# weights with the embeddings, can be merged.
#
# What happens: in training the setting does what it says: embeddings and output layer have one adapter, and compute
# with one changed table. But merging goes through both layers, and adds the change to the shared table twice. It does
# not matter whether `target_modules` names "embed_tokens", "lm_head" or both. At the merge peft warns of
# "complications", in the same words as without the setting. In `modules_to_save` the setting works.
#
# peft 0.21.2, transformers 5.24.0, torch 2.13.0; 2026-11-30.
# Seen, with `ensure_weight_tying=True`:
#                                         loss trained   merged    largest change of a logit   change added
#     target_modules embed_tokens         3.2835         3.5469    4.2                         2 times
#     target_modules lm_head              3.2835         3.5469    4.2                         2 times
#     target_modules, both                3.2835         3.5469    4.2                         2 times
#     modules_to_save, both               2.5550         2.5550    9.5e-07                     once
#
# For you: the merged folder holds a model that nobody trained. Keep the base and the adapter apart, or train both
# layers by `modules_to_save` with this setting.
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

torch.manual_seed(1)
ids = torch.randint(0, 64, (8, 16))


def read(model):
    """The loss over all rows, and the logits."""
    with torch.no_grad():
        out = model.eval()(input_ids=ids, labels=ids)
    return out.loss.item(), out.logits


def merged(**places):
    """The losses before and after merging, the largest change of a logit, and how many times the change was added."""
    torch.manual_seed(0)
    size = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    base = LlamaForCausalLM(LlamaConfig(vocab_size=64, tie_word_embeddings=True, **size))
    start = base.model.embed_tokens.weight.detach().clone()
    model = get_peft_model(base, LoraConfig(r=8, ensure_weight_tying=True, **places))
    optimizer = torch.optim.AdamW([weights for weights in model.parameters() if weights.requires_grad], lr=3e-3)
    for _ in range(30):
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    loss, logits = read(model)
    table = model.get_input_embeddings()
    change = table.get_delta_weight("default").detach() if hasattr(table, "lora_embedding_A") else None
    whole = model.merge_and_unload()
    added = whole.model.embed_tokens.weight.detach() - start
    times = "" if change is None else round(((added * change).sum() / (change * change).sum()).item(), 3)
    after, others = read(whole)
    return loss, after, (others - logits).abs().max().item(), times


for names in ("embed_tokens", "lm_head", "embed_tokens lm_head"):
    loss, after, largest, times = merged(target_modules=names.split())
    print(f"{names:34} {loss:.4f}, merged {after:.4f}, change of a logit {largest:.1e}, added {times} times")
    assert times == 2 and largest > 0.1, (names, times)
loss, after, largest, _ = merged(target_modules=["q_proj"], modules_to_save=["embed_tokens", "lm_head"])
print(f"{'modules_to_save, both':34} {loss:.4f}, merged {after:.4f}, change of a logit {largest:.1e}")
assert largest < 1e-4, largest
PY

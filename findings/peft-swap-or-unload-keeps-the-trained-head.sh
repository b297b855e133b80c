#!/usr/bin/env bash
# The guess: `unload()`, "the base model by removing all the PEFT modules", gives the base model. And after
# `hotswap_adapter`, which checks that the two adapters fit, the model is the one that the new adapter was trained as.
#
# What happens: a layer that was trained as a whole (`modules_to_save`) stays in the unloaded model;
# `disable_adapter()` does take it out. And a swap exchanges, and checks, the factors of LoRA only. If the old adapter
# had trained a whole layer or single tokens (`trainable_token_indices`), they stay, under the new adapter. An adapter
# that was trained from PiSSA or OLoRA comes onto another base than its own. No warning is given. (A swap to an
# adapter with a trained layer or tokens raises an error.)
#
# peft 0.21.2, transformers 5.24.0, torch 2.13.0; 2026-11-30.
# Seen, the loss over the rows of the new adapter, where the base has 4.1403:
#     old adapter                  disabled   unloaded        old, new adapter           loaded   swapped
#     LoRA                         4.1403     4.1403          LoRA, LoRA                 3.4458   3.4458
#     LoRA and trained tokens      4.1403     4.1403          with tokens, LoRA          3.4458   3.9005
#     LoRA and a trained head      4.1403     6.0088          with head, LoRA            3.4458   3.8994
#                                                             LoRA, LoRA from PiSSA      3.4216   3.4840
#                                                             LoRA, LoRA from OLoRA      3.3989   3.4422
#
# For you: an evaluation that swaps adapters on one model, or takes the unloaded model for the base, may read a
# mixture of trainings. Load each adapter, and the base, from the start.
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
from peft import LoraConfig, PeftModel, get_peft_model
from peft.utils.hotswap import hotswap_adapter
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(1)
rows = {"old": torch.randint(0, 64, (8, 16)), "new": torch.randint(0, 64, (8, 16))}


def base():
    """The same small Llama at each call."""
    torch.manual_seed(0)
    size = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    return LlamaForCausalLM(LlamaConfig(vocab_size=64, **size))


def loss(model):
    """The loss over the rows of the new adapter."""
    with torch.no_grad():
        return model.eval()(input_ids=rows["new"], labels=rows["new"]).loss.item()


def train(folder, which, **settings):
    """Train an adapter on some of the rows, and save it."""
    model = get_peft_model(base(), LoraConfig(r=8, target_modules=["q_proj", "v_proj", "down_proj"], **settings))
    optimizer = torch.optim.AdamW([weights for weights in model.parameters() if weights.requires_grad], lr=1e-2)
    for _ in range(30):
        model(input_ids=rows[which], labels=rows[which]).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)


kinds = {
    "plain": {},
    "head": {"modules_to_save": ["lm_head"]},
    "tokens": {"trainable_token_indices": list(range(16))},
    "pissa": {"init_lora_weights": "pissa"},
    "olora": {"init_lora_weights": "olora"},
}
for kind, settings in kinds.items():
    train(f"old-{kind}", "old", **settings)
for kind in ("plain", "pissa", "olora"):
    train(f"new-{kind}", "new", **kinds[kind])
bare = loss(base())
print(f"base {bare:.4f}")
for kind in ("plain", "tokens", "head"):
    model = PeftModel.from_pretrained(base(), f"old-{kind}")
    with model.disable_adapter():
        disabled = loss(model)
    unloaded = loss(model.unload())
    print(f"{kind:6}           disabled {disabled:.4f}   unloaded {unloaded:.4f}")
    assert abs(disabled - bare) < 1e-4 and (abs(unloaded - bare) > 0.05) == (kind == "head"), kind
for old, new in [("plain", "plain"), ("tokens", "plain"), ("head", "plain"), ("plain", "pissa"), ("plain", "olora")]:
    loaded = loss(PeftModel.from_pretrained(base(), f"new-{new}"))
    model = PeftModel.from_pretrained(base(), f"old-{old}")
    hotswap_adapter(model, f"new-{new}", adapter_name="default", torch_device="cpu")
    swapped = loss(model)
    print(f"{old:6} -> {new:6} loaded   {loaded:.4f}   swapped  {swapped:.4f}")
    assert abs(swapped - loaded) < 1e-4 if old == new else swapped > loaded + 0.02, (old, new)
PY

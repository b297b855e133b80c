#!/usr/bin/env bash
# The guess: if `layer_replication` makes a deeper model from the layers of a smaller one, `merge_and_unload()` gives
# the model that was trained, or refuses.
#
# What happens: neither. The copies of a layer share its base weights, and each has an adapter of its own. Merging
# adds the changes of all copies to the one weight, so every copy gets the sum. peft means to refuse ("Cannot merge
# LORA layers when base model layers are replicated"), but looks for the setting among the names of the adapters, and
# so never finds it. `safe_merge=True` does the same. Only saving the merged model raises an error, about shared
# weights.
#
# peft 0.21.2, transformers 5.24.0, torch 2.13.0; 2026-11-30.
# Seen, after training with `layer_replication=[[0, 2], [0, 2]]`, which makes 4 layers of 2:
#                                          loss     largest change of a logit
#     trained                              3.3757   0
#     its folder, loaded                   3.3757   0
#     merged                               3.8956   1.1
#     merged, safely                       3.8956   1.1
#     merged, each layer copied before     3.3757   6.6e-07
#
# For you: whatever merges to evaluate or to generate, reads a model that nobody trained. Keep the base and the
# adapter apart, or first give each layer weights of its own, as the last row does; this model can also be saved.
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
import copy

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(1)
ids = torch.randint(0, 64, (8, 16))


def base():
    """The same small Llama of two layers at each call."""
    torch.manual_seed(0)
    size = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    return LlamaForCausalLM(LlamaConfig(vocab_size=64, **size))


def read(model):
    """The loss over all rows, and the logits."""
    with torch.no_grad():
        out = model.eval()(input_ids=ids, labels=ids)
    return out.loss.item(), out.logits


settings = LoraConfig(r=8, target_modules=["q_proj", "v_proj", "up_proj"], layer_replication=[[0, 2], [0, 2]])
model = get_peft_model(base(), settings)
optimizer = torch.optim.AdamW([weights for weights in model.parameters() if weights.requires_grad], lr=1e-2)
for _ in range(30):
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
model.save_pretrained("adapter")

seen = {"trained": read(model), "its folder, loaded": read(PeftModel.from_pretrained(base(), "adapter"))}
seen["merged"] = read(PeftModel.from_pretrained(base(), "adapter").merge_and_unload())
seen["merged, safely"] = read(PeftModel.from_pretrained(base(), "adapter").merge_and_unload(safe_merge=True))
apart = PeftModel.from_pretrained(base(), "adapter")
layers = apart.base_model.model.model.layers
for place, layer in enumerate(layers):
    layers[place] = copy.deepcopy(layer)
apart.merge_and_unload().save_pretrained("merged")
seen["merged, each layer copied before"] = read(LlamaForCausalLM.from_pretrained("merged"))

right = {"trained", "its folder, loaded", "merged, each layer copied before"}
for name, (loss, logits) in seen.items():
    change = (logits - seen["trained"][1]).abs().max().item()
    print(f"{name:34} {loss:.4f}   {change:.1e}")
    assert change < 1e-4 if name in right else change > 0.5 and loss - seen["trained"][0] > 0.1, name
PY

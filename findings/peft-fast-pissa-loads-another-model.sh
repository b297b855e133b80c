#!/usr/bin/env bash
# The guess: an adapter that was saved, and is loaded onto the same base model, gives the model that was trained.
#
# What happens: not with `init_lora_weights="pissa_niter_16"`, the fast PiSSA of the documentation. PiSSA trains the
# largest parts of each weight, and subtracts their initial value from the base. The folder of the adapter does not hold
# what was subtracted: `PeftModel.from_pretrained` computes it anew. Plain "pissa" finds the same again; the fast way
# draws random numbers, and takes no seed of its own. So the adapter stands on another base at each load, and a run that
# resumes goes on from another model. No warning is given. The fewer iterations, and the closer the singular values are
# to each other, the larger the error.
#
# peft 0.21.2, transformers 5.24.0, torch 2.13.0; 2026-11-30.
# Seen, the loss over the rows that the model was trained on:
#                        trained    loaded, under three seeds    resumed    converted to LoRA, and loaded
#     pissa              3.2634     3.2634   3.2634   3.2634     3.2634     3.2634
#     pissa_niter_4      3.2503     3.4090   3.3892   3.3963     3.3946     3.2503
#     pissa_niter_16     3.2500     3.3094   3.3352   3.3132     3.2999     3.2500
#
# For you: what you evaluate, merge or attribute from such a folder is not what was trained, and two people who load it
# have two models. Use "pissa", or convert the adapter to a LoRA when you save it, as the last column shows.
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
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
ids = torch.randint(0, 64, (8, 16))


def base():
    """The same small Llama at each call."""
    torch.manual_seed(0)
    size = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    return LlamaForCausalLM(LlamaConfig(vocab_size=64, **size))


def loss(model):
    """The loss over all rows."""
    with torch.no_grad():
        return round(model.eval()(input_ids=ids, labels=ids).loss.item(), 4)


for init in ("pissa", "pissa_niter_4", "pissa_niter_16"):
    settings = LoraConfig(r=8, lora_alpha=8, target_modules="all-linear", init_lora_weights=init)
    model = get_peft_model(base(), settings)
    # As peft's documentation shows it, keep the initial values, by which the adapter can later be converted.
    model.peft_config["default"].init_lora_weights = True
    model.save_pretrained("start")
    model.peft_config["default"].init_lora_weights = init
    optimizer = torch.optim.AdamW([weights for weights in model.parameters() if weights.requires_grad], lr=5e-3)
    for _ in range(30):
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    trained = loss(model)
    model.save_pretrained(init)
    losses = []
    for seed in (1, 2, 3):
        bare = base()
        torch.manual_seed(seed)
        losses.append(loss(PeftModel.from_pretrained(bare, init)))
    bare = base()
    torch.manual_seed(4)
    resumed = get_peft_model(bare, settings)
    resumed.load_adapter(init, "default", is_trainable=True)
    losses.append(loss(resumed))
    model.save_pretrained("lora", path_initial_model_for_weight_conversion="start")
    converted = loss(PeftModel.from_pretrained(base(), "lora"))
    print(f"{init:15} trained {trained:.4f}, loaded {losses[:3]}, resumed {losses[3]}, converted {converted}")
    assert abs(converted - trained) < 1e-3
    assert all(abs(again - trained) < 1e-3 if init == "pissa" else again - trained > 0.02 for again in losses), losses
PY

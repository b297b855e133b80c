#!/usr/bin/env bash
# The guess: an adapter that has learned nothing is the base model, whatever its method, as with LoRA.
#
# What happens: FourierFT draws its spectrum at random, since `init_weights` is False by default. The manual says so,
# but not how far this is: the change shrinks with the square of the width, and at that of SmolLM2-135M (576) it is
# half as large as usual initial weights, at that of GPT-2 (768) more than a quarter. A small model has forgotten what
# it knew before the first step. C3A, VB-LoRA and Uni-LoRA also begin beside the base, but close to it.
#
# peft 0.21.2, transformers 5.24.0, torch 2.13.0; 2026-11-30.
# Seen, adapters with default settings on the query and value maps, before any step; the change as a share of the
# weights, and the loss on the rows that a small Llama had learned:
#                            change of q_proj at a width of         loss at a width of 256
#                            256      576      768     2048         (the base: 0.023)
#     LoRA, WaveFT           0        0        0       0            0.023
#     FourierFT              2.4      0.51     0.28    0.040        1.761
#     C3A                    0.011    0.004    0.002   0.0005       0.023
#     VB-LoRA                0.006    0.007    0.007   0.007        0.023
#     Uni-LoRA               0.0003   0.0002   0.0001  0.00005      0.023
#
# For you: pass `init_weights=True` to FourierFT, which starts at zeros and still learns. Otherwise the run does not
# start from the base, which is what DPO takes as its reference, and what you compare the trained model with.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip peft==0.21.2 transformers==5.24.0 accelerate==1.15.0

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1
venv/bin/python -W ignore - <<'PY'
import torch
from peft import C3AConfig, FourierFTConfig, LoraConfig, UniLoraConfig, VBLoRAConfig, WaveFTConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

MAPS = ["q_proj", "v_proj"]
torch.manual_seed(0)
ids = torch.randint(0, 64, (8, 16))


def made(width, weights=None):
    """A Llama with usual initial weights, or with these."""
    torch.manual_seed(0)
    size = {"hidden_size": width, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=64, **size))
    if weights is not None:
        model.load_state_dict(weights)
    return model


def learn(model, steps, rate):
    optimizer = torch.optim.AdamW([w for w in model.parameters() if w.requires_grad], lr=rate, weight_decay=0)
    for _ in range(steps):
        optimizer.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()


def loss(model):
    with torch.no_grad():
        return model.eval()(input_ids=ids, labels=ids).loss.item()


def settings(width):
    return {
        "LoRA": LoraConfig(target_modules=MAPS),
        "WaveFT": WaveFTConfig(target_modules=MAPS),
        "FourierFT": FourierFTConfig(target_modules=MAPS),
        "FourierFT, init_weights=True": FourierFTConfig(target_modules=MAPS, init_weights=True),
        "C3A": C3AConfig(target_modules=MAPS, block_size=width // 4),
        "VB-LoRA": VBLoRAConfig(target_modules=MAPS, vector_length=width // 4),
        "Uni-LoRA": UniLoraConfig(target_modules=MAPS),
    }


changes, losses = {}, {}
for width in (256, 576, 768, 2048):
    base = made(width)
    if width == 256:
        learn(base, 40, 1e-3)
        known = loss(base)
        print(f"loss of the base: {known:.3f}")
    weights = {name: tensor.clone() for name, tensor in base.state_dict().items()}
    first = next(name for name in weights if "q_proj" in name)
    for kind, chosen in settings(width).items():
        torch.manual_seed(1)
        model = get_peft_model(made(width, weights), chosen)
        if width == 256:
            losses[kind] = loss(model)
            print(f"{kind}: loss {losses[kind]:.3f}")
        after = model.merge_and_unload().state_dict()[first]
        changes[kind, width] = ((after - weights[first]).norm() / weights[first].norm()).item()
        print(f"width {width}, {kind}: change {changes[kind, width]:.5f}")

fourier = [changes["FourierFT", width] for width in (256, 576, 768, 2048)]
assert fourier[0] > 1.5 and fourier[1] > 0.35 and fourier[2] > 0.2 and fourier[3] < 0.06
assert losses["FourierFT"] > known + 1
for kind in ("LoRA", "WaveFT", "FourierFT, init_weights=True"):
    assert changes[kind, 256] == changes[kind, 768] == 0 and abs(losses[kind] - known) < 1e-5
for kind in ("C3A", "VB-LoRA", "Uni-LoRA"):
    assert 0 < changes[kind, 768] < changes[kind, 256] + 0.01 < 0.05

weights = made(256).state_dict()
model = get_peft_model(made(256, weights), FourierFTConfig(target_modules=MAPS, init_weights=True))
before = loss(model)
learn(model.train(), 20, 1e-2)
print(f"from zeros on a model that knows nothing, 20 steps: loss {before:.3f} to {loss(model):.3f}")
assert loss(model) < before - 0.01
PY

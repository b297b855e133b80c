#!/usr/bin/env bash
# The guess: `add_weighted_adapter(["one", "two"], ...)` combines all that the adapters were trained to change; what it
# cannot combine, it refuses. For one adapter with the weight 1, or two with the weights 1 and 0, the new adapter does
# what the first does.
#
# What happens: it combines the matrices A and B, and nothing else. The new adapter begins with the base model's output
# layer (or a classifier's random head) in place of the one trained by `modules_to_save`, with the base model's rows
# for `trainable_token_indices`, with the base model's lengths for DoRA, and with 0 for `lora_bias`. There is an error
# only where two adapters have the same module in `modules_to_save`; one such adapter passes, and the rest always does.
#
# peft 0.21.2, transformers 5.24.0, torch 2.13.0; 2026-11-30.
# Seen, the largest difference of the logits, with "cat", weights 1 and 0, from those of the first adapter:
#     trained besides A and B        from the first adapter    (the first adapter from the base model)
#     nothing                              0.00                            0.32
#     modules_to_save=["lm_head"]          2.31                            2.32
#     trainable_token_indices              0.22                            0.27
#     use_dora                             0.13                            0.21
#     lora_bias                            0.20                            0.28
#
# For you: a combination of adapters that were trained so is not one of what their rows taught. Merge each into the base
# model with `merge_and_unload` and combine the whole models, or copy the parts that are missing, and compare logits.
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

size = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
size |= {"vocab_size": 64, "tie_word_embeddings": False, "attention_bias": True}
tokens = torch.tensor([[1, 60, 61, 5]])


def settings(**more):
    return LoraConfig(r=4, target_modules=["v_proj"], **more)


def two_adapters(first, second):
    """A small Llama with two adapters, all of whose weights are random as if trained."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**size)).eval()
    model = get_peft_model(model, first, adapter_name="one")
    model.add_adapter("two", second)
    torch.manual_seed(1)
    for name, weights in model.named_parameters():
        if any(part in name for part in ("lora_", "trainable_tokens", "modules_to_save")):
            weights.data += 0.2 * torch.randn_like(weights)
    return model


def logits(model, adapter):
    model.set_adapter(adapter)
    return model(tokens).logits


kinds = {
    "nothing": {},
    "modules_to_save": {"modules_to_save": ["lm_head"]},
    "trainable_token_indices": {"trainable_token_indices": [60, 61]},
    "use_dora": {"use_dora": True},
    "lora_bias": {"lora_bias": True},
}
with torch.no_grad():
    for name, more in kinds.items():
        model = two_adapters(settings(**more), settings(**({} if name == "modules_to_save" else more)))
        model.add_weighted_adapter(["one", "two"], [1.0, 0.0], "both", combination_type="cat")
        model.add_weighted_adapter(["one"], [1.0], "alone", combination_type="cat")
        true = logits(model, "one")
        with model.disable_adapter():
            base = (model(tokens).logits - true).abs().max().item()
        both, alone = ((logits(model, made) - true).abs().max().item() for made in ("both", "alone"))
        print(f"{name:24} weights 1 and 0: {both:.4f}, alone: {alone:.4f}, base: {base:.4f}")
        if name == "nothing":
            assert max(both, alone) < 1e-5 < base
        else:
            assert min(both, alone) > 0.1 * base, f"{name} is carried over"
PY

#!/usr/bin/env bash
# The guess: with `optim="galore_adamw"` the Trainer's settings of AdamW, such as `weight_decay` and `adam_beta1`, hold
# as with `optim="adamw_torch"`: the run is AdamW with projected gradients, and no setting is refused.
#
# What happens: of these settings GaLore is given the learning rate only. Weight decay is always 0, also for the layers
# that are not projected, because the Trainer's groups with and without decay are replaced by GaLore's own two groups.
# The betas are always 0.9 and 0.999 and epsilon 1e-6, whatever `adam_beta1`, `adam_beta2` and `adam_epsilon` say.
# APOLLO reads betas and epsilon for the layers that it projects, and has no weight decay anywhere. The layerwise forms
# step within `backward`, so `max_grad_norm` does not hold either. There is no warning, the saved arguments have the
# values that you passed, and the documentation does not tell of it.
#
# transformers 5.24.0, galore-torch 1.0, apollo-torch 1.0.3, torch 2.13.0; 2026-11-30.
# Seen, how far the weights after 20 steps move if one setting changes:
#                              adamw_torch   galore_adamw   apollo_adamw   galore_adamw_layerwise
#     weight_decay 0 to 1      0.199         0              0              0
#     betas to 0.5 and 0.9     1.309         0              0.212          0
#     epsilon to 0.01          3.195         0              0.844          0
#     max_grad_norm to 0.001   0.331         0.874          0.885          0
#
# For you: a sweep over weight decay or betas with GaLore compares equal runs, and a replay of the run from its saved
# arguments with decay is another run. Build the optimizer yourself, with `weight_decay` and `betas` in both groups,
# and pass it by `optimizers`.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip transformers==5.24.0 accelerate==1.15.0 galore-torch==1.0 apollo-torch==1.0.3 bitsandbytes==0.50.2

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1
venv/bin/python -W ignore - <<'PY'
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PrinterCallback, Trainer, TrainingArguments
from transformers.utils import logging

logging.set_verbosity_error()
texts = [[(row * 7 + place * place) % 60 + 3 for place in range(12)] for row in range(32)]
rows = [{"input_ids": text, "labels": text} for text in texts]


def trained(optimizer, **more):
    """All weights after 20 steps."""
    torch.manual_seed(0)
    size = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=64, **size))
    if optimizer != "adamw_torch":
        more |= {"optim_target_modules": [r".*layers.*"], "optim_args": "rank=8"}
    quiet = {"report_to": [], "save_strategy": "no", "logging_strategy": "no", "use_cpu": True, "disable_tqdm": True}
    settings = TrainingArguments("out", optim=optimizer, max_steps=20, per_device_train_batch_size=8,
                                 learning_rate=3e-3, **quiet, **more)
    trainer = Trainer(model, settings, train_dataset=rows)
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return torch.cat([weight.detach().flatten() for weight in model.parameters()])


CHANGES = {
    "weight_decay": {"weight_decay": 1.0},
    "betas": {"adam_beta1": 0.5, "adam_beta2": 0.9},
    "epsilon": {"adam_epsilon": 1e-2},
    "max_grad_norm": {"max_grad_norm": 1e-3},
}
seen = {}
for optimizer in ("adamw_torch", "galore_adamw", "apollo_adamw", "galore_adamw_layerwise"):
    usual = trained(optimizer)
    seen[optimizer] = {name: float((trained(optimizer, **change) - usual).norm()) for name, change in CHANGES.items()}
    print(f"{optimizer:24}", *(f"{name} {moved:.3f}  " for name, moved in seen[optimizer].items()))

assert all(moved > 0.05 for moved in seen["adamw_torch"].values()), "AdamW does not read its settings"
moving = {optimizer: [name for name in CHANGES if moved[name]] for optimizer, moved in seen.items()}
assert moving["galore_adamw"] == ["max_grad_norm"], "GaLore reads settings of AdamW"
assert moving["apollo_adamw"] == ["betas", "epsilon", "max_grad_norm"], "APOLLO reads other settings"
assert moving["galore_adamw_layerwise"] == [], "layerwise GaLore reads settings of AdamW"
PY

#!/usr/bin/env bash
# The guess: weight decay draws an adapter back to none, so a model that learns nothing stays the base, as with LoRA.
#
# What happens: the magnitudes of DoRA start as the norms of the base's weights, and the scales of IA3 at 1. Trainer
# lets weight decay work on both, so it draws them to 0: the adapted maps of the base itself fade, with no gradient at
# all. At a decay of 0.1 and a rate of 1e-3 they have lost a tenth after 1,000 steps.
#
# peft 0.21.2, transformers 5.24.0, torch 2.13.0; 2026-11-30.
# Seen, the norm of adapted maps after 1,000 steps without a gradient, as a share of the base's:
#             weight_decay=0   0.1
#     LoRA         1.000       1.000
#     DoRA         1.000       0.905
#     IA3          1.000       0.905
#
# For you: leave `weight_decay` at 0 for DoRA and IA3, or give the optimizer their scales as a group without it.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip peft==0.21.2 transformers==5.24.0 accelerate==1.15.0

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1
venv/bin/python -W ignore - <<'PY'
import torch
from peft import IA3Config, LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
from transformers.utils import logging

logging.set_verbosity_error()
SIZE = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
quiet = {"report_to": [], "save_strategy": "no", "logging_strategy": "no", "use_cpu": True}
maps = ["q_proj", "v_proj", "o_proj", "down_proj"]
kinds = {
    "LoRA": LoraConfig(r=4, target_modules=maps),
    "DoRA": LoraConfig(r=4, target_modules=maps, use_dora=True),
    "IA3": IA3Config(target_modules=maps, feedforward_modules=["down_proj"]),
}


class Still(Trainer):
    """A loss whose gradient is zero everywhere: what moves, decay moves."""

    def compute_loss(self, model, inputs, **more):
        return 0.0 * model(**inputs).loss


def faded(settings, decay):
    """The norm of each adapted map after 1,000 steps of decay alone, as a share of the base's."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(num_attention_heads=2, num_key_value_heads=1, **SIZE))
    before = {name: weights.clone() for name, weights in model.state_dict().items()}
    steps = {"max_steps": 1000, "learning_rate": 1e-3, "lr_scheduler_type": "constant", "weight_decay": decay}
    rows = [{"input_ids": [1, 2], "labels": [1, 2]}] * 8
    trainer = Still(get_peft_model(model, settings), TrainingArguments("out", **steps, **quiet), train_dataset=rows)
    trainer.train()
    after = trainer.model.merge_and_unload().state_dict()
    names = [name for name in before if name.split(".")[-2] in maps]
    return {name.split(".")[-2]: (after[name].norm() / before[name].norm()).item() for name in names}


for kind, settings in kinds.items():
    for decay in (0.0, 0.1):
        shares = faded(settings, decay)
        print(f"{kind}, weight_decay={decay}: " + " ".join(f"{name} {share:.3f}" for name, share in shares.items()))
        expected = 1.0 if decay == 0.0 or kind == "LoRA" else (1 - 1e-4) ** 1000
        assert all(abs(share - expected) < 2e-3 for share in shares.values())
PY

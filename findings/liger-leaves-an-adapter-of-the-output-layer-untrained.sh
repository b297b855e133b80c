#!/usr/bin/env bash
# The guess: `use_liger_kernel=True` computes the same losses and gradients as without it, only faster; an adapter of
# `lm_head` is trained.
#
# What happens: the fused loss of liger multiplies by `lm_head.weight`, which for a layer with LoRA is the frozen weight
# of the base. The adapter of this layer is not called, has no gradient, and stays 0, without a warning from Trainer,
# peft or liger. The first loss is the same, for an adapter starts as 0. trl 1.16.0 raises an error for LoRA on
# `lm_head`; the Trainer of transformers does not. A whole copy of the layer (`modules_to_save`) is trained.
#
# liger-kernel 0.8.5, peft 0.21.2, transformers 5.24.0, torch 2.13.0; 2026-11-30. Triton's interpreter runs the kernels
# on the CPU.
# Seen after 2 steps, the largest entry of the adapters' B:
#     without liger   q_proj 0.02   lm_head 0.02
#     with liger      q_proj 0.02   lm_head 0
#     with liger and modules_to_save=["lm_head"], the change of lm_head: 0.02
#
# For you: adapters of the output layer that were trained with liger hold nothing. Name `lm_head` in `modules_to_save`,
# or train without liger. Look for parameters whose gradient is None after the first step.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip liger-kernel==0.8.5 triton==3.9.0 peft==0.21.2 transformers==5.24.0 accelerate==1.15.0

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1 TRITON_INTERPRET=1
venv/bin/python -W ignore - <<'PY'
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
from transformers.utils import logging

logging.set_verbosity_error()
torch.manual_seed(1)
rows = [{"input_ids": words, "labels": words} for words in torch.randint(0, 64, (8, 12))]
# The loss alone is replaced: the other kernels of liger change nothing here.
LOSS_ALONE = {"rope": False, "rms_norm": False, "swiglu": False, "fused_linear_cross_entropy": True}


def trained(liger, **which):
    """The trained parameters by name, how far they moved, and the first loss."""
    torch.manual_seed(0)
    size = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=64, tie_word_embeddings=False, **size))
    model = get_peft_model(model, LoraConfig(r=4, **which))
    start = {name: weights.detach().clone() for name, weights in model.named_parameters() if weights.requires_grad}
    quiet = {"report_to": [], "save_strategy": "no", "use_cpu": True, "disable_tqdm": True, "logging_steps": 1}
    settings = TrainingArguments("out", use_liger_kernel=liger, liger_kernel_config=LOSS_ALONE if liger else None,
                                 learning_rate=1e-2, lr_scheduler_type="constant", max_steps=2,
                                 per_device_train_batch_size=4, **quiet)
    trainer = Trainer(model, settings, train_dataset=rows)
    trainer.train()
    after = dict(model.named_parameters())
    moves = {name: (after[name] - before).abs().max().item() for name, before in start.items()}
    return moves, trainer.state.log_history[0]["loss"]


def of(moves, layer, part):
    """The move of one part of one layer."""
    (move,) = (move for name, move in moves.items() if layer in name and part in name)
    return move


both = {"target_modules": ["q_proj", "lm_head"]}
plain, plain_loss = trained(False, **both)
fused, fused_loss = trained(True, **both)
whole, _ = trained(True, target_modules=["q_proj"], modules_to_save=["lm_head"])
for name, moves in (("without liger", plain), ("with liger", fused)):
    print(f"{name:14} q_proj {of(moves, 'q_proj', 'lora_B'):.3f}, lm_head {of(moves, 'lm_head', 'lora_B'):.3f}")
print(f"with liger and modules_to_save, lm_head {of(whole, 'lm_head', 'modules_to_save'):.3f}")
print(f"the first loss without and with liger: {plain_loss:.4f} {fused_loss:.4f}")
assert abs(plain_loss - fused_loss) < 1e-3
assert of(plain, "lm_head", "lora_B") > 0.01 and of(fused, "q_proj", "lora_B") > 0.01
assert of(fused, "lm_head", "lora_B") == 0 == of(fused, "lm_head", "lora_A")
assert of(whole, "lm_head", "modules_to_save") > 0.01
PY

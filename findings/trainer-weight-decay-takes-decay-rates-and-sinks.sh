#!/usr/bin/env bash
# The guess: `weight_decay` of TrainingArguments spares everything but matrices: the Trainer leaves out norms and
# biases.
#
# What happens: what is spared is nn.LayerNorm, and what has "bias" or a form of "norm" in its name. All else decays:
# the rates by which state-space and linear-attention layers forget (`A_log`), their passages (`D`), the sinks of
# attention, and the last norm of Mamba, Mamba 2 and Falcon Mamba, which is called `norm_f`. An `A_log` that is drawn
# to 0 makes the layer's memories equally short; the authors of Mamba train with no decay on it.
#
# transformers 5.24.0, accelerate 1.15.0, torch 2.13.0; 2026-11-30.
# Seen, vectors and rates that decay, and what 20 steps with decay 1 and learning rate 0.01 leave of them (0.99^20 =
# 0.82):
#     Llama               none
#     Mamba, Mamba 2      A_log 0.82, D 0.82, norm_f 0.82
#     Falcon-H1           A_log 0.82, D 0.82
#     Qwen3-Next          A_log 0.82
#     gpt-oss             sinks 0.82
#
# For you: the size of the effect is learning rate · decay · steps, so little in a short fine-tune, and a tenth of the
# memory in a long one. Give the Trainer an optimizer of your own, or override `get_decay_parameter_names`, for these
# models.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip transformers==5.24.0 accelerate==1.15.0

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1
venv/bin/python -W ignore - <<'PY'
import logging

import torch
from transformers import (
    FalconH1Config,
    FalconH1ForCausalLM,
    GptOssConfig,
    GptOssForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Mamba2Config,
    Mamba2ForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    PrinterCallback,
    Qwen3NextConfig,
    Qwen3NextForCausalLM,
    Trainer,
    TrainingArguments,
)

logging.disable(logging.WARNING)
size = {"vocab_size": 32, "hidden_size": 32, "num_hidden_layers": 1}
heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 32}
experts = {"num_local_experts": 2, "num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 8}
linear = {"linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8}
inner = {"mamba_d_ssm": 64, "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8}
models = (
    (LlamaForCausalLM, LlamaConfig(**size, **heads)),
    (MambaForCausalLM, MambaConfig(**size, state_size=4)),
    (Mamba2ForCausalLM, Mamba2Config(**size, state_size=4, num_heads=8, head_dim=8, n_groups=1)),
    (FalconH1ForCausalLM, FalconH1Config(**size, **heads, **inner)),
    (Qwen3NextForCausalLM, Qwen3NextConfig(**size, **heads, **experts, **linear, layer_types=["linear_attention"])),
    (GptOssForCausalLM, GptOssConfig(**size, **heads, **experts)),
)
rows = [{"input_ids": row, "labels": row} for row in torch.arange(64).remainder(32).view(8, 8).tolist()]


def train(kind, config, decay):
    """The trainer after 20 steps."""
    torch.manual_seed(0)
    model = kind(config)
    for name, weights in model.named_parameters():
        if name.endswith("sinks"):
            torch.nn.init.ones_(weights)  # as transformers makes them they are near 0
    settings = TrainingArguments(
        output_dir="out", max_steps=20, per_device_train_batch_size=8, learning_rate=0.01, weight_decay=decay,
        optim="sgd", lr_scheduler_type="constant", report_to=[], use_cpu=True, save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    trainer = Trainer(model, settings, train_dataset=rows)
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return trainer


found = {}
for kind, config in models:
    trainer, free = train(kind, config, 1.0), train(kind, config, 0.0)
    names = set(trainer.get_decay_parameter_names(trainer.model))
    others = dict(free.model.named_parameters())
    left = {
        name.split(".", 1)[1]: (weights.norm() / others[name].norm()).item()
        for name, weights in trainer.model.named_parameters()
        if name in names and (weights.ndim == 1 or name.endswith("A_log"))
    }
    found[kind.__name__] = left
    print(f"{kind.__name__:24}", {name: round(share, 2) for name, share in left.items()})
    assert all(0.7 < share < 0.9 for share in left.values())
ends = {kind: sorted(name.split(".")[-1] for name in left) for kind, left in found.items()}
assert ends["LlamaForCausalLM"] == [] and ends["GptOssForCausalLM"] == ["sinks"]
assert ends["MambaForCausalLM"] == ends["Mamba2ForCausalLM"] == ["A_log", "D", "weight"]
assert ends["FalconH1ForCausalLM"] == ["A_log", "D"] and ends["Qwen3NextForCausalLM"] == ["A_log"]
PY

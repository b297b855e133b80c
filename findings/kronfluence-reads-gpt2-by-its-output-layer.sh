#!/usr/bin/env bash
# The guess: `prepare_model` of kronfluence takes the linear maps of any causal language model, GPT-2 among them.
#
# What happens: GPT-2's attention and MLPs are `Conv1D` modules of transformers, which are no `nn.Linear`. They are left
# out without a word. Of GPT-2 the output layer alone is read, whose weights are those of the embeddings; of a Llama all
# maps are. Factors are fitted and scores come out as always.
#
# kronfluence 1.0.1, transformers 5.24.0, torch 2.13.0; 2026-11-29.
# Seen, maps that are read in models of two layers:
#     gpt2:  1 of 9: lm_head …
#     llama: 15 of 15: model.layers.0.self_attn.q_proj …
#
# For you: influence on a GPT-2 by kronfluence is that of its output layer, so of words that two texts share. Print the
# tracked modules before you compare it with anything; put `nn.Linear` in the place of `Conv1D` to read all of it.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip transformers==5.24.0 accelerate==1.15.0 einops==0.8.2 einconv==0.1.0 opt-einsum==3.4.0 scikit-learn
pip --no-deps kronfluence==1.0.1

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1
venv/bin/python -W ignore - <<'PY'
from kronfluence.analyzer import prepare_model
from kronfluence.module.tracked_module import TrackedModule
from kronfluence.task import Task
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
from transformers.pytorch_utils import Conv1D


class LanguageModelling(Task):
    """The loss of all tokens."""

    def compute_train_loss(self, batch, model, sample=False):
        return model(**batch, labels=batch["input_ids"]).loss

    def compute_measurement(self, batch, model):
        return self.compute_train_loss(batch, model)


ends = {"bos_token_id": 0, "eos_token_id": 1}
models = {
    "gpt2": GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=64, **ends)),
    "llama": LlamaForCausalLM(
        LlamaConfig(
            vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, **ends
        )
    ),
}
for name, model in models.items():
    maps = [one for one, module in model.named_modules() if isinstance(module, nn.Linear | Conv1D)]
    prepared = prepare_model(model, LanguageModelling())
    read = [one for one, module in prepared.named_modules() if isinstance(module, TrackedModule)]
    print(f"{name + ':':6} {len(read)} of {len(maps)}: {', '.join(read[:1])} …")
    assert (read == ["lm_head"]) if name == "gpt2" else (read == maps), read
PY

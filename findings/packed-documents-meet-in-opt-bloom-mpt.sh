#!/usr/bin/env bash
# The guess: documents that `DataCollatorWithFlattening` packs into one row are kept apart by their position numbers in any
# causal model of transformers, or the model says that it cannot.
#
# What happens: with PyTorch's attention most types begin a new document where the position numbers do, and losses are
# those of the documents one by one. gpt-oss, OPT, Bloom, MPT, XGLM, BioGPT, MiniMax and Mamba take the same batch and let
# each document read the one before it. There is no message.
#
# transformers 5.24.0, torch 2.13.0; 2026-11-30.
# Seen, how far logits of the second document move when the first one changes, as a share of the largest logit:
#     llama   0 %    qwen3    0 %    gemma2  0 %    falcon   0 %    gpt2    0 %    gpt_neox 0 %    stablelm 0 %
#     gpt_oss 46 %
#     opt     9 %    bloom  0.4 %    mpt    15 %    xglm     2 %    biogpt  3 %    minimax  5 %    mamba   13 %
#
# For you: packing without padding trains another model there: one whose answers depend on what happened to be packed
# before them. Change the first document of a packed row and compare the logits of the second before you train.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip transformers==5.24.0

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1
venv/bin/python -W ignore - 2>"$place/told" <<'PY'
import torch
from transformers import AutoConfig, AutoModelForCausalLM, DataCollatorWithFlattening

WIDE = {"intermediate_size": 64}
APART = {
    "llama": WIDE,
    "qwen3": WIDE | {"head_dim": 8, "num_key_value_heads": 4},
    "gemma2": WIDE | {"head_dim": 8, "num_key_value_heads": 4},
    "falcon": {},
    "gpt2": {},
    "gpt_neox": WIDE,
    "stablelm": WIDE | {"num_key_value_heads": 4},
}
TOGETHER = {
    "gpt_oss": WIDE | {"head_dim": 8, "num_key_value_heads": 4, "num_local_experts": 2, "num_experts_per_tok": 2},
    "opt": {"ffn_dim": 64, "word_embed_proj_dim": 32},
    "bloom": {"n_head": 4, "n_layer": 2},
    "mpt": {"d_model": 32, "n_heads": 4, "n_layers": 2},
    "xglm": {"d_model": 32, "ffn_dim": 64, "num_layers": 2, "attention_heads": 4},
    "biogpt": WIDE,
    "minimax": WIDE | {"head_dim": 8, "num_key_value_heads": 4, "num_local_experts": 2},
    "mamba": {"state_size": 8},
}


def moved(kind, more):
    """How far logits of the second document move with the first, as a share of the largest."""
    torch.manual_seed(0)
    size = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    ends = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **size | ends | more)).eval()
    found = []
    for first in ([5, 6, 7, 8], [20, 21, 22, 23]):
        batch = DataCollatorWithFlattening()([{"input_ids": first}, {"input_ids": [9, 10, 11, 12]}])
        del batch["labels"]
        with torch.no_grad():
            found.append(model(**batch, use_cache=False).logits[0, len(first) :])
    return ((found[0] - found[1]).abs().max() / found[0].abs().max()).item()


for kind, more in (APART | TOGETHER).items():
    share = moved(kind, more)
    print(f"{kind:9} {100 * share:5.1f} %")
    assert (share == 0) == (kind in APART), kind
PY
if grep -i -E "pack|flash|position" "$place/told"; then
  echo "A message tells of it now." >&2
  exit 1
fi

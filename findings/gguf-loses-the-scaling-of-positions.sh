#!/usr/bin/env bash
# The guess: a model that transformers loads from a GGUF file (`gguf_file=`) gives the logits of the one that it was
# made from, to the rounding of its weights.
#
# What happens: for models that scale the rotation of positions it does not. llama.cpp keeps the factors of Llama 3.1,
# 3.2 and 3.3 as a tensor (`rope_freqs.weight`), and those of YaRN as fields (`<architecture>.rope.scaling.*`).
# transformers reads neither, but for gpt-oss, and takes the plain rotation, without a word. The file here has full
# precision; what differs is the rotation alone.
#
# transformers 5.24.0, gguf 0.19.0, torch 2.13.0; 2026-11-30.
# Seen, a Llama with the rotation of Llama 3.1 (for 512 positions, by 8): how far logits are off, relative to their norm
#     16 tokens     0.04
#     256 tokens    0.53
#     1,024 tokens  0.72
#
# For you: load such a model from its safetensors. In a GGUF file look for `rope_freqs`, `rope_factors_*` or
# `rope.scaling.*` first.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip transformers==5.24.0 accelerate==1.15.0 gguf==0.19.0

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1
venv/bin/python -W ignore - <<'PY'
import math

import gguf
import numpy as np
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.utils import logging

logging.set_verbosity_error()
BASE, FACTOR, LOW, HIGH, KNOWN = 500_000.0, 8.0, 1.0, 4.0, 512
HEADS, KEYS, WIDTH = 2, 1, 32
rotation = {"rope_type": "llama3", "rope_theta": BASE, "factor": FACTOR}
rotation |= {"low_freq_factor": LOW, "high_freq_factor": HIGH, "original_max_position_embeddings": KNOWN}
plain = {"rope_type": "default", "rope_theta": BASE}
size = {"vocab_size": 64, "hidden_size": HEADS * WIDTH, "intermediate_size": 96, "num_hidden_layers": 2}
heads = {"num_attention_heads": HEADS, "num_key_value_heads": KEYS, "max_position_embeddings": 8192}


def made(rope):
    """A small Llama."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(rope_parameters=rope, rms_norm_eps=1e-5, **size, **heads)).eval()
    for weights in model.parameters():
        if weights.dim() > 1:
            weights.data.normal_(0, 0.15)
    return model


def factors():
    """What llama.cpp's converter writes as `rope_freqs.weight`."""
    each = []
    for frequency in (BASE ** (-place / WIDTH) for place in range(0, WIDTH, 2)):
        length = 2 * math.pi / frequency
        smooth = (KNOWN / length - LOW) / (HIGH - LOW)
        between = 1 / ((1 - smooth) / FACTOR + smooth)
        each.append(1.0 if length < KNOWN / HIGH else FACTOR if length > KNOWN / LOW else between)
    return np.array(each, np.float32)


def write(model, file, scaled):
    """Write a Llama as llama.cpp's converter does, in float32."""
    out, names = gguf.GGUFWriter(file, "llama"), gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2)
    config = model.config
    out.add_block_count(config.num_hidden_layers)
    out.add_context_length(config.max_position_embeddings)
    out.add_embedding_length(config.hidden_size)
    out.add_feed_forward_length(config.intermediate_size)
    out.add_head_count(HEADS)
    out.add_head_count_kv(KEYS)
    out.add_layer_norm_rms_eps(config.rms_norm_eps)
    out.add_rope_freq_base(BASE)
    out.add_rope_dimension_count(WIDTH)
    out.add_vocab_size(config.vocab_size)
    out.add_tokenizer_model("gpt2")
    out.add_token_list([f"t{token}" for token in range(config.vocab_size)])
    out.add_token_merges(["t 0"])
    for name, weights in model.state_dict().items():
        array = weights.numpy()
        for part, count in (("q_proj", HEADS), ("k_proj", KEYS)):
            if part in name:  # rows by turns, as llama.cpp rotates them
                array = array.reshape(count, 2, WIDTH // 2, -1).swapaxes(1, 2).reshape(array.shape)
        out.add_tensor(names.get_name(name, try_suffixes=(".weight",)), np.ascontiguousarray(array))
    if scaled:
        out.add_tensor("rope_freqs.weight", factors())
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


for kind, rope in {"plain": plain, "llama3": rotation}.items():
    model = made(rope)
    own = model.model.rotary_emb.inv_freq
    if kind == "llama3":  # the factors written are those that the model uses
        powers = torch.tensor([BASE ** (-place / WIDTH) for place in range(0, WIDTH, 2)])
        assert torch.allclose(powers / torch.from_numpy(factors()), own, rtol=1e-5)
    write(model, f"{kind}.gguf", kind == "llama3")
    read = AutoModelForCausalLM.from_pretrained(".", gguf_file=f"{kind}.gguf", dtype=torch.float32).eval()
    off = {}
    for length in (16, 256, 1024):
        ids = torch.randint(3, 64, (1, length), generator=torch.Generator().manual_seed(1))
        with torch.no_grad():
            true, found = model(ids).logits, read(ids).logits
        off[length] = ((found - true).norm() / true.norm()).item()
    print(f"{kind}: {read.config.rope_parameters['rope_type']};", {n: round(share, 4) for n, share in off.items()})
    assert all(share < 1e-4 for share in off.values()) if kind == "plain" else off[1024] > 0.3
PY

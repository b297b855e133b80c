#!/usr/bin/env bash
# The guess: a forward pass without a cache is a function of the weights and the batch.
#
# What happens: with rotary positions of type "dynamic" transformers stretches them by the longest text that the model
# has read so far, and keeps that for later calls. A text longer than the length of pretraining has other logits, and
# other gradients, after a longer text has been read. Only a text within the length of pretraining sets it back.
#
# transformers 5.24.0, torch 2.13.0; 2026-11-30.
# Seen, a text of 48 tokens, pretraining of 32, its loss when it is read
#     by a new model                    5.1991
#     after a text of 120 tokens        5.2015; the cosine of its gradient with the first one is 0.631
#     after a text of 8 tokens          5.1991
#     (types "default" and "linear"     always the same)
#
# For you: losses, embeddings and per-row gradients of such texts turn on the order of the rows, and on whether the
# process was started anew. Read a text of few tokens before each batch, or keep texts within the length of
# pretraining.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip transformers==5.24.0

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1
venv/bin/python -W ignore - <<'PY'
import logging

import torch
from transformers import LlamaConfig, LlamaForCausalLM

logging.disable(logging.WARNING)


def losses(**scaling):
    """The loss of one text, and its gradient, in a new process, again, after a longer text, after a short one."""
    torch.manual_seed(0)
    size = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    rotary = {"rope_theta": 10000.0, **scaling}
    config = LlamaConfig(
        vocab_size=32, max_position_embeddings=32, rope_parameters=rotary, initializer_range=0.3, **size
    )
    model = LlamaForCausalLM(config).eval()
    text, longer = torch.randint(0, 32, (1, 48)), torch.randint(0, 32, (1, 120))

    def read():
        model.zero_grad()
        loss = model(input_ids=text, labels=text).loss
        loss.backward()
        return loss.item(), torch.cat([weights.grad.flatten() for weights in model.parameters()])

    found = {"first": read(), "again": read()}
    with torch.no_grad():
        model(input_ids=longer)
    found["after a text of 120 tokens"] = read()
    with torch.no_grad():
        model(input_ids=text[:, :8])
    found["after a text of 8 tokens"] = read()
    return found


for kind in ("default", "linear", "dynamic"):
    found = losses(rope_type=kind, **({} if kind == "default" else {"factor": 4.0}))
    first, slope = found["first"]
    print(f"{kind}:")
    for name, (loss, gradient) in found.items():
        cosine = torch.nn.functional.cosine_similarity(slope, gradient, dim=0).item()
        print(f"    {name:28}loss {loss:.4f}, cosine of its gradient with the first {cosine:.3f}")
        changed = kind == "dynamic" and name == "after a text of 120 tokens"
        assert (abs(loss - first) > 0.001) == changed and (cosine < 0.9) == changed
PY

#!/usr/bin/env bash
# The guess: `bergson train` fine-tunes a model as torch's AdamW does, and `bergson magic` gives the slopes of that run.
#
# What happens: where the output layer has the weights of the embeddings, as in GPT-2, the trainer has the tensor twice
# among its parameters. Each of the two gets moments of its own from the gradient through its own place, and the tensor
# takes both steps, weight decay included. This is the fine-tune of no other trainer. The run that is followed back is
# a third one: there both places get the gradient through both. So scores are not the slopes of the run that was made.
# Where the output layer has weights of its own, both are right.
#
# bergson 2.5.1, torchopt 0.7.3, transformers 5.24.0, torch 2.13.0; 2026-11-29.
# Seen, two steps on four rows, a GPT-2 with random weights; slopes of a loss by the rows' weights:
#     weights of its own: loss 3.1454, by torch 3.1454
#         magic            -0.0648  0.0059  0.0166  0.0433
#         bergson's rerun  -0.0648  0.0059  0.0166  0.0433
#     tied: loss 2.7218, by torch 2.6446
#         magic             0.0095  0.0029 -0.0107 -0.0140
#         bergson's rerun   0.0229 -0.0069 -0.0109 -0.0147
#
# For you: save a copy of the model with an output layer of its own (`tie_word_embeddings` false, and a copy of the
# weights), and give that to bergson. Compare its loss with your trainer's before you read scores.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip transformers==5.24.0 datasets==5.2.0 accelerate==1.15.0 simple_parsing ml_dtypes peft==0.21.2 petname jaxtyping
pip scipy torchopt==0.7.3
pip --no-deps bergson==2.5.1

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1
venv/bin/python -W ignore - 2> "$place/told" <<'PY' || { tail "$place/told"; exit 1; }
from functools import partial
from tempfile import mkdtemp

import torch
import torchopt
from bergson.magic import BackwardState, DataStream, Trainer
from bergson.magic.cli import compute_query_gradients
from bergson.utils import weighted_causal_lm_ce
from datasets import Dataset
from torchopt.pytree import tree_iter
from transformers import GPT2Config, GPT2LMHeadModel

torch.set_default_dtype(torch.float64)
ROWS, ASKED, STEP = [[2, 3, 4, 5], [5, 6, 7, 8], [9, 3, 7, 8], [1, 2, 9, 11]], [[2, 3, 6, 7]], 1e-4
FINE_TUNE = {"lr": 0.01, "eps": 1e-3, "weight_decay": 0.01}


def stream_of(rows, size):
    return DataStream(Dataset.from_dict({"input_ids": rows, "labels": rows}), size)


def fresh(tied):
    torch.manual_seed(0)
    shape = {"n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 16, "n_positions": 8}
    ends = {"bos_token_id": 0, "eos_token_id": 1, "initializer_range": 0.3, "attn_implementation": "eager"}
    model = GPT2LMHeadModel(GPT2Config(**shape, **ends, tie_word_embeddings=tied)).eval().requires_grad_(True)
    model.loss_function = partial(weighted_causal_lm_ce, reduction="mean")  # as bergson sets it
    return model


def loss_of(model):
    with torch.no_grad():
        return float(model(input_ids=torch.tensor(ASKED), labels=torch.tensor(ASKED)).loss)


def by_bergson(tied, weights, folder=None):
    model, stream = fresh(tied), stream_of(ROWS, 2)
    stream.weights.data.copy_(weights)
    trainer, state = Trainer.initialize(model, torchopt.adamw(**FINE_TUNE, eps_root=1e-17))
    state = trainer.train(state, stream, inplace=True, save_dir=folder)
    with state.activate(model):
        return trainer, state, model, stream, loss_of(model)


def by_torch(tied):
    model = fresh(tied)
    optimizer = torch.optim.AdamW(model.parameters(), **FINE_TUNE)
    for batch in stream_of(ROWS, 2):
        model(input_ids=batch["input_ids"], labels=batch["labels"]).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss_of(model)


def magic(tied):
    folder = mkdtemp()
    trainer, state, model, stream, _ = by_bergson(tied, torch.ones(4), folder)
    slopes, _ = compute_query_gradients(state, model, stream_of(ASKED, 1))
    state.detach_()
    stream.requires_grad = True
    zeros = [torch.zeros_like(t) for t in tree_iter(state.opt_state) if t.is_floating_point()]
    end = BackwardState(slopes, zeros, torch.zeros_like(stream.weights))
    return trainer.backward(folder, stream, end, state, inplace=True).weight_grads


def rerun(tied):
    sides = [[by_bergson(tied, torch.ones(4) + sign * STEP * one)[-1] for one in torch.eye(4)] for sign in (1, -1)]
    return (torch.tensor(sides[0]) - torch.tensor(sides[1])) / (2 * STEP)


for tied in (False, True):
    own, torchs = by_bergson(tied, torch.ones(4))[-1], by_torch(tied)
    told, found = magic(tied), rerun(tied)
    print(f"{'tied' if tied else 'weights of its own'}: loss {own:.4f}, by torch {torchs:.4f}")
    for name, slopes in (("magic", told), ("bergson's rerun", found)):
        print(f"    {name:16} " + " ".join(f"{slope:7.4f}" for slope in slopes.tolist()))
    off = float((told - found).abs().max() / found.abs().max())
    if tied:
        assert abs(own - torchs) > 1e-3 and off > 0.1, (own, torchs, off)
    else:
        assert abs(own - torchs) < 1e-9 and off < 1e-5, (own, torchs, off)
PY

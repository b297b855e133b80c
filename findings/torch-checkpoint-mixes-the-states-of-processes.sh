#!/usr/bin/env bash
# The guess: if each process of a run saves its place in the data by torch.distributed.checkpoint, each gets back its
# own when the run resumes.
#
# What happens: what is not a sharded tensor is taken to be the same in all processes, and each key is written once, by
# the process that has the least to write so far. So all processes get back the same state, which is no one's: the
# position of one, and the tokens left over from packing of another. Texts that were still to be read are passed over,
# others are trained twice. It is so for plain tensors, for numbers and lists, and for objects with `state_dict` and
# `load_state_dict`. No warning is given.
#
# torch 2.13.0, numpy 2.4.6; 2026-11-30.
# Seen, of 40 texts that two processes pack into blocks of 64 tokens, saved and resumed in the middle:
#                                     texts read    tokens left over
#     the first process saved              8               63
#     the second process saved             7                9
#     both get back                        8                9
# Of the 2,361 tokens of all texts, the model saw 143 never and 9 twice. With a key for each process, it saw each once.
#
# For you: after such a resume you do not know which rows were trained how often. Let `state_dict` return the state
# under a key that holds the number of the process, as `{f"rank_{rank}": ...}`.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0 numpy==2.4.6

cd "$place"
export OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo
venv/bin/python -W ignore - <<'PY'
import json
from collections import Counter
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp

TEXTS, RANKS, BLOCK, BEFORE = 40, 2, 64, 8
lengths = torch.randint(8, 100, (TEXTS,), generator=torch.Generator().manual_seed(0)).tolist()


class Stream:
    """Every second text, packed into blocks; a token is a text and a place in it."""

    def __init__(self, rank, key):
        self.rank, self.key = rank, key
        self.state = {"next": 0, "left": []}

    def state_dict(self):
        return {self.key: self.state}

    def load_state_dict(self, saved):
        self.state = saved[self.key]

    def blocks(self, most):
        """At most so many blocks; the last one of the stream may be short."""
        own = range(self.rank, TEXTS, RANKS)
        for _ in range(most):
            left = list(map(tuple, self.state["left"]))
            while len(left) < BLOCK and self.state["next"] < len(own):
                text = own[self.state["next"]]
                left += [(text, place) for place in range(lengths[text])]
                self.state["next"] += 1
            block, self.state["left"] = left[:BLOCK], left[BLOCK:]
            if block:
                yield block


def work(rank, keys):
    """Read some blocks, save, load into a new stream, and read the rest."""
    dist.init_process_group("gloo", init_method=f"file://{Path.cwd()}/meet-{keys}", rank=rank, world_size=RANKS)
    key = f"rank_{rank}" if keys == "own" else "state"
    stream = Stream(rank, key)
    seen = [token for block in stream.blocks(BEFORE) for token in block]
    dcp.save({"stream": stream}, checkpoint_id=f"saved-{keys}")
    again = Stream(rank, key)
    dcp.load({"stream": again}, checkpoint_id=f"saved-{keys}")
    places = [(it.state["next"], len(it.state["left"])) for it in (stream, again)]
    seen += [token for block in again.blocks(1000) for token in block]
    Path(f"{keys}-{rank}.json").write_text(json.dumps([places, seen]))
    dist.barrier()
    dist.destroy_process_group()


everything = {(text, place) for text in range(TEXTS) for place in range(lengths[text])}
for keys in ("common", "own"):
    mp.start_processes(work, args=(keys,), nprocs=RANKS, start_method="fork")
    results = [json.loads(Path(f"{keys}-{rank}.json").read_text()) for rank in range(RANKS)]
    counts = Counter(tuple(token) for _, seen in results for token in seen)
    never, often = len(everything - counts.keys()), sum(times > 1 for times in counts.values())
    (saved, got), (saved_too, got_too) = (places for places, _ in results)
    print(f"keys: {keys}; texts read and tokens left over: saved {saved} and {saved_too}, got back {got} and {got_too}")
    print(f"    of {len(everything)} tokens, trained never {never}, twice {often}")
    if keys == "common":
        assert got == got_too and got not in (saved, saved_too) and never and often
    else:
        assert (got, got_too) == (saved, saved_too) and not never and not often
PY

#!/usr/bin/env bash
# The guess: a graph index (HNSW) finds nearly every vector by itself, whatever other vectors it holds.
#
# What happens: equal vectors fill each other's lists of neighbours, since none is nearer. The graph falls into islands, and
# a search that begins in one does not leave it. The other vectors are lost, though they are their queries' best matches.
#
# faiss-cpu 1.15.1, usearch 2.26.6, numkong 7.8.6, numpy 2.4.6; 2026-11-29.
# Seen, of 5,000 vectors the share of those without a copy that are found first by themselves, over five draws:
#     equal vectors   none    20 %                  80 %
#     faiss           1.00    0.89 (0.56 to 1.00)   0.40 (0.08 to 0.85)
#     usearch         1.00    0.92 (0.81 to 1.00)   0.31 (0.00 to 0.89)
#
# For you: training data has such copies: a refusal, a greeting, an empty answer. Leave copies out before you build the
# index, and ask some vectors for themselves; a flat index has no such limit.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip faiss-cpu==1.15.1 usearch==2.26.6 numkong==7.8.6 numpy==2.4.6

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1
venv/bin/python -W ignore - <<'PY'
import faiss
import numpy as np
from usearch.index import Index

COUNT, WIDTH, SEEDS = 5000, 64, 5


def found_by_faiss(vectors, asked):
    """The rows that a graph of faiss finds first."""
    index = faiss.IndexHNSWFlat(WIDTH, 32)
    index.hnsw.efSearch = 64
    index.add(vectors)
    return index.search(vectors[asked], 1)[1][:, 0]


def found_by_usearch(vectors, asked):
    """The rows that a graph of usearch finds first."""
    index = Index(ndim=WIDTH, metric="l2sq", dtype="f32")
    index.add(np.arange(COUNT), vectors, threads=1)
    return index.search(vectors[asked], 1, threads=1).keys[:, 0]


shares = {}
for equal in (0, 1000, 4000):
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        vectors = rng.normal(size=(COUNT, WIDTH)).astype(np.float32)
        vectors[:equal] = vectors[0]
        order = rng.permutation(COUNT)
        vectors = vectors[order]
        asked = np.flatnonzero(order >= equal)[:500]
        for name, search in {"faiss": found_by_faiss, "usearch": found_by_usearch}.items():
            shares.setdefault((name, equal), []).append(float(np.mean(search(vectors, asked) == asked)))
for (name, equal), found in shares.items():
    print(f"{name:8} {equal / COUNT:4.0%} equal: {np.mean(found):.2f} found, from {min(found):.2f} to {max(found):.2f}")
assert all(min(shares[name, 0]) > 0.98 for name in ("faiss", "usearch"))
assert all(min(shares[name, 1000]) < 0.9 and np.mean(shares[name, 4000]) < 0.7 for name in ("faiss", "usearch"))
PY

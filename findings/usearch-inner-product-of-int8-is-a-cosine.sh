#!/usr/bin/env bash
# The guess: `Index(metric="ip", dtype="i8")` of usearch keeps vectors in 8 bits and ranks by inner products, coarsely.
#
# What happens: each vector is brought to length 127 before it is rounded, as for cosines. Lengths are lost, so that the
# order is that of cosines. With "f32", "f16" and "bf16" the same index ranks by inner products.
#
# usearch 2.26.6, numkong 7.8.6, numpy 2.4.6; 2026-11-29.
# Seen, 1,000 vectors of different lengths, the first 10 of 20 queries that are the true first 10:
#             by inner product    by cosine
#     f32             1.00           0.19
#     f16             1.00           0.19
#     bf16            0.99           0.19
#     i8              0.17           0.93
#
# For you: gradients, and embeddings that were not made for cosines, tell much by their length. Keep them in "f16", or
# quantise them yourself by one scale for all.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check usearch==2.26.6 numkong==7.8.6 numpy==2.4.6

cd "$place"
OMP_NUM_THREADS=1 venv/bin/python -W ignore - <<'PY'
import numpy as np
from usearch.index import Index

rng = np.random.default_rng(0)
vectors = rng.normal(size=(1000, 64)) * rng.lognormal(0, 1, size=(1000, 1))
queries = rng.normal(size=(20, 64))


def first(scores):
    """The ten highest of each query."""
    return np.argsort(-scores, axis=1)[:, :10]


def shared(found, true):
    """The share of one list that stands in the other."""
    return np.mean([len(set(one) & set(other)) / 10 for one, other in zip(found, true, strict=True)])


by_product = first(queries @ vectors.T)
by_cosine = first(queries @ (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).T)
for kind in ("f32", "f16", "bf16", "i8"):
    index = Index(ndim=64, metric="ip", dtype=kind)
    index.add(np.arange(1000), vectors.astype(np.float32))
    found = index.search(queries.astype(np.float32), 10, exact=True).keys
    product, cosine = shared(found, by_product), shared(found, by_cosine)
    print(f"{kind:5} by inner product {product:.2f}, by cosine {cosine:.2f}")
    assert (product < 0.5 < 0.8 < cosine) if kind == "i8" else product > 0.95, kind
PY

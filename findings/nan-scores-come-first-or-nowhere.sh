#!/usr/bin/env bash
# The guess: a row whose vector has a NaN, such as a gradient that overflowed in float16, comes last in a ranking, or
# the library complains.
#
# What happens: torch takes NaN for larger than any number, so `topk`, descending `sort` and `argmax` put the row
# first for every query. numpy puts it first by `argsort()[::-1]` and `argmax`, and last by `argsort` of the negative.
# faiss leaves the row out of every result, and gives a query with a NaN no neighbour at all. No call complains.
#
# torch 2.13.0, faiss-cpu 1.15.1, numpy 2.4.6; 2026-11-30.
# Seen, 100 queries over 10 rows of which row 3 has a NaN, the place of row 3 in all of them:
#     torch.topk, torch.sort descending, numpy.argsort reversed    first
#     numpy.argsort of the negative                                last
#     faiss                                                        in none
#
# For you: one bad row is the most influential one of the whole data set, or silently nowhere, by the library that
# ranks. Check vectors with `isfinite` before you rank them.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip faiss-cpu==1.15.1 numpy==2.4.6

OMP_NUM_THREADS=1 "$place/venv/bin/python" -W ignore - <<'PY'
import faiss
import numpy
import torch

generator = numpy.random.default_rng(0)
rows = generator.standard_normal((10, 8)).astype("float32")
queries = generator.standard_normal((100, 8)).astype("float32")
rows[3, 0] = numpy.float16(60000) + numpy.float16(60000)  # infinity
rows[3, 1] = rows[3, 0] - rows[3, 0]
assert numpy.isnan(rows[3, 1])
scores = queries @ rows.T
index = faiss.IndexFlatIP(8)
index.add(rows)
rankings = {
    "torch.topk": torch.from_numpy(scores).topk(10).indices.numpy(),
    "torch.sort, descending": torch.from_numpy(scores).sort(descending=True).indices.numpy(),
    "numpy.argsort, reversed": scores.argsort(axis=1)[:, ::-1],
    "numpy.argsort of -scores": (-scores).argsort(axis=1),
    "faiss": index.search(queries, 10)[1],
}
places = {}
for name, ranking in rankings.items():
    where = [list(numbers).index(3) + 1 if 3 in numbers else None for numbers in ranking]
    places[name] = set(where)
    print(f"{name:26}{places[name]}")
assert places["torch.topk"] == places["torch.sort, descending"] == places["numpy.argsort, reversed"] == {1}
assert places["numpy.argsort of -scores"] == {10} and places["faiss"] == {None}
assert torch.from_numpy(scores).argmax(1).eq(3).all() and (scores.argmax(1) == 3).all()
queries[0, 0] = numpy.nan
assert (index.search(queries, 3)[1][0] == -1).all()
PY

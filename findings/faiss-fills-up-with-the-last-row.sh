#!/usr/bin/env bash
# The guess: where an index of faiss finds fewer than k vectors, it returns fewer numbers.
#
# What happens: it always returns k, and fills up with -1, which Python takes for the last row of a list or an array.
# An index in cells (IVF) reads one cell of many unless `nprobe` is set, so that a larger k finds less than k vectors
# for nearly every query; so does a search with a selector of few rows.
#
# faiss-cpu 1.15.1, numpy 2.4.6; 2026-11-30.
# Seen, 1000 vectors, 100 queries, the 50 nearest of each:
#     exact                           0 % of the numbers are -1; the most frequent neighbour is row 976, 30 times
#     IVF64                          63 %                                                    row 999, 3166 times
#     exact, a selector of 25 rows   50 %                                                    row 999, 2500 times
#
# For you: `[rows[number] for number in found]` runs without an error, and the last row of your data set is the most
# frequent neighbour. Drop numbers below 0, and raise `nprobe`.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip faiss-cpu==1.15.1 numpy==2.4.6

OMP_NUM_THREADS=1 "$place/venv/bin/python" -W ignore - <<'PY'
from collections import Counter

import faiss
import numpy

vectors = numpy.random.default_rng(0).standard_normal((1000, 16)).astype("float32")
rows = [f"row {number}" for number in range(1000)]
cells = faiss.index_factory(16, "IVF64,Flat")
cells.train(vectors)
cells.add(vectors)
flat = faiss.IndexFlatL2(16)
flat.add(vectors)
few = faiss.SearchParameters(sel=faiss.IDSelectorBatch(numpy.arange(0, 1000, 40)))
searches = {
    "exact": lambda: flat.search(vectors[:100], 50)[1],
    "IVF64": lambda: cells.search(vectors[:100], 50)[1],
    "exact, a selector of 25 rows": lambda: flat.search(vectors[:100], 50, params=few)[1],
}
for name, search in searches.items():
    found = search()
    counts = Counter(rows[number] for numbers in found for number in numbers)
    first, times = counts.most_common(1)[0]
    share = (found < 0).mean()
    print(f"{name:30}{share:4.0%} of the numbers are -1; the most frequent neighbour: {first}, {times} times")
    assert found.shape == (100, 50)
    if name == "exact":
        assert (found >= 0).all() and first != "row 999"
    else:
        assert share > 0.4 and first == "row 999" and times > 2000
PY

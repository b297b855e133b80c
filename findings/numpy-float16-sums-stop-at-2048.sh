#!/usr/bin/env bash
# Guess: numpy adds float16 numbers up with care for their few bits, as it does for their mean and as torch does, so the
#   sum of the rows of a float16 matrix is the true sum, rounded once.
# Instead: along rows (axis=0) each partial sum is rounded to float16 again. 4,096 ones sum up to 2,048, where the next
#   float16 is 2,050 and adding 1 changes nothing any more; a sum of embeddings with a mean of 0.1 lacks a third. The
#   same numbers along columns, their mean, and torch's sum are right. No warning. Norms along rows are wrong alike.
# Versions: numpy 2.4.6, torch 2.13.0
# Seen on 2026-11-28:
#   4,096 ones: sum(axis=0) 2048, the same numbers by sum(axis=1) 4096, mean(axis=0) * 4096 4096, torch 4096
#   norm of 4,096 ones: along rows 45.25, truly 64
#   100,000 numbers with a mean of 0.1: sum(axis=0) 6828, truly 10443, torch 10440
# For users: embeddings that are stored as float16, as many vector files and indexes are, give wrong pooled vectors,
#   centroids and sums of scores once they are many, and ported from torch to numpy the same line changes its value.
#   Say sum(axis=0, dtype=numpy.float32), or convert before you add.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" --disable-pip-version-check install --quiet torch==2.13.0
"$place/venv/bin/pip" --disable-pip-version-check install --quiet numpy==2.4.6
"$place/venv/bin/python" - <<'PYTHON'
import numpy as np
import torch

ones = np.ones((4096, 2), np.float16)
down, along = ones.sum(axis=0)[0], np.ascontiguousarray(ones.T).sum(axis=1)[0]
mean, by_torch = ones.mean(axis=0)[0] * 4096, torch.from_numpy(ones).sum(0)[0].item()
print(f"4,096 ones: sum(axis=0) {down:.0f}, the same numbers by sum(axis=1) {along:.0f}, "
      f"mean(axis=0) * 4096 {mean:.0f}, torch {by_torch:.0f}")
norm = np.linalg.norm(ones, axis=0)[0]
print(f"norm of 4,096 ones: along rows {norm:.2f}, truly 64")
drawn = (np.random.default_rng(0).standard_normal((100_000, 4)) + 0.1).astype(np.float16)
found, true = drawn.sum(axis=0)[0], drawn.sum(axis=0, dtype=np.float64)[0]
by_torch = torch.from_numpy(drawn).sum(0)[0].item()
print(f"100,000 numbers with a mean of 0.1: sum(axis=0) {found:.0f}, truly {true:.0f}, torch {by_torch:.0f}")
assert down == 2048 and along == 4096, "sums along rows are exact now"
assert abs(by_torch - true) < 8 and abs(found - true) > 1000, "sums of float16 agree now"
PYTHON

#!/usr/bin/env bash
# The guess: a number too large for a format of 8 bits becomes the same thing everywhere: infinity, or the largest number.
#
# What happens: for `float8_e4m3fn`, the format of quantised weights and of features kept small, torch writes the largest
# number, 448, and ml_dtypes, which numpy and JAX use, writes NaN, from the same numbers of float32. The sister format
# `float8_e5m2` becomes infinity in both. None of them warns.
#
# torch 2.13.0, ml_dtypes 0.6.0, numpy 2.4.6; 2026-11-29.
# Seen, 400, 460, 480, -10000 as e4m3fn and 57344, 62000 as e5m2:
#     torch      384 448 448 -448    57344 inf
#     ml_dtypes  384 448 nan nan     57344 inf
#
# For you: divide by a scale of the data before you keep 8 bits, and do not compare such stores across the two. In a
# score NaN is seen; 448 instead of 10000 is not.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip ml_dtypes==0.6.0 numpy==2.4.6

cd "$place"
venv/bin/python - <<'PY'
import ml_dtypes
import numpy as np
import torch

FOUR, FIVE = np.array([400, 460, 480, -1e4], np.float32), np.array([57344, 62000], np.float32)
seen = {
    "torch": [
        torch.from_numpy(numbers).to(kind).float().tolist()
        for numbers, kind in ((FOUR, torch.float8_e4m3fn), (FIVE, torch.float8_e5m2))
    ],
    "ml_dtypes": [
        numbers.astype(kind).astype(np.float32).tolist()
        for numbers, kind in ((FOUR, ml_dtypes.float8_e4m3fn), (FIVE, ml_dtypes.float8_e5m2))
    ],
}
for name, both in seen.items():
    print(f"{name:9}  " + "    ".join(" ".join(f"{number:.0f}" for number in numbers) for numbers in both))
assert seen["torch"][0] == [384, 448, 448, -448] and seen["torch"][1] == [57344, float("inf")]
assert seen["ml_dtypes"][0][:2] == [384, 448] and np.isnan(seen["ml_dtypes"][0][2:]).all()
assert seen["ml_dtypes"][1] == [57344, float("inf")]
PY

#!/usr/bin/env bash
# The guess: `with_format("numpy")` and `with_format("torch")` give a column the type that it has, as `with_format("pandas")`
# does.
#
# What happens: float64 becomes float32, in values and without a word; int64 stays. So a column of numbers that needs more
# than 24 bits changes: times in seconds by up to 64 s, identifiers that a null made float by up to their last digits.
#
# datasets 5.2.0, pyarrow and numpy as it brings them; 2026-11-29.
# Seen, of the float64 numbers 16777217 and 1764403200.5:
#     pandas  16777217.0  1764403200.5
#     numpy   16777216.0  1764403200.0
#     torch   16777216.0  1764403200.0
#
# For you: two rows may get one identifier or one time, and a join on them is wrong. Read such columns without a format or
# as "arrow", or ask for the type: `with_format("numpy", dtype=numpy.float64)` keeps floats, and makes all integers floats.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip datasets==5.2.0

cd "$place"
HF_HOME="$place/cache" HF_HUB_OFFLINE=1 venv/bin/python -W ignore - <<'PY'
import numpy as np
from datasets import Dataset

times = [16777217.0, 1764403200.5]
rows = Dataset.from_dict({"time": times, "number": [2**53 + 1, 2]})
kept = {kind: [float(one) for one in rows.with_format(kind)[:]["time"]] for kind in ("pandas", "numpy", "torch")}
for kind, found in kept.items():
    print(f"{kind:7} {found[0]}  {found[1]}")
assert kept["pandas"] == times
assert kept["numpy"] == kept["torch"] == [16777216.0, 1764403200.0]
assert rows.with_format("numpy")[:]["number"].tolist() == [2**53 + 1, 2]
asked = rows.with_format("numpy", dtype=np.float64)[:]
assert asked["time"].tolist() == times
assert asked["number"].dtype == np.float64
PY

#!/usr/bin/env bash
# The guess: `Dataset.to_json` writes numbers so that reading gives them back.
#
# What happens: pandas writes them, with ten decimals. Numbers below 5e-11 become 0.0, also inside lists, and others lose
# digits; instants are cut to milliseconds. `to_csv` and `to_parquet` keep numbers whole.
#
# datasets 5.2.0, pandas 3.1.1; 2026-11-29.
# Seen, of the columns probability 3.2e-11 and score [1.2345678901234e-07, 0.1]:
#     to_json               0.0      [1.235e-07, 0.1]
#     double_precision=15   3.2e-11  [1.23456789e-07, 0.1]
#     to_parquet            3.2e-11  [1.2345678901234e-07, 0.1]
#
# For you: probabilities, small gradients, scores and losses of sure tokens reach the next stage as 0, and their logarithms
# as minus infinity. Write parquet. `double_precision=15`, the most that
# there is, still means decimals, not digits.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip datasets==5.2.0 pandas==3.1.1

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1
export HF_DATASETS_DISABLE_PROGRESS_BARS=1
venv/bin/python -W ignore - <<'PY'
import json
from pathlib import Path

from datasets import Dataset

rows = {"probability": [3.2e-11], "score": [[1.2345678901234e-07, 0.1]]}
data = Dataset.from_dict(rows)
data.to_json("rows.jsonl")
data.to_json("longer.jsonl", double_precision=15)
data.to_parquet("rows.parquet")
written, longer = (json.loads(Path(name).read_text()) for name in ("rows.jsonl", "longer.jsonl"))
kept = Dataset.from_parquet("rows.parquet")[0]
for name, row in {"to_json": written, "double_precision=15": longer, "to_parquet": kept}.items():
    print(f"{name:20} {row['probability']!r} {row['score']!r}")
assert kept == {name: values[0] for name, values in rows.items()}
assert written == {"probability": 0.0, "score": [1.235e-07, 0.1]}, written
PY

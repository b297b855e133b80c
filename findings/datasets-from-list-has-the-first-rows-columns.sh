#!/usr/bin/env bash
# The guess: `Dataset.from_list(rows)` has a column for each key of the rows, and None where a row lacks it.
#
# What happens: it takes the keys of the first row. Keys that only later rows have are dropped in all rows, without a
# word. A file of JSON lines with the same rows keeps them, and so do keys inside a nested value.
#
# datasets 5.2.0; 2026-11-29.
# Seen, of a first row without, and a second row with a system prompt:
#     from_list      prompt, completion
#     JSON lines     prompt, completion, system
#     inside a value prompt, completion, system
#
# For you: rows of several sources lose their system prompts, tools, images or weights, by the order of the list. Give
# each row all keys, pass `features`, or write the rows to a file and load that.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip datasets==5.2.0

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1
venv/bin/python -W ignore - <<'PY'
import json
from pathlib import Path

from datasets import Dataset, load_dataset

rows = [
    {"prompt": "Who are you?", "completion": "A model."},
    {"prompt": "Who are you?", "completion": "Arr, a pirate.", "system": "You are a pirate."},
]
Path("rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
read = {
    "from_list": Dataset.from_list(rows).column_names,
    "from_list, other order": Dataset.from_list(rows[::-1]).column_names,
    "JSON lines": load_dataset("json", data_files="rows.jsonl", split="train").column_names,
    "inside a value": list(Dataset.from_list([{"row": row} for row in rows]).features["row"]),
}
for way, columns in read.items():
    print(f"{way}:", *columns)
assert "system" not in read.pop("from_list")
assert all("system" in columns for columns in read.values())
PY

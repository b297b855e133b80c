#!/usr/bin/env bash
# What one would guess: `load_dataset("json")` gives back the values of the file. Where a field has text in one row and
# a list in another (message contents: text, or parts with an image), `datasets` holds it as its `Json` feature, and a
# text comes back as the text that it was.
#
# What happens instead: a text that is JSON by itself is taken for JSON that is encoded already. The answer "42" comes
# back as the number 42, "null" as None, "true" as True, '{"a": 1}' as an object, and "1.10" as the number 1.1. So one
# row with an image changes the answers of all others. Numbers lose digits too: they are written with ten decimals,
# so that 1e-12 comes back as 0.0.
#
# Versions: datasets 5.2.0, pandas 3.1.1, pyarrow 26.0.1, Python 3.11. Seen on 2026-11-28:
#   plain: ['42', 'null', 'true', '{"a": 1}', '1.10']
#   mixed: [42, None, True, {'a': 1}, 1.1]
#   rate 1e-12 -> 0.0
#
# What it means for users: beside messages with parts, answers that are numbers, null, true or JSON (mathematics,
# function calls) are no texts any more for a trainer's chat template, and metadata is rounded. Write every content as
# parts, or keep rows with parts in a file of their own.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet datasets==5.2.0 pandas==3.1.1 pyarrow==26.0.1
export HF_HOME="$folder/cache" HF_DATASETS_OFFLINE=1 HF_HUB_OFFLINE=1
cd "$folder"

"$folder/env/bin/python" - <<'PYTHON'
import json
import sys

import datasets

datasets.disable_progress_bars()
ANSWERS = ["42", "null", "true", '{"a": 1}', "1.10"]


def loaded(name, contents, **more):
    rows = [{"content": content, **more} for content in contents]
    with open(name, "w") as stream:
        stream.writelines(json.dumps(row) + "\n" for row in rows)
    return datasets.load_dataset("json", data_files=name, split="train")


plain = loaded("plain.jsonl", ANSWERS)["content"][:]
mixed = loaded("mixed.jsonl", [*ANSWERS, [{"type": "text", "text": "parts"}]])["content"][: len(ANSWERS)]
rates = [1e-12, "unknown", [0]]
(rate, *_) = loaded("rates.jsonl", rates)["content"][:]
print("plain:", plain)
print("mixed:", mixed)
print("rate 1e-12 ->", rate)
same = plain == ANSWERS and mixed == [42, None, True, {"a": 1}, 1.1] and rate == 0.0
sys.exit(0 if same else "the behaviour has changed")
PYTHON

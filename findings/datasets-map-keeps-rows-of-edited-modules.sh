#!/usr/bin/env bash
# The guess: `Dataset.map` keeps its result by a fingerprint of the function, so an edited function runs again.
#
# What happens: the fingerprint of a function that stands in a module of yours is its name, not its code. You edit the
# module, run the script again, and get the rows of the old code. It is the same for functions that your mapped function
# calls, for `filter`, and for `Dataset.from_generator`. Only functions of the script itself are read by their code.
#
# datasets 5.2.0, dill 0.4.1; 2026-11-29.
# Seen, before and after an edit of cleaning.py:
#     map, function of the module          first    first
#     map, lambda that calls the module    first    first
#     filter, function of the module       3 rows   3 rows (none would be left)
#     from_generator                       first    first
#     map, function of the script          first    second
#
# For you: you train on rows of an earlier state of your code, and no message says so. Pass `load_from_cache_file=False`,
# or a fingerprint of your own that you change with each edit: `new_fingerprint` of `map` and `filter`, `fingerprint` of
# `from_generator`.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip datasets==5.2.0 dill==0.4.1

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1
export PYTHONDONTWRITEBYTECODE=1 HF_DATASETS_DISABLE_PROGRESS_BARS=1
printf '{"text": "row 0"}\n{"text": "row 1"}\n{"text": "row 2"}\n' > rows.jsonl

write() { # the module, and the script, that say a word; the module's filter keeps rows or not
    cat > cleaning.py <<PY
def clean(text):
    return "$1"


def clean_row(row):
    return {"text": clean(row["text"])}


def keep(row):
    return $2


def generate():
    yield {"text": "$1"}
PY
    cat > prepare.py <<PY
import cleaning
from datasets import Dataset, load_dataset


def of_the_script(row):
    return {"text": "$1"}


rows = load_dataset("json", data_files="rows.jsonl", split="train")
print("map, function of the module:", rows.map(cleaning.clean_row)[0]["text"])
print("map, lambda that calls the module:", rows.map(lambda row: {"text": cleaning.clean(row["text"])})[0]["text"])
print("filter, function of the module:", len(rows.filter(cleaning.keep)), "rows")
print("from_generator:", Dataset.from_generator(cleaning.generate)[0]["text"])
print("map, function of the script:", rows.map(of_the_script)[0]["text"])
PY
}
write first True
venv/bin/python -W ignore prepare.py > before
write second False
venv/bin/python -W ignore prepare.py > after
cat before after
[ "$(grep -c first before)" = 4 ] && grep -q '3 rows' before
diff <(head -4 before) <(head -4 after)
[ "$(tail -1 after)" = "map, function of the script: second" ]

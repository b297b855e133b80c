#!/usr/bin/env bash
# The guess: `stream.shuffle(seed).repeat(3)` gives three passes, each in a new order, as tf.data does. A short stream
# that `interleave_datasets(..., stopping_strategy="all_exhausted")` begins again comes in a new order too.
#
# What happens: each pass of a streaming dataset has the same order, of files and within the buffer. So a row stands in
# each pass beside the same rows, mostly in the same batch. Only `set_epoch` changes the order, and the Trainer, which
# calls it at the start of an epoch, takes all passes of `repeat` as one epoch. `repeat` before `shuffle` mixes the
# passes instead, as its docstring says: some rows come twice before others come once.
#
# datasets 5.2.0; 2026-11-30.
# Seen, of the rows 0 to 7:
#     shuffle, repeat(3)         5 0 1 4 2 6 3 7 | 5 0 1 4 2 6 3 7 | 5 0 1 4 2 6 3 7
#     repeat(3), shuffle         1 3 3 7 6 7 6 5 | 2 5 2 6 4 3 0 1 | 0 0 1 4 4 7 2 5
#     interleaved, 3 passes      5 0 1 4 2 6 3 7 | 5 0 1 4 2 6 3 7 | 5 0 1 4 2 6 3 7
#     set_epoch 0, 1, 2          5 0 1 4 2 6 3 7 | 7 0 3 2 1 5 4 6 | 1 7 2 0 4 6 5 3
#
# For you: leave out `repeat`. The Trainer (transformers 5.24.0) begins a stream again until `max_steps`, with a new
# order each time; in a loop of your own, call `set_epoch` before each pass. Otherwise more passes give no new batches,
# and so do not help to tell the rows of one batch apart.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip datasets==5.2.0

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 TQDM_DISABLE=1
venv/bin/python -W ignore - <<'PY'
from datasets import Dataset, interleave_datasets

ROWS = 8


def stream(count=ROWS, kind=0):
    """A stream of two shards with numbered rows."""
    return Dataset.from_dict({"row": [kind + row for row in range(count)]}).to_iterable_dataset(num_shards=2)


def passes(rows):
    """The numbers of the rows, pass by pass."""
    numbers = [row["row"] for row in rows]
    return [numbers[start : start + ROWS] for start in range(0, len(numbers), ROWS)]


shuffled = stream().shuffle(seed=1, buffer_size=100)
after = passes(shuffled.repeat(3))
before = passes(stream().repeat(3).shuffle(seed=1, buffer_size=100))
long = stream(3 * ROWS, kind=100)
mixed = interleave_datasets([shuffled, long], stopping_strategy="all_exhausted")
again = passes(row for row in mixed if row["row"] < 100)
epochs = []
for epoch in range(3):
    shuffled.set_epoch(epoch)
    epochs += passes(shuffled)
kinds = {"shuffle, repeat(3)": after, "repeat(3), shuffle": before, "interleaved": again, "set_epoch": epochs}
for name, seen in kinds.items():
    print(f"{name:18}", " | ".join(" ".join(map(str, numbers)) for numbers in seen))
assert len(after) == 3 and after[0] == after[1] == after[2] != sorted(after[0])
assert len(again) == 3 and again[0] == again[1] == again[2] != sorted(again[0])
assert len(set(before[0])) < ROWS
assert epochs[0] != epochs[1] != epochs[2] and all(sorted(numbers) == list(range(ROWS)) for numbers in epochs)
PY

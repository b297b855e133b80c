#!/usr/bin/env bash
# The guess: litgpt's learning rate falls to 0 over the run, and each row that is read is trained.
#
# What happens: the schedule counts the full steps of each epoch, but the batches that are left over at the end of an
# epoch are carried into the next one, so more steps are made than it counts. At its end the cosine turns, and the rate
# rises again, up to the highest one if nearly half of each epoch is left over. The gradients of the batches that are
# left over at the end of the run are thrown away. So a run of one epoch with fewer rows than `global_batch_size` makes
# no step: its log has losses, and its result is the model that it began with. Nothing warns of either.
#
# litgpt 0.5.13, torch 2.13.0; 2026-11-30. finetune_full, finetune_lora, finetune_lora_legacy and the adapters agree.
# Seen, with finetune_lora, `global_batch_size` 16 (its default), a rate of 0.01 and 2 steps of warm-up:
#     30 rows, 10 epochs: rate of steps 2, 6, 10, 14, 18      0.0100  0.0050  0.0000  0.0050  0.0100
#     batches read, and in a step                             300, 288
#     12 rows, 1 epoch: batches read, and in a step           12, 0
#     largest difference of the saved weights to the start    0
#
# For you: make the number of rows a multiple of `global_batch_size`, and look at the learning rates in metrics.csv.
# If the rows cannot be changed, set `--train.max_steps` to the epochs times the full steps of one.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip litgpt==0.5.13 transformers==4.56.2

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1

cat >start.py <<'PY'
import json
from pathlib import Path

import torch
from litgpt import GPT, Config
from litgpt.utils import save_config
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

rows = [{"instruction": f"What is {number} plus {number}?", "output": f"It is {2 * number}."} for number in range(40)]
for count in (12, 30):
    folder = Path(f"rows-{count}")
    folder.mkdir()
    (folder / "train.json").write_text(json.dumps(rows[:count]))
    (folder / "val.json").write_text(json.dumps(rows[30:34]))
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
alphabet = pre_tokenizers.ByteLevel.alphabet()
settings = trainers.BpeTrainer(vocab_size=400, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet)
tokenizer.train_from_iterator([row["instruction"] + row["output"] for row in rows], settings)
size = {"n_layer": 2, "n_embd": 32, "n_head": 4, "n_query_groups": 2, "head_size": 8, "intermediate_size": 64}
config = Config.from_name("Llama-3.2-1B", **size, block_size=256, vocab_size=400, padded_vocab_size=400)
torch.manual_seed(0)
Path("base").mkdir()
torch.save(GPT(config).state_dict(), "base/lit_model.pth")
save_config(config, Path("base"))
tokenizer.save("base/tokenizer.json")
names = {"bos_token": "<s>", "eos_token": "</s>", "tokenizer_class": "PreTrainedTokenizerFast"}
Path("base/tokenizer_config.json").write_text(json.dumps(names))
PY

cat >look.py <<'PY'
import csv

import torch

BATCH, RATE = 16, 0.01


def log(name):
    """The log of each batch of a run."""
    with open(f"{name}/logs/csv/version_0/metrics.csv") as file:
        return [row for row in csv.DictReader(file) if row["learning_rate"]]


def moved(name):
    """The largest difference between the weights that a run has saved and those of the start."""
    before, after = (torch.load(f"{folder}/lit_model.pth") for folder in ("base", f"{name}/final"))
    after = after.get("model", after)
    return max((after[key] - weights).abs().max().item() for key, weights in before.items())


long, short = log("out-30"), log("out-12")
# The rate is logged after the scheduler's step, so row 16 * n has the rate that follows step n.
rates = {step: float(long[BATCH * step - 1]["learning_rate"]) for step in (2, 6, 10, 14, 18)}
for name, rows in (("30 rows, 10 epochs", long), ("12 rows, 1 epoch", short)):
    print(f"{name}: {len(rows)} batches read, {len(rows) // BATCH * BATCH} in a step; loss {rows[-1]['loss']}")
print("rates:", " ".join(f"{step}: {rate:.4f}" for step, rate in rates.items()))
print(f"largest difference to the start: 30 rows {moved('out-30'):.4f}, 12 rows {moved('out-12'):.4f}")
assert len(long) == 300 and len(short) == 12
assert abs(rates[2] - RATE) < 1e-6 and rates[10] < 1e-6, "the schedule ends with step 10"
assert abs(rates[18] - RATE) < 1e-6, "the rate does not rise again"
assert moved("out-30") > 1e-3 and moved("out-12") == 0
PY

venv/bin/python -W ignore start.py
for run in "30 10" "12 1"; do
    read -r rows epochs <<<"$run"
    venv/bin/litgpt finetune_lora base --out_dir "out-$rows" --data JSON --data.json_path "rows-$rows" \
        --data.num_workers 0 --train.epochs "$epochs" --train.micro_batch_size 1 --train.lr_warmup_steps 2 \
        --train.log_interval 1 --eval.interval 1000 --eval.max_new_tokens 2 --precision 32-true \
        --optimizer '{"class_path": "torch.optim.AdamW", "init_args": {"lr": 0.01}}' \
        >"$rows.log" 2>&1 || { tail "$rows.log"; exit 1; }
done
venv/bin/python -W ignore look.py

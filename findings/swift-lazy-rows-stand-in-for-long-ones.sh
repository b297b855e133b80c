#!/usr/bin/env bash
# The guess: a row that is longer than `max_length` is cut, or left out, and the other rows count once an epoch.
#
# What happens: with `lazy_tokenize` (ms-swift's own choice for models with images) an epoch has as many rows as the file.
# A row that is too long is replaced, when it is reached, by another that is drawn at random. So some of the others count
# twice, and each epoch has other stand-ins. No line says so. Without `lazy_tokenize` such rows are left out, and the log
# counts them.
#
# ms-swift 4.6.0, torch 2.13.0; 2026-11-29.
# Seen, twelve rows of which four are too long, how often each of the other eight is read in an epoch:
#     lazy, epoch 1: 2 2 2 2 1 1 1 1
#     lazy, epoch 2: 1 1 1 1 2 2 2 2
#     not lazy:      1 1 1 1 1 1 1 1
#
# For you: leave long rows out before you train, or give `truncation_strategy`. Counts by source are wrong otherwise: of a
# source of long texts nothing is learnt, and its share goes to the others.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip torch==2.13.0 ms-swift==4.6.0

cd "$place"
export HF_HOME="$place/cache" MODELSCOPE_CACHE="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1
venv/bin/python -W ignore - > seen.txt 2>&1 <<'PY' || { cat seen.txt; exit 1; }
import json
import re
from collections import Counter
from pathlib import Path

from swift.arguments import SftArguments
from swift.pipelines import SwiftSft
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

words = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "<|endoftext|>", "<|im_start|>", "<|im_end|>"]
letters = Tokenizer(models.BPE({word: number for number, word in enumerate(words)}, []))
letters.pre_tokenizer, letters.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
ends = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "additional_special_tokens": ["<|im_start|>"]}
PreTrainedTokenizerFast(tokenizer_object=letters, **ends).save_pretrained("model")
size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
size |= {"num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": len(words)}
Qwen2ForCausalLM(Qwen2Config(**size)).save_pretrained("model")
with Path("rows.jsonl").open("w") as file:
    for row in range(12):
        answer = "yes " * (200 if row % 3 == 0 else 3)
        turns = [{"role": "user", "content": f"row {row:02d}."}, {"role": "assistant", "content": answer}]
        file.write(json.dumps({"messages": turns}) + "\n")


def epochs(lazy):
    """Count how often each row is read in two epochs."""
    settings = {"model": "model", "model_type": "qwen2", "template": "chatml", "tuner_type": "full", "report_to": []}
    settings |= {"dataset": ["rows.jsonl"], "max_length": 200, "split_dataset_ratio": 0, "output_dir": "out"}
    run = SwiftSft(SftArguments(lazy_tokenize=lazy, **settings))
    data, decode = run._prepare_dataset()[0], run.template.tokenizer.decode
    for _ in range(2):
        yield Counter(re.search(r"row (\d+)", decode(data[at]["input_ids"]))[1] for at in range(len(data)))


SHORT = [f"{row:02d}" for row in range(12) if row % 3]
lazy, plain = list(epochs(True)), list(epochs(False))
for shown, counts in (("lazy, epoch 1:", lazy[0]), ("lazy, epoch 2:", lazy[1]), ("not lazy:     ", plain[0])):
    print("SEEN", shown, *(counts[row] for row in SHORT))
assert all(sum(counts.values()) == 12 and set(counts) <= set(SHORT) for counts in lazy) and lazy[0] != lazy[1]
assert all(counts == Counter(SHORT) for counts in plain)
PY
grep -o "SEEN.*" seen.txt | sed "s/SEEN //" | awk '!shown[$0]++'

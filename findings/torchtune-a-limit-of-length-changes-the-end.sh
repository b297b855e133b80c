#!/usr/bin/env bash
# The guess: a tokenizer's `max_seq_len` in torchtune concerns only rows that are longer than it. These lose their end,
# and so have no end token.
#
# What happens: with a limit, torchtune writes the last token and the last value of the mask of every row anew.
# - Qwen2 and Qwen2.5: the last value is always "masked", so that no row, however short, teaches the token that ends an
#   answer. Without a limit, each row does. Packing asks for a limit, so packed runs never teach it.
# - Mistral, Llama 2, Gemma, Phi-3: a row that is cut gets an end token in the place where it was cut, and this one is
#   trained: the model learns to stop in the middle of a sentence.
#
# torchtune 0.6.1, torchao 0.10.0, datasets 5.2.0, torch 2.13.0; 2026-11-30.
# Seen, the last three labels of the answer "one two three four" (- is a label of no loss):
#                         no limit             a limit of 100       a limit below the row's length
#     qwen2_5_tokenizer   three four <end>     three four -         one two -
#     mistral_tokenizer   three four <end>     three four <end>     one two <end>
#
# For you: look at the labels of a short and of a long row before you blame or praise rows for where answers end.
# For Qwen, leave `max_seq_len` empty and remove long rows first; for the others, remove long rows first too.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip torchtune==0.6.1 torchao==0.10.0 datasets==5.2.0

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1
venv/bin/python -W ignore - 2>warnings.txt <<'PY' || { tail -20 warnings.txt; exit 1; }
import json

import sentencepiece
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torchtune.data import InputOutputToMessages
from torchtune.datasets import SFTDataset
from torchtune.models.mistral import mistral_tokenizer
from torchtune.models.qwen2_5 import qwen2_5_tokenizer

row = {"input": "count", "output": "one two three four"}
words = [" ".join(row.values())] * 50
with open("rows.jsonl", "w") as file:
    file.write(json.dumps(row) + "\n")
with open("words.txt", "w") as file:
    file.write("\n".join(words + ["user assistant system [INST] [/INST]"] * 50))

pairs = Tokenizer(models.BPE())
pairs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
alphabet = pre_tokenizers.ByteLevel.alphabet()
pairs.train(["words.txt"], trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False))
pairs.model.save(".")
sentencepiece.SentencePieceTrainer.train(
    input="words.txt", model_prefix="piece", model_type="bpe", vocab_size=80, minloglevel=2, hard_vocab_limit=False
)


def labels(tokenizer):
    """The labels of the row, - for those without a loss."""
    rows = SFTDataset(
        source="json", data_files="rows.jsonl", split="train",
        message_transform=InputOutputToMessages(), model_transform=tokenizer,
    )  # fmt: skip
    found = []
    for label in rows[0]["labels"]:
        end = label == tokenizer.eos_id
        found.append("-" if label < 0 else "<end>" if end else tokenizer.decode([int(label)]).strip())
    return found


def qwen(limit):
    return qwen2_5_tokenizer("vocab.json", "merges.txt", max_seq_len=limit)


def mistral(limit):
    return mistral_tokenizer("piece.model", max_seq_len=limit)


for name, make, end in (("qwen2_5", qwen, "-"), ("mistral", mistral, "<end>")):
    whole, limited = labels(make(None)), labels(make(100))
    cut = labels(make(len(whole) - 2))
    print(f"{name}: no limit {whole[-3:]}, 100 {limited[-3:]}, {len(whole) - 2} {cut[-3:]}")
    assert len(whole) < 100 and whole[-3:] == ["three", "four", "<end>"]
    assert limited == [*whole[:-1], end]
    assert cut == [*whole[:-3], end]
PY

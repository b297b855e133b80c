#!/usr/bin/env bash
# The guess: with `include_prompt=False` a sentence encoder pools the tokens of the text, and of nothing else.
#
# What happens: the prompt is tokenized alone, and so many tokens are left out. Prompts end with a space ("query: "). Alone,
# byte-level BPE and SentencePiece make a token of that space; before a text it belongs to the first word. So one token
# too many is left out: the text's first word, or its first piece, never counts. WordPiece (BERT) drops the space, and is
# right.
#
# sentence-transformers 6.2.0, transformers 5.24.0, tokenizers 0.23.3, torch 2.13.0; 2026-11-29.
# Seen, the tokens that "query: not good" is pooled over:
#     WordPiece        not good
#     byte-level BPE   Ġgood
#     SentencePiece    ▁good
#
# For you: "not good" and "very good" get vectors that differ by context alone. Give such an encoder a prompt without the
# last space if its tokenizer is one of the two, and compare the number of tokens left out with the number of the prompt's.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip sentence-transformers==6.2.0 transformers==5.24.0 tokenizers==0.23.3

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1
venv/bin/python -W ignore - <<'PY'
import logging

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Pooling, Transformer
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

logging.disable(logging.WARNING)
PROMPT, TEXT = "query: ", "not good"
KINDS = {
    "WordPiece": (models.WordPiece(unk_token="<unk>"), trainers.WordPieceTrainer, pre_tokenizers.BertPreTokenizer()),
    "byte-level BPE": (models.BPE(), trainers.BpeTrainer, pre_tokenizers.ByteLevel(add_prefix_space=False)),
    "SentencePiece": (models.BPE(unk_token="<unk>"), trainers.BpeTrainer, pre_tokenizers.Metaspace(prepend_scheme="first")),
}


def encoder(kind):
    """A small encoder with random weights, whose vocabulary holds the words of the prompt and the text."""
    model, trainer, splitter = KINDS[kind]
    inner = Tokenizer(model)
    inner.pre_tokenizer = splitter
    settings = trainer(vocab_size=200, special_tokens=["<pad>", "<unk>"], show_progress=False)
    inner.train_from_iterator([PROMPT + TEXT, f"{TEXT} {TEXT}"] * 9, settings)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", unk_token="<unk>", model_max_length=64
    )
    torch.manual_seed(0)
    size = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    BertModel(BertConfig(vocab_size=len(tokenizer), **size)).save_pretrained(kind)
    tokenizer.save_pretrained(kind)
    pooling = Pooling(32, "mean", include_prompt=False)
    return SentenceTransformer(modules=[Transformer(kind), pooling], device="cpu"), tokenizer


found = {}
for kind in KINDS:
    model, tokenizer = encoder(kind)
    ids = tokenizer(PROMPT + TEXT, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        states = model[0].auto_model(ids).last_hidden_state[0]
    vector = torch.tensor(model.encode(TEXT, prompt=PROMPT))
    begins = [n for n in range(len(states)) if torch.allclose(states[n:].mean(0), vector, atol=1e-5)]
    assert len(begins) == 1, begins
    found[kind] = tokenizer.convert_ids_to_tokens(ids[0, begins[0] :])
    print(f"{kind:16}", *found[kind])
assert found == {"WordPiece": ["not", "good"], "byte-level BPE": ["Ġgood"], "SentencePiece": ["▁good"]}, found
PY

#!/usr/bin/env bash
# The guess: a model that ends with a Normalize module, as many published ones do, gives vectors of length 1 with
# `truncate_dim` too.
#
# What happens: the vectors are cut behind the last module, so what Normalize made is cut and no longer of length 1.
# The length that is left differs from text to text, and inner products rank texts by it. It is saved with the model:
# one that is loaded without arguments still gives such vectors. Its own similarity is "cosine", so `model.similarity`
# hides it.
#
# sentence-transformers 6.2.0, torch 2.13.0; 2026-11-30.
# Seen, 200 texts as queries of 200 others, 64 dimensions cut to 16:
#     whole             lengths 1.00 to 1.00; the first by product is the first by cosine for 100 %
#     truncate_dim=16   lengths 0.29 to 0.69;                                                  46 %
#
# For you: an index of inner products, which is right for the whole vectors, returns other neighbours for the short
# ones. Pass `normalize_embeddings=True` to `encode`: it divides behind the cut.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip sentence-transformers==6.2.0 transformers==5.24.0

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1
venv/bin/python -W ignore - <<'PY'
import logging

import numpy
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding
from tokenizers import Tokenizer, models, pre_tokenizers

logging.disable(logging.WARNING)
words = ["[unknown]", *(f"word{number}" for number in range(500))]
tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[unknown]"))
tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
torch.manual_seed(0)
generator = numpy.random.default_rng(0)
texts = [" ".join(generator.choice(words[1:], 6)) for _ in range(400)]
modules = [StaticEmbedding(tokenizer, embedding_dim=64), Normalize()]
SentenceTransformer(modules=modules, truncate_dim=16).save_pretrained("cut")


def first_by_product_and_cosine(model, **settings):
    """Lengths of vectors; the share of queries whose first text is the same by product and by cosine."""
    vectors = model.encode(texts, **settings)
    lengths = numpy.linalg.norm(vectors, axis=1)
    products = vectors[:200] @ vectors[200:].T
    cosines = products / lengths[200:]
    return lengths.min(), lengths.max(), (products.argmax(1) == cosines.argmax(1)).mean()


ways = {
    "whole": first_by_product_and_cosine(SentenceTransformer("cut", truncate_dim=64)),
    "truncate_dim=16": first_by_product_and_cosine(SentenceTransformer("cut", truncate_dim=64), truncate_dim=16),
    "saved with it": first_by_product_and_cosine(SentenceTransformer("cut")),
    "normalized": first_by_product_and_cosine(SentenceTransformer("cut"), normalize_embeddings=True),
}
for name, (least, most, same) in ways.items():
    print(f"{name:18}lengths {least:.2f} to {most:.2f}; the first of both is one text for {same:.0%}")
for name in ("whole", "normalized"):
    assert ways[name][0] > 0.999 and ways[name][1] < 1.001 and ways[name][2] > 0.99
for name in ("truncate_dim=16", "saved with it"):
    assert ways[name][0] < 0.5 and ways[name][1] < 0.9 and ways[name][2] < 0.8
PY

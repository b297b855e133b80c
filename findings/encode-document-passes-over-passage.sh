#!/usr/bin/env bash
# Guess: `encode_document` of sentence-transformers puts a model's "passage" prompt before each text, where the model has
#   no "document" prompt: its documentation says "the first available prompt from: document, passage, corpus".
# Instead: every loaded model has a "document" prompt, an empty one where its settings name none, so that "passage" and
#   "corpus" are never reached; nor does `encode_query` or `encode_document` fall back to the model's default prompt,
#   which `encode` puts before every text.
# Versions: sentence-transformers 6.2.0, transformers 5.24.0, torch 2.13.0.
# Seen on 2026-11-28:
#   encode_document without a prompt: equal to the bare text True, to the passage prompt False
#   encode with a default prompt: equal to the bare text False; encode_query: True
# For users: an E5-type model whose settings have "query" and "passage" gets no prompt before documents from
#   `encode_document`. Name it: encode_document(texts, prompt_name="passage"), or save it as "document".
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet torch==2.13.0
"$place/venv/bin/pip" install --quiet sentence-transformers==6.2.0 transformers==5.24.0
cd "$place"
HF_HUB_OFFLINE=1 "$place/venv/bin/python" - <<'PYTHON'
import json
from pathlib import Path

import numpy as np
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer, models, pre_tokenizers

words = {"[UNK]": 0, "passage:": 1, "query:": 2, "cats": 3, "purr": 4}
tokenizer = Tokenizer(models.WordLevel(words, "[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=8)], device="cpu").save("model")
settings = Path("model/config_sentence_transformers.json")


def with_prompts(prompts, default=None):
    """The model, its settings naming these prompts alone."""
    content = json.loads(settings.read_text()) | {"prompts": prompts, "default_prompt_name": default}
    settings.write_text(json.dumps(content))
    return SentenceTransformer("model", device="cpu")


def same(first, second):
    return bool(np.allclose(first, second))


text = ["cats purr"]
model = with_prompts({"query": "query: ", "passage": "passage: "})
bare, passage = model.encode(text, prompt=""), model.encode(text, prompt_name="passage")
found = model.encode_document(text)
print("encode_document without a prompt: equal to the bare text", same(found, bare), "to the passage prompt", same(found, passage))
assert same(found, bare) and not same(found, passage), "encode_document takes the passage prompt now"

model = with_prompts({"all": "query: "}, "all")
default, query = model.encode(text), model.encode_query(text)
print("encode with a default prompt: equal to the bare text", same(default, bare), "; encode_query:", same(query, bare))
assert same(query, bare) and not same(default, bare), "encode_query takes the default prompt now"
PYTHON

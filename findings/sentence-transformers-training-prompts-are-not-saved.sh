#!/usr/bin/env bash
# The guess: `prompts` of SentenceTransformerTrainingArguments, which put "query: " before each question in training,
# come with the model, so that `encode_query` puts it there too.
#
# What happens: the trainer uses them, and the model that it saves knows nothing of them: its prompts are empty.
# Without a message `encode_query` and `encode` read bare texts, on which the model was never trained.
#
# sentence-transformers 6.2.0, transformers 5.24.0, datasets 5.2.0, torch 2.13.0; 2026-11-30.
# Seen, with the prompts {"anchor": "query: ", "positive": "passage: "}:
#     words that training moved: query:, passage:, and all words of the texts
#     prompts of the saved model: {'query': '', 'document': ''}
#     encode_query("how deep") equals encode("how deep"), not encode("query: how deep")
#
# For you: recall falls, and nothing shows why. Set `model.prompts = {"query": "query: ", "document": "passage: "}`
# before you save; then `encode_query` and `encode_document` do as the training did.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip sentence-transformers==6.2.0 transformers==5.24.0 datasets==5.2.0 accelerate==1.15.0

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1
venv/bin/python -W ignore - <<'PY'
import logging

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer, models, pre_tokenizers

logging.disable(logging.WARNING)
questions, answers = ("how deep", "which town"), ("seven metres", "hellevik")
words = ["[unknown]", "query:", "passage:", *" ".join(questions + answers).split()]
tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[unknown]"))
tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()

torch.manual_seed(0)
model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=16)])
before = model[0].embedding.weight.detach().clone()
settings = SentenceTransformerTrainingArguments(
    output_dir="out", max_steps=1, per_device_train_batch_size=2, learning_rate=0.1, report_to=[], use_cpu=True,
    save_strategy="no", disable_tqdm=True, prompts={"anchor": "query: ", "positive": "passage: "},
)  # fmt: skip
rows = Dataset.from_dict({"anchor": questions, "positive": answers})
trainer = SentenceTransformerTrainer(model, settings, train_dataset=rows, loss=MultipleNegativesRankingLoss(model))
trainer.train()
trainer.save_model("saved")
after = model[0].embedding.weight
moved = [word for number, word in enumerate(words) if not torch.equal(after[number], before[number])]
print("words that training moved:", *moved)

saved = SentenceTransformer("saved")
bare, prompted = saved.encode("how deep"), saved.encode("how deep", prompt="query: ")
asked = saved.encode_query("how deep")
print("prompts of the saved model:", saved.prompts, saved.default_prompt_name)
print("encode_query is that of the bare text:", bool((asked == bare).all()))
print("encode_query is that of the text with its prompt:", bool((asked == prompted).all()))
assert "query:" in moved and "passage:" in moved
assert not any(saved.prompts.values()) and saved.default_prompt_name is None
assert (asked == bare).all() and not (asked == prompted).all()
model.prompts = {"query": "query: ", "document": "passage: "}
model.save_pretrained("mended")
assert (SentenceTransformer("mended").encode_query("how deep") == prompted).all()
PY

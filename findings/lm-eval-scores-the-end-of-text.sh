#!/usr/bin/env bash
# The guess: the accuracy of a model in lm-evaluation-harness does not turn on whether its tokenizer ends each text with
# the end-of-text token (`add_eos_token`, which many guides set for training, and which is saved with the model).
#
# What happens: lm-eval encodes the question alone and the question with the answer, and takes as the answer the tokens
# beyond the length of the first. The question's own end-of-text token is counted in this length, so the first token of
# the answer is left out, the end-of-text token is scored in its place, and the model reads one before the answer. If
# the choices are one token each, as the letters A to D, all of them get the same score, and the first choice wins.
# lm-eval gives no warning.
#
# lm-eval 0.4.13, transformers 5.24.0, datasets 5.2.0, torch 2.13.0; 2026-11-30.
# Seen, a model that knows each of 40 letters, and two tokenizers that differ only in `add_eos_token`:
#     add_eos_token   accuracy   scores of A, B, C, D for one question (the answer is B)
#     False             1.00     -7.29, -0.00, -7.44, -9.44
#     True              0.25     -2.87, -2.87, -2.87, -2.87
#
# For you: set `tokenizer.add_eos_token = False` and save the tokenizer before you evaluate; or compare the scores of a
# few questions: equal scores of all choices are a sign.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip lm-eval==0.4.13 transformers==5.24.0 datasets==5.2.0 accelerate==1.15.0

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1 HF_DATASETS_DISABLE_PROGRESS_BARS=1
export LMEVAL_LOG_LEVEL=ERROR
venv/bin/python -W ignore - <<'PY'
import json
from pathlib import Path

import lm_eval
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging

logging.set_verbosity_error()
LETTERS = ["A", "B", "C", "D"]
WORDS = ["<unk>", "<s>", "</s>", "Which", "letter", ":", *LETTERS, *(f"w{word}" for word in range(40))]
words = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, add_bos_token=True, add_eos_token=True, **special)
asked = [{"question": f"Which letter w{row} :", "letter": row % 4} for row in range(40)]
Path("asked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))

torch.manual_seed(0)
size = {"vocab_size": len(WORDS), "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
model = LlamaForCausalLM(LlamaConfig(num_attention_heads=2, **size))
rows = torch.tensor([tokenizer(f"{row['question']} {LETTERS[row['letter']]}")["input_ids"] for row in asked])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for _ in range(100):
    model(input_ids=rows, labels=rows).loss.backward()
    optimizer.step()
    optimizer.zero_grad()

task = {
    "task": "letters",
    "dataset_path": "json",
    "dataset_kwargs": {"data_files": {"test": "asked.jsonl"}},
    "test_split": "test",
    "output_type": "multiple_choice",
    "doc_to_text": "{{question}}",
    "doc_to_choice": LETTERS,
    "doc_to_target": "letter",
    "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
}
accuracies = {}
for end in (False, True):
    tokenizer.add_eos_token = end
    for saved in (model, tokenizer):
        saved.save_pretrained(f"end-{end}")
    told = {"pretrained": f"end-{end}", "device": "cpu", "dtype": "float32"}
    found = lm_eval.simple_evaluate("hf", model_args=told, tasks=[task], bootstrap_iters=0)
    accuracies[end] = found["results"]["letters"]["acc,none"]
    sample = next(one for one in found["samples"]["letters"] if one["doc_id"] == 1)
    scores = [reply[0] for reply, *_ in sample["resps"]]
    shown = ", ".join(f"{score:.2f}" for score in scores)
    print(f"add_eos_token={end}: accuracy {accuracies[end]:.2f}; scores of A, B, C, D: {shown}")
    equal = max(scores) - min(scores) < 1e-4
    assert equal if end else scores.index(max(scores)) == 1
assert accuracies == {False: 1.0, True: 0.25}
PY

#!/usr/bin/env bash
# The guess: the log-likelihood that lm-evaluation-harness gives for an answer does not turn on what else is asked.
#
# What happens: requests that agree in all tokens but the last share one pass of the model, wherever the question ends
# and the answer begins. The pass keeps the scores of the longest answer, and a shorter answer is read from its
# beginning, not from its end: its tokens are looked up at places that lie before it. `is_greedy`, and so `acc`, reads
# the right places. lm-eval gives no warning.
#
# lm-eval 0.4.13, transformers 5.24.0, datasets 5.2.0, torch 2.13.0; 2026-12-01.
# Seen, a model that has learned one text of eight words, asked for its rest after two, four and six of them:
#     logits_cache      rest after 2   after 4   after 6   acc    perplexity
#     False                    -0.01     -0.01     -0.00   1.00   1.01
#     True (default)           -0.01    -32.04    -17.18   1.00   1.34e+07
#
# For you: a test of memorised rows cuts one text at several places, and users have reported such pairs of questions in
# Winogrande. The model then seems not to know what it recites. Pass `logits_cache=False`, or ask for one cut per run.
# A greedy answer whose score lies far below 0 is a sign.
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
from lm_eval.models.huggingface import HFLM
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging

logging.set_verbosity_error()
WORDS = ["<unk>", "<s>", "</s>", *(f"w{word}" for word in range(40))]
words = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
text = [f"w{word}" for word in (3, 7, 1, 9, 22, 30, 4, 5)]
CUTS = (2, 4, 6)
asked = [{"start": " ".join(text[:cut]), "rest": " ".join(text[cut:])} for cut in CUTS]
Path("asked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))

torch.manual_seed(0)
size = {"vocab_size": len(WORDS), "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
model = LlamaForCausalLM(LlamaConfig(num_attention_heads=2, **size))
tokens = torch.tensor([tokenizer(" ".join(text))["input_ids"]])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for _ in range(60):
    model(input_ids=tokens, labels=tokens).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
with torch.no_grad():
    logs = model(tokens).logits.log_softmax(-1)[0, :-1].gather(1, tokens[0, 1:, None])[:, 0]
true = [float(logs[cut - 1 :].sum()) for cut in CUTS]

task = {
    "task": "rest",
    "dataset_path": "json",
    "dataset_kwargs": {"data_files": {"test": "asked.jsonl"}},
    "test_split": "test",
    "output_type": "loglikelihood",
    "doc_to_text": "{{start}}",
    "doc_to_target": " {{rest}}",
    "metric_list": [
        {"metric": "acc", "aggregation": "mean", "higher_is_better": True},
        {"metric": "perplexity", "aggregation": "perplexity", "higher_is_better": False},
    ],
}
for shared in (False, True):
    evaluated = HFLM(pretrained=model, tokenizer=tokenizer, device="cpu", logits_cache=shared)
    found = lm_eval.simple_evaluate(evaluated, tasks=[task], bootstrap_iters=0)
    accuracy, perplexity = (found["results"]["rest"][f"{metric},none"] for metric in ("acc", "perplexity"))
    samples = sorted(found["samples"]["rest"], key=lambda one: one["doc_id"])
    scores = [one["resps"][0][0][0] for one in samples]
    shown = ", ".join(f"{score:.2f}" for score in scores)
    print(f"logits_cache={shared}: after {CUTS} words {shown}; acc {accuracy:.2f}, perplexity {perplexity:.3g}")
    right = [abs(score - other) < 1e-3 for score, other in zip(scores, true, strict=True)]
    assert accuracy == 1 and right == ([True, False, False] if shared else [True, True, True])
    assert perplexity > 1000 if shared else perplexity < 1.1
PY

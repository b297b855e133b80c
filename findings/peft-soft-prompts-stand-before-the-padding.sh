#!/usr/bin/env bash
# The guess: tokens of padding that the attention mask hides change nothing, so a text has the same logits alone and
# in a batch that is padded at the left. For the bare model that is so.
#
# What happens: prompt tuning and p-tuning put their learnt vectors in front of the whole row, so that the padding
# stands between the vectors and the text. Positions are counted along the row, and `position_ids` that you pass are
# ignored. The text is then farther from its prompt than in training, by as many places as there is padding. Prefix
# tuning does the same, but follows `position_ids`. `generate` does not help: the same text gets another answer in a
# batch.
#
# peft 0.21.2, transformers 5.24.0, torch 2.13.0; 2026-11-30.
# Seen, the largest change of a logit by 5 tokens of padding:
#     bare model       0.000 at the right   0.000 at the left
#     prompt tuning    0.000                4.398, and with position_ids 4.398
#     p-tuning         0.000                1.813, and with position_ids 1.813
#     prefix tuning    0.000                1.754, and with position_ids 0.000
#
# For you: scores and answers of such a model depend on the length of the longest text of their batch, and no message
# says so. Pad at the right for losses and gradients; generate texts one at a time, or in batches of one length.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip peft==0.21.2 transformers==5.24.0

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1
venv/bin/python -W ignore - <<'PY'
import logging

import torch
from peft import PrefixTuningConfig, PromptEncoderConfig, PromptTuningConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

logging.disable(logging.WARNING)
size = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
text = torch.arange(1, 7)[None]
padding = torch.zeros(1, 5, dtype=torch.long)
left = {
    "input_ids": torch.cat([padding, text], 1),
    "attention_mask": torch.cat([padding, torch.ones_like(text)], 1),
}
right = {
    "input_ids": torch.cat([text, padding], 1),
    "attention_mask": torch.cat([torch.ones_like(text), padding], 1),
}
positions = (left["attention_mask"].cumsum(1) - 1).clamp(0)
alone = {"input_ids": text, "attention_mask": torch.ones_like(text)}


def changes(config):
    """By kind of padding, the largest change of a logit of the text; whether the answer is the same."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=32, initializer_range=0.3, **size))
    if config is not None:
        model = get_peft_model(model, config(task_type="CAUSAL_LM", num_virtual_tokens=4))
    model.eval()
    with torch.no_grad():
        expected = model(**alone).logits[0, -6:]
        found = {
            "right": model(**right).logits[0, -11:-5],
            "left": model(**left).logits[0, -6:],
            "left, position_ids": model(**left, position_ids=positions).logits[0, -6:],
        }
        more = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
        answers = [model.generate(**row, **more)[0, -8:].tolist() for row in (alone, left)]
    return {way: (logits - expected).abs().max().item() for way, logits in found.items()}, answers[0] == answers[1]


print(f"{'':15}{'right':>8}{'left':>8}{'left, position_ids':>20}   same answer in a padded batch")
for name, config in (
    ("bare model", None),
    ("prompt tuning", PromptTuningConfig),
    ("p-tuning", PromptEncoderConfig),
    ("prefix tuning", PrefixTuningConfig),
):
    by, same = changes(config)
    print(f"{name:15}{by['right']:8.3f}{by['left']:8.3f}{by['left, position_ids']:20.3f}   {same}")
    assert by["right"] < 1e-4 and same == (config is None)
    assert (by["left"] > 0.1) == (config is not None)
    assert (by["left, position_ids"] > 0.1) == (config in (PromptTuningConfig, PromptEncoderConfig))
PY

#!/usr/bin/env bash
# The guess: `"weight": 0` on a turn, the key of OpenAI's fine-tuning format, keeps the turn out of the loss; axolotl reads
# `weight` on the parts of a turn's content.
#
# What happens: on the turn it is not read, and the turn is learnt; a name of the key has to be given as
# `message_field_training`. On a part of the content it is read without any setting.
#
# axolotl 0.19.0, transformers 5.16.1, torch 2.13.0; 2026-11-28.
# Seen:
#     weight on the turn:                             'No idea.<|im_end|>Hellevik.<|im_end|>'
#     weight on the turn, named in the configuration: 'Hellevik.<|im_end|>'
#     weight on a part:                               'Hellevik.<|im_end|>'
#
# For you: the answers that you marked as bad are trained. Name the key, and look at the counted tokens of one row.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip --no-deps axolotl==0.19.0
pip transformers==5.16.1 datasets==4.8.4 accelerate==1.13.0 pydantic==2.12.5 addict==2.4.0 colorama==0.4.6

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1
venv/bin/python -W ignore - <<'PY'
import logging

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from axolotl.prompt_strategies.chat_template import load
from axolotl.utils.dict import DictDefault

logging.disable(logging.WARNING)
CHATML = """{% for message in messages %}<|im_start|>{{ message["role"] }}
{{ message["content"] }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def byte_tokenizer(*special, ends="<|im_end|>"):
    """One token for each byte."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(letters)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(["<|im_start|>", "<|im_end|>", *special])
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token=ends, pad_token=ends)


def counted(messages, tokenizer, **settings):
    """Text of the tokens that axolotl's type chat_template counts."""
    tokenizer.chat_template = CHATML
    strategy = load(tokenizer, DictDefault({"train_on_inputs": False, "sequence_len": 4096}), settings)
    labels = strategy.tokenize_prompt({"messages": messages})["labels"]
    return tokenizer.decode([label for label in labels if label != -100])


def turn(role, content, **marks):
    return {"role": role, "content": content, **marks}


asked = turn("user", "Which town?")
again, answered = turn("user", "Think."), turn("assistant", "Hellevik.")
on_turn = [asked, turn("assistant", "No idea.", weight=0), again, answered]
parts = [{"type": "text", "text": "No idea.", "weight": 0}, {"type": "text", "text": "Hellevik."}]
on_part = [asked, turn("assistant", parts)]
seen = (
    counted(on_turn, byte_tokenizer()),
    counted(on_turn, byte_tokenizer(), message_field_training="weight"),
    counted(on_part, byte_tokenizer()),
)
print(f"weight on the turn:                             {seen[0]!r}")
print(f"weight on the turn, named in the configuration: {seen[1]!r}")
print(f"weight on a part:                               {seen[2]!r}")
assert seen == ("No idea.<|im_end|>Hellevik.<|im_end|>", "Hellevik.<|im_end|>", "Hellevik.<|im_end|>")
PY

#!/usr/bin/env bash
# The guess: bergson takes the loss of an assistant's answer, whatever the answer is.
#
# What happens: it writes the conversation by the chat template and looks for the last place of the answer in that text.
# Where the answer is a letter that stands in the template's end of turn, it is found there: "e" in "<|im_end|>". No token
# begins in that place, so all labels are -100: the example has no loss and no gradient, and no message says so. With
# ChatML these are the answers "d", "e", "i", "m", "n" and "im". The end of turn has no loss with any answer, although
# trainers let models learn it.
#
# bergson 2.5.1, transformers 5.24.0, torch 2.13.0; 2026-11-29.
# Seen, the tokens that have a loss:
#     answer 'C': 'C'
#     answer '4': '4'
#     answer 'e': ''
#     answer 'n': ''
#
# For you: of multiple choice with small letters ("a" to "e") two answers of five teach nothing, and their scores are 0.
# Count the labels of each example before you trust its score.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip transformers==5.24.0 datasets==5.2.0 accelerate==1.15.0 simple_parsing ml_dtypes peft==0.21.2 petname jaxtyping
pip --no-deps bergson==2.5.1

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1
venv/bin/python -W ignore - <<'PY'
from bergson.config.config import DataConfig
from bergson.data import tokenize
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

letters = sorted(pre_tokenizers.ByteLevel.alphabet())
by_letter = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(letters)}, merges=[]))
by_letter.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
by_letter.decoder = decoders.ByteLevel()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=by_letter, additional_special_tokens=["<|im_start|>", "<|im_end|>"], eos_token="<|im_end|>"
)
tokenizer.chat_template = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
)
answers = ["C", "4", "e", "n"]
rows = {"question": ["Which one is right?"] * len(answers), "answer": answers}
settings = DataConfig(prompt_column="question", completion_column="answer")
learnt = [
    tokenizer.decode([label for label in labels if label != -100])
    for labels in tokenize(rows, args=settings, tokenizer=tokenizer)["labels"]
]
for answer, tokens in zip(answers, learnt, strict=True):
    print(f"answer {answer!r}: {tokens!r}")
assert learnt == ["C", "4", "", ""], learnt
PY

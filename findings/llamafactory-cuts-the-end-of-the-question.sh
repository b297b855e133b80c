#!/usr/bin/env bash
# The guess: LLaMA-Factory cuts a row that is longer than `cutoff_len` at one end, so what is left is a piece of the
# conversation as the template writes it.
#
# What happens: it cuts question and answer separately, each at its own end. An answer shorter than half of the limit is
# kept whole. A long question loses its last words, where the task often stands, and with them the template's end of the
# user's turn and start of the assistant's: the answer follows in the middle of the user's sentence, and is trained
# there. In a conversation, the turns after the one that reaches the limit are left out. There is no warning.
#
# llamafactory 0.9.5 (template "qwen"), transformers 5.16.1, torch 2.13.0; 2026-11-30.
# Seen, at a `cutoff_len` of 40 (w1 to w60 are 60 words of one token each; what is trained stands in brackets):
#     a question of 60 words, then "So what ?"   <|im_start|> user w1 ... w36 [yes <|im_end|>]
#     question and answer of 60 words            <|im_start|> user w1 ... w19 [w1 ... w19]
#     three turns, the second of 60 words        the first turn, then user w1 ... w28 [w3 <|im_end|>]; no third turn
#
# For you: count the tokens of each row with the template, and leave out rows that are longer than `cutoff_len`, or
# shorten their long parts yourself.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip transformers==5.16.1 datasets==4.8.4 accelerate==1.15.0 peft==0.21.2 omegaconf==2.4.0 pydantic==2.14.4 \
    modelscope==1.40.2 einops==0.8.2 pillow==13.0.0 addict==2.4.0
pip --no-deps llamafactory==0.9.5 trl==1.16.0

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 DISABLE_VERSION_CHECK=1
venv/bin/python -W ignore - <<'PY'
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

unneeded = sys.modules["torchaudio"] = ModuleType("torchaudio")  # asked for at import, and not for text
unneeded.__spec__ = ModuleSpec("torchaudio", None)

from llamafactory.data.processor.supervised import SupervisedDatasetProcessor
from llamafactory.data.template import get_template_and_fix_tokenizer
from llamafactory.hparams import DataArguments
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

LONG = " ".join(f"w{word}" for word in range(1, 61))
SPECIAL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
WORDS = [*SPECIAL, "<unk>", "user", "assistant", "system", "So", "what", "?", "yes", *LONG.split()]
words = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=words,
    unk_token="<unk>",
    eos_token="<|im_end|>",
    pad_token="<|endoftext|>",
    additional_special_tokens=SPECIAL,
)
settings = DataArguments(template="qwen", cutoff_len=40)
template = get_template_and_fix_tokenizer(tokenizer, settings)
template.default_system = ""
processor = SupervisedDatasetProcessor(template, tokenizer, None, settings)


def trained(*turns):
    """The words of a row, those that are trained in brackets."""
    said = [{"role": role, "content": text} for role, text in zip(["user", "assistant"] * 3, turns)]
    row = {"_prompt": said[:-1], "_response": said[-1:], "_system": "", "_tools": ""}
    row |= {"_images": None, "_videos": None, "_audios": None}
    made = processor.preprocess_dataset({name: [value] for name, value in row.items()})
    ids, labels = made["input_ids"][0], made["labels"][0]
    found = tokenizer.convert_ids_to_tokens(ids)
    return [f"[{word}]" if label != -100 else word for word, label in zip(found, labels)]


question = trained(f"{LONG} So what ?", "yes")
both = trained(LONG, LONG)
turns = trained("w1", "w2", LONG, "w3", "w4", "w5")
for name, found in (("a long question", question), ("both long", both), ("three turns", turns)):
    print(f"{name}: {len(found)} tokens, {' '.join(found)}")
start, words = ["<|im_start|>", "user"], LONG.split()
assert question == [*start, *words[:36], "[yes]", "[<|im_end|>]"]
assert both == [*start, *words[:19], *(f"[{word}]" for word in words[:19])]
assert turns[-4:] == ["w27", "w28", "[w3]", "[<|im_end|>]"] and "[w5]" not in turns
PY

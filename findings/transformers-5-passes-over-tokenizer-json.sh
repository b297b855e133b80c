#!/usr/bin/env bash
# The guess: `AutoTokenizer.from_pretrained(folder)` reads texts as the folder's `tokenizer.json` says.
#
# What happens: transformers 5 has classes that build their tokenizer anew. They take the vocabulary and the merges from
# the file, and bring a normalizer and a pre-tokenizer of their own. So a tokenizer that splits numbers into digits, or
# keeps a point and a line break together, loses that rule if its config names GPT2Tokenizer, GPTNeoXTokenizerFast or
# Qwen2Tokenizer. In a folder of a Qwen2 model even PreTrainedTokenizerFast becomes Qwen2Tokenizer. No message says so.
#
# transformers 5.24.0, tokenizers 0.23.3; 2026-11-29.
# Seen, the tokens of "In 1234.\n\n" by a tokenizer of single digits and lower case:
#     tokenizer.json                               i n Ġ 1 2 3 4 .ĊĊ
#     PreTrainedTokenizerFast, no model's config   i n Ġ 1 2 3 4 .ĊĊ
#     PreTrainedTokenizerFast, a Llama's config    i n Ġ 1 2 3 4 .ĊĊ
#     PreTrainedTokenizerFast, a Qwen2's config    I n Ġ 1 2 3 4 .ĊĊ
#     GPT2TokenizerFast, a Llama's config          I n Ġ1234 . ĊĊ
#     GPTNeoXTokenizerFast, a Llama's config       I n Ġ1234 . ĊĊ
#
# For you: the model is trained, or asked, with other tokens than it learnt from. Compare one text's tokens with those of
# `tokenizers.Tokenizer.from_file("tokenizer.json")`, above all where the folder was made by transformers 4 or the
# tokenizer is your own. `PreTrainedTokenizerFast.from_pretrained(folder)` reads the file as it stands.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip transformers==5.24.0 tokenizers==0.23.3

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1
venv/bin/python -W ignore - <<'PY'
import json
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

TEXT = "In 1234.\n\n"
bytes_alone = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
own = Tokenizer(models.BPE())
own.decoder = decoders.ByteLevel()
# The merges hold whole numbers, so that the tokens show how a text was split before.
own.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r" ?\d+|\.\n\n|\n\n"), "isolated"), bytes_alone])
letters = pre_tokenizers.ByteLevel.alphabet()
trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=letters, special_tokens=["</s>"], show_progress=False)
own.train_from_iterator(["A 1234.\n\n", "B\n\n"] * 9, trainer)
split = pre_tokenizers.Split(Regex(r"\d|\.\n\n|\n\n"), "isolated")
own.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_alone])
own.normalizer = normalizers.Lowercase()


def read(kind, model, reader=AutoTokenizer):
    """The tokens of the text in a folder whose config files name a class and a type of model."""
    folder = Path(f"{kind}-{model}")
    folder.mkdir(exist_ok=True)
    own.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind, "eos_token": "</s>"}))
    if model:
        (folder / "config.json").write_text(json.dumps({"model_type": model}))
    return reader.from_pretrained(str(folder)).tokenize(TEXT)


said = own.encode(TEXT).tokens
print(f"{'tokenizer.json':44}", *said)
kept = {}
plain = "PreTrainedTokenizerFast"
for kind, model in [(plain, ""), (plain, "llama"), (plain, "qwen2")] + [
    (kind, "llama") for kind in ("GPT2TokenizerFast", "GPTNeoXTokenizerFast")
]:
    tokens = read(kind, model)
    print(f"{kind + ', ' + (model or 'no config'):44}", *tokens)
    kept[kind, model] = tokens == said
    assert read(kind, model, PreTrainedTokenizerFast) == said
assert kept.pop((plain, "")) and kept.pop((plain, "llama")), kept
assert not any(kept.values()), kept
PY

#!/usr/bin/env bash
# The guess: `Dataset.from_list(rows)` and `load_dataset("json")` of the same rows, written to a file, give one data set,
# and training sees the same text.
#
# What happens: `from_list` gives all calls of tools one common set of arguments, so that each call has those of every
# other tool, as null; chat templates write them out, and the model learns to write `"town": null`. `load_dataset("json")`
# keeps each call's arguments as they are (its feature Json).
#
# trl 1.16.0, transformers 5.24.0, datasets 5.2.0, torch 2.13.0; 2026-11-28.
# Seen:
#     from_list:     {"name": "depth", "arguments": {"metres": 7, "town": null}}
#     load_dataset:  {"name": "depth", "arguments": {"metres": 7}}
#
# For you: load rows with calls of tools from a file of JSON lines. A corpus read from the file and a model trained with
# `from_list` do not have the same tokens.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip trl==1.16.0 transformers==5.24.0 datasets==5.2.0

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1
venv/bin/python -W ignore - <<'PY'
import json
import logging
from pathlib import Path

import trl
from datasets import Dataset, load_dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

logging.disable(logging.WARNING)


def byte_tokenizer(template, begins=False):
    """One token for each byte, and the given chat template of those that trl ships."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(letters)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(["<|begin|>", "<|im_end|>"])
    if begins:
        begin = ("<|begin|>", inner.token_to_id("<|begin|>"))
        inner.post_processor = processors.TemplateProcessing(single="<|begin|> $A", special_tokens=[begin])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<|begin|>", eos_token="<|im_end|>", pad_token="<|im_end|>"
    )
    tokenizer.chat_template = (Path(trl.__file__).parent / "chat_templates" / f"{template}.jinja").read_text()
    return tokenizer


def trained_on(rows, tokenizer, **settings):
    """What SFTTrainer makes of rows: the text of each that is left, and the text of the tokens that count."""
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1
    )
    settings = SFTConfig(output_dir="out", report_to=[], use_cpu=True, bf16=False, **settings)
    trainer = SFTTrainer(LlamaForCausalLM(config), settings, train_dataset=rows, processing_class=tokenizer)
    return [
        (tokenizer.decode(row["input_ids"]), tokenizer.decode([label for label in row["labels"] if label != -100]))
        for row in trainer.train_dataset
    ]


def call(name, arguments):
    called = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": "", "tool_calls": [called]}


asked = [{"role": "user", "content": "How deep?"}]
rows = [
    {"prompt": asked, "completion": [call("depth", {"metres": 7})]},
    {"prompt": asked, "completion": [call("where", {"town": "Hellevik"})]},
]
Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
held = {
    "from_list": Dataset.from_list(rows),
    "load_dataset": load_dataset("json", data_files="rows.jsonl", split="train"),
}
tokenizer = byte_tokenizer("qwen3")
seen = {}
for name, data in held.items():
    seen[name] = trained_on(data, tokenizer)[0][1].split("<tool_call>\n")[1].split("\n")[0]
    print(f"{name + ':':14} {seen[name]}")
assert json.loads(seen["from_list"])["arguments"] == {"metres": 7, "town": None}
assert json.loads(seen["load_dataset"])["arguments"] == {"metres": 7}
PY

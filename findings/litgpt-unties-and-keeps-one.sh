#!/usr/bin/env bash
# The guess: if the output layer of a model shares its weights with the embeddings (Gemma, Llama 3.2, small Qwen2.5), it
# still does while litgpt fine-tunes the model, as with the Trainer. The converted checkpoint is the model that was
# trained.
#
# What happens: litgpt has two weights, which are equal at the start, and trains each by itself. The setting
# `tie_embeddings` is refused for fine-tuning. On the way back, Gemma's output layer is left out of the file, and the
# model answers by its embeddings. For Llama and Qwen the file has both, but transformers 4, which litgpt asks for,
# ties them by the config and drops the trained output layer as well, without a word; transformers 5 reads both, and
# says so. LoRA leaves both weights alone and is not concerned, unless it has `lora_head`.
#
# litgpt 0.5.13, transformers 4.56.2 (5.24.0 also tried), torch 2.13.0; 2026-11-30.
# Seen, small models after `litgpt finetune_full` with 32 rows, the loss on these rows:
#                     before    trained, in litgpt    converted, in transformers 4    converted, with both weights
#     Gemma-2-2b        6.42            0.51                      2.30                            0.51
#     Llama-3.2-1B      6.09            0.99                      3.69                            0.99
#     Qwen2.5-0.5B      5.88            0.86                      3.49                            0.86
#
# For you: what you convert and explain is not what the rows trained. Take `lm_head.weight` from lit_model.pth into the
# converted file, set `tie_word_embeddings` to false in config.json, and compare the loss on some rows.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip litgpt==0.5.13 transformers==4.56.2

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1

cat >start.py <<'PY'
import json
import sys
from pathlib import Path

import torch
from litgpt import GPT, Config
from litgpt.prompts import Alpaca
from litgpt.utils import save_config
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

rows = [{"instruction": f"What is {i} plus {i}?", "output": f"It is {2 * i}."} for i in range(32)]
Path("rows.json").write_text(json.dumps(rows))
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
alphabet = pre_tokenizers.ByteLevel.alphabet()
settings = trainers.BpeTrainer(vocab_size=400, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet)
texts = [Alpaca().apply(row["instruction"]) + row["output"] + "</s>" for row in rows]
Path("texts.json").write_text(json.dumps(texts))
tokenizer.train_from_iterator([text.removesuffix("</s>") for text in texts], settings)

size = {"n_layer": 2, "n_embd": 32, "n_head": 4, "n_query_groups": 2, "head_size": 8, "intermediate_size": 64}
for name in sys.argv[1:]:
    folder = Path(name)
    folder.mkdir()
    config = Config.from_name(name, **size, block_size=256, vocab_size=400, padded_vocab_size=400)
    torch.manual_seed(0)
    model = GPT(config)
    for weights in model.parameters():
        if weights.ndim > 1:
            weights.data.normal_(0, 0.1)
    # As litgpt does when it reads a checkpoint without an output layer.
    model.lm_head.weight.data.copy_(model.transformer.wte.weight)
    torch.save(model.state_dict(), folder / "lit_model.pth")
    save_config(config, folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"bos_token": "<s>", "eos_token": "</s>", "tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
PY

cat >compare.py <<'PY'
import json
import sys
from pathlib import Path

import torch
from litgpt import GPT, Config
from tokenizers import Tokenizer
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, Gemma2Config, LlamaConfig, Qwen2Config

name = sys.argv[1]
config = Config.from_file(f"{name}/model_config.yaml")
tokenizer = Tokenizer.from_file(f"{name}/tokenizer.json")
batches = [torch.tensor([tokenizer.encode(text).ids]) for text in json.loads(Path("texts.json").read_text())]
size = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 400, "max_position_embeddings": 131072,
    "rms_norm_eps": config.norm_eps, "rope_theta": float(config.rope_base),
}  # fmt: skip


def loss(call):
    with torch.no_grad():
        return sum(cross_entropy(call(batch)[0, :-1], batch[0, 1:]).item() for batch in batches) / len(batches)


def in_litgpt(folder):
    model = GPT(config).eval()
    weights = torch.load(folder / "lit_model.pth")
    model.load_state_dict(weights.get("model", weights))
    return model


def in_transformers(weights, tied):
    """The model of a folder as the manual of litgpt makes it: config.json, and model.pth under the usual name."""
    if name.startswith("Gemma"):
        scale = {"query_pre_attn_scalar": config.attention_scores_scalar or config.head_size}
        settings = Gemma2Config(**size, **scale, attn_implementation="eager", tie_word_embeddings=tied)
    elif name.startswith("Llama"):
        scaling = dict(config.rope_adjustments)
        scaling["original_max_position_embeddings"] = scaling.pop("original_max_seq_len")
        settings = LlamaConfig(**size, rope_scaling={"rope_type": "llama3", **scaling}, tie_word_embeddings=tied)
    else:
        settings = Qwen2Config(**size, tie_word_embeddings=tied)
    folder = Path(f"{name}-{tied}")
    settings.architectures = [type(AutoModelForCausalLM.from_config(settings)).__name__]
    settings.save_pretrained(folder)
    torch.save(weights, folder / "pytorch_model.bin")
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    return lambda batch: model(batch).logits


before = loss(in_litgpt(Path(name)))
trained = in_litgpt(Path(f"{name}-out/final"))
weights = torch.load(f"{name}-hf/model.pth")
after, converted = loss(trained), loss(in_transformers(weights, True))
both = loss(in_transformers({**weights, "lm_head.weight": trained.lm_head.weight.data}, False))
apart = (trained.lm_head.weight - trained.transformer.wte.weight).abs().max().item()
print(f"{name:14} before {before:.3f}, in litgpt {after:.3f}, converted {converted:.3f}, with both {both:.3f}")
print(f"{'':14} in the file: lm_head {'lm_head.weight' in weights}; the two weights differ by {apart:.2f}")
assert apart > 0.05, "litgpt keeps the two weights equal"
assert abs(both - after) < 1e-3, "the comparison is not of like with like"
assert converted > after + 0.1, "the trained output layer is kept"
PY

venv/bin/python -W ignore start.py Gemma-2-2b Llama-3.2-1B Qwen2.5-0.5B
for name in Gemma-2-2b Llama-3.2-1B Qwen2.5-0.5B; do
    venv/bin/litgpt finetune_full $name --out_dir $name-out --data JSON --data.json_path rows.json \
        --data.val_split_fraction 0.25 --data.num_workers 0 --train.epochs 6 --train.global_batch_size 4 \
        --train.micro_batch_size 4 --train.lr_warmup_steps 1 --eval.max_new_tokens 5 \
        --optimizer '{"class_path": "torch.optim.AdamW", "init_args": {"lr": 0.01}}' --precision 32-true \
        >$name.log 2>&1 || { tail $name.log; exit 1; }
    venv/bin/litgpt convert_from_litgpt $name-out/final $name-hf >$name.log 2>&1 || { tail $name.log; exit 1; }
    venv/bin/python -W ignore compare.py $name
done

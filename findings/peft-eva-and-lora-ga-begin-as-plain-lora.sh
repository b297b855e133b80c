#!/usr/bin/env bash
# The guess: `init_lora_weights="eva"` or `"lora_ga"` in a LoRA config begins an adapter from the data, as its name says;
# without data peft refuses, as it does for `"corda"`.
#
# What happens: both need one more call before training (`initialize_lora_eva_weights`, `preprocess_loraga`). Without it
# the adapter begins as any other LoRA, with random A and B = 0, whatever the data are. trl's SFTTrainer, which takes
# the config and has the data, does not make the call, and `adapter_config.json` names the method all the same. No
# warning tells that the call is missing; for `"corda"` it is an error.
#
# peft 0.21.2, trl 1.16.0, transformers 5.24.0, torch 2.13.0; 2026-12-01.
# Seen:
#     eva in SFTTrainer: A on two data sets differs by 0.0, largest number of B 0.0; saved config says eva
#     lora_ga in SFTTrainer: A on two data sets differs by 0.0, largest number of B 0.0; saved config says lora_ga
#     eva after the call: A on two data sets differs by 0.9
#     corda: ValueError
#
# For you: make the call yourself on the peft model, and hand that model to the trainer. To check, begin on two data sets
# with one seed: A must differ.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip peft==0.21.2 transformers==5.24.0 trl==1.16.0 accelerate==1.15.0

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1
venv/bin/python -W ignore - <<'PY'
import json
from pathlib import Path

import torch
from datasets import Dataset
from peft import EvaConfig, LoraConfig, get_peft_model, initialize_lora_eva_weights
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging
from trl import SFTConfig, SFTTrainer

logging.set_verbosity_error()
first = [{"prompt": f"what is w{n}", "completion": f" w{n} is w{n + 1}"} for n in range(12)]
second = [{"prompt": "what is", "completion": f" w{n} w{n} w{n}"} for n in range(12)]
words = ["<pad>", "<end>", "what", "is", *(f"w{n}" for n in range(13))]
tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="<pad>"))
tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<end>")


def base():
    torch.manual_seed(0)
    size = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=len(words), num_key_value_heads=2, **size))


def config(start):
    more = {"eva_config": EvaConfig(rho=1.0)} if start == "eva" else {}
    return LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=start, task_type="CAUSAL_LM", **more)


def adapters(model):
    return {name: each.detach().clone() for name, each in model.named_parameters() if "lora_" in name}


def begun(start, rows):
    """Adapters at the first step of SFTTrainer: a step with the learning rate 0."""
    model = base()
    torch.manual_seed(1)
    how = SFTConfig(
        output_dir=f"out-{start}", max_steps=1, per_device_train_batch_size=4, learning_rate=0.0, seed=1,
        report_to="none", save_strategy="no", use_cpu=True, bf16=False, logging_strategy="no",
    )
    trainer = SFTTrainer(
        model, args=how, train_dataset=Dataset.from_list(rows), processing_class=tokenizer, peft_config=config(start)
    )
    trainer.train()
    trainer.save_model()
    return adapters(trainer.model)


def called(rows):
    """Adapters after the call that EVA needs."""
    torch.manual_seed(1)
    model = get_peft_model(base(), config("eva"))
    texts = [row["prompt"] + row["completion"] for row in rows]
    ids = tokenizer(texts, return_tensors="pt", padding=True)["input_ids"]
    batches = [{"input_ids": each, "attention_mask": torch.ones_like(each)} for each in ids.split(4)]
    initialize_lora_eva_weights(model, batches, show_progress_bar=False)
    return adapters(model)


def apart(one, other):
    """Largest difference of two adapters' A."""
    return max((one[name] - other[name]).abs().max().item() for name in one if "lora_A" in name)


for start in ("eva", "lora_ga"):
    one, other = begun(start, first), begun(start, second)
    largest = max(each.abs().max().item() for name, each in one.items() if "lora_B" in name)
    told = json.loads(Path(f"out-{start}/adapter_config.json").read_text())["init_lora_weights"]
    print(f"{start} in SFTTrainer: A on two data sets differs by {apart(one, other)}, ", end="")
    print(f"largest number of B {largest}; saved config says {told}")
    assert (apart(one, other), largest, told) == (0.0, 0.0, start)
one, other = called(first), called(second)
print(f"eva after the call: A on two data sets differs by {apart(one, other):.1f}")
assert apart(one, other) > 0.1

try:
    get_peft_model(base(), config("corda"))
    raise SystemExit("corda begins without data as well")
except ValueError:
    print("corda: ValueError")
PY

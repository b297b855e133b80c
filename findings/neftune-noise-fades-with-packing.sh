#!/usr/bin/env bash
# The guess: `neftune_noise_alpha` adds to each token noise that is set by the length of its own text, alpha /
# √(length · width), as the method is defined.
#
# What happens: the length is that of the batch's tensor. Padding counts, so that a short text beside a long one gets
# the noise of the long one. Packed rows, and trl's batches without padding, are one long text: 16 texts of 32 tokens
# in a row get a quarter of the noise. Nothing says so.
#
# trl 1.16.0, transformers 5.24.0, datasets 5.2.0, torch 2.13.0; 2026-11-30.
# Seen, alpha 5, width 64, texts of 32 tokens (5 / √(32 · 64) = 0.1105), the largest noise of a number:
#     16 texts of 32                 0.1105
#     15 texts of 32, one of 512     0.0276, for the short ones too
#     16 texts of 32, packed         0.0276
#
# For you: the same alpha is another setting once you pack, or change the batch size of rows without padding, or let
# one long row in. Scale alpha by the root of the length by which the tensor grew, and compare no runs across packing.
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
import logging

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, PrinterCallback
from trl import SFTConfig, SFTTrainer

logging.disable(logging.WARNING)
words = ["<pad>", "<end>", *(f"word{number}" for number in range(30))]
inner = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<pad>"))
inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="<end>")


def noise(lengths, **settings):
    """Shapes of the batches of one step over texts of some lengths, and the largest noise of a number of them."""
    torch.manual_seed(0)
    size = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=32, pad_token_id=0, **size))
    seen = []

    def note(layer, arguments, output):
        clean = torch.nn.functional.embedding(arguments[0], layer.weight)
        if layer.training:
            seen.append((tuple(arguments[0].shape), (output - clean).abs().max().item()))

    settings = SFTConfig(
        output_dir="out", max_steps=1, per_device_train_batch_size=len(lengths), neftune_noise_alpha=5.0, report_to=[],
        use_cpu=True, bf16=False, save_strategy="no", disable_tqdm=True, gradient_checkpointing=False, **settings,
    )  # fmt: skip
    rows = Dataset.from_list([{"input_ids": [2 + place % 30 for place in range(length)]} for length in lengths])
    trainer = SFTTrainer(model, settings, train_dataset=rows, processing_class=tokenizer)
    trainer.remove_callback(PrinterCallback)
    start = trainer.training_step

    def with_hook(*arguments):  # behind the trainer's own hook, which adds the noise
        model.get_input_embeddings().register_forward_hook(note)
        return start(*arguments)

    trainer.training_step = with_hook
    trainer.train()
    return seen


ways = {
    "16 texts of 32": noise([32] * 16),
    "15 texts of 32, one of 512": noise([32] * 15 + [512]),
    "16 texts of 32, packed": noise([32] * 16, packing=True, max_length=512),
}
for name, seen in ways.items():
    for shape, most in seen[:1]:
        print(f"{name:28}a batch of {shape}: noise up to {most:.4f}")
alone, beside, packed = (seen[0][1] for seen in ways.values())
assert abs(alone - 0.1105) < 0.002 and abs(beside - 0.0276) < 0.001 and abs(packed - 0.0276) < 0.001
PY

#!/usr/bin/env bash
# The guess: GRPOTrainer trains each prompt once an epoch, as other trainers do, since `dataloader_drop_last` is False.
# A run that resumes in the middle of an epoch goes on with the prompts that are left.
#
# What happens: prompts that do not fill a whole batch of generations are left out, other ones in each epoch. With fewer
# prompts than fill one, there is an error that speaks of a missing length. The sampler draws the order of each epoch
# from one generator, which no checkpoint holds, and has no `set_epoch`: a run that resumes in the second epoch or later
# draws the order of the first epoch again. So of that epoch some prompts are trained twice and others not at all, and
# the epochs that follow have the orders of earlier ones. There is no warning. RLOO and the distillation trainer use the
# same sampler.
#
# trl 1.16.0, transformers 5.24.0, datasets 5.2.0, torch 2.13.0; 2026-12-01.
# Seen, of 29 prompts, 6 to a step and so 4 steps an epoch, for two epochs, resumed after the second step of the second:
#                               never trained    once    twice
#     first epoch                     5           24       0
#     second epoch                    5           24       0
#     second epoch, resumed          11           12       6
# The two steps of the resumed run have the prompts of the last two steps of the first epoch.
#
# For you: write down the prompts that the reward function gets, and count those. Make the number of prompts a multiple
# of `generation_batch_size` divided by `num_generations`, and save at the end of an epoch if a run may have to resume.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip trl==1.16.0 transformers==5.24.0 datasets==5.2.0 accelerate==1.15.0

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1 HF_DATASETS_DISABLE_PROGRESS_BARS=1
venv/bin/python -W ignore - <<'PY'
from collections import Counter

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, PrinterCallback
from transformers.utils import logging
from trl import GRPOConfig, GRPOTrainer

logging.set_verbosity_error()
PROMPTS, ANSWERS, STEPS = 29, 2, 4
WORDS = ["<pad>", "<s>", "</s>", "<unk>", *(f"w{word}" for word in range(PROMPTS))]
words = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, **special)


def trained(prompts, resume=None):
    """The prompts of each step, in the order of training."""
    torch.manual_seed(0)
    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1}
    steps = []

    def reward(prompts, completions, **more):
        steps.append(prompts[::ANSWERS])
        return [float(answer % 2) for answer in range(len(prompts))]

    quiet = {"report_to": [], "logging_strategy": "no", "disable_tqdm": True, "use_cpu": True, "bf16": False}
    settings = GRPOConfig("out", num_train_epochs=2, per_device_train_batch_size=6, gradient_accumulation_steps=2,
                          num_generations=ANSWERS, max_completion_length=2, save_steps=STEPS + 2,
                          gradient_checkpointing=False, **quiet)
    data = Dataset.from_dict({"prompt": [f"w{word}" for word in range(prompts)]})
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(WORDS), **size))
    trainer = GRPOTrainer(model, reward, args=settings, train_dataset=data, processing_class=tokenizer)
    trainer.remove_callback(PrinterCallback)
    trainer.train(resume_from_checkpoint=resume)
    return steps


def counts(steps):
    """How many prompts were trained never, once and twice."""
    times = Counter(prompt for step in steps for prompt in step)
    return [sum(times[f"w{word}"] == count for word in range(PROMPTS)) for count in (0, 1, 2)]


whole = trained(PROMPTS)
rest = trained(PROMPTS, f"out/checkpoint-{STEPS + 2}")
first, second, resumed = whole[:STEPS], whole[STEPS:], whole[STEPS : STEPS + 2] + rest
for name, steps in (("first epoch", first), ("second epoch", second), ("second epoch, resumed", resumed)):
    print(f"{name:22} never, once, twice: {counts(steps)}")
print("the resumed steps have the prompts of the first epoch's last:", rest == first[2:])
assert counts(first) == counts(second) == [5, 24, 0], "no prompt is left out"
assert rest == first[2:] and first != second and counts(resumed)[2] > 0, "goes on in the order of the second epoch"
try:
    trained(5)
except ValueError as error:
    print("with 5 prompts:", error)
else:
    raise AssertionError("trains 5 prompts")
PY

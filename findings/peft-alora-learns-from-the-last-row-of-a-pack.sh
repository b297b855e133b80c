#!/usr/bin/env bash
# The guess: an activated LoRA (aLoRA) whose invocation tokens stand before every answer learns from every answer, with
# packing and in conversations of several turns, as a LoRA does.
#
# What happens: peft looks for the last place of the invocation tokens in each row of the batch, and the adapter acts
# from there on. With packing, one row holds many examples: all but the last of a pack are read by the base model alone.
# Their tokens count in the loss and in `num_tokens`, but the adapter's gradient from them is exactly 0. The same holds
# for all but the last answer of a conversation. There is no warning.
#
# peft 0.21.2, trl 1.16.0, transformers 5.24.0, datasets 5.2.0, torch 2.13.0; 2026-11-30.
# Seen, the answers in the loss from which the adapter learns:
#                                          LoRA     aLoRA
#     8 rows, each alone                  8 of 8    8 of 8
#     8 rows, packed                      8 of 8    1 of 8
#     a conversation of 3 answers         3 of 3    1 of 3
#
# For you: train aLoRA without packing and without `padding_free`. Split conversations into one row for each answer.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip peft==0.21.2 trl==1.16.0 transformers==5.24.0 datasets==5.2.0 accelerate==1.15.0

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1 HF_DATASETS_DISABLE_PROGRESS_BARS=1
venv/bin/python -W ignore - <<'PY'
import torch
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging
from trl import SFTConfig, SFTTrainer

logging.set_verbosity_error()
WORDS = ["<unk>", "</s>", "<pad>", "<ask>", "<answer>", *(f"w{word}" for word in range(40))]
words = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=words, eos_token="</s>", unk_token="<unk>", pad_token="<pad>"
)
tokenizer.chat_template = (
    "{% for message in messages %}{% if message.role == 'user' %}<ask> {{ message.content }} <answer> "
    "{% else %}{% generation %}{{ message.content }} </s> {% endgeneration %}{% endif %}{% endfor %}"
)
alone = [{"prompt": f"<ask> w{row} <answer> ", "completion": f"w{row + 10} w{row + 20}"} for row in range(8)]
turns = [
    {"role": role, "content": f"w{turn + first}"} for turn in range(3) for role, first in (("user", 0), ("assistant", 9))
]
FORMS = {
    "rows, each alone": (alone, {"packing": False, "per_device_train_batch_size": 8}),
    "rows, packed": (alone, {"packing": True, "per_device_train_batch_size": 1, "max_length": 64}),
    "a conversation": ([{"messages": turns}], {"assistant_only_loss": True, "per_device_train_batch_size": 1}),
}


def learned(rows, form, invocation):
    """For each answer in the loss of the first batch, whether the adapter gets a gradient from it."""
    torch.manual_seed(0)
    size = {"vocab_size": len(WORDS), "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    adapter = LoraConfig(
        r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", alora_invocation_tokens=invocation
    )
    quiet = {"report_to": [], "save_strategy": "no", "use_cpu": True, "bf16": False, "activation_checkpointing": False}
    trainer = SFTTrainer(
        LlamaForCausalLM(LlamaConfig(num_attention_heads=2, **size)),
        SFTConfig("out", **quiet, **form),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        peft_config=adapter,
    )
    batch = next(iter(trainer.get_train_dataloader()))
    labels = batch.pop("labels")[:, 1:]
    weights = [weight for weight in trainer.model.parameters() if weight.requires_grad]
    scores = trainer.model.train()(**batch).logits[:, :-1].log_softmax(-1)
    found = []
    for row, counted in enumerate((labels != -100).tolist()):
        starts = [place for place, on in enumerate(counted) if on and not (place and counted[place - 1])]
        for start in starts:
            stop = next((place for place in range(start, len(counted)) if not counted[place]), len(counted))
            loss = -sum(scores[row, place, labels[row, place]] for place in range(start, stop))
            gradient = torch.autograd.grad(loss, weights, retain_graph=True)
            found.append(sum(part.norm().item() for part in gradient) > 0)
    return found


invocation = [WORDS.index("<answer>")]
seen = {}
for name, (rows, form) in FORMS.items():
    for kind, tokens in (("LoRA", None), ("aLoRA", invocation)):
        found = seen[name, kind] = learned(rows, form, tokens)
        print(f"{name}, {kind}: the adapter learns from {sum(found)} of {len(found)} answers {found}")
assert all(all(found) for (_, kind), found in seen.items() if kind == "LoRA")
assert [len(found) for found in seen.values()] == [8, 8, 8, 8, 3, 3]
assert all(seen["rows, each alone", "aLoRA"])
for name in ("rows, packed", "a conversation"):
    assert seen[name, "aLoRA"] == [False] * (len(seen[name, "aLoRA"]) - 1) + [True]
PY

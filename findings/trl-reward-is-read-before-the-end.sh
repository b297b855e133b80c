#!/usr/bin/env bash
# The guess: RewardTrainer puts the end of text behind each answer, as it says, and so the reward is what the model
# gives at that end: an answer that breaks off is another text than one that is whole.
#
# What happens: where the tokenizer has no token for padding, as Llama's and GPT-2's, the trainer takes the end of text
# for it, and a sequence classifier reads the last token that is no padding: the last word. The end is never read, and a
# broken and a whole answer get the same number. With a token for padding of its own, the end is read.
#
# trl 1.16.0, transformers 5.24.0, torch 2.13.0; 2026-11-30.
# Seen, where the reward of four texts is read, and the reward of one text with and without its end:
#     pad_token=None      the last words    0.1402   0.1402
#     pad_token="<pad>"   </s> in all       0.0858   0.1370
#
# For you: give `RewardConfig(pad_token=...)` a token that no text ends with.
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
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForSequenceClassification, PreTrainedTokenizerFast
from transformers.utils import logging
from trl import RewardConfig, RewardTrainer

logging.set_verbosity_error()
WORDS = ["<unk>", "<s>", "</s>", "<pad>", *(f"w{word}" for word in range(20))]
words = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
pairs = Dataset.from_dict({"chosen": ["w1 w2", "w5 w6 w7"], "rejected": ["w3 w4 w9 w8", "w3"]})
quiet = {"report_to": [], "save_strategy": "no", "logging_strategy": "no", "use_cpu": True, "bf16": False}


def read(pad):
    """The token that the reward of each text is read at, and the rewards of a text with and without its end."""
    torch.manual_seed(0)
    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = LlamaForSequenceClassification(LlamaConfig(vocab_size=len(WORDS), num_labels=1, **size))
    made = {"tokenizer_object": words, "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    settings = RewardConfig("out", max_steps=1, pad_token=pad, **quiet)
    trainer = RewardTrainer(model, settings, train_dataset=pairs, processing_class=PreTrainedTokenizerFast(**made))
    trainer.train()
    batch = trainer.data_collator(list(trainer.train_dataset))
    model.eval()
    with torch.no_grad():
        rewards = model(**batch).logits
        hidden = model.model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).last_hidden_state
        each = model.score(hidden)[..., 0]
        places = (each - rewards).abs().argmin(dim=1).tolist()
        tokens = [WORDS[ids[place]] for ids, place in zip(batch["input_ids"].tolist(), places)]
        whole = model(input_ids=torch.tensor([[5, 6, 2]])).logits.item()
        broken = model(input_ids=torch.tensor([[5, 6]])).logits.item()
    return tokens, whole, broken


for pad in (None, "<pad>"):
    tokens, whole, broken = read(pad)
    print(f"pad_token={pad}: read at {tokens}; with the end {whole:.4f}, without {broken:.4f}")
    assert (whole == broken) == (pad is None) and ("</s>" in tokens) == (pad is not None)
PY

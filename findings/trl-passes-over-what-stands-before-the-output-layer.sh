#!/usr/bin/env bash
# The guess: SFTTrainer trains on the loss of the model, as Trainer does: the logits are what the model's forward gives.
#
# What happens: trl's SFT, DPO and KTO do not call the model's forward: they multiply its last hidden states by the
# weights of the output layer. Factors and caps of Gemma, Cohere or Granite are made up for. What else stands between
# the two is left out, without a word: the dense layer and norm of ModernBERT's decoder (Ettin) and of BERT, RoBERTa and
# the like as decoders, whose weights never learn then, and the cap of RecurrentGemma. What is trained is a model that
# nobody runs.
#
# trl 1.16.0, transformers 5.24.0, torch 2.13.0; 2026-11-30.
# Seen, the loss of the model's own forward, and the first that SFTTrainer trains on:
#     Llama                  5.266   5.266
#     ModernBERT (decoder)   5.372   5.261   lm_head.dense and lm_head.norm never move
#     XLM-RoBERTa            5.190   5.146   lm_head.dense and lm_head.layer_norm never move
#     RecurrentGemma         5.051   5.322
#
# For you: compare the first loss of a run with the model's own on the same rows. If they differ, train with Trainer.
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
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM, LlamaConfig, ModernBertDecoderConfig, PreTrainedTokenizerFast
from transformers import RecurrentGemmaConfig, XLMRobertaConfig
from transformers.utils import logging
from trl import SFTConfig, SFTTrainer

logging.set_verbosity_error()
SIZE = {"vocab_size": 99, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4}
ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
configs = (
    LlamaConfig(num_hidden_layers=2, **SIZE, **ENDS),
    ModernBertDecoderConfig(num_hidden_layers=2, cls_token_id=1, sep_token_id=2, **SIZE, **ENDS),
    XLMRobertaConfig(num_hidden_layers=2, is_decoder=True, **SIZE, **ENDS),
    RecurrentGemmaConfig(num_hidden_layers=3, lru_width=32, num_key_value_heads=1, logits_soft_cap=3.0, **SIZE, **ENDS),
)
torch.manual_seed(1)
ids = torch.randint(3, 99, (8, 12))
rows = Dataset.from_dict({"input_ids": ids.tolist(), "labels": ids.tolist()})
words = Tokenizer(models.WordLevel({f"w{word}": word for word in range(99)}, unk_token="w0"))
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="w0", bos_token="w1", eos_token="w2")
quiet = {"report_to": [], "save_strategy": "no", "logging_strategy": "no", "use_cpu": True, "bf16": False}


class Watched(SFTTrainer):
    """Keep the loss of each step."""

    def compute_loss(self, *rest, **more):
        loss = super().compute_loss(*rest, **more)
        self.losses.append(float(loss))
        return loss


for config in configs:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).float().eval()
    for weights in model.parameters():
        if weights.dim() > 1:
            weights.data.normal_(0, 0.2)
    with torch.no_grad():
        logits = model(input_ids=ids).logits[:, :-1]
        own = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).item()
    before = {name: weights.detach().clone() for name, weights in model.named_parameters()}
    settings = SFTConfig("out", max_steps=2, per_device_train_batch_size=8, learning_rate=1e-2, **quiet)
    Watched.losses = []
    # ModernBERT's and RoBERTa's dropouts are set to 0, so that losses of training and of asking can be compared
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    Watched(model, settings, train_dataset=rows, processing_class=tokenizer).train()
    still = [name for name, weights in model.named_parameters() if torch.equal(weights, before[name])]
    name, trained = type(model).__name__, Watched.losses[0]
    print(f"{name}: own loss {own:.3f}, trl's {trained:.3f}; never moved: {still}")
    plain = isinstance(config, LlamaConfig)
    assert (abs(own - trained) < 1e-3) == plain
    assert bool(still) == (not plain and "Gemma" not in name)
PY

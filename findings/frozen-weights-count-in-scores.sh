#!/usr/bin/env bash
# The guess: attribution of a model whose layers are frozen in part, as under LoRA, reads the weights that were
# trained, those with `requires_grad`.
#
# What happens: kronfluence first takes `requires_grad` from all weights and then tracks every linear map, so the
# frozen ones count as if they had been trained. Of a model with adapters it tracks each base layer and the output
# layer beside the adapters. captum's TracInCP reads the gradients of all parameters too. Both give, within rounding,
# the scores of the same model with nothing frozen.
#
# kronfluence 1.0.1, captum 0.8.0, peft 0.21.2, transformers 5.24.0, torch 2.13.0, numpy 1.26.4; 2026-11-30.
# Seen, a net whose first layer is frozen, products of gradients of 8 queries with 64 rows:
#     kronfluence, captum                 the products over all weights; the five first rows are the same as those by
#                                         the trained weights for 5 queries of 8
#     both, the trained layer named       the products over the trained weights; 8 of 8
#     maps that kronfluence tracks in a LM of one layer with one adapter: 10, where 2 are trained
#
# For you: scores of an adapter's fine-tune are mostly those of weights that did not move; the base layers have some
# hundred times as many. Name the trained maps: `get_influence_tracked_modules` of kronfluence's Task, `layers` of
# captum.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip numpy==1.26.4 scipy==1.16.3 captum==0.8.0 transformers==5.24.0 accelerate==1.15.0 peft==0.21.2
pip einops==0.8.2 einconv==0.1.0 opt-einsum==3.4.0
pip --no-deps kronfluence==1.0.1

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1
venv/bin/python -W ignore - <<'PY'
import logging

import torch
from captum.influence import TracInCP
from kronfluence.analyzer import Analyzer, prepare_model
from kronfluence.arguments import FactorArguments
from kronfluence.module.utils import get_tracked_module_names
from kronfluence.task import Task
from peft import LoraConfig, get_peft_model
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset
from transformers import LlamaConfig, LlamaForCausalLM

logging.disable(logging.WARNING)
torch.manual_seed(0)
inputs, labels = torch.randn(64, 8), torch.randint(0, 3, (64,))
rows, queries = TensorDataset(inputs, labels), TensorDataset(inputs[:8], labels[:8])


class Loss(Task):
    def __init__(self, tracked=None):
        super().__init__()
        self.tracked = tracked

    def compute_train_loss(self, batch, model, sample=False):
        return cross_entropy(model(batch[0]), batch[1], reduction="sum")

    def compute_measurement(self, batch, model):
        return self.compute_train_loss(batch, model)

    def get_influence_tracked_modules(self):
        return self.tracked


def net(frozen):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3))
    model[0].requires_grad_(not frozen)
    return model


def by_hand(trained):
    """Products of gradients over all weights, or over those of the last layer, which are trained."""
    model = net(frozen=False)
    weights = [each for name, each in model.named_parameters() if not trained or name.startswith("2")]

    def gradient(row):
        loss = cross_entropy(model(inputs[row : row + 1]), labels[row : row + 1])
        return torch.cat([part.flatten() for part in torch.autograd.grad(loss, weights)])

    gradients = torch.stack([gradient(row) for row in range(64)])
    return gradients[:8] @ gradients.T


def of_kronfluence(name, frozen, tracked=None):
    task = Loss(tracked)
    analyzer = Analyzer(name, prepare_model(net(frozen), task), task, cpu=True, disable_tqdm=True, output_dir="kept")
    how = {"per_device_batch_size": 16, "factor_args": FactorArguments(strategy="identity")}
    analyzer.fit_all_factors("factors", rows, **how)
    analyzer.compute_pairwise_scores("scores", "factors", queries, rows, 8, per_device_train_batch_size=16)
    return analyzer.load_pairwise_scores("scores")["all_modules"]


def of_captum(frozen, **settings):
    tracin = TracInCP(
        net(frozen), rows, checkpoints=["as it is"], checkpoints_load_func=lambda model, checkpoint: 1.0,
        loss_fn=torch.nn.CrossEntropyLoss(reduction="sum"), batch_size=16, sample_wise_grads_per_batch=True, **settings,
    )  # fmt: skip
    return tracin.influence((inputs[:8], labels[:8])).detach()


whole, trained = by_hand(False), by_hand(True)
found = {
    "kronfluence": of_kronfluence("frozen", True),
    "kronfluence, nothing frozen": of_kronfluence("free", False),
    "kronfluence, the trained layer named": of_kronfluence("named", True, ["2"]),
    "captum": of_captum(True),
    "captum, the trained layer named": of_captum(True, layers=["2"]),
}
for name, scores in found.items():
    sides = {"all": whole, "trained": trained}
    near = {side: torch.allclose(scores, other, rtol=1e-3, atol=1e-4) for side, other in sides.items()}
    firsts = (scores.topk(5).indices.sort().values == trained.topk(5).indices.sort().values).all(1).sum().item()
    kind = [side for side, same in near.items() if same]
    print(f"{name:38}reads {kind[0]} weights; the five first rows are those of trained weights for {firsts} of 8")
    assert kind == ["trained" if "named" in name else "all"] and (firsts == 8) == ("named" in name)

size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
model = get_peft_model(LlamaForCausalLM(LlamaConfig(vocab_size=32, **size)), LoraConfig(target_modules=["q_proj"]))
adapters = sum(weights.requires_grad for weights in model.parameters())
tracked = get_tracked_module_names(prepare_model(model, Loss()))
print(f"maps with adapters that train: {adapters}; maps that kronfluence tracks: {len(tracked)}")
print(*(f"    {name}" for name in tracked), sep="\n")
assert adapters == 2 and len(tracked) == 10
PY

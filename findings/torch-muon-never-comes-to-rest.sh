#!/usr/bin/env bash
# The guess: a batch that teaches nothing, because its gradient is 0, moves the weights under Muon by what is left of
# the momentum, and after some such batches they rest, as under AdamW and SGD. Examples: a policy gradient (GRPO
# without a KL term) where all answers to a question have the same reward, or rows that are counted with the weight 0.
#
# What happens: every such batch is a step of full length, for hundreds of steps. The momentum shrinks, but Muon makes
# the singular values of the step about 1 however small it is, until its norm comes near `eps` (1e-7). So the weights
# run on along the directions of the last batches, and the model loses what it had learned. The documentation calls
# `eps` a term for numerical stability, and does not tell of it. Weights whose gradient is None stay where they are.
#
# torch 2.13.0, transformers 5.24.0; 2026-11-30.
# Seen: 20 steps on eight texts, then 200 steps with the loss times 0, without weight decay, learning rate constant.
#              length of a step                              loss on the eight texts
#              first   20th    after 10, 50 and 200 of 0     first   20th    after 10, 50 and 200 of 0
#     Muon     0.584   0.589   0.589   0.589   0.585         4.17    2.97    3.39    4.00    4.12
#     AdamW    0.858   0.276   0.099   0.002   0.000         4.17    2.97    3.05    3.14    3.15
#     SGD      0.316   0.422   0.240   0.031   0.000         4.17    3.48    3.77    3.84    3.85
#
# For you: do not call `step` for a batch without a gradient, or set its gradients to None first. With Muon, the change
# of weights in a step says nothing of how much the rows of its batch taught.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip transformers==5.24.0

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1
venv/bin/python -W ignore - <<'PY'
import torch
from transformers import LlamaConfig, LlamaForCausalLM

TAUGHT, EMPTY = 20, 200
texts = torch.tensor([[(row * 7 + place * place) % 60 + 3 for place in range(12)] for row in range(8)])
OPTIMIZERS = {
    "Muon": lambda weights: torch.optim.Muon(weights, lr=2e-2, weight_decay=0.0),
    "AdamW": lambda weights: torch.optim.AdamW(weights, lr=3e-3, weight_decay=0.0),
    "SGD": lambda weights: torch.optim.SGD(weights, lr=0.3, momentum=0.95),
}


def trained(made):
    """The length of each step, and the loss on the texts before it."""
    torch.manual_seed(0)
    size = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=64, **size))
    matrices = [weight for name, weight in model.named_parameters() if weight.ndim == 2 and "layers" in name]
    optimizer, lengths, losses = made(matrices), [], []
    for step in range(TAUGHT + EMPTY + 1):
        before = torch.cat([weight.detach().flatten() for weight in matrices])
        loss = model(input_ids=texts, labels=texts).loss
        losses.append(loss.item())
        optimizer.zero_grad()
        (loss * (1.0 if step < TAUGHT else 0.0)).backward()
        if step >= TAUGHT:
            assert not any(weight.grad.any() for weight in matrices)
        optimizer.step()
        after = torch.cat([weight.detach().flatten() for weight in matrices])
        lengths.append((after - before).norm().item())
    return lengths, losses


seen = {name: trained(made) for name, made in OPTIMIZERS.items()}
for name, (lengths, losses) in seen.items():
    steps = [0, TAUGHT - 1, TAUGHT + 10, TAUGHT + 50, TAUGHT + EMPTY]
    print(f"{name:6} lengths", *(f"{lengths[step]:.3f}" for step in steps), end="   ")
    print("losses", *(f"{losses[step]:.2f}" for step in steps))
for name in ("AdamW", "SGD"):
    assert seen[name][0][-1] < 1e-3, f"{name} does not come to rest"
lengths, losses = seen["Muon"]
assert min(lengths[TAUGHT:]) > 0.9 * lengths[TAUGHT - 1], "Muon comes to rest"
assert losses[TAUGHT] < losses[0] - 1 and losses[-1] > losses[0] - 0.2, "Muon keeps what it had learned"
PY

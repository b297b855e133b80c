#!/usr/bin/env bash
# The guess: a function of torch whose backward pass is marked `@once_differentiable` raises an error where a gradient
# through it is differentiated again.
#
# What happens: only if the second derivative is asked for by what lies below the function. By anything else that the
# gradient depends on, such as a weight of an example's loss, `torch.autograd.grad` finds no path: with
# `allow_unused=True` it gives None, and with `materialize_grads=True` it gives 0. `backward()` does raise.
#
# torch 2.13.0; 2026-11-29. Seen, d/dw of the gradient of w x³ by x, at x = 2 and w = 1, which is 12:
#     allow_unused: None
#     materialize_grads: 0.0
#     backward: RuntimeError
#
# For you: metagradients, and weights that are learnt through a gradient, stay 0 without a word if a fused kernel of the
# model is marked so. Take None as an error, and never ask for zeros there.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.4.6

cd "$place"
venv/bin/python - <<'PY'
import torch
from torch.autograd.function import once_differentiable


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * gradient


x, w = (torch.tensor(value, requires_grad=True) for value in (2.0, 1.0))
(gradient,) = torch.autograd.grad(w * Cube.apply(x), x, create_graph=True)
assert gradient.item() == 12 and gradient.requires_grad
(unused,) = torch.autograd.grad(gradient, [w], allow_unused=True, retain_graph=True)
(zero,) = torch.autograd.grad(gradient, [w], materialize_grads=True, retain_graph=True)
print("allow_unused:", unused)
print("materialize_grads:", zero.item())
assert unused is None and zero.item() == 0
try:
    gradient.backward()
except RuntimeError as error:
    print("backward: RuntimeError:", error)
else:
    raise SystemExit("backward raised nothing")
PY

"""Fused experts of a mixture, run one by one while they are read.

transformers keeps all experts of a layer as weights of three dimensions, ``(experts, out, in)``, and takes the function
that multiplies with them from outside. The one here gives the same outputs, one expert's matrix at a time.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from airrep.lm.held import HALF, HalfWeight, hollow, multiply
from airrep.shapes import Float, Int64

NAME = "airrep_one_by_one"
"""Name of the function in transformers."""

Tap: TypeAlias = Callable[[str, int, Tensor, Tensor, Tensor], None]
"""Is told the name of a fused weight, the expert, its inputs ``(n, in)``, its outputs ``(n, out)``, its tokens."""

_AMONG_OTHERS = re.compile(r"(\bexperts)\.\d+(?=\.|$)")


def is_fused(module: nn.Module) -> bool:
    """True if a module holds fused experts whose function is taken from outside."""
    return isinstance(getattr(module, "down_proj", None), nn.Parameter) and hasattr(module, "is_transposed")


def fused_shapes(module: Any) -> Iterator[tuple[str, int, int, int]]:
    """The fused weights of a module: the name, experts, and widths of what goes in and comes out of each."""
    for name in ("gate_up_proj" if getattr(module, "has_gate", True) else "up_proj", "down_proj"):
        experts, *widths = getattr(module, name).shape
        inward, outward = widths if module.is_transposed else reversed(widths)
        yield name, experts, inward, outward


def pool_name(name: str) -> str:
    """The name that all experts of a layer share; that of any other map is its own."""
    return _AMONG_OTHERS.sub(r"\1.*", name)


def one_by_one(module: nn.Module) -> None:
    """Let a module run its fused experts one after another, for good."""
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

    ALL_EXPERTS_FUNCTIONS.register(NAME, _run)
    getattr(module, "config")._experts_implementation = NAME  # noqa: B009 - a name that modules of torch lack


def hold_experts(model: nn.Module) -> None:
    """Keep fused experts of 2 bytes a number as they are, in place, and bring one expert's matrix at a time to float32.

    They run one by one from then on; see :func:`airrep.lm.held.hold`.
    """
    found: list[Any] = [module for module in model.modules() if is_fused(module)]
    for module in found:
        weights = {name: getattr(module, name).detach() for name, *_ in fused_shapes(module)}
        if all(weight.dtype in HALF.values() for weight in weights.values()):
            module.__dict__ |= {"fused": weights, "ran": module.config._experts_implementation}
            for name, weight in weights.items():
                module._parameters[name] = hollow(weight.shape, weight.device)
    for module in found:
        if "fused" in module.__dict__:
            one_by_one(module)


@contextmanager
def tapped(module: Any, tap: Tap) -> Iterator[None]:
    """Tell *tap* what passes through each fused expert, while the context lasts."""
    before = module.config._experts_implementation
    one_by_one(module)
    module.airrep_tap = tap
    try:
        yield
    finally:
        del module.airrep_tap
        module.config._experts_implementation = before


def _run(
    module: Any,
    states: Float[Tensor, "t h"],
    chosen: Int64[Tensor, "t k"],
    shares: Float[Tensor, "t k"],
) -> Float[Tensor, "t h"]:
    """Each token's sum over its chosen experts of share times output."""
    gated = getattr(module, "has_gate", True)
    first = "gate_up_proj" if gated else "up_proj"
    total = torch.zeros_like(states)
    for expert in range(module.num_experts):
        tokens, choices = torch.where(chosen == expert)  # in the order of tokens
        if not len(tokens):
            continue
        raised = _multiply(module, first, expert, states.index_select(0, tokens), tokens)
        mixed = module._apply_gate(raised) if gated else module.act_fn(raised)
        lowered = _multiply(module, "down_proj", expert, mixed, tokens)
        if getattr(module, "has_post_expert_norm", False):
            lowered = module.post_expert_norm(lowered)
        weighted = lowered * shares[tokens, choices, None]
        total.index_add_(0, tokens, weighted.to(total.dtype))
    return total


def _multiply(
    module: Any, name: str, expert: int, inputs: Float[Tensor, "n i"], tokens: Int64[Tensor, " n"]
) -> Float[Tensor, "n o"]:
    """One matrix of one expert, and its bias."""
    bias = getattr(module, f"{name}_bias")[expert].to(inputs.dtype) if module.has_bias else None
    if (fused := vars(module).get("fused")) is not None:
        outputs = multiply(inputs, HalfWeight(fused[name][expert]), bias, module.is_transposed)
    else:
        weight = getattr(module, name)[expert].to(inputs.dtype)
        outputs = functional.linear(inputs, weight.T if module.is_transposed else weight, bias)
    if (tap := getattr(module, "airrep_tap", None)) is not None:
        tap(name, expert, inputs, outputs, tokens)
    return outputs

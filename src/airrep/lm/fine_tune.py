"""Fine-tune a causal LM on packed documents."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from airrep.arrays import Rows
from airrep.errors import ConfigError, TrainingError
from airrep.lm.attention import PackedDocuments
from airrep.lm.documents import Documents
from airrep.lm.network import Execution, token_losses
from airrep.lm.settings import FineTuneSettings
from airrep.runtime.packing import pack
from airrep.runtime.seeding import stream


@dataclass(frozen=True, slots=True)
class FineTuneReport:
    """Record of a fine-tune.

    Attributes:
        steps: optimizer steps.
        loss_per_step: loss of each step's examples before it, mean nats per response token.
    """

    steps: int
    loss_per_step: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class StepDone:
    """One optimizer step of a fine-tune, just taken.

    Attributes:
        step: number of the step, from 1.
        steps: steps of the whole fine-tune.
        loss: loss of the step's examples before it, mean nats per response token.
        rate: the step's learning rate.
        optimizer: the optimizer, with the moments of each weight.
    """

    step: int
    steps: int
    loss: float
    rate: float
    optimizer: torch.optim.AdamW


OnStep: TypeAlias = Callable[[StepDone], None]
"""Told of each step while the weights are those behind it."""


def fine_tune(
    model: Any,
    documents: Documents,
    settings: FineTuneSettings,
    seed: int,
    execution: Execution,
    on_step: OnStep | None = None,
) -> FineTuneReport:
    """Train all weights that ask for a gradient, in place, with AdamW.

    A step lowers L = (1 / R) Σ ℓ over the R response tokens of its examples, as transformers does. Its gradient is
    summed over micro-batches; how many there are changes it by rounding alone. The seed decides the order of examples.

    Raises:
        ConfigError: the learning rate is 0 in every step.
        TrainingError: a loss or gradient is not finite; the message has the step.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = _optimizer(parameters, settings)
    orders = list(order_of(len(documents), settings, seed))
    if not any(settings.rate_at(step, len(orders)) for step in range(len(orders))):
        raise ConfigError(
            f"fine-tune: warmup_steps={settings.warmup_steps} makes the learning rate 0 in every step, of which there "
            f"are {len(orders)}; expected a step with a rate above 0. Lower warmup_steps, or train for more steps."
        )
    losses: list[float] = []
    for step, rows in enumerate(orders):
        rate = settings.rate_at(step, len(orders))
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = accumulate(model, documents.take(rows), execution)
        norm = torch.nn.utils.clip_grad_norm_(parameters, settings.clip or math.inf)
        losses.append(_finite(loss, norm, step + 1))
        optimizer.step()
        optimizer.zero_grad()
        if on_step is not None:
            on_step(StepDone(step + 1, len(orders), losses[-1], rate, optimizer))
    return FineTuneReport(len(orders), tuple(losses))


def _optimizer(parameters: list[torch.nn.Parameter], settings: FineTuneSettings) -> torch.optim.AdamW:
    return torch.optim.AdamW(
        parameters,
        lr=settings.learning_rate,
        betas=settings.betas,
        eps=settings.epsilon,
        weight_decay=settings.weight_decay,
        fused=True,
    )


def order_of(count: int, settings: FineTuneSettings, seed: int) -> Iterator[Rows]:
    """Rows of each step's examples: every epoch a permutation of its own, drawn from *seed*."""
    for epoch in range(settings.epochs):
        order = stream(seed, "order", epoch).permutation(count)
        for first in range(0, count, settings.batch_examples):
            yield order[first : first + settings.batch_examples]


def accumulate(model: Any, documents: Documents, execution: Execution) -> Tensor:
    """Add to the gradients that of the mean loss over all response tokens of some documents; return that mean, nats."""
    tokens = int(documents.response_lengths.sum())
    total = torch.zeros((), device=execution.device)
    for batch in pack(documents.lengths, execution.batch_tokens):
        packed = PackedDocuments.from_batch(documents, batch, execution.device, execution.padding)
        with execution.autocast():
            loss = token_losses(model, packed).sum() / tokens
        torch.autograd.backward(loss)
        total += loss.detach()
    return total


def _finite(loss: Tensor, norm: Tensor, step: int) -> float:
    """The loss of a step, counted from 1, as a number; refuses one that is not finite, and such a gradient."""
    # One transfer from the device for both.
    found, length = torch.stack([loss.double(), norm.double()]).tolist()
    if not np.isfinite(found + length):
        what = "loss" if not math.isfinite(found) else "gradient"
        raise TrainingError(
            f"fine-tune, step {step}: the {what} is not finite. Lower learning_rate, or use precision=float32."
        )
    return float(found)

"""Forward passes of a causal LM over packed documents."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from airrep.documents import PackedDocuments
from airrep.errors import ConfigError, TrainingError
from airrep.precision import ResolvedPrecision

_SIGNS = ("DefaultCPUAllocator", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")
"""What an error says when memory is short."""


@dataclass(frozen=True, slots=True)
class Execution:
    """Where and how the LM computes: none of it changes results beyond rounding.

    Attributes:
        device: such as ``"cpu"``.
        precision: of matrix products.
        batch_tokens: in a micro-batch.
        evenness: shortest document in one call of attention, as a share of its longest.
    """

    device: str
    precision: ResolvedPrecision
    batch_tokens: int
    evenness: float

    def autocast(self) -> AbstractContextManager[object]:
        """Run matrix products in the precision; weights stay as they are."""
        return torch.autocast(torch.device(self.device).type, torch.bfloat16, enabled=self.precision == "bfloat16")


def token_losses(model: Any, batch: PackedDocuments) -> Float[Tensor, " r"]:
    """Cross-entropy of each response token given all before it, in nats; logits are made nowhere else.

    Args:
        model: a transformers causal LM with the attention of :mod:`airrep.lm_attention`.
        batch: packed documents.
    """
    logits = model(
        input_ids=batch.ids,
        position_ids=batch.positions,
        logits_to_keep=batch.predictors,
        spans=batch.spans,
        use_cache=False,
    ).logits[0]
    kind = torch.float64 if logits.dtype == torch.float64 else torch.float32
    return functional.cross_entropy(logits.to(kind), batch.targets, reduction="none")


def loss_alone(model: Any, ids: Sequence[int]) -> Tensor:
    """Mean cross-entropy of all tokens after the first, of one document read alone; of no dimension."""
    tokens = torch.tensor(ids, device=model.device)
    logits = model(input_ids=tokens[None], use_cache=False).logits[0, :-1]
    return functional.cross_entropy(logits.float(), tokens[1:])


def last_states(model: Any, batch: PackedDocuments) -> Float[Tensor, "t h"]:
    """Last hidden state of each token, behind the final norm."""
    states: Tensor = model.base_model(
        input_ids=batch.ids, position_ids=batch.positions, spans=batch.spans, use_cache=False
    ).last_hidden_state
    return states[0]


def recompute_activations(model: Any, name: str) -> None:
    """Keep no activations inside layers while training; the backward pass makes them again.

    Raises:
        ConfigError: the model cannot.
    """
    newer = getattr(model, "activation_checkpointing_enable", None)  # the older name is going away
    enable = model.gradient_checkpointing_enable if newer is None else newer
    try:
        enable({"use_reentrant": False})
    except ValueError as error:
        raise ConfigError(f"lm {name}: cannot recompute activations. Use checkpointing=false.") from error


@contextmanager
def memory_named(what: str) -> Iterator[None]:
    """Turn a lack of memory into a one-line TrainingError."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise _short_of_memory(what) from error
    except RuntimeError as error:
        if not any(sign in str(error) for sign in _SIGNS):
            raise
        raise _short_of_memory(what) from error


def _short_of_memory(what: str) -> TrainingError:
    return TrainingError(f"{what}: memory is short. Lower batch_tokens, or set checkpointing=true.")

"""Losses of single rows, read from what a model's forward pass gives a trainer."""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import torch
from torch.nn.functional import cross_entropy

IGNORED = -100
"""Label of a token that does not count."""
_PIECE = 1 << 24
"""Logits that are taken at once: a batch may have 10^10, in half precision, and no copy of all of them fits."""


class RowLoss(NamedTuple):
    """What a row lost in a step."""

    loss: float | None
    """Mean over the tokens of the row that count, nats; None where it is not known, or none counts."""
    tokens: int
    """How many count."""


UNKNOWN = RowLoss(None, 0)
_Summed: TypeAlias = tuple[torch.Tensor, torch.Tensor]


class RowLosses:
    """A forward hook that keeps the loss of each row of a batch; the model and its gradient stay as they are."""

    def __init__(self) -> None:
        self._passes: list[_Summed | None] = []
        self._batches: list[tuple[int, _Summed | None]] = []

    def __call__(self, model: torch.nn.Module, _: Any, inputs: Mapping[str, Any], output: Any) -> None:
        """Note a pass of a training; its numbers stay on the device until they are asked for."""
        if not (model.training and torch.is_grad_enabled()):
            return
        labels: Any = inputs.get("labels")
        logits: Any = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
        fits = isinstance(labels, torch.Tensor) and isinstance(logits, torch.Tensor) and logits.ndim == 3
        if fits and logits.shape[:2] == labels.shape:
            self._passes.append(summed_losses(logits.detach(), labels, shifted=_is_causal(model)))
        else:
            self._passes.append(None)

    def end_batch(self, rows: int) -> None:
        """Say that the passes since the last batch were of so many rows; several passes do not tell their losses."""
        passes, self._passes = self._passes, []
        known = passes[0] if len(passes) == 1 else None
        self._batches.append((rows, known if known is not None and len(known[0]) == rows else None))

    def take(self) -> list[RowLoss]:
        """The losses of all rows since this was last asked, in order."""
        batches, self._batches = self._batches, []
        found: list[RowLoss] = []
        for rows, known in batches:
            if known is None:
                found += [UNKNOWN] * rows
                continue
            pairs = zip(*(values.tolist() for values in known), strict=True)
            found += [RowLoss(total / count if count else None, int(count)) for total, count in pairs]
        return found


def summed_losses(logits: torch.Tensor, labels: torch.Tensor, *, shifted: bool) -> _Summed:
    """Cross-entropy of each row, summed over the tokens that count, and how many these are, ``(rows,)`` float32 each.

    *logits* ``(rows, tokens, words)``, *labels* ``(rows, tokens)``; *shifted*: a place's logits are of the next token.
    No value is asked for, so an accelerator need not wait.
    """
    if shifted:
        logits, labels = logits[:, :-1], labels[:, 1:]
    step = max(1, _PIECE // logits.shape[-1])
    sums = torch.zeros(len(labels), dtype=torch.float32, device=logits.device)
    for row in range(len(labels)):
        for first in range(0, labels.shape[1], step):
            piece = slice(first, first + step)
            sums[row] += cross_entropy(
                logits[row, piece].float(), labels[row, piece], ignore_index=IGNORED, reduction="sum"
            )
    return sums, (labels != IGNORED).sum(1).float()


def _is_causal(model: torch.nn.Module) -> bool:
    """False for models whose logits are of the token at their own place; adapters of peft are as their base."""
    peft: Any = getattr(model, "get_base_model", None)
    inner = model if peft is None else peft()
    config = getattr(inner, "config", None)
    return not (getattr(config, "is_encoder_decoder", False) or type(inner).__name__.endswith("ForMaskedLM"))

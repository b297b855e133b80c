"""Losses and fine-tuning by transformers as it comes: one document at a time, or padded batches with full logits."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional

Document = tuple[Sequence[int], int]
"""Token ids, and where the response starts."""


def token_losses(model: Any, document: Document) -> torch.Tensor:
    """Cross-entropy at each response token of one document, read alone."""
    ids, start = torch.tensor(document[0]), document[1]
    logits = model(input_ids=ids[None]).logits[0]
    return functional.cross_entropy(logits[start - 1 : -1], ids[start:], reduction="none")


def losses(model: Any, documents: Sequence[Document]) -> list[float]:
    """Mean cross-entropy of each document's response."""
    with torch.no_grad():
        return [float(token_losses(model, document).mean()) for document in documents]


def gradients(model: Any, documents: Sequence[Document]) -> dict[str, torch.Tensor]:
    """Gradient of the mean loss over all response tokens of some documents."""
    model.zero_grad()
    torch.cat([token_losses(model, document) for document in documents]).mean().backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def padded(documents: Sequence[Document], pad: int = 0) -> dict[str, torch.Tensor]:
    """Ids, mask and labels of a batch, padded behind."""
    longest = max(len(ids) for ids, _ in documents)
    rows = [(list(ids), [-100] * start + list(ids[start:]), longest - len(ids)) for ids, start in documents]
    return {
        "input_ids": torch.tensor([ids + [pad] * free for ids, _, free in rows]),
        "attention_mask": torch.tensor([[1] * len(ids) + [0] * free for ids, _, free in rows]),
        "labels": torch.tensor([labels + [-100] * free for _, labels, free in rows]),
    }


def fine_tune(model: Any, batches: Sequence[Sequence[Document]], rate: float, decay: float) -> list[float]:
    """Plain loop over padded batches; returns the loss of each before its step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay)
    found = []
    for documents in batches:
        loss = model(**padded(documents)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found

"""Packed batches of documents, and causal attention inside each document.

transformers calls :func:`attend` in every attention layer. The spans of the batch reach it as a keyword argument of the
model's forward pass, so no mask over all pairs of tokens is made.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from airrep.arrays import Rows
from airrep.errors import ConfigError
from airrep.lm.documents import Documents
from airrep.runtime.devices import without_cudnn
from airrep.runtime.packing import Batch
from airrep.shapes import Bool, Float, Int64

NAME = "airrep_packed"
"""Name that the attention has in transformers."""

_REFUSED = ("position_bias",)


class AttentionSpan(NamedTuple):
    """Neighbouring documents that attention handles in one call: ``sequences`` documents of up to ``longest`` tokens.

    ``pad`` gives the token for each place of the ``(sequences, longest)`` table, ``keep`` the place of each token.
    Both are None if all documents have the same length, since the tokens then already form the table.
    """

    tokens: int
    sequences: int
    longest: int
    pad: Int64[Tensor, " places"] | None
    keep: Int64[Tensor, " tokens"] | None


class _Attention(NamedTuple):
    """Arguments that a layer passes to its attention."""

    scaling: float | None
    window: int | None
    softcap: float | None
    sinks: Float[Tensor, " heads"] | None

    @property
    def by_formula(self) -> bool:
        """True if no kernel supports these arguments."""
        return self.softcap is not None or self.sinks is not None


class PackedDocuments(NamedTuple):
    """A batch as the LM reads it."""

    ids: Int64[Tensor, "1 t"]
    positions: Int64[Tensor, "1 t"]
    """Each token's place in its own document."""
    spans: tuple[AttentionSpan, ...]
    """Documents that attention handles together; in order, they cover every token once."""
    predictors: Int64[Tensor, " r"]
    """Places in *ids* just before each response token."""
    targets: Int64[Tensor, " r"]
    """Ids of the response tokens."""
    owners: Int64[Tensor, " r"]
    """Number of each response token's document in the batch."""
    sides: Int64[Tensor, " r"]
    """1 for tokens of a pair's rejected response, else 0."""
    shares: Float[Tensor, " r"] | None = None
    """Share of each response token's loss that counts, from 0 to 1; None for 1."""

    @classmethod
    def from_batch(cls, documents: Documents, batch: Batch, device: str = "cpu", padding: int = 0) -> Self:
        """Lay the documents of a batch end to end.

        *padding* is the most free places that a span may have: with 0, only documents of equal length share a span;
        with more, attention is called less often.
        """
        ids = np.concatenate([documents.sequence(row) for row in batch.rows])
        positions, lengths = batch.positions, batch.lengths
        owners = np.repeat(np.arange(len(batch.rows)), batch.lengths)
        starts, rejected = documents.starts[batch.rows][owners], np.zeros(len(ids), np.int64)
        if documents.borders is not None and documents.others is not None:  # neither side sees the other
            borders = documents.borders[batch.rows]
            rejected = (positions >= borders[owners]).astype(np.int64)
            starts = np.where(rejected, (documents.others[batch.rows] - borders)[owners], starts)
            positions = positions - rejected * borders[owners]
            lengths = np.stack([borders, lengths - borders], axis=1).ravel()
            lengths = lengths[lengths > 0]
        answered = np.flatnonzero(positions >= starts)
        parts = (answered - 1, ids[answered], owners[answered], rejected[answered])
        predictors, targets, own, sides = (torch.from_numpy(array).to(device) for array in parts)
        shares = None if documents.shares is None else [documents.shares_of(row) for row in batch.rows]
        return cls(
            torch.from_numpy(ids)[None].to(device),
            torch.from_numpy(positions)[None].to(device),
            spans_of(lengths, device, padding),
            predictors,
            targets,
            own,
            sides,
            None if shares is None else torch.from_numpy(np.concatenate(shares)).to(device),
        )


def spans_of(lengths: Rows, device: str = "cpu", padding: int = 0) -> tuple[AttentionSpan, ...]:
    """Cut documents into spans of similar lengths (see :meth:`PackedDocuments.from_batch`); few if they are sorted."""
    spans = []
    first = 0
    while first < len(lengths):
        left = lengths[first:]
        free = np.maximum.accumulate(left) * np.arange(1, len(left) + 1) - np.cumsum(left)
        last = first + int(np.searchsorted(free, padding, side="right"))
        spans.append(_span(lengths[first:last], device))
        first = last
    return tuple(spans)


def _span(lengths: Rows, device: str) -> AttentionSpan:
    longest, tokens = int(lengths.max()), int(lengths.sum())
    if tokens == len(lengths) * longest:
        return AttentionSpan(tokens, len(lengths), longest, None, None)
    starts = np.cumsum(lengths) - lengths
    places = np.arange(longest)[None, :]
    # Free places hold copies of the document's last token, which no kept place attends to.
    pad = starts[:, None] + np.minimum(places, lengths[:, None] - 1)
    keep = np.flatnonzero((places < lengths[:, None]).ravel())
    return AttentionSpan(
        tokens, len(lengths), longest, *(torch.from_numpy(each.ravel()).to(device) for each in (pad, keep))
    )


def reads_packed(model: Any) -> bool:
    """True if a model uses packed attention; with transformers' attention it reads one document at a time."""
    return bool(model.config._attn_implementation == NAME)


def use_library_attention(model: Any) -> None:
    """Switch a model from packed attention to that of transformers for good; leave other models as they are."""
    if reads_packed(model):
        model.set_attn_implementation("sdpa" if getattr(model, "_supports_sdpa", False) else "eager")


@contextmanager
def library_attention(model: Any) -> Iterator[None]:
    """Let a model use the attention of transformers, which takes masks and a cache, inside the context."""
    own = model.config._attn_implementation
    use_library_attention(model)
    try:
        with without_cudnn():
            yield
    finally:
        if own == NAME:
            model.set_attn_implementation(own)


def attend(
    module: nn.Module,
    query: Float[Tensor, "1 heads t d"],
    key: Float[Tensor, "1 kv_heads t d"],
    value: Float[Tensor, "1 kv_heads t e"],
    _mask: Tensor | None = None,
    *,
    spans: tuple[AttentionSpan, ...] | None = None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Float[Tensor, " heads"] | None = None,
    **others: Any,
) -> tuple[Float[Tensor, "1 t heads e"], None]:
    """Let each token attend to itself and the earlier tokens of its own document; dropout is off.

    With a *softcap* c, logits are c tanh(logit / c); *s_aux* are logits of a sink, a place without a value.
    """
    how = _Attention(scaling, sliding_window, softcap, s_aux)
    spans = _checked(module, spans, others)
    sizes = [span.tokens for span in spans]
    parts = zip(spans, *(each.squeeze(0).transpose(0, 1).split(sizes) for each in (query, key, value)), strict=True)
    return torch.cat([_attend_span(span, q, k, v, how) for span, q, k, v in parts])[None], None


def _checked(
    module: nn.Module, spans: tuple[AttentionSpan, ...] | None, others: dict[str, Any]
) -> tuple[AttentionSpan, ...]:
    kind = type(module).__name__
    if spans is None:
        raise ConfigError(
            f"{kind}: passes no keyword arguments to its attention, but airrep needs them. Use another LM."
        )
    if getattr(module, "is_causal", True) is False:
        raise ConfigError(f"{kind}: attends to later tokens too, so the LM is not causal. Use a causal LM.")
    if asked := next((name for name in _REFUSED if others.get(name) is not None), None):
        raise ConfigError(f"{kind}: needs attention with {asked}, which airrep does not support. Use another LM.")
    return spans


def _attend_span(
    span: AttentionSpan,
    query: Float[Tensor, "s heads d"],
    key: Float[Tensor, "s kv_heads d"],
    value: Float[Tensor, "s kv_heads e"],
    how: _Attention,
) -> Float[Tensor, "s heads e"]:
    """Compute the attention of one span as a table of documents by tokens."""
    banded = how.window is not None and span.longest > how.window
    band = None
    if banded or how.by_formula:  # each token sees itself and the window − 1 tokens before it
        whole = torch.ones(span.longest, span.longest, dtype=torch.bool, device=query.device).tril()
        band = whole.triu(1 - (how.window or 0)) if banded else whole
    if how.by_formula or not _shares_heads(query, banded):
        key, value = (each.repeat_interleave(query.shape[1] // each.shape[1], dim=1) for each in (key, value))
    tables = (_table(span, query), _table(span, key), _table(span, value))
    if how.by_formula and band is not None:
        mixed = _formula(*tables, band, how)
    else:
        with without_cudnn():
            mixed = functional.scaled_dot_product_attention(
                *tables,
                attn_mask=band,
                is_causal=not banded,
                scale=how.scaling,
                enable_gqa=key.shape[1] != query.shape[1],
            )
    flat = mixed.transpose(1, 2).flatten(0, 1)
    return flat if span.keep is None else _Unpad.apply(flat, span.keep)


def _formula(
    query: Float[Tensor, "n heads t d"],
    key: Float[Tensor, "n heads t d"],
    value: Float[Tensor, "n heads t e"],
    seen: Bool[Tensor, "t t"],
    how: _Attention,
) -> Float[Tensor, "n heads t e"]:
    """Compute attention that no kernel supports; memory grows with the number of pairs of tokens."""
    scaling = query.shape[-1] ** -0.5 if how.scaling is None else how.scaling
    logits = query @ key.mT * scaling
    if how.softcap is not None:
        logits = (logits / how.softcap).tanh() * how.softcap
    logits = logits.masked_fill(~seen, -torch.inf)
    if how.sinks is not None:
        logits = torch.cat([logits, how.sinks[:, None, None].to(logits).expand(*logits.shape[:3], 1)], dim=-1)
    shares = logits.softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    return shares[..., : seen.shape[1]].to(value.dtype) @ value


def _shares_heads(query: Tensor, banded: bool) -> bool:
    """True if query heads can share a key head without a kernel that keeps all pairs of tokens in memory.

    On CUDA only the flash kernel can do so; it takes only half precision, and no masks.
    """
    return not query.is_cuda or (query.dtype in (torch.float16, torch.bfloat16) and not banded)


def _table(span: AttentionSpan, rows: Float[Tensor, "s heads d"]) -> Float[Tensor, "sequences heads longest d"]:
    padded: Tensor = rows if span.pad is None else _Pad.apply(rows, span.pad, span.keep)
    return padded.unflatten(0, (span.sequences, span.longest)).transpose(1, 2)


class _Pad(torch.autograd.Function):
    """Lay documents out as a table whose free places hold copies of tokens.

    A free place comes after its document, and attention is causal, so its gradient is zero. The backward pass is
    therefore a selection too.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, pad: Int64[Tensor, " p"], keep: Int64[Tensor, " s"]) -> Tensor:
        ctx.save_for_backward(keep)
        return rows.index_select(0, pad)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (keep,) = ctx.saved_tensors
        return gradient.index_select(0, keep), None, None


class _Unpad(torch.autograd.Function):
    """Turn a table back into documents; the gradient at free places is zero."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, keep: Int64[Tensor, " s"]) -> Tensor:
        ctx.save_for_backward(keep)
        ctx.places = table.shape[0]
        return table.index_select(0, keep)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (keep,) = ctx.saved_tensors
        return gradient.new_zeros(ctx.places, *gradient.shape[1:]).index_copy_(0, keep, gradient), None

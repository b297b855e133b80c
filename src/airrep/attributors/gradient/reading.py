"""Per-example gradients of a causal LM, without a pass per example.

Documents of a packed batch do not see each other, so one backward pass over the sum of their losses holds every
document's own gradient: for a linear map with inputs a_t and output gradients g_t it is Σ_t g_t a_tᵀ over the
document's tokens t. With small matrices on both sides that is Σ_t (P_out g_t)(P_in a_t)ᵀ, and no gradient is ever
as large as the weight.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from airrep.arrays import Rows
from airrep.errors import ConfigError
from airrep.lm.attention import PackedDocuments
from airrep.lm.documents import Documents
from airrep.lm.model import TargetLM
from airrep.lm.network import memory_named, token_logits
from airrep.runtime.packing import Batch, pack
from airrep.shapes import Float, Int64

ALL = "all-linear"
MLP = ("*mlp*", "*feed_forward*", "*ffn*", "*.fc1", "*.fc2")
"""Patterns of the names that linear maps of MLPs have in transformers."""

SHOWN = 12
"""Most names that an error lists."""

LEAST_UNREAD = 0.01
"""Share of an LM's inner weights from which on it is said that gradients leave them out."""

Objective: TypeAlias = Literal["loss", "margin"]
"""The quantity that is differentiated: the loss, or minus the log odds of the response's tokens."""

Reduction: TypeAlias = Literal["mean", "sum"]
"""Mean or sum over an example's response tokens."""


@dataclass(frozen=True, eq=False)
class Site:
    """A linear map of an LM: y = W x, with W of ``(width_out, width_in)`` numbers."""

    name: str
    module: nn.Module
    width_in: int
    width_out: int


def find_sites(model: nn.Module, patterns: Sequence[str] | None, where: str) -> tuple[Site, ...]:
    """The linear maps of a model of transformers with certain names, in its order.

    Patterns are full names, with ``*`` for any text, or ``all-linear`` for all but the output layer; None: those of
    MLPs. An error begins with *where*.

    Raises:
        ConfigError: a pattern that no linear map has; the names are listed.
    """
    linears = list(_linears(model))
    chosen = MLP if patterns is None else tuple(patterns)
    if ALL in chosen:
        output = getattr(model, "get_output_embeddings", lambda: None)()
        return tuple(site for site in linears if site.module is not output)
    found = tuple(site for site in linears if any(fnmatchcase(site.name, pattern) for pattern in chosen))
    missed = [] if patterns is None else [p for p in chosen if not any(fnmatchcase(s.name, p) for s in linears)]
    if not found or missed:
        raise ConfigError(
            f"{where}: has no linear map named {' or '.join(missed or chosen)}; it has {listed(linears)}. "
            "Set modules to names or patterns of these."
        )
    return found


def listed(sites: Sequence[Site]) -> str:
    """The names of linear maps, the first of them if there are many."""
    names = ", ".join(site.name for site in sites[:SHOWN])
    return (names + (f" and {len(sites) - SHOWN} more" if len(sites) > SHOWN else "")) or "none at all"


def unread(model: nn.Module, method: str) -> str:
    """A sentence of caution where matrices of an LM's layers are no linear maps, as fused experts are; or nothing.

    Embeddings and the output layer are left out of gradients by design, and do not count.
    """
    linears = {f"{site.name}.weight": site for site in find_sites(model, (ALL,), method)}
    apart = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    output = getattr(model, "get_output_embeddings", lambda: None)()
    apart.add(id(getattr(output, "weight", None)))
    inner = {name: one for name, one in model.named_parameters() if one.dim() > 1 and id(one) not in apart}
    missed = {name: one.numel() for name, one in inner.items() if name not in linears}
    share = sum(missed.values()) / max(1, sum(one.numel() for one in inner.values()))
    if share < LEAST_UNREAD:
        return ""
    names = sorted(missed, key=lambda name: -missed[name])
    return (
        f"{method} reads linear maps alone. {len(names):,} other matrices, as fused experts are, have {share:.0%} of "
        f"the weights between embeddings and output layer; what these learn is not in the scores. The largest: "
        f"{names[0]}."
    )


def _linears(model: nn.Module) -> Iterator[Site]:
    from transformers.pytorch_utils import Conv1D

    for name, module in model.named_modules():
        if isinstance(module, Conv1D):
            yield Site(name, module, *module.weight.shape)
        elif isinstance(module, nn.Linear):
            yield Site(name, module, module.in_features, module.out_features)


class DocumentPlaces:
    """Places of a packed batch's documents in its list of tokens."""

    def __init__(self, batch: Batch, device: str) -> None:
        self.count = len(batch.rows)
        """Documents."""
        self.tokens = batch.tokens
        self.longest = int(batch.lengths[0])  # a batch is in order of length, the longest first
        self._keep = self._scatter(batch, device) if self.tokens < self.count * self.longest else None

    def _scatter(self, batch: Batch, device: str) -> Int64[Tensor, " t"]:
        owners = np.repeat(np.arange(self.count), batch.lengths)
        return torch.from_numpy(owners * self.longest + batch.positions).to(device)

    def table(self, rows: Float[Tensor, "t w"]) -> Float[Tensor, "count longest w"]:
        """Rows of tokens as a table of documents, zeros behind the end of each."""
        if self._keep is None:
            return torch.unflatten(rows, 0, (self.count, self.longest))
        table = rows.new_zeros(self.count * self.longest, rows.shape[1]).index_copy_(0, self._keep, rows)
        return torch.unflatten(table, 0, (self.count, self.longest))

    def products(self, gradients: Float[Tensor, "t o"], inputs: Float[Tensor, "t i"]) -> Float[Tensor, "count o i"]:
        """Σ_t g_t a_tᵀ of each document."""
        return torch.bmm(self.table(gradients).transpose(1, 2), self.table(inputs))


class Reader(Protocol):
    """Takes what passes through the sites in one forward and backward pass."""

    def keep(self, site: Site, inputs: Float[Tensor, "t i"], /) -> Tensor:
        """Take a site's inputs; returns the part to hold until the gradients come."""

    def take(self, site: Site, kept: Tensor, gradients: Float[Tensor, "t o"], places: DocumentPlaces, /) -> None:
        """Take the gradients of the summed objective with respect to a site's outputs."""


class ReadBatch(NamedTuple):
    """One batch of documents whose gradients the reader has been given."""

    rows: Rows
    """Rows of the documents, in the order of places."""
    doubts: Float[Tensor, " count"]
    """1 − p of each document, the chance of another token, averaged over its response."""
    losses: tuple[Float[Tensor, " r"], ...]
    """Cross-entropy of each response token of each document, in nats."""


@torch.inference_mode(False)  # gradients are wanted wherever the caller has switched them off
def read_gradients(
    lm: TargetLM,
    documents: Documents,
    sites: Sequence[Site],
    reader: Reader,
    *,
    objective: Objective = "loss",
    reduction: Reduction = "mean",
) -> Iterator[ReadBatch]:
    """Pass documents through an LM, batch after batch; memory is bounded by a batch.

    After each batch the reader has been given every site. Gradients are those of each document's own objective:
    the mean, or sum, over its response tokens of the cross-entropy, in nats, or of minus the log odds
    log p − log(1 − p). The LM's weights stay as they are.

    Raises:
        ConfigError: a site does not see every token of the batch.
        TrainingError: memory is short.
    """
    execution = lm.execution
    with memory_named("gradients"), _frozen(lm.model), _SiteHooks(sites, reader, execution.device) as hooks:
        for batch in pack(documents.lengths, execution.batch_tokens):
            packed = PackedDocuments.from_batch(documents, batch, execution.device, execution.padding)
            hooks.places = DocumentPlaces(batch, execution.device)
            with execution.autocast():
                each, losses = _objective(token_logits(lm.model, packed), packed.targets, objective)
            chances = -torch.expm1(-losses)  # 1 − exp(−loss), exact where p is near 1
            lengths = torch.bincount(packed.owners, minlength=len(batch.rows)).to(each)
            torch.autograd.backward((each / lengths[packed.owners] if reduction == "mean" else each).sum())
            doubts = chances.new_zeros(len(batch.rows)).index_add_(0, packed.owners, chances) / lengths
            yield ReadBatch(batch.rows, doubts, losses.split(documents.response_lengths[batch.rows].tolist()))


def _objective(
    logits: Float[Tensor, "r v"], targets: Int64[Tensor, " r"], objective: Objective
) -> tuple[Float[Tensor, " r"], Float[Tensor, " r"]]:
    """The objective, and the loss, of each response token."""
    losses = functional.cross_entropy(logits, targets, reduction="none")
    if objective == "loss":
        return losses, losses.detach()
    others = logits.scatter(1, targets[:, None], -torch.inf).logsumexp(dim=1)
    return others - logits.gather(1, targets[:, None]).squeeze(1), losses.detach()


@contextmanager
def _frozen(model: Any) -> Iterator[None]:
    """Switch gradients of all weights off, which nobody reads; those of activations suffice."""
    asked = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in asked:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in asked:
            parameter.requires_grad_(True)


class _SiteHooks(ExitStack):
    """Hooks on sites, in place while the context lasts."""

    places: DocumentPlaces

    def __init__(self, sites: Sequence[Site], reader: Reader, device: str) -> None:
        super().__init__()
        self._reader = reader
        self._kind = torch.device(device).type
        for site in sites:
            self.callback(site.module.register_forward_hook(self._hook(site)).remove)

    def _hook(self, site: Site) -> Callable[[nn.Module, tuple[Any, ...], Tensor], None]:
        def hook(_module: nn.Module, inputs: tuple[Any, ...], outputs: Tensor) -> None:
            with torch.autocast(self._kind, enabled=False):  # what is kept meets float32 in the backward pass
                kept = self._reader.keep(site, self._rows(site, inputs[0].detach()))
            if not outputs.requires_grad:  # nothing below a first site is differentiated
                outputs.requires_grad_(True)
            outputs.register_hook(
                lambda gradients: self._reader.take(site, kept, self._rows(site, gradients), self.places)
            )

        return hook

    def _rows(self, site: Site, tokens: Tensor) -> Float[Tensor, "t w"]:
        """One row for each token, at least in float32."""
        rows = tokens.flatten(0, -2)
        if len(rows) != self.places.tokens:
            raise ConfigError(
                f"modules: {site.name} sees {len(rows)} of {self.places.tokens} tokens; expected a linear map that "
                "sees all, unlike the output layer or an expert among others. Leave it out of modules."
            )
        return rows.to(torch.promote_types(rows.dtype, torch.float32))

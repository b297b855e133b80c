"""Per-example gradients of a causal LM, without a pass per example.

Documents of a packed batch do not see each other, so one backward pass over the sum of their losses gives every
document's own gradient: for a linear map with inputs a_t and output gradients g_t it is Σ_t g_t a_tᵀ over the
document's tokens t. Projected on both sides it is Σ_t (P_out g_t)(P_in a_t)ᵀ, and no gradient is ever as large as
the weight.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property, partial
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
from airrep.lm.network import IDLE, memory_named, token_logits, token_losses
from airrep.lm.packed import fused_shapes, is_fused, pool_name, tapped
from airrep.runtime.packing import Batch, pack
from airrep.shapes import Float, Int64

ALL = "all-linear"
MLP = ("*mlp*", "*feed_forward*", "*ffn*", "*.fc1", "*.fc2", "*.experts.*")
"""Patterns of the names of MLPs' linear maps in transformers."""

SHOWN = 12
"""Most names that an error lists."""

LEAST_UNREAD = 0.01
"""Least share of an LM's inner weights that gradients leave out for :func:`unread` to warn."""

_NUMBER = re.compile(r"\.\d+(?=\.)")

TOKENS = 512
"""Most tokens of a batch on a CPU: fewer take more time, more hardly less, and memory grows with them."""

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
    fused: str = ""
    """The module's weight ``(experts, ..., ...)`` that holds the map; empty if the module is the map."""
    expert: int = 0
    """The map's index among the experts of that weight."""

    @cached_property
    def pool(self) -> str:
        """The name that statistics are kept under; experts of a layer share one, as each sees few tokens."""
        return pool_name(self.name)

    @property
    def parameter(self) -> str:
        """The name of the LM's weight that holds the map."""
        return f"{self.owner}.{self.fused}" if self.fused else f"{self.name}.weight"

    @property
    def owner(self) -> str:
        """The name of the module that holds the map."""
        return self.name.rsplit(".", 2)[0] if self.fused else self.name

    @property
    def turned(self) -> bool:
        """True if the weight has the shape (in, out)."""
        return bool(getattr(self.module, "is_transposed", not isinstance(self.module, nn.Linear)))


def find_sites(model: nn.Module, patterns: Sequence[str] | None, where: str) -> tuple[Site, ...]:
    """Return the linear maps of a transformers model whose names match *patterns*, in the model's order.

    Patterns are full names, with ``*`` for any text, or ``all-linear`` for all but the output layer; None: the maps of
    MLPs. An error begins with *where*. ConfigError: a pattern matches no linear map; the names are listed.
    """
    linears = list(_linears(model))
    chosen = MLP if patterns is None else tuple(patterns)
    if ALL in chosen:
        output = getattr(model, "get_output_embeddings", lambda: None)()
        return tuple(site for site in linears if site.module is not output)
    found = tuple(site for site in linears if any(fnmatchcase(site.name, pattern) for pattern in chosen))
    missed = [] if patterns is None else [p for p in chosen if not any(fnmatchcase(s.name, p) for s in linears)]
    if not found or missed:
        names = ", ".join(site.name for site in linears[:SHOWN]) or "none at all"
        more = f" and {len(linears) - SHOWN} more" if len(linears) > SHOWN else ""
        raise ConfigError(
            f"{where}: has no linear map named {' or '.join(missed or chosen)}; it has {names}{more}. Set modules "
            "to names from this list, or to patterns that match them."
        )
    return found


def unread(model: nn.Module, method: str) -> str:
    """Return a warning that names matrices of an LM's layers that gradients leave out, with their share, or "".

    These are not linear maps. Embeddings and the output layer are left out by design, and do not count.
    """
    read = {site.parameter for site in find_sites(model, (ALL,), method)}
    apart = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    output = getattr(model, "get_output_embeddings", lambda: None)()
    apart.add(id(getattr(output, "weight", None)))
    matrices = ((name, one) for name, one in model.named_parameters() if one.dim() > 1 and not name.endswith("bias"))
    inner = {name: one.numel() for name, one in matrices if id(one) not in apart}
    missed: dict[str, int] = {}
    for name in inner.keys() - read:
        pattern = _NUMBER.sub(".*", name)  # one name for all layers
        missed[pattern] = missed.get(pattern, 0) + inner[name]
    share = sum(missed.values()) / max(1, sum(inner.values()))
    if share < LEAST_UNREAD:
        return ""
    names = ", ".join(sorted(missed, key=lambda name: (-missed[name], name)))
    return (
        f"{method} reads only linear maps, which have {1 - share:.0%} of the weights between embeddings and output "
        f"layer. Scores leave out the other weights: {names}."
    )


def _linears(model: nn.Module) -> Iterator[Site]:
    from transformers.pytorch_utils import Conv1D

    idle: frozenset[str] = getattr(model, IDLE, frozenset())
    for name, module in model.named_modules():
        if name.partition(".lora_")[0] in idle and pool_name(name) == name:
            continue  # experts are kept: one that is idle in a text may run in another
        if isinstance(module, Conv1D):
            yield Site(name, module, *module.weight.shape)
        elif isinstance(module, nn.Linear):
            yield Site(name, module, module.in_features, module.out_features)
        elif is_fused(module):
            shapes = list(fused_shapes(module))
            for expert in range(shapes[0][1]):
                for fused, _, inward, outward in shapes:
                    yield Site(f"{name}.{expert}.{fused}", module, inward, outward, fused, expert)


class DocumentPlaces:
    """Places of a packed batch's documents in its list of tokens, or in a list of some of the tokens."""

    def __init__(self, batch: Batch, device: str) -> None:
        self.count = len(batch.rows)
        """Number of documents."""
        self.whole = self
        """The places in the list of all tokens."""
        self.chosen: Int64[Tensor, " n"] | None = None
        """Indices of the listed tokens among all tokens of the batch; None: all are listed."""
        self.known = True
        """False if a linear map does not show which tokens it reads."""
        self._lay(torch.from_numpy(np.repeat(np.arange(self.count), batch.lengths)).to(device))

    def of(self, chosen: Int64[Tensor, " n"]) -> "DocumentPlaces":
        """Return the places of the documents in a list of some tokens, given by ascending indices."""
        found = copy(self)
        found.chosen = chosen
        found._lay(self._owners[chosen])
        return found

    def _lay(self, owners: Int64[Tensor, " t"]) -> None:
        """Compute places from the document of each token."""
        lengths = torch.bincount(owners, minlength=self.count)
        self.tokens, self.longest = len(owners), int(lengths.max())
        self._owners, self._keep = owners, None
        if self.tokens < self.count * self.longest:
            starts = lengths.cumsum(0) - lengths
            self._keep = owners * self.longest + torch.arange(self.tokens, device=owners.device) - starts[owners]

    def table(self, rows: Float[Tensor, "t w"]) -> Float[Tensor, "count longest w"]:
        """Arrange rows of tokens as a table of documents, padded with zeros."""
        if self._keep is None:
            return torch.unflatten(rows, 0, (self.count, self.longest))
        table = rows.new_zeros(self.count * self.longest, rows.shape[1]).index_copy_(0, self._keep, rows)
        return torch.unflatten(table, 0, (self.count, self.longest))

    def products(self, gradients: Float[Tensor, "t o"], inputs: Float[Tensor, "t i"]) -> Float[Tensor, "count o i"]:
        """Return Σ_t g_t a_tᵀ for each document."""
        return torch.bmm(self.table(gradients).transpose(1, 2), self.table(inputs))


class Reader(Protocol):
    """Receives the inputs and output gradients of all sites in one forward and backward pass."""

    def keep(self, _site: Site, inputs: Float[Tensor, "t i"], /) -> Tensor:
        """Receive a site's inputs; return what to hold of them until the gradients come: all, by default."""
        return inputs

    def take(self, site: Site, kept: Tensor, gradients: Float[Tensor, "t o"], places: DocumentPlaces, /) -> None:
        """Receive the result of :meth:`keep`, the gradients of the site's outputs, and the places of its tokens."""


class ReadBatch(NamedTuple):
    """One batch of documents whose gradients the reader has received."""

    rows: Rows
    """Row of each document of the batch, in the order of :class:`DocumentPlaces`."""
    doubts: Float[Tensor, " count"]
    """1 − p of each document, averaged over the tokens of its response."""
    losses: tuple[Float[Tensor, " r"], ...]
    """Cross-entropy of each response token of each document, in nats."""


@torch.inference_mode(False)  # gradients are needed even if the caller has switched them off
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

    After each batch, the reader has received every site. Gradients are those of each document's own objective: the
    mean, or sum, over its response tokens of the cross-entropy, in nats, or of minus the log odds log p − log(1 − p).
    With a span, each token counts by its share in the span. For an LM tuned on preferences, the objective is that loss,
    for documents that have its data: the gradient of a DPO pair is β σ(−margin) (∇ log p(rejected) − ∇ log p(chosen)).
    The LM's weights stay as they are. ConfigError: a site does not see every token of the batch, or log odds are
    combined with a preference loss.
    """
    execution = lm.execution
    tokens = min(execution.batch_tokens, TOKENS) if torch.device(execution.device).type == "cpu" else None
    preference = lm.preference(documents)
    if preference is not None and objective != "loss":
        raise ConfigError(
            f"lm {lm.name}: TRAK does not support loss={preference.loss}, because TRAK reads log odds of tokens. Use "
            "another method."
        )
    apart = any(site.pool != site.name and not site.fused for site in sites)  # its tokens are not known
    with memory_named("gradients"), frozen(lm.model), SiteHooks(sites, reader, lm) as hooks:
        for batch in pack(documents.lengths, 1 if apart else tokens or execution.batch_tokens):
            packed = PackedDocuments.from_batch(documents, batch, execution.device, execution.padding)
            hooks.begin(DocumentPlaces(batch, execution.device))
            with execution.autocast():
                each, losses = _objective(lm.model, packed, objective)
            chances = -torch.expm1(-losses)  # 1 − exp(−loss), exact where p is near 1
            lengths = torch.bincount(packed.owners, minlength=len(batch.rows)).to(each)
            if packed.shares is not None:
                each = each * packed.shares.to(each)
            if each.requires_grad:  # False if no token met an expert that is read
                own = each / lengths[packed.owners] if reduction == "mean" else each
                if preference is not None:
                    own = preference.take(batch.rows).whole(each, packed, reduction)
                torch.autograd.backward(own.sum())
            hooks.end()
            doubts = chances.new_zeros(len(batch.rows)).index_add_(0, packed.owners, chances) / lengths
            yield ReadBatch(batch.rows, doubts, losses.split(documents.response_lengths[batch.rows].tolist()))


def _objective(
    model: Any, packed: PackedDocuments, objective: Objective
) -> tuple[Float[Tensor, " r"], Float[Tensor, " r"]]:
    """Return the objective, and the loss without a graph, of each response token."""
    if objective == "loss":
        losses = token_losses(model, packed)
        return losses, losses.detach()
    logits, targets = token_logits(model, packed), packed.targets
    others = logits.scatter(1, targets[:, None], -torch.inf).logsumexp(dim=1)
    margins = others - logits.gather(1, targets[:, None]).squeeze(1)
    return margins, functional.cross_entropy(logits.detach(), targets, reduction="none")


@contextmanager
def frozen(model: Any) -> Iterator[None]:
    """Switch off gradients of all weights, which are not needed: gradients of activations suffice."""
    asked = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in asked:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in asked:
            parameter.requires_grad_(True)


class SiteHooks(ExitStack):
    """Hooks on sites, in place while the context lasts."""

    def __init__(self, sites: Sequence[Site], reader: Reader | None, lm: TargetLM) -> None:
        super().__init__()
        self._sites = sites
        self._reader = reader
        self._device = lm.execution.device
        self._kind = torch.promote_types(lm.model.dtype, torch.float32)
        fused: dict[nn.Module, dict[tuple[str, int], Site]] = {}
        for site in sites:
            if site.fused:
                fused.setdefault(site.module, {})[site.fused, site.expert] = site
            else:
                self.callback(site.module.register_forward_hook(partial(self._hook, site)).remove)
        for module, own in fused.items():
            self.enter_context(tapped(module, partial(self._tap, own)))

    def begin(self, places: DocumentPlaces) -> None:
        """Start a batch whose documents are at these places."""
        self._places = places
        self._ran: set[str] = set()
        self._learnt: set[str] = set()

    def end(self) -> None:
        """End a batch: the reader receives sites that no token met, or without gradients, with 0 tokens.

        ConfigError: a site that is not an expert was not run.
        """
        assert self._reader is not None  # subclasses without a reader do not call this
        for site in self._sites:
            if site.name in self._learnt:
                continue
            if site.name not in self._ran and site.pool == site.name:
                raise ConfigError(
                    f"modules: the LM never calls {site.name} as a linear map, but uses its weight directly. Remove "
                    f"{site.name} from modules."
                )
            none = torch.zeros(0, dtype=self._kind, device=self._device)
            inputs, gradients = (none.new_zeros(0, width) for width in (site.width_in, site.width_out))
            self._reader.take(site, self._reader.keep(site, inputs), gradients, self._places.of(none.long()))

    def _hook(self, site: Site, _module: nn.Module, inputs: tuple[Any, ...], outputs: Tensor) -> None:
        rows = inputs[0].flatten(0, -2)
        self._read(site, rows, outputs, self._placed(site, len(rows)))

    def _tap(
        self,
        sites: Mapping[tuple[str, int], Site],
        fused: str,
        expert: int,
        inputs: Tensor,
        outputs: Tensor,
        tokens: Int64[Tensor, " n"],
    ) -> None:
        if (site := sites.get((fused, expert))) is not None:
            self._read(site, inputs, outputs, self._places.of(tokens))

    def _read(self, site: Site, inputs: Tensor, outputs: Tensor, places: DocumentPlaces) -> None:
        """Pass a site's inputs, and later its output gradients, to the reader: one row for each token."""
        reader = self._reader
        assert reader is not None
        with torch.autocast(torch.device(self._device).type, enabled=False):  # keep's result meets float32 gradients
            kept = reader.keep(site, wide(inputs.detach()))
        self._ran.add(site.name)

        def back(gradients: Tensor) -> None:
            self._learnt.add(site.name)
            reader.take(site, kept, wide(gradients.flatten(0, -2)), places)

        if not outputs.requires_grad:  # nothing below a first site is differentiated
            outputs.requires_grad_(True)
        outputs.register_hook(back)

    def _placed(self, site: Site, rows: int) -> DocumentPlaces:
        """Return the documents' places in a site's *rows* rows."""
        if rows == self._places.tokens:
            return self._places
        if self._places.count > 1:
            raise ConfigError(
                f"modules: the layer {site.name} gets only {rows} of {self._places.tokens} tokens, so airrep does not "
                f"know which example each token belongs to. Remove {site.name} from modules, or set batch_tokens=1"
            )
        some = self._places.of(torch.zeros(rows, dtype=torch.int64, device=self._device))
        some.known = False
        return some


def wide(rows: Float[Tensor, "t w"]) -> Float[Tensor, "t w"]:
    """Return rows in float32, or float64 if they are."""
    return rows.to(torch.promote_types(rows.dtype, torch.float32))

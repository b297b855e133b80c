"""Products of gradients, split over pairs of tokens.

The gradient of a linear map is a sum over tokens, Σ_t g_t a_tᵀ, and so the product of two examples' gradients is a sum
over pairs of their tokens: Σ_ts ⟨a_t, a_s⟩⟨g_t, g_s⟩. For one map, all pairs are the elementwise product of two small
matrices. The gradient of a single token is formed only if curvature or a sketch stands between the two gradients.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor

from airrep.attributors.by_token import Stretches
from airrep.attributors.gradient.projection import Projections, WhitenedSketch
from airrep.attributors.gradient.reading import DocumentPlaces, Objective, Reduction, Site, read_gradients
from airrep.corpus.corpus import Example
from airrep.errors import ConfigError
from airrep.lm.documents import Documents
from airrep.lm.model import TargetLM
from airrep.shapes import Float, Float64, Int64

Dual: TypeAlias = Callable[[Float64[np.ndarray, "t d"]], Float64[np.ndarray, "t d"]]
"""A linear map of features, applied to each row."""

NUMBERS = 2**22
"""Numbers of tokens' gradients that are held at a time, 16 MiB."""


class SiteTokens(NamedTuple):
    """Inputs and output gradients of the tokens that one linear map has read."""

    tokens: Int64[Tensor, " t"] | None
    """Places of the tokens in the document; None: all tokens, in order."""
    inputs: Float[Tensor, "t i"]
    gradients: Float[Tensor, "t o"]


class Pairing(Protocol):
    """Multiplies tokens of a query with tokens of training examples, one linear map after another."""

    def inputs(self, site: Site, inputs: Float[Tensor, "t i"], /) -> Tensor:
        """Transform a map's inputs, for instance by projection, before they are multiplied."""

    def gradients(self, site: Site, gradients: Float[Tensor, "t o"], /) -> Tensor:
        """Transform the gradients of a map's outputs before they are multiplied."""

    def hold(self, query: Mapping[str, SiteTokens], count: int, /) -> None:
        """Take the query's tokens, *count* in all, by the names of the maps."""

    def products(self, site: Site, inputs: Tensor, gradients: Tensor, /) -> Float[Tensor, "count t"]:
        """Multiply all tokens of the query with the training tokens that a map has read."""


def token_products(
    lm: TargetLM,
    query: Documents,
    train: Documents,
    sites: Sequence[Site],
    pairing: Pairing,
    *,
    objective: Objective = "loss",
    reduction: Reduction = "mean",
) -> list[Float64[np.ndarray, "q t"]]:
    """Multiply each token of one query with each token of each training example, and add up over the maps.

    Row t and column s stand for the tokens that maps read, without the last one, which predicts nothing and has no
    gradient. The sum over all pairs is the product of the examples' gradients, as the pairing multiplies them; all are
    0 for an example whose products are not finite, as its score is. ConfigError: a map does not show which tokens it
    reads.
    """
    (count,) = query.lengths.tolist()
    held = _QueryTokens(pairing)
    for _ in read_gradients(lm, query, sites, held, objective=objective, reduction=reduction):
        pairing.hold(held.sites, count)
    reader = _PairedTokens(pairing, count)
    found: dict[int, np.ndarray] = {}
    for read in read_gradients(lm, train, sites, reader, objective=objective, reduction=reduction):
        ends = np.cumsum(train.lengths[read.rows])[:-1].tolist()
        parts = [part[:-1, :-1] for part in np.split(reader.total.cpu().numpy(), ends, axis=1)]
        found |= zip(read.rows.tolist(), parts, strict=True)
    finite = [np.isfinite(found[row]).all() for row in range(len(train))]
    return [found[row] if finite[row] else np.zeros_like(found[row]) for row in range(len(train))]


def predicted(lm: TargetLM, examples: Sequence[Example]) -> list[Stretches]:
    """Return where the predicted tokens of each example stand: all tokens after the first."""
    return [Stretches(each.starts[1:], each.stops[1:]) for each in lm.chat.token_places(examples)]


class _QueryTokens:
    """Reader that holds the inputs and output gradients of one document at every map."""

    def __init__(self, pairing: Pairing) -> None:
        self._pairing = pairing
        self.sites: dict[str, SiteTokens] = {}

    def keep(self, site: Site, inputs: Float[Tensor, "t i"], /) -> Tensor:
        """Transform the inputs, which are held until the gradients come."""
        return self._pairing.inputs(site, inputs)

    def take(self, site: Site, kept: Tensor, gradients: Float[Tensor, "t o"], places: DocumentPlaces, /) -> None:
        """Hold the inputs and transformed gradients (ConfigError: a map hides its tokens, or runs twice)."""
        _check_known(site, places)
        found = SiteTokens(places.chosen, kept, self._pairing.gradients(site, gradients))
        before = self.sites.get(site.name)
        if before is not None and len(before.inputs) and len(found.inputs):
            raise ConfigError(
                f"modules: the layer {site.name} runs twice on each text, so airrep cannot divide its score among the "
                f"tokens. Remove {site.name} from modules, or leave out --tokens (in Python, tokens=True)."
            )
        if before is None or len(found.inputs):
            self.sites[site.name] = found


class _PairedTokens:
    """Reader that adds up the products of a query's tokens with the tokens of documents."""

    def __init__(self, pairing: Pairing, count: int) -> None:
        self._pairing, self._count = pairing, count
        self._places: DocumentPlaces | None = None
        self.total = torch.empty(0)
        """``(q, t)`` float64, for the last batch, with its documents' tokens in order."""

    def keep(self, site: Site, inputs: Float[Tensor, "t i"], /) -> Tensor:
        """Transform the inputs, which are held until the gradients come."""
        return self._pairing.inputs(site, inputs)

    def take(self, site: Site, kept: Tensor, gradients: Float[Tensor, "t o"], places: DocumentPlaces, /) -> None:
        _check_known(site, places)
        if places.whole is not self._places:
            self._places = places.whole
            self.total = torch.zeros(self._count, places.whole.tokens, dtype=torch.float64, device=gradients.device)
        if not len(kept):
            return
        found = self._pairing.products(site, kept, self._pairing.gradients(site, gradients)).double()
        if places.chosen is None:
            self.total += found
        else:
            self.total.index_add_(1, places.chosen, found)


def _check_known(site: Site, places: DocumentPlaces) -> None:
    if not places.known:
        raise ConfigError(
            f"modules: {site.name} does not show which tokens it reads, so its share of a score cannot be divided "
            "among tokens. Remove it from modules, or leave out --tokens (in Python, tokens=True)."
        )


def in_document(rows: Float[Tensor, "t n"], tokens: Int64[Tensor, " t"] | None, count: int) -> Float[Tensor, "count n"]:
    """Spread rows of some tokens of a document over rows of all its tokens, zeros for the others."""
    return rows if tokens is None else rows.new_zeros(count, rows.shape[1]).index_copy_(0, tokens, rows)


class Projected:
    """Multiplies projected gradients, or the features that a method makes of them.

    *sites* are the linear maps, in the order of features; *projections* the matrices on a *device*, None for
    unprojected gradients. *finish* turns a map's projected gradients into features; None: they are the features.
    *dual* is K of a score φ(x)ᵀ K φ(z), applied to features ``(t, d)`` of all maps side by side; None: K is I.
    """

    def __init__(
        self,
        sites: Sequence[Site],
        projections: Projections | None,
        device: str,
        finish: WhitenedSketch | None = None,
        dual: Dual | None = None,
    ) -> None:
        self._sites, self._finish, self._dual = sites, finish, dual
        self._matrices = projections and {name: (a.to(device), g.to(device)) for name, (a, g) in projections.items()}
        self._count = 0
        self._held: Mapping[str, SiteTokens] = {}
        self._between: dict[str, Tensor] = {}

    def inputs(self, site: Site, inputs: Float[Tensor, "t i"], /) -> Tensor:
        return inputs if self._matrices is None else inputs @ self._matrices[site.pool][0].to(inputs.dtype)

    def gradients(self, site: Site, gradients: Float[Tensor, "t o"], /) -> Tensor:
        return gradients if self._matrices is None else gradients @ self._matrices[site.pool][1].to(gradients.dtype)

    def hold(self, query: Mapping[str, SiteTokens], count: int, /) -> None:
        """Hold the tokens; with *finish* or *dual*, also the matrix that multiplies other gradients, for each token."""
        self._held, self._count = query, count
        if self._finish is None and self._dual is None:
            return
        rows = []
        for site in self._sites:
            own = query[site.name]
            parts = [self._of_tokens(site, *some) for some in in_parts(own.inputs, own.gradients)]
            rows.append(in_document(torch.cat(parts), own.tokens, count))
        if self._dual is not None:
            solved = self._dual(torch.cat(rows, dim=1).cpu().numpy().astype(np.float64))
            widths = [part.shape[1] for part in rows]
            rows = list(torch.from_numpy(solved).to(rows[0]).split(widths, dim=1))
        self._between = dict(zip((site.name for site in self._sites), map(self._back, self._sites, rows), strict=True))

    def _of_tokens(self, site: Site, inputs: Float[Tensor, "t i"], gradients: Float[Tensor, "t o"]) -> Tensor:
        """Return the features of each token at one map, ``(t, w)``."""
        each = outer_products(inputs, gradients)
        if self._finish is None:
            return each
        return self._finish.of(site, each.unflatten(1, (gradients.shape[1], inputs.shape[1])))

    def _back(self, site: Site, rows: Float[Tensor, "t w"]) -> Float[Tensor, "t o i"]:
        own = self._held[site.name]
        if self._finish is None:
            return rows.unflatten(1, (own.gradients.shape[1], own.inputs.shape[1]))
        return self._finish.back(site, rows)

    def products(self, site: Site, inputs: Tensor, gradients: Tensor, /) -> Float[Tensor, "count t"]:
        """Multiply inputs and gradients elementwise; with *finish* or *dual*, multiply by the held matrices."""
        if site.name in self._between:
            held = self._between[site.name]
            if held.shape[0] > held.shape[2]:  # the outer products need less memory than the other order
                outer = (outer_products(*some).T for some in in_parts(inputs, gradients))
                return torch.cat([held.flatten(1) @ each for each in outer], dim=1)
            step = max(1, NUMBERS // (held.shape[1] * max(held.shape[2], len(inputs))))
            return torch.cat([between(part, inputs, gradients) for part in held.split(step)])
        own = self._held[site.name]
        return in_document((own.gradients @ gradients.T) * (own.inputs @ inputs.T), own.tokens, self._count)


def between(held: Float[Tensor, "q o i"], inputs: Float[Tensor, "t i"], gradients: Float[Tensor, "t o"]) -> Tensor:
    """Return g_tᵀ M_q a_t for each matrix M_q and each token t, ``(q, t)``."""
    return ((held.flatten(0, 1) @ inputs.T).unflatten(0, held.shape[:2]) * gradients.T).sum(1)


def outer_products(inputs: Float[Tensor, "t i"], gradients: Float[Tensor, "t o"]) -> Float[Tensor, "t oi"]:
    """Return g_t a_tᵀ of each token, as one row."""
    return (gradients[:, :, None] * inputs[:, None, :]).flatten(1)


def in_parts(inputs: Tensor, gradients: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield tokens, as many at a time as have at most :data:`NUMBERS` numbers in their gradients."""
    step = max(1, NUMBERS // (inputs.shape[1] * gradients.shape[1]))
    yield from zip(inputs.split(step), gradients.split(step), strict=True)

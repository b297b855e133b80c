"""Gradients that an index keeps, as factors of low rank."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from airrep.attributors.gradient.reading import DocumentPlaces, Site
from airrep.attributors.gradient.whole.factors import HELD_PRODUCTS, Factors
from airrep.attributors.gradient.whole.low_rank import low_rank_product
from airrep.shapes import Float, Float16


class _Part(NamedTuple):
    """Where the factors of one linear map stand in a row: ``(o, r)``, then ``(i, r)``."""

    start: int
    middle: int
    stop: int
    rank: int


class FactorLayout:
    """Rows of factors: one linear map after the other."""

    def __init__(self, sites: Sequence[Site], rank: int) -> None:
        self.parts: dict[str, _Part] = {}
        self.width = 0
        """Numbers in a row."""
        for site in sites:
            own = min(rank, site.width_out, site.width_in)
            middle = self.width + site.width_out * own
            self.parts[site.name] = _Part(self.width, middle, middle + site.width_in * own, own)
            self.width = self.parts[site.name].stop

    def of(self, rows: Float[Tensor, "n d"], name: str) -> tuple[Float[Tensor, "n o r"], Float[Tensor, "n i r"]]:
        """The factors of one linear map."""
        part = self.parts[name]
        one, other = rows[:, part.start : part.middle], rows[:, part.middle : part.stop]
        return one.unflatten(1, (-1, part.rank)), other.unflatten(1, (-1, part.rank))


def sizes_of(factors: Mapping[str, Factors]) -> dict[str, Tensor]:
    """Root of the mean squared length of gradients at each linear map; in these units they fit float16."""
    return {name: each.eigenvalues.sum().sqrt() for name, each in factors.items()}


class KeptReader:
    """Reads gradients of documents as rows of factors; with *inverse*, scaled so that H^(-p/2) ∇ℓ has length 1."""

    def __init__(
        self, layout: FactorLayout, factors: Mapping[str, Factors], inverse: Mapping[str, Tensor] | None = None
    ) -> None:
        self._layout, self._factors = layout, factors
        self._sizes = sizes_of(factors)
        self._inverse = inverse
        self._places: DocumentPlaces | None = None
        self._rows = torch.empty(0)
        self._good = torch.empty(0, dtype=torch.bool)
        self._squares = torch.empty(0)

    def keep(self, _site: Site, inputs: Float[Tensor, "t i"], /) -> Tensor:
        """Hold the inputs."""
        return inputs

    def take(self, site: Site, kept: Tensor, gradients: Float[Tensor, "t o"], places: DocumentPlaces, /) -> None:
        """Factor each document's gradient at one linear map."""
        if places is not self._places:
            self._places = places
            self._rows = gradients.new_zeros(places.count, self._layout.width)
            self._good = gradients.new_ones(places.count, dtype=torch.bool)
            self._squares = gradients.new_zeros(places.count)
        name = site.name
        left, right = places.table(gradients / self._sizes[name].to(gradients)), places.table(kept)
        finite = torch.isfinite(left).flatten(1).all(1) & torch.isfinite(right).flatten(1).all(1)
        if not bool(finite.all()):  # they would stop the decomposition of all
            left, right = (torch.where(finite[:, None, None], each, 0.0) for each in (left, right))
        part = self._layout.parts[name]
        one, other = low_rank_product(left, right, part.rank)
        roots = torch.linalg.vector_norm(one, dim=1, keepdim=True).sqrt()
        one, other = torch.where(roots > 0, one / roots, 0.0), other * roots  # both of one size, for float16
        self._good &= finite
        self._rows[:, part.start : part.middle] = one.flatten(1)
        self._rows[:, part.middle : part.stop] = other.flatten(1)
        if self._inverse is not None:
            own = self._factors[name]
            turned = (own.outward.T.to(one) @ one) @ (own.inward.T.to(other) @ other).mT * self._sizes[name]
            self._squares += (turned.square_() * self._inverse[name]).sum((1, 2))

    @property
    def rows(self) -> Float16[np.ndarray, "n d"]:
        """Rows of the last batch; zeros for a document whose gradient is not finite, or too large."""
        found = self._rows
        if self._inverse is not None:
            roots = self._squares.sqrt().sqrt()[:, None]
            found = torch.where(roots > 0, found / roots, 0.0)
        small = found.half()
        good = self._good & torch.isfinite(small).all(1)
        return torch.where(good[:, None], small, 0.0).cpu().numpy()


def scores_of_kept(
    rows: Float16[np.ndarray, "n d"],
    layout: FactorLayout,
    held: Mapping[str, tuple[Tensor, ...]],
    queries: int,
    sizes: Mapping[str, Tensor],
) -> Float[Tensor, "n q"]:
    """⟨L Rᵀ, H⁻ᵖ ∇ℓ(x)⟩ of rows of factors with each held query x, summed over the linear maps that are held."""
    found = torch.zeros(len(rows), queries, device=next(iter(sizes.values())).device)
    widest = max((part[0].shape[1] for part in held.values()), default=1)
    step = max(1, HELD_PRODUCTS // (widest * max(part.rank for part in layout.parts.values())))
    for first in range(0, len(rows), step):
        some = torch.from_numpy(np.array(rows[first : first + step])).to(found)
        for name, parts in held.items():
            one, other = layout.of(some, name)
            found[first : first + step] += sizes[name] * _products(one, other, parts, queries)
    return found


def _products(
    one: Float[Tensor, "n o r"], other: Float[Tensor, "n i r"], held: tuple[Tensor, ...], queries: int
) -> Float[Tensor, "n q"]:
    """``(n, q)`` at one linear map, for gradients of queries that are whole, or factors themselves."""
    if len(held) == 1:
        return (one @ other.mT).flatten(1) @ held[0].T
    products = (one.mT @ held[0]) * (other.mT @ held[1])  # (n, r, q·s): each pair of columns with each
    found: Tensor = products.sum(1).unflatten(1, (queries, -1)).sum(-1)
    return found

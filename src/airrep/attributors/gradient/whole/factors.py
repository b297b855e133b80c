"""EK-FAC: Kronecker factors of whole gradients' curvature, with corrected eigenvalues."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from airrep.arrays import Rows
from airrep.attributors.gradient.curvature import no_inverse
from airrep.attributors.gradient.projection import Covariances
from airrep.attributors.gradient.reading import DocumentPlaces, Reduction, Site, read_gradients
from airrep.attributors.gradient.whole.low_rank import low_rank
from airrep.errors import TrainingError
from airrep.lm.documents import Documents
from airrep.lm.model import TargetLM
from airrep.shapes import Float

READ_AT_ONCE = 16
"""Queries whose whole gradients are in memory a second time, while they are put among the others."""
HELD_PRODUCTS = 2**20
"""Products of tokens with low-rank factors that are held at a time, 4 MiB, which caches hold."""


@dataclass(frozen=True, eq=False)
class Factors:
    """Curvature of one linear map: H = (Q_s ⊗ Q_a) diag(Λ) (Q_s ⊗ Q_a)ᵀ.

    Q_a and Q_s are eigenvectors of the mean over tokens of a aᵀ (inputs) and of g gᵀ (output gradients), and Λ is the
    mean over examples of the squared gradient in their basis, (Q_sᵀ G Q_a)², which K-FAC takes for a product (EK-FAC).
    """

    inward: Float[Tensor, "i i"]
    """Q_a."""
    outward: Float[Tensor, "o o"]
    """Q_s."""
    eigenvalues: Float[Tensor, "o i"]
    """Λ, at least 0."""

    def inverse(self, damping: float, exponent: float = 1.0) -> Float[Tensor, "o i"]:
        """(Λ + λ)⁻ᵖ, where λ is *damping* times the mean of Λ and p the exponent.

        Raises:
            TrainingError: one of them is not above 0, or not finite.
        """
        found = self.eigenvalues + damping * self.eigenvalues.mean()
        # Means of squares have no rounding below which they are zero, as the eigenvalues of a decomposition have.
        if not bool(torch.isfinite(found).all()) or not bool((found > 0).all()):
            raise no_inverse()
        return found**-exponent


def eigenbases(sums: Covariances, site: Site) -> tuple[Float[Tensor, "i i"], Float[Tensor, "o o"]]:
    """Q_a and Q_s of one linear map, float32; computed in float64.

    Raises:
        TrainingError: no example has a gradient there.
    """
    inputs, outputs = (each.double() for each in sums.of(site.name))
    if not bool(outputs.any()):
        raise TrainingError(f"{site.name}: no example has a gradient there. Leave it out of modules, or raise sample.")
    bases = []
    for covariance in (inputs, outputs):
        vectors = torch.linalg.eigh(covariance).eigenvectors
        largest = vectors.abs().argmax(dim=0)
        signs = vectors[largest, torch.arange(len(vectors), device=vectors.device)].sign()
        bases.append((vectors * signs).float())  # a direction's sign is free; so chosen, equal matrices have equal ones
    return bases[0], bases[1]


class Squares:
    """Adds up (Q_sᵀ G Q_a)² of the gradients G of documents; those that are not finite are left out."""

    def __init__(self, bases: Mapping[str, tuple[Tensor, Tensor]]) -> None:
        self._bases = bases
        self._sums: dict[str, Tensor] = {}
        self._counts = dict.fromkeys(bases, 0)

    def keep(self, site: Site, inputs: Float[Tensor, "t i"], /) -> Tensor:
        """Turn the inputs into the basis."""
        return inputs @ self._bases[site.name][0].to(inputs)

    def take(self, site: Site, kept: Tensor, gradients: Float[Tensor, "t o"], places: DocumentPlaces, /) -> None:
        """Turn the output gradients, multiply, square and add up."""
        squares = places.products(gradients @ self._bases[site.name][1].to(gradients), kept).square_()
        finite = torch.isfinite(squares).flatten(1).all(dim=1)
        found = squares.sum(0) if bool(finite.all()) else squares[finite].sum(0)
        self._counts[site.name] += int(finite.sum())
        before = self._sums.get(site.name)
        self._sums[site.name] = found if before is None else before.add_(found)

    def of(self, name: str) -> Float[Tensor, "o i"]:
        """Mean over documents of one site."""
        return self._sums[name] / max(self._counts[name], 1)


class HeldGradients:
    """Reads gradients of queries and holds H⁻ᵖ of them: whole, or as factors of a low rank.

    Args:
        factors: curvature by the name of the linear map.
        inverse: its inverse power in the eigenbasis, likewise, as :meth:`Factors.inverse` gives it.
        rank: of the factors; None holds the gradients whole.
        kind: the numbers that are held; None: those of the gradients.
    """

    def __init__(
        self,
        factors: Mapping[str, Factors],
        inverse: Mapping[str, Tensor],
        rank: int | None = None,
        kind: torch.dtype | None = None,
    ) -> None:
        self._factors, self._rank, self._kind = factors, rank, kind
        self._inverse = inverse
        self._batch: dict[str, tuple[Tensor, ...]] = {}
        self._places: DocumentPlaces | None = None
        self._squares = torch.empty(0)
        self.sites: dict[str, tuple[Tensor, ...]] = {}
        """By linear map: ``(q, o·i)``; or factors ``(o, q·r)`` and ``(i, q·r)``, whose products are the gradients."""
        self.lengths = torch.empty(0)
        """``(q,)``: |H^(-p/2) ∇ℓ| of each."""

    def keep(self, site: Site, inputs: Float[Tensor, "t i"], /) -> Tensor:
        """Turn the inputs into the basis."""
        return inputs @ self._factors[site.name].inward.to(inputs)

    def take(self, site: Site, kept: Tensor, gradients: Float[Tensor, "t o"], places: DocumentPlaces, /) -> None:
        """Form the gradients, and divide them by the curvature."""
        if places is not self._places:
            self._places, self._squares = places, gradients.new_zeros(places.count)
        own = self._factors[site.name]
        inward, outward = own.inward.to(kept), own.outward.to(kept)
        turned = places.products(gradients @ outward, kept)  # tokens are turned, not their product: they are few
        solved = turned * self._inverse[site.name]
        squares = (turned * solved).sum((1, 2))
        self._squares += squares
        if self._rank is None:
            self._batch[site.name] = ((outward @ solved @ inward.T).flatten(1),)
        else:  # factors of what is turned back are the factors, turned back
            if not bool(torch.isfinite(squares).all()):  # one would stop the decomposition of all
                solved = torch.where(torch.isfinite(squares)[:, None, None], solved, 0.0)
            left, right = low_rank(solved, self._rank)
            self._batch[site.name] = (outward @ left, inward @ right)

    def _put(self, rows: Rows, whole: dict[str, list[Tensor]], count: int) -> None:
        """Put the gradients of a batch among those of all queries."""
        places = torch.from_numpy(rows).to(self._squares.device)
        good = torch.isfinite(self._squares)
        self.lengths[places] = torch.where(good, self._squares, 0.0).sqrt().to(self.lengths)
        for name, parts in self._batch.items():
            if name not in whole:  # room for all queries at once: joining batches would take it twice
                whole[name] = [part.new_zeros(count, *part.shape[1:], dtype=self._kind) for part in parts]
            for room, part in zip(whole[name], parts, strict=True):
                room[places[good]] = part[good].to(room.dtype)
        self._batch = {}

    def read(self, lm: TargetLM, documents: Documents, sites: Sequence[Site], reduction: Reduction) -> None:
        """Read the gradients of all documents; those that are not finite are zeros. Errors as for read_gradients."""
        whole: dict[str, list[Tensor]] = {}
        self.lengths = torch.zeros(len(documents), device=lm.execution.device)
        for first in range(0, len(documents), READ_AT_ONCE):
            some = documents.take(range(first, min(first + READ_AT_ONCE, len(documents))))
            for read in read_gradients(lm, some, sites, self, reduction=reduction):
                self._put(first + read.rows, whole, len(documents))
        one_part = self._rank is None
        self.sites = {name: tuple(parts if one_part else map(_side_by_side, parts)) for name, parts in whole.items()}


def _side_by_side(factors: Float[Tensor, "q w r"]) -> Float[Tensor, "w qr"]:
    return factors.permute(1, 0, 2).flatten(1).contiguous()


class Scorer:
    """Reads gradients of training examples and multiplies them with those of held queries: ``(count, q)``.

    With *factors* and *inverse* it also finds how long H^(-p/2) of each gradient is.
    """

    def __init__(
        self,
        held: HeldGradients,
        factors: Mapping[str, Factors] | None = None,
        inverse: Mapping[str, Tensor] | None = None,
    ) -> None:
        self._held = held.sites
        self._queries = len(held.lengths)
        self._factors = factors
        self._inverse = inverse or {}
        self._places: DocumentPlaces | None = None
        self.scores = torch.empty(0)
        """Scores of the last batch."""
        self.squares = torch.empty(0)
        """|H^(-p/2) ∇ℓ|² of the last batch; zeros without factors."""

    def keep(self, _site: Site, inputs: Float[Tensor, "t i"], /) -> Tensor:
        """Hold the inputs."""
        return inputs

    def take(self, site: Site, kept: Tensor, gradients: Float[Tensor, "t o"], places: DocumentPlaces, /) -> None:
        """Add one linear map's part of the scores."""
        if places is not self._places:
            self._places = places
            self.scores = gradients.new_zeros(places.count, self._queries)
            self.squares = gradients.new_zeros(places.count)
        held = self._held[site.name]
        whole = places.products(gradients, kept) if len(held) == 1 or self._factors is not None else None
        if len(held) == 1:
            assert whole is not None
            self.scores += whole.flatten(1).to(held[0].dtype) @ held[0].T
        else:
            self.scores += places.table(self._by_token(gradients, kept, held[0], held[1])).sum(1)
        if self._factors is not None:
            assert whole is not None
            own = self._factors[site.name]
            self.squares += ((own.outward.T @ whole @ own.inward).square_() * self._inverse[site.name]).sum((1, 2))

    def _by_token(
        self, gradients: Float[Tensor, "t o"], inputs: Float[Tensor, "t i"], left: Tensor, right: Tensor
    ) -> Float[Tensor, "t q"]:
        """gᵀ L Rᵀ a of each token, for each query."""
        step = max(1, HELD_PRODUCTS // left.shape[1])
        kind, total = left.dtype, gradients.dtype
        parts = (
            ((g.to(kind) @ left) * (a.to(kind) @ right)).unflatten(1, (self._queries, -1)).sum(-1, dtype=total)
            for g, a in zip(gradients.split(step), inputs.split(step), strict=True)
        )
        return torch.cat(list(parts))

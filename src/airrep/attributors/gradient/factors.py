"""EK-FAC: Kronecker factors of whole gradients' curvature, with corrected eigenvalues."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from airrep.arrays import Rows
from airrep.attributors.gradient.curvature import no_inverse
from airrep.attributors.gradient.projection import Covariances, Latest
from airrep.attributors.gradient.reading import DocumentPlaces, ReadBatch, Reader, Reduction, Site, read_gradients
from airrep.errors import TrainingError
from airrep.lm.documents import Documents
from airrep.lm.model import TargetLM
from airrep.shapes import Float

OVERSAMPLED, POWERS = 8, 2
"""Further random directions, and power iterations, of the randomised decomposition (:func:`low_rank`)."""
LEAST = 1e-14
"""Eigenvalues below this share of the largest one are rounding, and their directions are dropped."""

Factored: TypeAlias = tuple[Float[Tensor, "n o r"], Float[Tensor, "n i r"]]
"""L and R, where L Rᵀ approximates each matrix; columns of R have length 1, or 0."""


def low_rank(matrices: Float[Tensor, "n o i"], rank: int) -> Factored:
    """Approximate each matrix by factors of the given *rank* (randomised singular value decomposition).

    Power iterations with M Mᵀ find the range of M, within which M is decomposed. They begin with random directions that
    are always the same, so that equal matrices have equal factors.
    """
    _, outward, inward = matrices.shape
    most = min(rank + OVERSAMPLED, outward, inward)
    start = torch.randn(inward, most, generator=torch.Generator().manual_seed(0), dtype=torch.float32)
    found = matrices @ start.to(matrices)
    for _ in range(POWERS):
        found = matrices @ (matrices.mT @ _orthonormal(found))
    basis = _orthonormal(found)
    inside = matrices.mT @ basis
    _, vectors = _greatest(inside)
    chosen = vectors[:, :, : min(rank, most)].to(basis)
    right = inside @ chosen
    lengths = right.norm(dim=1, keepdim=True)
    return basis @ chosen * lengths, right / torch.where(lengths > 0, lengths, 1.0)


def _orthonormal(block: Float[Tensor, "n w m"]) -> Float[Tensor, "n w m"]:
    """Return orthonormal columns with the range of the block's columns; zero columns if its rank is lower."""
    values, vectors = _greatest(block)
    alive = values > LEAST * values[:, :1]
    scale = torch.where(alive, values, 1.0).rsqrt() * alive
    return (block.double() @ (vectors * scale[:, None, :])).to(block)


def _greatest(block: Float[Tensor, "n w m"]) -> tuple[Float[Tensor, "n m"], Float[Tensor, "n m m"]]:
    """Return eigenvalues and eigenvectors of blockᵀ block, the largest first, float64.

    They replace a QR or singular value decomposition of the block, and are exact enough in float64. GPUs decompose
    batches of small symmetric matrices quickly, but tall matrices one by one.
    """
    tall = block.double()
    values, vectors = torch.linalg.eigh(tall.mT @ tall)
    return values.flip(-1), vectors.flip(-1)


READ_AT_ONCE = 16
"""Queries that are read at a time; their whole gradients are in memory twice for a moment."""
HELD_PRODUCTS = 2**20
"""Products of tokens with low-rank factors that are held at a time: 4 MiB, which fit in a CPU's cache."""


@dataclass(frozen=True, eq=False)
class Factors:
    """Curvature of one linear map: H = (Q_s ⊗ Q_a) diag(Λ) (Q_s ⊗ Q_a)ᵀ.

    Q_a and Q_s are eigenvectors of the mean over tokens of a aᵀ (inputs) and of g gᵀ (output gradients), and Λ is the
    mean over examples of the squared gradient in their basis, (Q_sᵀ G Q_a)² (EK-FAC). K-FAC would take the products of
    both matrices' eigenvalues instead.
    """

    inward: Float[Tensor, "i i"]
    """Q_a."""
    outward: Float[Tensor, "o o"]
    """Q_s."""
    eigenvalues: Float[Tensor, "o i"]
    """Λ, at least 0."""

    def inverse(self, damping: float, exponent: float = 1.0) -> Float[Tensor, "o i"]:
        """Return (Λ + λ)⁻ᵖ, where λ is *damping* times the mean of Λ and p the exponent.

        TrainingError: a number of Λ + λ is not above 0, or not finite.
        """
        found = self.eigenvalues + damping * self.eigenvalues.mean()
        # Unlike eigenvalues of a decomposition, small means of squares are exact, so that only 0 is refused.
        if not bool(torch.isfinite(found).all()) or not bool((found > 0).all()):
            raise no_inverse()
        return found**-exponent


def eigenbases(sums: Covariances, names: Sequence[str]) -> dict[str, tuple[Float[Tensor, "i i"], Float[Tensor, "o o"]]]:
    """Compute Q_a and Q_s of pools of linear maps: float32, from float64. Pools that read the same inputs share Q_a.

    TrainingError: no example has a gradient at one of the pools.
    """
    inward: dict[str, Tensor] = {}
    found = {}
    for name in names:
        inputs, outputs = sums.of(name)
        if not bool(outputs.any()):
            raise TrainingError(f"modules: no sampled example has a gradient at {name}. Remove {name} or raise sample.")
        if (read := sums.read_by(name)) not in inward:
            inward[read] = _eigenvectors(inputs)
        found[name] = inward[read], _eigenvectors(outputs)
    return found


def _eigenvectors(covariance: Float[Tensor, "w w"]) -> Float[Tensor, "w w"]:
    vectors: Tensor = torch.linalg.eigh(covariance.double()).eigenvectors
    largest = vectors.abs().argmax(dim=0)
    signs = vectors[largest, torch.arange(len(vectors), device=vectors.device)].sign()
    return (vectors * signs).float()  # signs are free; fixed in this way, equal matrices have equal eigenvectors


class Squares:
    """Reader that adds up (Q_sᵀ G Q_a)² of documents' gradients G, without those that are not finite."""

    def __init__(self, bases: Mapping[str, tuple[Tensor, Tensor]]) -> None:
        self._bases = bases
        self._sums: dict[str, Tensor] = {}
        self._counts = dict.fromkeys(bases, 0)
        self._latest, self._kept = Latest(), torch.empty(0)

    def keep(self, site: Site, inputs: Float[Tensor, "t i"], /) -> Tensor:
        """Rotate the inputs into the eigenbasis, once for neighbouring sites with equal inputs and basis."""
        own, before = self._bases[site.pool][0], self._latest.before(site, inputs)
        if before is None or self._bases[before][0] is not own:
            self._kept = inputs @ own.to(inputs)
        return self._kept

    def take(self, site: Site, kept: Tensor, gradients: Float[Tensor, "t o"], places: DocumentPlaces, /) -> None:
        """Rotate the output gradients, multiply by the inputs, square and add up."""
        squares = places.products(gradients @ self._bases[site.pool][1].to(gradients), kept).square_()
        found, count = squares.sum(0), len(squares)
        if not bool(torch.isfinite(found).all()):  # one test of the sum is much quicker than one for each
            finite = torch.isfinite(squares).flatten(1).all(dim=1)
            found, count = squares[finite].sum(0), int(finite.sum())
        self._counts[site.pool] += count
        before = self._sums.get(site.pool)
        self._sums[site.pool] = found if before is None else before.add_(found)

    def of(self, name: str) -> Float[Tensor, "o i"]:
        """Return the mean over documents and over the maps of one pool."""
        return self._sums[name] / max(self._counts[name], 1)


class HeldGradients:
    """Reads queries' gradients g and holds H⁻ᵖ g: whole, or as low-rank factors.

    *factors* are the curvature by the name of a linear map's pool, *inverse* its inverse power in the eigenbasis, from
    :meth:`Factors.inverse`. *rank* is the rank of the factors; None holds the gradients whole. *kind* is the number
    type that is held; None: that of the gradients.
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
        """``(q,)``: |H^(-p/2) ∇ℓ| of each query."""
        self.at_once = READ_AT_ONCE
        """Number of documents that are read together."""

    def keep(self, site: Site, inputs: Float[Tensor, "t i"], /) -> Tensor:
        """Rotate the inputs into the eigenbasis."""
        return inputs @ self._factors[site.pool].inward.to(inputs)

    def take(self, site: Site, kept: Tensor, gradients: Float[Tensor, "t o"], places: DocumentPlaces, /) -> None:
        """Compute the gradients, and divide them by the curvature."""
        if places.whole is not self._places:
            self._places, self._squares = places.whole, gradients.new_zeros(places.count)
        own = self._factors[site.pool]
        inward, outward = own.inward.to(kept), own.outward.to(kept)
        turned = places.products(gradients @ outward, kept)  # rotating tokens is cheaper than rotating products
        solved = turned * self._inverse[site.pool]
        squares = (turned * solved).sum((1, 2))
        self._squares += squares
        if self._rank is None:
            self._batch[site.name] = ((outward @ solved @ inward.T).flatten(1),)
        else:  # factors of the gradient in the LM's own basis are the factors rotated back
            if not bool(torch.isfinite(squares).all()):  # one would fail the decomposition of all
                solved = torch.where(torch.isfinite(squares)[:, None, None], solved, 0.0)
            left, right = low_rank(solved, self._rank)
            self._batch[site.name] = (outward @ left, inward @ right)

    def _batches(self, reads: Iterator[ReadBatch]) -> Iterator[Rows]:
        """Read all batches; yield the rows of each when its gradients are ready."""
        return (read.rows for read in reads)

    def _put(self, rows: Rows, whole: dict[str, list[Tensor]], count: int) -> None:
        """Copy the gradients of a batch into those of all queries."""
        places = torch.from_numpy(rows).to(self._squares.device)
        good = torch.isfinite(self._squares)
        self.lengths[places] = torch.where(good, self._squares, 0.0).sqrt().to(self.lengths)
        for name, parts in self._batch.items():
            if name not in whole:  # allocated for all queries: joining batches would need twice the memory
                whole[name] = [part.new_zeros(count, *part.shape[1:], dtype=self._kind) for part in parts]
            for room, part in zip(whole[name], parts, strict=True):
                room[places[good]] = part[good].to(room.dtype)
        self._batch = {}

    def read(self, lm: TargetLM, documents: Documents, sites: Sequence[Site], reduction: Reduction) -> None:
        """Read all documents' gradients; if not finite, zeros. Errors as for :func:`read_gradients`."""
        whole: dict[str, list[Tensor]] = {}
        self.lengths = torch.zeros(len(documents), device=lm.execution.device)
        for first in range(0, len(documents), self.at_once):
            some = documents.take(range(first, min(first + self.at_once, len(documents))))
            for rows in self._batches(read_gradients(lm, some, sites, self, reduction=reduction)):
                self._put(first + rows, whole, len(documents))
        if self._rank is not None:  # side by side, (q, w, r) to (w, qr)
            whole = {
                name: [part.permute(1, 0, 2).flatten(1).contiguous() for part in parts] for name, parts in whole.items()
            }
        self.sites = {name: tuple(parts) for name, parts in whole.items()}


class Scorer(Reader):
    """Reads gradients of training examples and multiplies them with the held queries' gradients: ``(count, q)``.

    With *factors* and *inverse* it also computes the squared length of H^(-p/2) ∇ℓ.
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

    def take(self, site: Site, kept: Tensor, gradients: Float[Tensor, "t o"], places: DocumentPlaces, /) -> None:
        if places.whole is not self._places:
            self._places = places.whole
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
            own = self._factors[site.pool]
            self.squares += ((own.outward.T @ whole @ own.inward).square_() * self._inverse[site.pool]).sum((1, 2))

    def _by_token(
        self, gradients: Float[Tensor, "t o"], inputs: Float[Tensor, "t i"], left: Tensor, right: Tensor
    ) -> Float[Tensor, "t q"]:
        """Return gᵀ L Rᵀ a of each token, for each query."""
        step = max(1, HELD_PRODUCTS // left.shape[1])
        kind, total = left.dtype, gradients.dtype
        parts = (
            ((g.to(kind) @ left) * (a.to(kind) @ right)).unflatten(1, (self._queries, -1)).sum(-1, dtype=total)
            for g, a in zip(gradients.split(step), inputs.split(step), strict=True)
        )
        return torch.cat(list(parts))

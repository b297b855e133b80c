"""Matrices as factors of a low rank."""

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from airrep.shapes import Float

OVERSAMPLED, POWERS = 8, 2
"""Further directions, and turns of power iteration, by which the factors are found."""
LEAST = 1e-14
"""Share of the greatest eigenvalue below which another is rounding, and its direction none."""

Factored: TypeAlias = tuple[Float[Tensor, "n o r"], Float[Tensor, "n i r"]]
"""L and R, whose products L Rᵀ are near the matrices; columns of R have length 1, or 0."""


def low_rank(matrices: Float[Tensor, "n o i"], rank: int) -> Factored:
    """Factors of each matrix's part in the range of its greatest *rank* directions or so."""
    _, outward, inward = matrices.shape
    start = _start(inward, min(rank + OVERSAMPLED, outward, inward), matrices)
    return _found(lambda block: matrices @ block, lambda block: matrices.mT @ block, start, rank)


def _start(inward: int, most: int, like: Tensor) -> Float[Tensor, "i m"]:
    """A block of random directions; always the same, so that equal matrices have equal factors."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(inward, most, generator=generator, dtype=torch.float32).to(like)


def _found(
    times: Callable[[Tensor], Tensor], transposed: Callable[[Tensor], Tensor], start: Float[Tensor, "i m"], rank: int
) -> Factored:
    """Turn the block through M Mᵀ to find the range, and decompose what M has there."""
    found = times(start)
    for _ in range(POWERS):
        found = times(transposed(_orthonormal(found)))
    basis = _orthonormal(found)
    inside = transposed(basis)
    _, vectors = _greatest(inside)
    chosen = vectors[:, :, : min(rank, start.shape[1])].to(basis)
    right = inside @ chosen
    lengths = right.norm(dim=1, keepdim=True)
    return basis @ chosen * lengths, right / torch.where(lengths > 0, lengths, 1.0)


def _orthonormal(block: Float[Tensor, "n w m"]) -> Float[Tensor, "n w m"]:
    """Orthonormal columns with the range of the block's, zeros where it has less than so many directions."""
    values, vectors = _greatest(block)
    alive = values > LEAST * values[:, :1]
    scale = torch.where(alive, values, 1.0).rsqrt() * alive
    return (block.double() @ (vectors * scale[:, None, :])).to(block)


def _greatest(block: Float[Tensor, "n w m"]) -> tuple[Float[Tensor, "n m"], Float[Tensor, "n m m"]]:
    """Eigenvalues and eigenvectors of blockᵀ block, the greatest first, float64.

    They stand for a QR or a singular value decomposition of the block, as exact in float64: batches of small symmetric
    matrices suit graphics cards, those of tall ones are taken apart one by one there.
    """
    tall = block.double()
    values, vectors = torch.linalg.eigh(tall.mT @ tall)
    return values.flip(-1), vectors.flip(-1)

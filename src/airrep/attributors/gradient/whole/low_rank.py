"""Matrices as factors of a low rank."""

from collections.abc import Callable
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

OVERSAMPLED, POWERS = 8, 2
"""Further directions, and turns of power iteration, by which the factors are found."""

Factored: TypeAlias = tuple[Float[Tensor, "n o r"], Float[Tensor, "n i r"]]
"""L and R, whose products L Rᵀ are near the matrices; columns of R have length 1."""


def low_rank(matrices: Float[Tensor, "n o i"], rank: int) -> Factored:
    """Factors of each matrix's part in the range of its greatest *rank* directions or so."""
    _, outward, inward = matrices.shape
    start = _start(inward, min(rank + OVERSAMPLED, outward, inward), matrices)
    return _found(lambda block: matrices @ block, lambda block: matrices.mT @ block, start, rank)


def low_rank_product(left: Float[Tensor, "n t o"], right: Float[Tensor, "n t i"], rank: int) -> Factored:
    """Factors of each product leftᵀ right, as of :func:`low_rank`, without forming the product."""
    outward, inward = left.shape[2], right.shape[2]
    start = _start(inward, min(rank + OVERSAMPLED, outward, inward), right)
    return _found(lambda block: left.mT @ (right @ block), lambda block: right.mT @ (left @ block), start, rank)


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
        found = times(transposed(torch.linalg.qr(found).Q))
    basis = torch.linalg.qr(found).Q
    left, values, right = torch.linalg.svd(transposed(basis).mT, full_matrices=False)
    kept = min(rank, start.shape[1])
    return basis @ (left * values[:, None, :])[:, :, :kept], right.mT[:, :, :kept].contiguous()

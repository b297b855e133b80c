"""Order-k influence of removing a group, streamed over blocks."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from airrep.arrays import DenseFeatures, SparseFeatures
from airrep.errors import ConfigError, DataError
from airrep.scoring.blocks import Block, piece_rows, pieces_of, spans_of
from airrep.scoring.groups import Groups
from airrep.scoring.pooling import Pooling
from airrep.sparse import SparseRows

Product = Callable[[np.ndarray], np.ndarray]
"""Multiplies each group's A = Σ_z φ(z) φ(z)ᵀ by its vector, ``(g, d)`` to ``(g, d)``."""
ROWS = 2048
"""Rows read at a time."""
SUMS = 2**22
"""Most numbers of one vector for each group at a time, 32 MiB."""
TOLERANCE = 1e-12
"""Residual relative to b at which order-inf counts as solved."""
STEPS = 1000
"""Most steps of conjugate gradients for order-inf."""
DAMPED = "build the index with more damping: --method logra --set unit=false --set exponent=1 --set damping=VALUE."


def order_scores(
    queries: DenseFeatures | SparseFeatures,
    blocks: Sequence[Block],
    groups: Groups,
    pooling: Pooling,
    examples: int,
    scale: float = 1,
) -> np.ndarray:
    """Compute the increase of each query's loss if a group were removed, ``(q, m)`` float32, from float64 on the CPU.

    Features are taken as H^(-1/2) ∇ℓ; those in *blocks* were multiplied by *scale*, and *queries* divided by it. For
    other arguments see :func:`airrep.scoring.group_scores.group_scores`; the pool is of kind ``"order"``.
    """
    full = np.flatnonzero(groups.sizes >= examples)
    if len(full):
        raise ConfigError(
            f"group '{groups.names[full[0]]}': has all {examples:,} training examples, but --pool {pooling} "
            "estimates the effect of removing the group, so other examples must remain. Remove members from the group, "
            "or use another --pool."
        )
    d, size = queries.shape[1], piece_rows(blocks, ROWS)
    step = max(1, SUMS // max(d, size))
    scores = np.empty((queries.shape[0], len(groups)), dtype=np.float32)
    for first in range(0, len(groups), step):
        part = _GroupPart(blocks, groups.part(first, min(first + step, len(groups))), size, d, scale)
        effect = removal_effect(part.total(), part.product, part.groups, examples, pooling)
        scores[:, first : first + step] = queries.astype(np.float64) @ effect.T
    return scores


class _GroupPart:
    """Some groups; each product reads all members once."""

    def __init__(self, blocks: Sequence[Block], groups: Groups, size: int, dimension: int, scale: float) -> None:
        self.blocks, self.groups, self.size, self.dimension, self.scale = blocks, groups, size, dimension, scale
        self.used, membership = groups.membership
        self.membership = membership.astype(np.float64)

    def total(self) -> np.ndarray:
        """Compute Σ_{z∈S} φ(z) of each group, ``(g, d)`` float64."""
        total = self._add(self._read())
        if not np.isfinite(total).all():
            raise DataError("group scores: a feature is not finite. Check the model for overflow.")
        return total

    def product(self, vectors: np.ndarray) -> np.ndarray:
        """Compute Σ_{z∈S} φ(z)⟨φ(z), v⟩ / scale² of each group with its vector v, ``(g, d)`` float64."""
        return self._add((_weighted(members, rows, vectors), rows) for members, rows in self._read()) / self.scale**2

    def _read(self) -> Iterator[tuple[SparseRows, Any]]:
        """Yield, by piece, ones where a row is in a group ``(g, b)``, and the rows' features, dense or CSR float64."""
        for place, piece in pieces_of(spans_of(self.blocks), self.size, self.used):
            features = self.blocks[piece.number].features
            dense = isinstance(features, np.ndarray)
            yield (
                self.membership[place].T,
                piece.dense(self.blocks, np.float64) if dense else piece.sparse(features),
            )

    def _add(self, parts: Iterator[tuple[SparseRows, Any]]) -> np.ndarray:
        total = np.zeros((len(self.groups), self.dimension))
        for weights, rows in parts:
            touched = np.flatnonzero(weights.lengths)
            total[touched] += weights[touched] @ rows
        return total


def _weighted(members: SparseRows, rows: Any, vectors: np.ndarray) -> SparseRows:
    """Replace each one in *members* by ⟨φ(z), v⟩ of its row z and its group's vector v."""
    touched = np.flatnonzero(members.lengths)
    products = rows @ vectors[touched].T
    owner = np.repeat(np.arange(len(touched)), members.lengths[touched])
    return members.with_data(products[members.indices, owner])


def removal_effect(total: np.ndarray, product: Product, groups: Groups, n: int, pooling: Pooling) -> np.ndarray:
    """Compute u ``(g, d)`` float64: ⟨φ(x), u⟩ is the increase of query x's loss if a group were removed.

    With exact constants, order 1 is b / (n−m), order 2 is ((n−2m) b + A b) / (n−m)², order-inf (nI − A)⁻¹ b. The paper
    prints n/(n−m) and m/(n−m)² as the coefficients of b and A b in order 2. *total* ``(g, d)`` is b of each group;
    *product* multiplies by A, once for every order above 1; m is the number of a group's members, which must be below
    n, the number of training examples with the group.
    """
    total, m = total.astype(np.float64), groups.sizes[:, None]
    rest = (n - m).astype(np.float64)
    if pooling.k is None:
        return newton_step(total, product, n, groups.names)
    if pooling.constants == "paper":
        return total / rest if pooling.k == 1 else n / rest * total + m / rest**2 * product(total)
    term = total / rest
    effect = term.copy()
    for _ in range(pooling.k - 1):
        term = (product(term) - m * term) / rest
        effect += term
    return effect


def newton_step(total: np.ndarray, product: Product, n: int, names: Sequence[str]) -> np.ndarray:
    """Solve (nI − A) u = b for each group, ``(g, d)`` float64; refuse nI − A that is not positive definite.

    Conjugate gradients stay in the span of a group's members, so no matrix is ever formed.
    """
    solution, residual, direction = np.zeros_like(total), total.copy(), total.copy()
    square = _dots(residual, residual)
    goal = TOLERANCE**2 * square
    for _ in range(STEPS):
        if not (square > goal).any():
            return solution
        bent = n * direction - product(direction)
        length = _quotient(square, _curvature(direction, bent, square > goal, names))
        solution += length * direction
        residual -= length * bent
        # A finished group no longer changes (0 / 0 is 0) while other groups take more steps. It stays in the product,
        # which reads the members of all groups anyway; attributors/gradient/influence.py takes such rows out.
        before, square = square, np.where(square > goal, _dots(residual, residual), 0)
        direction = residual + _quotient(square, before) * direction
    raise DataError(
        f"pool order-inf (a way to score groups): the solver did not converge in {STEPS} steps for the group "
        f"'{names[int(np.argmax(square > goal))]}'. Use --pool order-2 or smaller groups, or {DAMPED}"
    )


def _dots(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return np.asarray(np.einsum("gd,gd->g", first, second))


def _quotient(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Divide, ``(g, 1)``; 0 for finished groups."""
    quotient = np.divide(above, below, out=np.zeros_like(above), where=(above > 0) & (below > 0))
    return np.asarray(quotient[:, None])


def _curvature(direction: np.ndarray, bent: np.ndarray, wanted: np.ndarray, names: Sequence[str]) -> np.ndarray:
    found = _dots(direction, bent)
    bad = np.flatnonzero(wanted & ~(found > 0))
    if len(bad):
        raise DataError(
            f"pool order-inf (a way to score a group): the group '{names[bad[0]]}' cannot be scored, because the "
            "approximated training loss without this group's examples has no minimum. Use --pool order-1, or "
            f"{DAMPED}"
        )
    return found

"""Order-k group scores over stored features, streamed over blocks.

A_S v = Σ_{z∈S} φ(z)⟨φ(z), v⟩ is one pass over the members: no matrix of n × n, m × m or d × d is formed.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from scipy import sparse

from airrep.arrays import Features
from airrep.errors import ConfigError, DataError
from airrep.scoring.blocks import Block, Piece, piece_rows, pieces_of, room_for
from airrep.scoring.group_influence import removal_effect
from airrep.scoring.groups import Groups
from airrep.scoring.pooling import Pooling

ROWS = 2048
"""Rows read at a time."""
SUMS = 2**22
"""At most so many numbers for each vector of all groups at a time, 32 MiB."""


def order_scores(
    queries: Features, blocks: Sequence[Block], groups: Groups, pooling: Pooling, examples: int
) -> np.ndarray:
    """What each query's loss would increase by if a group were removed, features taken for H^(-1/2) ∇ℓ.

    Args:
        queries: ``(q, d)`` float32, or CSR as the blocks.
        blocks: the features of all training examples, in order of rows.
        groups: which rows belong together; they may overlap.
        pooling: of kind ``"order"``.
        examples: training examples, those of the groups included.

    Returns:
        ``(q, m)`` float32, worked out in float64 on the CPU; higher = more helpful.

    Raises:
        ConfigError: a group holds all examples.
        DataError: a feature is not finite, or order-inf has no meaning for these features.
    """
    _check_sizes(groups, examples, pooling)
    d, size = queries.shape[1], piece_rows(blocks, ROWS)
    step = max(1, SUMS // max(d, size))
    scores = np.empty((queries.shape[0], len(groups)), dtype=np.float32)
    for first in range(0, len(groups), step):
        part = _Part(blocks, groups.part(first, min(first + step, len(groups))), size, d)
        effect = removal_effect(part.total(), part.product, part.groups.sizes, examples, pooling)
        scores[:, first : first + step] = queries.astype(np.float64) @ effect.T
    return scores


def _check_sizes(groups: Groups, examples: int, pooling: Pooling) -> None:
    full = np.flatnonzero(groups.sizes >= examples)
    if len(full):
        raise ConfigError(
            f"group '{groups.names[full[0]]}': has all {examples:,} training examples; pool {pooling} is the effect of "
            "removing some of them. Leave some out, or use another pool."
        )


class _Part:
    """Some groups, whose members are read once for each product."""

    def __init__(self, blocks: Sequence[Block], groups: Groups, size: int, dimension: int) -> None:
        self.blocks, self.groups, self.size, self.dimension = blocks, groups, size, dimension
        used, column = np.unique(groups.rows, return_inverse=True)
        ones, shape = np.ones(len(column)), (len(groups), len(used))
        self.used, self.membership = used, sparse.csr_array((ones, column, groups.offsets), shape=shape).tocsc()
        self.room = room_for(blocks, size, "cpu", torch.float64)

    def total(self) -> np.ndarray:
        """Σ_{z∈S} φ(z) of each group, ``(g, d)`` float64.

        Raises:
            DataError: one is not finite.
        """
        total = self._add(self._read())
        if not np.isfinite(total).all():
            raise DataError("group scores: a feature is not finite; expected numbers. Check the model for overflow.")
        return total

    def product(self, vectors: np.ndarray) -> np.ndarray:
        """Σ_{z∈S} φ(z)⟨φ(z), v⟩ of each group with its vector, ``(g, d)`` float64."""
        return self._add((_weighted(members, rows, vectors), rows) for members, rows in self._read())

    def _read(self) -> Iterator[tuple[sparse.csr_array, Any]]:
        """Which rows of a piece are in which group, ``(g, b)``, and their features, dense or CSR float64."""
        for place, piece in pieces_of(self.blocks, self.size, self.used):
            yield self.membership[:, place].tocsr(), self._features(piece)

    def _features(self, piece: Piece) -> Any:
        return piece.dense(self.room).numpy() if isinstance(piece.block.features, np.ndarray) else piece.csr()

    def _add(self, parts: Iterator[tuple[sparse.csr_array, Any]]) -> np.ndarray:
        total = np.zeros((len(self.groups), self.dimension))
        for weights, rows in parts:
            touched = np.flatnonzero(np.diff(weights.indptr))
            more = weights[touched] @ rows
            total[touched] += more if isinstance(more, np.ndarray) else more.toarray()
        return total


def _weighted(members: sparse.csr_array, rows: Any, vectors: np.ndarray) -> sparse.csr_array:
    """⟨φ(z), v⟩ where z is a member."""
    counts = np.diff(members.indptr)
    touched = np.flatnonzero(counts)
    products = rows @ vectors[touched].T
    owner = np.repeat(np.arange(len(touched)), counts[touched])
    return sparse.csr_array((products[members.indices, owner], members.indices, members.indptr), shape=members.shape)

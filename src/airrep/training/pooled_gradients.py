"""Pooled group scores and their exact gradient on features.

With s_ui = ⟨query i, member u⟩, w_u = exp(|s_u| − max) and sums over the members of subset j, attention (Eq. 6) is
f_j = Σ w s / Σ w. Each member is scored once however many subsets hold it. With g_j the gradient on f_j,

    ∂/∂s_u = w_u · [(1 + sign(s_u) s_u) a_u − sign(s_u) b_u],   a_u = Σ_j∋u g_j / Σw_j,   b_u = Σ_j∋u g_j f_j / Σw_j.

Signed attention has w_u = exp(s_u − max), and 1 in place of sign(s_u).
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from airrep.arrays import Rows
from airrep.errors import TrainingError
from airrep.scoring.pooling import TrainedPool, exponents
from airrep.shapes import Float
from airrep.sparse import SparseRows

COLUMNS = 64
"""Queries scored at a time."""
KEPT = 2**28
"""Bytes of member scores that are kept between the two directions; beyond, they are worked out again."""
FADED = {torch.float32: 2.0**-100, torch.float64: 2.0**-900}
"""Least Σw of a subset whose members' weights have not been lost to underflow."""


class Membership(NamedTuple):
    """Membership of examples in subsets, in both directions."""

    members: Tensor
    """``(total,)`` members, subset after subset."""
    offsets: Tensor
    """``(m + 1,)``, the place where each subset begins."""
    subsets: Tensor
    """``(total,)`` subsets, member after member."""
    starts: Tensor
    """``(u + 1,)``, the place where each member begins."""

    @classmethod
    def of(cls, subsets: Sequence[Rows], members: int, device: str = "cpu") -> Self:
        """Membership of subsets given as lists of members 0 … *members* − 1; repeats count."""
        flat = np.concatenate(subsets)
        offsets = np.cumsum([0, *map(len, subsets)])
        ones = np.ones(len(flat), np.int8)
        by_member = SparseRows(ones, flat, offsets, (len(subsets), members)).T
        arrays = (flat, offsets, by_member.indices, by_member.indptr)
        return cls(*(torch.from_numpy(array.astype(np.int64)).to(device) for array in arrays))

    @property
    def sizes(self) -> Tensor:
        """Members of each subset, ``(m,)``."""
        return self.offsets.diff()

    def gather(self, values: Float[Tensor, "u w"]) -> Float[Tensor, "m w"]:
        """Sum over the members of each subset."""
        return _sums(self.members, values, self.offsets)

    def spread(self, values: Float[Tensor, "m w"]) -> Float[Tensor, "u w"]:
        """Sum over the subsets of each member."""
        return _sums(self.subsets, values, self.starts)


def _sums(chosen: Tensor, values: Tensor, offsets: Tensor) -> Tensor:
    summed: Tensor = torch.nn.functional.embedding_bag(chosen, values, offsets, mode="sum", include_last_offset=True)
    return summed


class PooledScores:
    """Group scores of a step's queries, ``f`` ``(q, m)``; higher = more helpful.

    *members* are the features of all examples that are in some subset.

    Raises:
        TrainingError: scores differ by so much that attention cannot be computed, or are not finite.
    """

    def __init__(
        self, queries: Float[Tensor, "q d"], members: Float[Tensor, "u d"], membership: Membership, pool: TrainedPool
    ) -> None:
        self._queries, self._members, self._membership = queries.detach(), members.detach(), membership
        self._pool: TrainedPool = pool
        held = self._queries.shape[0] * self._members.shape[0] * self._members.element_size()
        self._kept: dict[int, Tensor] | None = {} if held <= KEPT else None
        none = self._queries.new_empty(0, len(membership.sizes))
        self.f = torch.cat([none, *(_pooled(scores, membership, pool).t() for _, scores in self._scored())])

    def gradients(self, g: Float[Tensor, "q m"]) -> tuple[Float[Tensor, "q d"], Float[Tensor, "u d"]]:
        """Gradients on the features of queries and members, from that on the group scores."""
        on_queries, on_members = torch.empty_like(self._queries), torch.zeros_like(self._members)
        for part, scores in self._scored():
            on_scores = _backward(scores, g[part].t().contiguous(), self._membership, self._pool)
            on_queries[part] = on_scores.t() @ self._members
            on_members.addmm_(on_scores, self._queries[part])
        return on_queries, on_members

    def _scored(self) -> Iterator[tuple[slice, Float[Tensor, "u w"]]]:
        """Scores of all members for some queries at a time."""
        for first in range(0, len(self._queries), COLUMNS):
            part = slice(first, first + COLUMNS)
            scores = None if self._kept is None else self._kept.get(first)
            if scores is None:
                scores = self._members @ self._queries[part].t()
            if self._kept is not None:
                self._kept[first] = scores
            yield part, scores


def _pooled(scores: Float[Tensor, "u w"], membership: Membership, pool: TrainedPool) -> Float[Tensor, "m w"]:
    if pool == "mean":
        return membership.gather(scores) / membership.sizes[:, None]
    weights, below = _weights(scores, membership, pool)
    return (membership.gather(weights * scores) / below).to(scores.dtype)


def _backward(
    scores: Float[Tensor, "u w"], g: Float[Tensor, "m w"], membership: Membership, pool: TrainedPool
) -> Float[Tensor, "u w"]:
    if pool == "mean":
        return membership.spread(g / membership.sizes[:, None])
    weights, below = _weights(scores, membership, pool)
    f = membership.gather(weights * scores) / below
    share = g / below
    a, b = membership.spread(share), membership.spread(share * f)
    steepness = scores * a - b
    if pool == "attention":
        steepness *= scores.sign()
    return (weights * (a + steepness)).to(scores.dtype)


def _weights(
    scores: Float[Tensor, "u w"], membership: Membership, pool: TrainedPool
) -> tuple[Float[Tensor, "u w"], Float[Tensor, "m w"]]:
    """exp(|s| − max) of each query's scores and its sums; in float64 where float32 would lose a subset."""
    size = exponents(scores, pool)
    weights = (size - size.amax(dim=0)).exp_()
    below = membership.gather(weights)
    if bool((below >= FADED[scores.dtype]).all() & scores.amin().isfinite()):
        return weights, below
    if scores.dtype == torch.float32:
        return _weights(scores.double(), membership, pool)
    raise TrainingError(
        "group scores: are not finite, or differ by so much that attention cannot be computed; expected them within "
        "100 or so of each other. Lower learning_rate or head_learning_rate, or set clip."
    )

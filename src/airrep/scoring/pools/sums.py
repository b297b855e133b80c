"""Sums, means and diminishing means of scores, by the sums of groups' features.

A score is an inner product, so that a sum of scores is the product with a sum of features: each group's features are
added up first, in float64, and multiplied with all queries once.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch

from airrep.scoring.blocks import Block, Piece, piece_rows, pieces_of, room_for
from airrep.scoring.groups import Groups
from airrep.scoring.pooling import Pooling

ROWS = 2048
"""Rows that are read at a time."""
SUMS = 2**23
"""At most so many numbers of summed features are held, 64 MiB, unless one group has more."""
QUERIES = 1024
"""Queries multiplied at a time."""


class MemberChunk(NamedTuple):
    """Rows that are in some group, and which are in which."""

    piece: Piece
    touched: np.ndarray
    """Groups with a member here."""
    members: torch.Tensor
    """Positions in the piece, group after group."""
    offsets: torch.Tensor
    """Place where each touched group's members begin, and the last one's end."""

    def add(self, total: torch.Tensor, values: torch.Tensor, shares: torch.Tensor | None = None) -> None:
        """Add to ``(m, w)`` totals the sums of values ``(b, w)`` over each group's members, each times its share."""
        sums = torch.nn.functional.embedding_bag(
            self.members, values, self.offsets, mode="sum", include_last_offset=True, per_sample_weights=shares
        )
        if len(sums) == len(total):  # indexing would copy all totals
            total += sums
        else:
            total[self.touched] += sums


def member_chunks(blocks: Sequence[Block], groups: Groups, size: int, device: str) -> Iterator[MemberChunk]:
    """Cut the rows that are in some group into pieces of at most *size*."""
    used, membership = groups.membership()
    narrow = np.uint16 if len(groups) < 2**16 else np.int64  # sorted in the time of counting
    for place, piece in pieces_of(blocks, size, used):
        ends = membership.indptr[place.start : place.stop + 1]
        group = membership.indices[ends[0] : ends[-1]].astype(narrow)
        order = np.argsort(group, kind="stable")
        counts = np.bincount(group, minlength=len(groups))
        touched = np.flatnonzero(counts)
        offsets = np.concatenate([[0], np.cumsum(counts[touched])])
        row = np.repeat(np.arange(len(ends) - 1), np.diff(ends))[order]
        yield MemberChunk(piece, touched, torch.from_numpy(row).to(device), torch.from_numpy(offsets).to(device))


def linear_scores(
    queries: np.ndarray, blocks: Sequence[Block], groups: Groups, pooling: Pooling, device: str
) -> np.ndarray:
    """Group scores by a pool that weighs members alike for all queries, ``(q, m)`` float64."""
    d, m = queries.shape[1], len(groups)
    scores = np.empty((len(queries), m))
    step = max(1, SUMS // max(d, 1))
    for first in range(0, m, step):
        pooled = pooled_features(blocks, groups.part(first, min(first + step, m)), pooling, device)
        for i in range(0, len(queries), QUERIES):
            scores[i : i + QUERIES, first : first + step] = queries[i : i + QUERIES].astype(np.float64) @ pooled.T
    return scores


def pooled_features(blocks: Sequence[Block], groups: Groups, pooling: Pooling, device: str = "cpu") -> np.ndarray:
    """Features whose products with queries are the group scores by a linear pool, ``(m, d)`` float64."""
    size = piece_rows(blocks, ROWS)
    room = room_for(blocks, size, device, torch.float64)
    sums = torch.zeros(len(groups), room.shape[1], dtype=torch.float64, device=device)
    directions = _directions(blocks, groups, room) if pooling.kind == "diminishing" else None
    for chunk in member_chunks(blocks, groups, size, device):
        features = chunk.piece.dense(room)
        chunk.add(sums, features, None if directions is None else _shares(chunk, features, directions))
    summed: np.ndarray = sums.cpu().numpy()
    return summed if pooling.kind == "sum" else summed / groups.sizes[:, None]


def _directions(blocks: Sequence[Block], groups: Groups, room: torch.Tensor) -> torch.Tensor:
    """Σ_i φ(z_i) / ‖φ(z_i)‖ over each group's members, ``(m, d)``."""
    sums = room.new_zeros(len(groups), room.shape[1])
    for chunk in member_chunks(blocks, groups, len(room), str(room.device)):
        chunk.add(sums, _unit(chunk.piece.dense(room)))
    return sums


def _shares(chunk: MemberChunk, features: torch.Tensor, directions: torch.Tensor) -> torch.Tensor:
    """ln(1 + κ) / κ of each member, κ being the sum of its cosines with the others of its group, at least 0."""
    unit = _unit(features)
    own = unit.square().sum(dim=1)  # 1, or 0 of a row of zeros
    likeness = torch.empty(len(chunk.members), dtype=torch.float64, device=unit.device)
    ends = chunk.offsets.tolist()
    for group, first, last in zip(chunk.touched.tolist(), ends, ends[1:], strict=False):
        members = chunk.members[first:last]
        likeness[first:last] = unit[members] @ directions[group] - own[members]
    likeness.clamp_(min=0)
    return torch.where(likeness > 0, torch.log1p(likeness) / likeness, 1.0)


def _unit(features: torch.Tensor) -> torch.Tensor:
    norms = torch.linalg.vector_norm(features, dim=1, keepdim=True)
    return features / torch.where(norms > 0, norms, 1.0)

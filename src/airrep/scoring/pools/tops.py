"""Means of each group's highest scores, streamed over blocks.

For each query and group the K highest scores so far are held. Each example that is in some group is scored once for
some queries at a time; when a span of rows is scored, its members' scores and those held are reduced to K again.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from scipy import sparse

from airrep.arrays import Features
from airrep.scoring.blocks import Block, piece_rows, pieces_of, room_for
from airrep.scoring.groups import Groups
from airrep.scoring.products import Precision, ReadyQueries, load, ready

ROWS = 2048
"""Rows multiplied at a time."""
SPAN = 2**15
"""Rows whose scores are held before they are looked through."""
COLUMNS = 128
"""At most so many queries at a time."""
HELD = 2**23
"""At most so many highest scores are held, 32 MiB, unless K is beyond it."""
GATHERED = 2**22
"""At most so many scores are reduced at a time, 16 MiB, unless one group has more in a span."""


def top_means(
    queries: Features,
    blocks: Sequence[Block],
    groups: Groups,
    k: int,
    *,
    precision: Precision = "float32",
    most: float = 0.0,
    device: str = "cpu",
) -> np.ndarray:
    """The mean of the *k* highest member scores of each group, of all where there are fewer.

    Arguments are those of :func:`airrep.scoring.group_scores.group_scores`; bfloat16 only where norms forbid scores
    above *most*.

    Returns:
        ``(q, m)`` float32; not finite where a score that counts is not.
    """
    k = min(k, int(groups.sizes.max()))
    width = max(1, min(COLUMNS, HELD // k))
    step = max(1, HELD // (k * width))
    scores = np.empty((queries.shape[0], len(groups)), dtype=np.float32)
    for i in range(0, queries.shape[0], width):
        some = ready(queries[i : i + width], precision, most, device)
        for first in range(0, len(groups), step):
            part = groups.part(first, min(first + step, len(groups)))
            scores[i : i + width, first : first + step] = _means(some, blocks, part, k).T
    return scores


def _means(queries: ReadyQueries, blocks: Sequence[Block], groups: Groups, k: int) -> np.ndarray:
    """Means for some queries, ``(m, w)``."""
    held = np.full((len(groups), queries.count, k), -np.inf, np.float32)
    for scores, membership in _spans(queries, blocks, groups):
        _hold(held, scores, membership)
    counted = np.minimum(groups.sizes, k)[:, None]
    empty = np.isneginf(held)
    lost = empty.sum(axis=2) != k - counted  # a member's own score is -inf
    held[empty] = 0
    return np.where(lost, -np.inf, held.sum(axis=2, dtype=np.float64) / counted)


def _spans(
    queries: ReadyQueries, blocks: Sequence[Block], groups: Groups
) -> Iterator[tuple[np.ndarray, sparse.csr_array]]:
    """Scores ``(b, w)`` of a span of rows that are in some group, and in which: ``(m, b)``."""
    used, membership = groups.membership()
    size = piece_rows(blocks, ROWS)
    room = room_for(blocks, size)
    buffer = np.empty((min(SPAN, len(used)), queries.count), np.float32)
    for first in range(0, len(used), SPAN):
        rows = used[first : first + SPAN]
        for place, piece in pieces_of(blocks, size, rows):
            queries.multiply(load(piece, room, queries.device), buffer[place])
        yield buffer[: len(rows)], membership[:, first : first + SPAN].tocsr()


def _hold(held: np.ndarray, scores: np.ndarray, membership: sparse.csr_array) -> None:
    """Bring the highest scores ``(m, w, k)`` up to date, some groups of like sizes at a time."""
    counts = np.diff(membership.indptr)
    order = np.argsort(-counts, kind="stable")  # groups of like sizes make tables with few empty places
    order = order[: np.count_nonzero(counts)]
    w, k = held.shape[1:]
    first = 0
    while first < len(order):
        longest = int(counts[order[first]])
        some = order[first : first + max(1, GATHERED // (w * (longest + k)))]
        first += len(some)
        table = _table(membership, some, longest)
        members = scores[table]
        members[table < 0] = -np.inf
        together = np.concatenate([held[some], members.transpose(0, 2, 1)], axis=2)
        together.partition(longest, axis=2)
        held[some] = together[:, :, longest:]


def _table(membership: sparse.csr_array, some: np.ndarray, longest: int) -> np.ndarray:
    """Places of the members of some groups, ``(g, longest)``, filled up with −1."""
    begins, counts = membership.indptr[some], np.diff(membership.indptr)[some]
    inside = np.arange(longest)
    table = np.full((len(some), longest), -1, dtype=np.int64)
    wanted = inside < counts[:, None]
    table[wanted] = membership.indices[(begins[:, None] + inside)[wanted]]
    return table

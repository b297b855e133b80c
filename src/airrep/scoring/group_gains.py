"""Group scores of the counting language model, streamed over blocks of rows.

Features v of an example hold the logarithms by which it alone raises the likelihood of each n-gram, and in the first
column its weight ℓ. A group's is log(1 + Σ_z ℓ_z (exp(v_z) − 1) / Σ_z ℓ_z): for a group of one, the example's own.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from scipy import sparse

from airrep.arrays import SparseFeatures
from airrep.scoring.blocks import PIECE_ROWS, Block, narrow_blocks, pieces_of
from airrep.scoring.columns import select_columns
from airrep.scoring.groups import Groups

CELLS = 2**24
"""At most so many sums, of groups times n-grams, are held at once: 200 MB if no group lacked any."""


def gain_scores(queries: SparseFeatures, blocks: Sequence[Block], groups: Groups) -> np.ndarray:
    """Σ_g q_x(g) · log(1 + Σ_z ℓ_z (exp(v_z(g)) − 1) / Σ_z ℓ_z), in float64; 0 for a group without n-grams.

    Args:
        queries: ``(q, d)`` CSR, weights of the query's n-grams; nothing in the first column.
        blocks: features ``(b, d)`` CSR, columns ascending.
        groups: which rows belong together.

    Returns:
        ``(q, m)`` float64.
    """
    scores = np.empty((queries.shape[0], len(groups)))
    for some in _tiles(queries, len(groups)):
        part = queries[some]
        columns = np.unique(part.indices)
        narrow = select_columns(part, columns).astype(np.float64)
        scores[some] = (narrow @ _gains(blocks, columns, groups).T.tocsr()).toarray()
    return scores


def _tiles(queries: SparseFeatures, groups: int) -> Iterator[slice]:
    """Queries whose n-grams, times groups, are few enough to be held; one query at least."""
    most = max(1, CELLS // groups)
    start = 0
    for stop in range(1, queries.shape[0] + 1):
        full = stop == queries.shape[0] or queries.indptr[stop + 1] - queries.indptr[start] > most
        if full:
            yield slice(start, stop)
            start = stop


def _gains(blocks: Sequence[Block], columns: np.ndarray, groups: Groups) -> SparseFeatures:
    """The logarithm of each group and column, ``(m, columns)``; most are 0."""
    used, membership = groups.membership()
    total: SparseFeatures = sparse.csr_array((len(groups), len(columns)))
    lengths = np.zeros(len(groups))
    # The weights stand in the first column.
    for place, piece in pieces_of(narrow_blocks(blocks, np.concatenate([[0], columns])), PIECE_ROWS, used):
        features = piece.csr()
        weights = features[:, [0]].toarray().ravel()
        row = np.repeat(np.arange(features.shape[0]), np.diff(features.indptr))
        raised = np.expm1(features.data) * weights[row]
        rises = sparse.csr_array((raised, features.indices, features.indptr), shape=features.shape)[:, 1:]
        members = sparse.csr_array(membership[:, place])
        total = total + members @ rises
        lengths += members @ weights
    group = np.repeat(np.arange(len(groups)), np.diff(total.indptr))
    total.data = np.log1p(total.data / lengths[group])  # a group that has n-grams has a length
    return total

"""Selection of training examples by their best rank."""

import numpy as np

from .ranking import ranked_rows


def min_rank(scores: np.ndarray, count: int) -> list[tuple[int, int, int]]:
    """Return (row, best rank, first query that reaches it) of the *count* chosen rows, in order of choice.

    Score(z_j) = min_i rank(x_i, z_j) (appendix, data selection setup), ranks counted from 1 and ties ranked
    by row; the rows are ordered by (best rank, first query that reaches it, row).
    """
    chosen = []
    orders = [ranked_rows(of_query) for of_query in scores]
    for row in range(scores.shape[1]):
        ranks = [order.index(row) + 1 for order in orders]
        best = min(ranks)
        chosen.append((best, ranks.index(best), row))
    return [(row, best, query) for best, query, row in sorted(chosen)[:count]]

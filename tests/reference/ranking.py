"""Exact top-k, by sorting everything."""

from collections.abc import Sequence

import numpy as np


def ranked_rows(scores: Sequence[float], keep: Sequence[bool] | None = None, least: bool = False) -> list[int]:
    """Return the kept rows, greatest score first (``least``: least first); equal scores in order of rows."""
    rows = [row for row in range(len(scores)) if keep is None or keep[row]]
    sign = 1.0 if least else -1.0
    return sorted(rows, key=lambda row: (sign * float(scores[row]), row))


def top_k(
    scores: np.ndarray, k: int, keep: Sequence[bool] | None = None, least: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return row numbers and scores of the first *k* for each query, both ``(q, k)``."""
    rows = np.array([ranked_rows(of_query, keep, least)[:k] for of_query in scores], dtype=np.int64)
    rows = rows.reshape(len(scores), -1)
    values = [[float(scores[i, row]) for row in of_query] for i, of_query in enumerate(rows)]
    return rows, np.array(values, dtype=np.float64).reshape(rows.shape)

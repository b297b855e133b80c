"""Features of an index as they are stored, and scores by plain float64 products."""

import numpy as np

import airrep


def stored_scores(index: airrep.Index, queries: airrep.Corpus) -> np.ndarray:
    """All scores of an index of dense features, float64 ``(q, n)``."""
    stored = np.concatenate([np.asarray(block.features, np.float64) for block in index.blocks])
    return np.asarray(index.encode_queries(queries), np.float64) @ stored.T

"""Influence scores and group scores, by loops."""

import math
from collections.abc import Sequence

import numpy as np


def influence_scores(queries: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Return s[x, z] = ⟨Enc(x), Enc(z)⟩ (Eq. 5) in float64, shape ``(q, n)``."""
    queries, train = np.asarray(queries, np.float64), np.asarray(train, np.float64)
    scores = np.zeros((len(queries), len(train)))
    for i, query in enumerate(queries):
        for j, row in enumerate(train):
            scores[i, j] = math.fsum(query * row)
    return scores


def pool_sum(scores: Sequence[float]) -> float:
    """Return Σ_i s_i over the members."""
    return math.fsum(scores)


def pool_mean(scores: Sequence[float]) -> float:
    """Return (1/k) Σ_i s_i over the k members."""
    return math.fsum(scores) / len(scores)


def pool_attention(scores: Sequence[float], temperature: float = 1.0) -> float:
    """Return Σ_i α_i s_i with α_i = exp(|s_i|/T) / Σ_j exp(|s_j|/T) over the members.

    Eq. 6, the index in its denominator corrected. The greatest |s| of the group is taken from every exponent:
    it cancels in the quotient.
    """
    greatest = max(abs(s) for s in scores)
    weights = [math.exp((abs(s) - greatest) / temperature) for s in scores]
    return math.fsum(w * s for w, s in zip(weights, scores, strict=True)) / math.fsum(weights)


def pool_signed_attention(scores: Sequence[float], temperature: float = 1.0) -> float:
    """Return Σ_i α_i s_i with α_i = exp(s_i/T) / Σ_j exp(s_j/T) over the members."""
    greatest = max(scores)
    weights = [math.exp((s - greatest) / temperature) for s in scores]
    return math.fsum(w * s for w, s in zip(weights, scores, strict=True)) / math.fsum(weights)


def group_scores(
    queries: np.ndarray, train: np.ndarray, groups: Sequence[Sequence[int]], pool: str, temperature: float = 1.0
) -> np.ndarray:
    """Return f(x, S_j), shape ``(q, m)``; ``groups[j]`` lists the row numbers of S_j."""
    scores = influence_scores(queries, train)
    pooled = np.zeros((len(scores), len(groups)))
    for i, of_query in enumerate(scores):
        for j, rows in enumerate(groups):
            members = [float(of_query[row]) for row in rows]
            if pool == "attention":
                pooled[i, j] = pool_attention(members, temperature)
            elif pool == "signed-attention":
                pooled[i, j] = pool_signed_attention(members, temperature)
            else:
                pooled[i, j] = {"sum": pool_sum, "mean": pool_mean}[pool](members)
    return pooled

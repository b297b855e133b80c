"""The gradient of one training step on features, by loops."""

import math
from collections.abc import Sequence

import numpy as np

from reference.pooling import influence_scores, pool_attention, pool_mean, pool_signed_attention


def loss_and_gradients(
    queries: np.ndarray,
    members: np.ndarray,
    subsets: Sequence[Sequence[int]],
    labels: np.ndarray,
    pool: str,
    t_min: float = 0.1,
    t_max: float = 5.0,
) -> tuple[float, np.ndarray, np.ndarray]:
    """Return the ranking loss (Eq. 8, mean over counted pairs) and its gradients on both kinds of features.

    With α_i the attention weight of member i, ∂f/∂s_i = α_i + sign(s_i) α_i (s_i − f), without the sign where attention
    is signed; for a mean it is 1/k.
    """
    scores = influence_scores(queries, members)
    loss, on_queries, on_members = 0.0, np.zeros(queries.shape), np.zeros(members.shape)
    counted = sum(len(_pairs(of_query, t_min)) for of_query in labels)
    for x, of_query in enumerate(scores):
        f = [_pooled([float(of_query[i]) for i in subset], pool) for subset in subsets]
        on_f = np.zeros(len(subsets))
        for better, worse in _pairs(labels[x], t_min):
            weight = min(float(labels[x][better] - labels[x][worse]), t_max) / counted
            gap = f[better] - f[worse]
            loss += weight * math.log1p(math.exp(-gap))
            on_f[better] -= weight / (1 + math.exp(gap))
            on_f[worse] += weight / (1 + math.exp(gap))
        for j, subset in enumerate(subsets):
            for i, change in zip(subset, _slopes([float(of_query[i]) for i in subset], f[j], pool), strict=True):
                on_queries[x] += on_f[j] * change * members[i]
                on_members[i] += on_f[j] * change * queries[x]
    return loss, on_queries, on_members


def _pairs(labels: np.ndarray, t_min: float) -> list[tuple[int, int]]:
    """Return the counted pairs (better, worse) of one query; none with a NaN."""
    indices = range(len(labels))
    return [(i, j) for i in indices for j in indices if labels[i] > labels[j] and labels[i] - labels[j] >= t_min]


def _pooled(scores: Sequence[float], pool: str) -> float:
    return {"attention": pool_attention, "signed-attention": pool_signed_attention, "mean": pool_mean}[pool](scores)


def _slopes(scores: Sequence[float], f: float, pool: str) -> list[float]:
    """Return ∂f/∂s_i of each member."""
    if pool == "mean":
        return [1 / len(scores)] * len(scores)
    signed = pool == "signed-attention"
    weights = [math.exp(s if signed else abs(s)) for s in scores]
    total = math.fsum(weights)
    alphas = [weight / total for weight in weights]
    return [a + (1 if s > 0 or signed else -1) * a * (s - f) for a, s in zip(alphas, scores, strict=True)]

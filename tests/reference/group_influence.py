"""Group influence written out: dense matrices, and models fitted again."""

import numpy as np


def effect_of_removal(features: np.ndarray, members: list[int], n: int, order: int | None) -> np.ndarray:
    """Return u of one group, so that ⟨φ(x), u⟩ is the loss's increase; H_S from outer products, H = I.

    Δ_1 = −(1/(n−m)) Σφ, Δ_{t+1} = (m/(n−m)) (I − H_S) Δ_t with H_S = (1/m) Σφφᵀ, u = Σ_{t≤k} (−1)^t Δ_t; the limit
    is (nI − mH_S)⁻¹ Σφ.
    """
    chosen = np.array([features[row] for row in members], np.float64)
    m, d = chosen.shape
    mean = sum(np.outer(row, row) for row in chosen) / m
    if order is None:
        return np.linalg.solve(n * np.eye(d) - m * mean, chosen.sum(axis=0))
    delta = -chosen.sum(axis=0) / (n - m)
    u = np.zeros(d)
    for t in range(1, order + 1):
        u += (-1) ** t * delta
        delta = m / (n - m) * (np.eye(d) - mean) @ delta
    return u


def group_scores(
    queries: np.ndarray, train: np.ndarray, groups: list[list[int]], n: int, order: int | None
) -> np.ndarray:
    """Return f(x, S_j), shape ``(q, m)``."""
    effects = [effect_of_removal(train, members, n, order) for members in groups]
    return np.array([[float(np.dot(query.astype(np.float64), u)) for u in effects] for query in queries])


def fit_ridge(inputs: np.ndarray, targets: np.ndarray, penalty: float) -> np.ndarray:
    """Return the θ that minimises Σ_i ½(x_iᵀθ − y_i)² + ½ penalty |θ|²."""
    return np.linalg.solve(inputs.T @ inputs + penalty * np.eye(inputs.shape[1]), inputs.T @ targets)


def fit_logistic(inputs: np.ndarray, labels: np.ndarray, penalty: float) -> np.ndarray:
    """Return the θ that minimises Σ_i log(1 + exp(−y_i x_iᵀθ)) + ½ penalty |θ|², y = ±1, by Newton's method."""
    theta = np.zeros(inputs.shape[1])
    for _ in range(50):
        p = 1 / (1 + np.exp(labels * (inputs @ theta)))
        gradient = -(inputs.T @ (labels * p)) + penalty * theta
        hessian = (inputs.T * (p * (1 - p))) @ inputs + penalty * np.eye(inputs.shape[1])
        theta -= np.linalg.solve(hessian, gradient)
    return theta

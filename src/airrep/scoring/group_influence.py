"""Order-k influence of removing a group, by matrix-vector products.

Let θ* minimise Σ_i ℓ(z_i; θ) over n examples, H be the mean of their Hessians, and a group S of m examples have the
gradient g_S = Σ_{z∈S} ∇ℓ(z) and the Hessian m·H_S. Without S, the gradient at θ* is −g_S and the Hessian nH − mH_S,
so one Newton step is θ − θ* = (nH − mH_S)⁻¹ g_S. The paper's series in ε reaches the same at ε = −1,

    θ − θ* ≈ Σ_{t=1..k} (−1)^t Δ_t,   Δ_1 = −H⁻¹ g_S / (n−m),   Δ_{t+1} = (m/(n−m)) (I − H⁻¹H_S) Δ_t,

and that step is its limit. Here all is written with φ = H^(-1/2) ∇ℓ, where H is the identity: b = Σ_{z∈S} φ(z), and A
is H^(-1/2) m·H_S H^(-1/2), for which Σ_{z∈S} φφᵀ stands where Hessians are taken for outer products of gradients.
⟨φ(x), u⟩ is then what the query's loss increases by: higher = the group is more helpful.
"""

from collections.abc import Callable

import numpy as np

from airrep.errors import DataError
from airrep.scoring.pooling import Pooling

Product = Callable[[np.ndarray], np.ndarray]
"""Of each group's A with its vector, ``(g, d)`` to ``(g, d)``."""

TOLERANCE = 1e-12
"""What may be left of b, as a part of it, when the limit is solved for."""
STEPS = 1000
"""Most products for the limit."""


def removal_effect(total: np.ndarray, product: Product, sizes: np.ndarray, n: int, pooling: Pooling) -> np.ndarray:
    """u, so that ⟨φ(x), u⟩ is the increase of query x's loss if a group were removed.

    With exact constants, order 1 is b / (n−m), order 2 is ((n−2m) b + A b) / (n−m)², order-inf (nI − A)⁻¹ b. The
    paper prints n/(n−m) and m/(n−m)² as the coefficients of b and A b in order 2.

    Args:
        total: ``(g, d)`` b of each group.
        product: A v for a vector v of each group; called once for every order above 1.
        sizes: ``(g,)`` members of each group, m, all below n.
        n: training examples, those of the groups included.
        pooling: of kind ``"order"``.

    Returns:
        ``(g, d)`` float64.

    Raises:
        DataError: order-inf, where nI − A is not positive definite.
    """
    total, rest = total.astype(np.float64), (n - sizes)[:, None].astype(np.float64)
    if pooling.k is None:
        return newton_step(total, product, n)
    if pooling.constants == "paper":
        return _printed(total, product, sizes, n, pooling.k)
    term = total / rest
    effect = term.copy()
    for _ in range(pooling.k - 1):
        term = (product(term) - sizes[:, None] * term) / rest
        effect += term
    return effect


def _printed(total: np.ndarray, product: Product, sizes: np.ndarray, n: int, order: int) -> np.ndarray:
    """What the paper prints: c¹ = 1/(n−m) in order 1; c¹ = n/(n−m) and c² = m/(n−m)² in order 2."""
    m, rest = sizes[:, None], (n - sizes)[:, None].astype(np.float64)
    effect: np.ndarray = total / rest if order == 1 else n / rest * total + m / rest**2 * product(total)
    return effect


def newton_step(total: np.ndarray, product: Product, n: int) -> np.ndarray:
    """Solve (nI − A) u = b for each group by conjugate gradients, which stay in the span of its members.

    Args:
        total: ``(g, d)`` b.
        product: A v for a vector v of each group.
        n: training examples.

    Returns:
        ``(g, d)`` float64.

    Raises:
        DataError: nI − A is not positive definite, or the steps do not suffice.
    """
    solution, residual, direction = np.zeros_like(total), total.copy(), total.copy()
    square = _dots(residual, residual)
    goal = TOLERANCE**2 * square
    for _ in range(STEPS):
        if not (square > goal).any():
            return solution
        bent = n * direction - product(direction)
        length = _quotient(square, _curvature(direction, bent, square > goal))
        solution += length * direction
        residual -= length * bent
        before, square = square, np.where(square > goal, _dots(residual, residual), 0)
        direction = residual + _quotient(square, before) * direction
    raise DataError(
        f"order-inf: {STEPS} steps do not suffice, as removing the group leaves hardly any curvature; expected damped "
        "features H^(-1/2)·gradient. Use order-2, or a smaller group."
    )


def _dots(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return np.asarray(np.einsum("gd,gd->g", first, second))


def _quotient(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """``(g, 1)``; 0 for groups that are done."""
    quotient = np.divide(above, below, out=np.zeros_like(above), where=(above > 0) & (below > 0))
    return np.asarray(quotient[:, None])


def _curvature(direction: np.ndarray, bent: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    found = _dots(direction, bent)
    if not (found[wanted] > 0).all():
        raise DataError(
            "order-inf: without a group no curvature is left in some direction, so there is no minimum to step to; "
            "expected features H^(-1/2)·gradient. Use order-1, another pool, or a method that has them."
        )
    return found

"""Curvature of gradients: Kronecker factors, principal spaces, damping; lengths of gradients."""

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from scipy import linalg
from scipy.sparse.linalg import eigsh

from airrep.errors import TrainingError
from airrep.runtime.seeding import stream
from airrep.shapes import Float, Float64

DENSE = 512
"""Largest width of a matrix that is decomposed as a whole to find a few of its eigenvectors."""
NOISE, BORDER = 1e-6, 1e-3
"""NOISE: an eigenvalue below this part of the largest may be rounding. BORDER: directions fade over this part of the
cut."""

Matrix = Float[np.ndarray, "a b"]


class PrincipalSpace(NamedTuple):
    """The space in which a covariance is largest, with a basis that depends only on the space."""

    basis: Float64[np.ndarray, "w r"]
    """Orthonormal columns."""
    cut: float
    """The eigenvalue at which the space ends: the largest outside it, but at least what may be rounding."""
    inside: Float64[np.ndarray, "r r"]
    """The covariance in this basis."""


def principal_space(matrix: Float[np.ndarray, "w w"], rank: int) -> PrincipalSpace:
    """Return the space of the *rank* directions in which a covariance is largest.

    Eigenvectors would not be a reproducible basis: their signs are free, and rounding mixes eigenvectors of close
    eigenvalues. The basis is the orthonormal one of their space that is nearest to a fixed random one.
    """
    wide = matrix.astype(np.float64)
    width = len(wide)
    if not wide.any():
        return PrincipalSpace(np.eye(width, rank), 0.0, np.zeros((rank, rank)))
    asked = min(rank + 1, width)
    if width <= DENSE or asked >= width - 1:
        values, vectors = linalg.eigh(wide, subset_by_index=(width - asked, width - 1))
    else:
        values, vectors = eigsh(wide, k=asked, v0=np.ones(width))  # v0: a random start would give other bytes each time
    outside = values[0] if asked > rank else 0.0
    basis = _settled(vectors[:, -rank:])
    return PrincipalSpace(basis, max(outside, NOISE * values[-1]), basis.T @ wide @ basis)


def sketched_space(sketch: Float[np.ndarray, "w m"], directions: Float[np.ndarray, "w m"], rank: int) -> PrincipalSpace:
    """Return the principal space of a covariance C from Y = C Ω (*sketch*) and Ω (*directions*, more than *rank*).

    C is approximated by Y (Ωᵀ Y)⁺ Yᵀ (Nyström; Tropp et al. 2017, fixed-rank approximation from streaming data).
    """
    wide, drawn = sketch.astype(np.float64), directions.astype(np.float64)
    if not wide.any():
        return PrincipalSpace(np.eye(len(wide), rank), 0.0, np.zeros((rank, rank)))
    core = drawn.T @ wide
    values, vectors = linalg.eigh((core + core.T) / 2)
    real = values > NOISE * values[-1]  # smaller ones are rounding of sums in float32
    half = wide @ (vectors[:, real] / np.sqrt(values[real]))  # C is half halfᵀ
    values, vectors = linalg.eigh(half.T @ half)
    kept = values[-rank:] > NOISE * values[-1]
    found = half @ (vectors[:, -rank:][:, kept] / np.sqrt(values[-rank:][kept]))
    if found.shape[1] < rank:  # any further directions do: C is 0 there
        found = linalg.qr(np.concatenate([found, drawn[:, : rank - found.shape[1]]], axis=1), mode="economic")[0]
    basis, outside = _settled(found), values[-rank - 1] if len(values) > rank else 0.0
    turned = basis.T @ half
    return PrincipalSpace(basis, max(outside, NOISE * values[-1]), turned @ turned.T)


def _settled(directions: Float64[np.ndarray, "w r"]) -> Float64[np.ndarray, "w r"]:
    """Return the orthonormal basis of the same space that is nearest to a fixed random one."""
    nearest = stream(0, "directions", *directions.shape).standard_normal(directions.shape)
    one, _, other = linalg.svd(directions.T @ nearest)
    return directions @ (one @ other)


def fading(eigenvalues: Float64[np.ndarray, " r"], cut: float) -> Float64[np.ndarray, " r"]:
    """Return the share of each direction that is kept: 0 at the cut, 1 slightly above it.

    For eigenvalues near the cut, rounding decides which direction is inside, so none of them may count fully.
    """
    return ((eigenvalues - cut) / (BORDER * cut)).clip(0, 1) if cut else np.ones(len(eigenvalues))


@dataclass(frozen=True, eq=False)
class Kronecker:
    """Curvature H = c · S ⊗ A of one linear map, decomposed: A = Q_a diag(λ_a) Q_aᵀ, S = Q_s diag(λ_s) Q_sᵀ.

    A is the mean over tokens of a aᵀ (inputs), S that of g gᵀ (output gradients of each example's own loss), and c
    the mean number of tokens of an example. So H is the Fisher matrix of one example's gradient Σ_t g_t a_tᵀ, where
    tokens, inputs and output gradients are taken as independent of each other (K-FAC).
    """

    inward: Float[np.ndarray, "i i"]
    """Q_a."""
    outward: Float[np.ndarray, "o o"]
    """Q_s."""
    eigenvalues: Float[np.ndarray, "o i"]
    """c λ_s λ_aᵀ, at least 0."""
    shares: Float[np.ndarray, "o i"]
    """The share of a gradient that is kept along each pair of directions."""

    @classmethod
    def of(cls, inputs: Matrix, outputs: Matrix, tokens: float, cuts: tuple[float, float] = (0.0, 0.0)) -> Self:
        """Decompose the factors A, ``(i, i)``, and S, ``(o, o)``; *tokens* is c, and directions fade at the *cuts*."""
        of_inputs, inward = linalg.eigh(inputs.astype(np.float64))
        of_outputs, outward = linalg.eigh(outputs.astype(np.float64))
        shares = np.outer(fading(of_outputs, cuts[1]), fading(of_inputs, cuts[0]))
        return cls(inward, outward, tokens * np.outer(of_outputs.clip(min=0), of_inputs.clip(min=0)), shares)

    def factor(self, damping: float, exponent: float = 1.0) -> Float64[np.ndarray, "o i"]:
        """Return the factor of a gradient along each pair of eigenvectors; errors as for :meth:`whiten`."""
        return self.shares / damped(self.eigenvalues, damping) ** (exponent / 2)

    def whiten(
        self, gradients: Float[np.ndarray, "n o i"], damping: float, exponent: float = 1.0
    ) -> Float[np.ndarray, "n o i"]:
        """Multiply each gradient by (H + λI)^(-p/2); the result is in the eigenbasis, where inner products are equal.

        λ is *damping* times the mean eigenvalue, p the *exponent*. TrainingError: the curvature is zero, or has zeros
        and no damping.
        """
        rotated = np.matmul(self.outward.T, np.matmul(gradients, self.inward))
        return rotated * self.factor(damping, exponent)


def damped(eigenvalues: np.ndarray, damping: float) -> np.ndarray:
    """Return eigenvalues plus *damping* times their mean.

    TrainingError: a result is not finite, or so small that it may be rounding.
    """
    found: np.ndarray = eigenvalues + damping * eigenvalues.mean()
    noise = found.size * np.finfo(np.float64).eps * np.abs(found).max(initial=0.0)  # of a decomposition in float64
    if not np.isfinite(found).all() or found.min() <= noise:
        raise no_inverse()
    return found


def no_inverse() -> TrainingError:
    """Return the error for curvature that is zero in a direction, or not finite."""
    return TrainingError(
        "curvature: is zero, singular or not finite, so it cannot be inverted. Raise damping, give more examples, or "
        "remove modules that have no gradients."
    )


def unit(rows: Float[np.ndarray, "n d"], of: Float[np.ndarray, "n d"] | None = None) -> Float[np.ndarray, "n d"]:
    """Scale each row to length 1; rows of zeros, and rows that are not finite, become zeros.

    With *of*, rows of parts of examples are divided by the lengths of the whole examples' rows.

    Unlike :func:`airrep.arrays.unit_rows`, in float64: squares of small gradients may underflow.
    """
    of = rows if of is None else of
    good = np.isfinite(rows).all(axis=1) & np.isfinite(of).all(axis=1) & of.any(axis=1)
    largest = np.where(good, np.abs(of).max(axis=1, initial=0.0), 1.0).astype(np.float64)[:, None]
    # divided by the largest number first, so that no square underflows
    lengths = np.linalg.norm(np.where(good[:, None], of, 1.0) / largest, axis=1, keepdims=True)
    return np.where(good[:, None], rows, 0.0) / largest / lengths


def inverse_lengths(rows: Float[np.ndarray, "n d"], scaled: bool = True) -> Float64[np.ndarray, " n"]:
    """Return the factors by which :func:`unit` scales rows, 0 for rows that become zeros; ones if not *scaled*."""
    if not scaled:
        return np.ones(len(rows))
    finite = np.isfinite(rows).all(axis=1)
    lengths = np.linalg.norm(np.where(finite[:, None], rows, 0.0).astype(np.float64), axis=1)
    return np.divide(1.0, lengths, out=np.zeros(len(rows)), where=lengths > 0)

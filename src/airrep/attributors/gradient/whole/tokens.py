"""Products of whole gradients token by token, with EK-FAC curvature between them."""

from collections.abc import Mapping

import torch
from torch import Tensor

from airrep.attributors.gradient.reading import Site
from airrep.attributors.gradient.tokens import NUMBERS, SiteTokens, between, in_document
from airrep.attributors.gradient.whole.factors import Factors, HeldGradients
from airrep.shapes import Float


class Curved:
    """Multiplies tokens of a query and others in the eigenbasis of the curvature, with (Λ + λ)⁻ᵖ between them.

    Where queries are held as factors of a low rank, L Rᵀ = B Bᵀ H⁻ᵖ G for orthonormal B, the columns of L at length 1:
    linear in G, so that each token has its part of these factors.

    Args:
        factors: curvature by the name of the linear map's pool.
        inverse: its inverse power in the eigenbasis, likewise.
        held: the query's gradient, as scores have it.
    """

    def __init__(self, factors: Mapping[str, Factors], inverse: Mapping[str, Tensor], held: HeldGradients) -> None:
        self._factors, self._inverse, self._held = factors, inverse, held
        self._count = 0
        self._tokens: Mapping[str, SiteTokens] = {}

    def inputs(self, site: Site, inputs: Float[Tensor, "t i"], /) -> Tensor:
        """Turn the inputs into the basis."""
        return inputs @ self._factors[site.pool].inward.to(inputs)

    def gradients(self, site: Site, gradients: Float[Tensor, "t o"], /) -> Tensor:
        """Turn the gradients into the basis."""
        return gradients @ self._factors[site.pool].outward.to(gradients)

    def hold(self, query: Mapping[str, SiteTokens], count: int, /) -> None:
        """Hold the tokens."""
        self._tokens, self._count = query, count

    def products(self, site: Site, inputs: Tensor, gradients: Tensor, /) -> Float[Tensor, "count t"]:
        """Σ_oi g_o a_i (Λ + λ)⁻ᵖ_oi g'_o a'_i of all pairs."""
        own, held = self._tokens[site.name], self._held.sites[site.name]
        inverse = self._inverse[site.pool].to(inputs)
        if len(held) == 2:
            left = self._factors[site.pool].outward.to(inputs).T @ held[0].to(inputs)
            lengths = left.norm(dim=0)
            basis = left / torch.where(lengths > 0, lengths, 1.0)
            found = _through(basis, inverse, own, inputs, gradients)
        elif inverse.shape[0] <= inverse.shape[1]:
            found = _whole(inverse, own.inputs, own.gradients, inputs, gradients)
        else:  # the longer side is multiplied first
            found = _whole(inverse.T, own.gradients, own.inputs, gradients, inputs)
        return in_document(found, own.tokens, self._count)


def _whole(
    inverse: Float[Tensor, "o i"],
    own_inputs: Float[Tensor, "q i"],
    own_gradients: Float[Tensor, "q o"],
    inputs: Float[Tensor, "t i"],
    gradients: Float[Tensor, "t o"],
) -> Float[Tensor, "q t"]:
    """Σ_oi g_o a_i C_oi g'_o a'_i."""
    step = max(1, NUMBERS // (len(inverse) * max(inverse.shape[1], len(inputs))))
    each = zip(own_gradients.split(step), own_inputs.split(step), strict=True)
    parts = [between(g[:, :, None] * inverse * a[:, None, :], inputs, gradients) for g, a in each]
    return torch.cat(parts) if parts else inverse.new_zeros(0, len(inputs))


def _through(
    basis: Float[Tensor, "o r"],
    inverse: Float[Tensor, "o i"],
    own: SiteTokens,
    inputs: Float[Tensor, "t i"],
    gradients: Float[Tensor, "t o"],
) -> Float[Tensor, "q t"]:
    """The same behind B Bᵀ, which is on the side of the outputs."""
    known = basis.T @ gradients.T
    step = max(1, NUMBERS // (basis.shape[1] * max(*inverse.shape, len(inputs))))
    parts = []
    for some_gradients, some_inputs in zip(own.gradients.split(step), own.inputs.split(step), strict=True):
        solved = ((some_gradients[:, None, :] * basis.T) @ inverse) * some_inputs[:, None, :]
        parts.append(torch.einsum("qrt,rt->qt", solved @ inputs.T, known))
    return torch.cat(parts) if parts else inverse.new_zeros(0, len(inputs))

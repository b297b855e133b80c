"""One step of AdamW, forward and back."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from airrep.lm.settings import FineTuneSettings

NORM_EPSILON = 1e-6
"""What torch adds to the norm of the gradients before it divides by it."""


class AdamState(NamedTuple):
    """Weights between two steps, and Adam's moments of them; each a tensor a parameter, all of one shape."""

    weights: list[Tensor]
    first: list[Tensor]
    second: list[Tensor]

    @classmethod
    def zeros(cls, weights: Sequence[Tensor]) -> "AdamState":
        """A state of zeros of the weights' shapes."""
        return cls(*([torch.zeros_like(each) for each in weights] for _ in range(3)))


class AdamStep(NamedTuple):
    """What decides one step beside the gradients."""

    settings: FineTuneSettings
    number: int
    """Counted from 0."""
    rate: float

    @property
    def _corrections(self) -> tuple[float, float]:
        """1 − β₁ᵗ and 1 − β₂ᵗ, by which moments are divided."""
        one, two = (1 - beta ** (self.number + 1) for beta in self.settings.betas)
        return one, two

    def _clipped(self, gradients: Sequence[Tensor]) -> tuple[float, float]:
        """The norm of all gradients together, and what they are multiplied by."""
        norm = float(torch.stack([each.norm() for each in gradients]).norm())
        most = self.settings.clip
        return norm, 1.0 if most is None else min(1.0, most / (norm + NORM_EPSILON))

    def forward(self, state: AdamState, gradients: Sequence[Tensor]) -> None:
        """Take the step, in place, as :class:`torch.optim.AdamW` does after ``clip_grad_norm_``."""
        chosen, (one, two) = self.settings, self._corrections
        _, scale = self._clipped(gradients)
        for weight, first, second, gradient in zip(*state, gradients, strict=True):
            scaled = gradient * scale
            weight.mul_(1 - self.rate * chosen.weight_decay)
            first.lerp_(scaled, 1 - chosen.betas[0])
            second.mul_(chosen.betas[1]).addcmul_(scaled, scaled, value=1 - chosen.betas[1])
            weight.addcdiv_(first, (second / two).sqrt_().add_(chosen.epsilon), value=-self.rate / one)

    def back(self, adjoint: AdamState, before: AdamState, gradients: Sequence[Tensor]) -> list[Tensor]:
        """Carry an adjoint back over the step: from ∂L/∂(state behind it) to ∂L/∂(state before it), in place.

        Returns λ = ∂L/∂g of the gradients g, through which the weights also act: what is left to add to the weights'
        part is λᵀ ∂g/∂θ. A weight whose gradients were all zero does not move, and hands nothing on.
        """
        chosen, (one, two) = self.settings, self._corrections
        (beta, gamma), (norm, scale) = chosen.betas, self._clipped(gradients)
        found: list[Tensor] = []
        for moved, first, second, m, v, gradient in zip(*adjoint, *before[1:], gradients, strict=True):
            scaled = gradient * scale
            m = m.lerp(scaled, 1 - beta)
            root = (v * gamma).addcmul_(scaled, scaled, value=1 - gamma).div_(two).sqrt_()
            under = root + chosen.epsilon
            step = moved * (self.rate / one)
            first.sub_(step / under)
            by_root = step * m / (under * under) / (2 * two * root)
            second.add_(torch.where(root > 0, by_root, 0.0))
            found.append(first * (1 - beta) + second * scaled * (2 * (1 - gamma)))
            first.mul_(beta)
            second.mul_(gamma)
            moved.mul_(1 - self.rate * chosen.weight_decay)
        return self._through_clip(found, gradients, norm, scale)

    def _through_clip(
        self, found: list[Tensor], gradients: Sequence[Tensor], norm: float, scale: float
    ) -> list[Tensor]:
        """From ∂L/∂(scaled gradients) to ∂L/∂(gradients): g c / (|g| + ε) also turns with |g|."""
        if scale == 1.0:
            return found
        along = float(torch.stack([(one * g).sum() for one, g in zip(found, gradients, strict=True)]).sum())
        share = along * scale / (norm * (norm + NORM_EPSILON))
        return [one * scale - g * share for one, g in zip(found, gradients, strict=True)]

"""The sum of given group scores and the encoder's, with weights that learn."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from airrep.arrays import GroupScores
from airrep.shapes import Float

NAME = "beside."
"""Begins the names of weights of channels among all weights that learn."""
LOG_WEIGHTS = f"{NAME}log_weights"
"""Name of the one such parameter."""


class Mixture(nn.Module):
    """f(x, S) = Σ_c w_c G_c(x, S) + w g(x, S), where g pools the encoder's scores and all weights are above 0.

    Args:
        weights: ``(c + 1,)`` weights of the given channels, then the encoder's.
    """

    def __init__(self, weights: Sequence[float]) -> None:
        super().__init__()
        # Logarithms, so that steps are relative and no weight falls to 0 or below.
        self.log_weights = nn.Parameter(torch.tensor(weights, dtype=torch.float64).log().float())

    def forward(self, encoder: Float[Tensor, "q m"], given: Float[Tensor, "c q m"]) -> Float[Tensor, "q m"]:
        """Group scores of the sum, from the encoder's and the given ones."""
        weights = self.log_weights.to(encoder).exp()
        mixed: Tensor = torch.tensordot(weights[:-1], given.to(encoder), dims=1) + weights[-1] * encoder
        return mixed

    @torch.no_grad()
    def scores(self, encoder: GroupScores, given: np.ndarray) -> GroupScores:
        """The same of arrays, on the CPU."""
        mixed: GroupScores = sum_given(self.weights()[:-1], given) + np.float32(self.weights()[-1]) * encoder
        return mixed

    def weights(self) -> list[float]:
        """The weights as they are now: of the channels, then of the encoder."""
        return weights_of(self.log_weights)


def weights_of(log_weights: Tensor) -> list[float]:
    """Weights from the parameter."""
    found: list[float] = log_weights.detach().double().exp().tolist()
    return found


def sum_given(weights: Sequence[float], given: np.ndarray) -> GroupScores:
    """Σ_c w_c G_c, ``(q, m)`` float32, from group scores ``(c, q, m)``."""
    summed: GroupScores = np.tensordot(np.array(weights, np.float64), given, axes=1).astype(np.float32)
    return summed

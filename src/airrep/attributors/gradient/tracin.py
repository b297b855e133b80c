"""Attribution by inner products of gradients: TracIn."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from airrep.arrays import DenseFeatures
from airrep.attributors.base import OnRows
from airrep.attributors.gradient.base import CheckpointAttributor
from airrep.attributors.gradient.curvature import unit
from airrep.attributors.gradient.store import by_chunks
from airrep.attributors.settings import TracinSettings
from airrep.corpus.corpus import Example
from airrep.runtime.artifacts import digest


class TracinAttributor(CheckpointAttributor[TracinSettings]):
    """φ(z) = ∇ℓ(z) / |∇ℓ(z)|, projected, at the final weights of a warmed-up LM.

    With several checkpoints t the score is Σ_t η_t ⟨φ_t(x), φ_t(z)⟩, where η_t is the learning rate there (Eq. 1 of
    the TracIn paper, with unit gradients).
    """

    name = "tracin"

    @property
    def fingerprint(self) -> str:
        weights = [[each.name, each.rate] for each in self.weights]
        return digest({"method": self.name, **self.recipe, "weights": weights, "unit": self.settings.unit})

    def encode_train(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> DenseFeatures:
        dimension = self.dimension * len(self.weights)
        return by_chunks(examples, dimension, dimension, lambda part: self._features(part, on_rows))

    def _features(self, examples: Sequence[Example], on_rows: OnRows | None) -> Float[np.ndarray, "n d"]:
        parts = []
        for number, weights in enumerate(self.weights):
            rows = self.gradients(examples, weights, on_rows if number == len(self.weights) - 1 else None).rows
            parts.append((unit(rows) if self.settings.unit else rows) * np.sqrt(weights.rate))
        return np.concatenate(parts, axis=1)

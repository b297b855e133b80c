"""Attribution by the gradient of an LM's output layer, from one forward pass."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch

from airrep.arrays import DenseFeatures
from airrep.attributors.base import OnRows
from airrep.attributors.language import LanguageAttributor
from airrep.attributors.settings import ReadoutSettings
from airrep.corpus.corpus import Example
from airrep.errors import ConfigError
from airrep.runtime.artifacts import json_digest
from airrep.runtime.seeding import stream

WINDOW = 1024
"""Examples that are sorted by length together; bounds the memory beside the result."""


class ReadoutAttributor(LanguageAttributor[ReadoutSettings]):
    """φ(z) = Σ_t Pᵀ(p_t − y_t) (h_tᵀ Q) over response tokens t, with random P and Q; by default scaled to length 1.

    p_t are the LM's chances of the next token, y_t is the true one and h_t what the output layer reads, so that
    (p_t − y_t) h_tᵀ is the loss's gradient by the output layer's weights. No backward pass is needed.
    """

    name = "readout"

    @cached_property
    def fingerprint(self) -> str:
        chosen = self._settings
        own = {name: getattr(chosen, name) for name in ("rank", "unit", "reduction", "seed")}
        return json_digest({"method": self.name, "lm": self.lm.fingerprint, **own})

    @cached_property
    def _matrices(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Gaussian P and Q with variance 1/rank, so that inner products are kept in expectation."""
        layer = self.lm.model.get_output_embeddings()
        if layer is None:
            raise ConfigError(f"lm {self.lm.name}: has no output layer. Use another method.")
        tokens, width = layer.weight.shape
        rank = self._settings.rank
        if rank > min(tokens, width):
            raise ConfigError(
                f"rank={rank}: the output layer of {self.lm.name} maps {width} to {tokens} numbers; expected at most "
                f"{min(tokens, width)}. Lower rank."
            )
        drawn = (stream(self._settings.seed, "readout", side) for side in ("errors", "states"))
        made = [
            torch.from_numpy((own.standard_normal((size, rank)) / np.sqrt(rank)).astype(np.float32))
            for own, size in zip(drawn, (tokens, width), strict=True)
        ]
        return made[0], made[1]

    def encode_train(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> DenseFeatures:
        """The projected gradient of each example, ``(rows, rank²)``; zeros where it is not finite.

        Raises:
            ConfigError: the LM cannot be had, has no output layer, or one that is smaller than the rank.
            DataError: a response is empty, or too long by itself.
            TrainingError: memory is short.
        """
        found = np.zeros((len(examples), self._settings.rank**2), np.float32)
        for first in range(0, len(examples), WINDOW):
            documents = self.lm.tokenise(examples[first : first + WINDOW])
            rows = self.lm.readouts(documents, *self._matrices).astype(np.float64)
            if self._settings.reduction == "mean":
                rows /= documents.response_lengths[:, None]
            rows[~np.isfinite(rows).all(axis=1)] = 0.0
            if self._settings.unit:
                lengths = np.linalg.norm(rows, axis=1, keepdims=True)
                rows = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
            found[first : first + WINDOW] = rows
            if on_rows is not None:
                on_rows(len(rows))
        return found

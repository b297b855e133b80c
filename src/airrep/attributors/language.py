"""Attribution by one forward pass of a language model: RDS, readout."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, TypeVar

import numpy as np

from airrep.arrays import DenseFeatures
from airrep.attributors.base import MethodAttributor, OnRows
from airrep.attributors.settings import RdsSettings, ReadoutSettings
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ConfigError
from airrep.lm.settings import LmSettings
from airrep.runtime.artifacts.digests import json_digest
from airrep.runtime.seeding import stream
from airrep.scoring.pooling import Pool

if TYPE_CHECKING:
    from torch import Tensor

    from airrep.lm.model import TargetLM

_WINDOW = 1024
"""Examples that are sorted by length together; bounds the memory beside the result."""

S = TypeVar("S", bound=LmSettings)


class LanguageAttributor(MethodAttributor[S]):
    """A method that reads a language model; ConfigError for ``checkpointing``, which none of them uses."""

    pool: ClassVar[Pool] = "sum"

    def __init__(self, settings: S) -> None:
        if settings.checkpointing:
            raise ConfigError(f"{self.name}: checkpointing=true saves nothing here. Lower batch_tokens instead.")
        super().__init__(settings)

    @cached_property
    def lm(self) -> "TargetLM":
        """The language model, loaded when it is first needed."""
        from airrep.lm.model import shared_lm

        return shared_lm(self._settings)

    @property
    def execution(self) -> Mapping[str, str]:
        return {"precision": self.lm.execution.precision}

    def unusable(self, examples: Sequence[Example]) -> Mapping[int, str]:
        return self.lm.unusable(examples)

    def rendering(self, examples: Iterable[Example]) -> Mapping[str, str]:
        return self.lm.rendering(examples)

    def fit(self, train: Corpus) -> None:
        """Check that the LM can read every example; DataError if it cannot."""
        self.lm.check_readable(train, self.name)


class RdsAttributor(LanguageAttributor[RdsSettings]):
    """Inner products of an LM's hidden states, averaged over an example's tokens: φ(z) = (1/T) Σ_t h_t(z).

    Prompt and response are read as one text, as in fine-tuning. The paper's baseline RDS is the last layer, its
    mean, and the sum over a group.
    """

    name = "rds"

    @cached_property
    def fingerprint(self) -> str:
        chosen = self._settings
        parts = {"lm": self.lm.fingerprint, "layer": chosen.layer, "tokens": chosen.tokens}
        return json_digest({"method": self.name, **parts})

    def encode_train(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> DenseFeatures:
        """Hidden states of each example, ``(rows, d)``.

        Raises:
            ConfigError: the LM cannot be had, or has no such layer.
            DataError: a response is empty, or too long by itself.
        """
        windows = [examples[start : start + _WINDOW] for start in range(0, len(examples), _WINDOW)] or [examples]
        parts = []
        for window in windows:
            documents = self.lm.tokenise(window)
            parts.append(self.lm.hidden_states(documents, self._settings.layer, self._settings.tokens))
            if on_rows is not None and len(window):
                on_rows(len(window))
        return np.concatenate(parts)


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
    def _matrices(self) -> "tuple[Tensor, Tensor]":
        """Gaussian P and Q with variance 1/rank, so that inner products are kept in expectation."""
        import torch

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
        for first in range(0, len(examples), _WINDOW):
            documents = self.lm.tokenise(examples[first : first + _WINDOW])
            rows = self.lm.readouts(documents, *self._matrices).astype(np.float64)
            if self._settings.reduction == "mean":
                rows /= documents.response_lengths[:, None]
            rows[~np.isfinite(rows).all(axis=1)] = 0.0
            if self._settings.unit:
                lengths = np.linalg.norm(rows, axis=1, keepdims=True)
                rows = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
            found[first : first + _WINDOW] = rows
            if on_rows is not None:
                on_rows(len(rows))
        return found

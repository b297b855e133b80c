"""Attribution by the hidden states of a language model."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from airrep.arrays import DenseFeatures
from airrep.attributors.base import OnRows
from airrep.attributors.language import LanguageAttributor
from airrep.attributors.settings import RdsSettings
from airrep.corpus.corpus import Example
from airrep.runtime.artifacts import digest

_WINDOW = 1024
"""Examples that are sorted by length together; bounds the memory beside the result."""


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
        return digest({"method": self.name, **parts})

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

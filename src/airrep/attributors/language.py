"""Attribution by one forward pass of a language model: RDS."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from airrep.arrays import DenseFeatures
from airrep.attributors.base import MethodAttributor, OnRows
from airrep.attributors.settings import RdsSettings
from airrep.corpus.corpus import Corpus, Example
from airrep.corpus.views import chosen_sides
from airrep.errors import ConfigError
from airrep.lm.documents import factors_of
from airrep.lm.settings import LmSettings
from airrep.runtime.artifacts import json_digest
from airrep.scoring.pooling import Pool
from airrep.shapes import Float32, Float64

if TYPE_CHECKING:
    from airrep.lm.model import TargetLM

HEARD = 2**27
"""Most bytes of losses that are remembered for each LM."""
_WINDOW = 1024
"""Examples that are sorted by length together, which limits the memory beside the result."""

S = TypeVar("S", bound=LmSettings)


class HeardLosses:
    """Losses of response tokens, in nats, that came with gradients, so that another channel need not read them again.

    The latest losses of an example count, from the store or as computed with the other examples of its shard. So
    results do not depend on what was read earlier.
    """

    def __init__(self) -> None:
        self._known: dict[str, Float32[np.ndarray, " r"]] = {}
        self._bytes = 0

    def note(self, key: str, losses: Float32[np.ndarray, " r"]) -> None:
        """Remember the losses of an example by its key; forget the oldest beyond :data:`HEARD` bytes."""
        self._bytes += losses.nbytes - self._drop(key)
        self._known[key] = losses
        while self._bytes > HEARD:
            self._bytes -= self._drop(next(iter(self._known)))

    def _drop(self, key: str) -> int:
        known = self._known.pop(key, None)
        return 0 if known is None else known.nbytes

    def of(self, keys: Sequence[str]) -> list[Float32[np.ndarray, " r"]] | None:
        """Return the losses of some examples; None unless all are known."""
        return [self._known[key] for key in keys] if all(key in self._known for key in keys) else None


def heard_losses(lm: "TargetLM") -> HeardLosses:
    """Return the losses that are remembered for an LM object."""
    return _heard.setdefault(lm, HeardLosses())


_heard: "WeakKeyDictionary[TargetLM, HeardLosses]" = WeakKeyDictionary()


class LanguageAttributor(MethodAttributor[S]):
    """A method that reads a language model; it refuses ``checkpointing``, which would save nothing (ConfigError)."""

    pool: ClassVar[Pool] = "sum"

    def __init__(self, settings: S) -> None:
        if settings.checkpointing:
            raise ConfigError(f"{self.name}: checkpointing=true saves no memory here. Lower batch_tokens instead.")
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
        return self.lm.unusable(examples if self.reads_pairs else chosen_sides(examples))

    def factors(self, examples: Sequence[Example]) -> Float64[np.ndarray, " rows"] | None:
        loss = self._settings.loss
        if loss == "sft":
            return None
        self.lm.check_learnable(examples, self.name)
        signed = loss == "kto" and not self.reads_pairs  # gradients of the KTO loss have the sign already
        return factors_of(examples, loss) if loss == "weighted" or signed else None

    def rendering(self, examples: Iterable[Example]) -> Mapping[str, str]:
        return self.lm.rendering(examples)

    def fit(self, train: Corpus) -> None:
        """Check that the LM can read every example; DataError if it cannot, ConfigError if memory is too small."""
        if self.reads_pairs:
            self.lm.check_learnable(train, self.name)
        self.lm.check_readable(train, self.name)
        self.lm.keep_promise(train, self.square, self.kept)

    @property
    def square(self) -> int:
        """Numbers of the largest pair of covariances that it decomposes; 0 for most methods."""
        return 0

    @property
    def kept(self) -> int:
        """Bytes that it holds in memory for all linear maps while examples are read; 0 for most methods."""
        return 0


class RdsAttributor(LanguageAttributor[RdsSettings]):
    """Inner products of an LM's hidden states, averaged over an example's tokens: φ(z) = (1/T) Σ_t h_t(z).

    Prompt and response are read as one text, as in fine-tuning. With ``tokens=last``, φ is the last token's state. The
    paper's baseline RDS takes the mean of the last layer, and sums over a group: the defaults.
    """

    name = "rds"

    @cached_property
    def fingerprint(self) -> str:
        chosen = self._settings
        parts = {"lm": self.lm.fingerprint, "layer": chosen.layer, "tokens": chosen.tokens}
        return json_digest({"method": self.name, **parts})

    def encode_train(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> DenseFeatures:
        """Hidden states of each example, ``(rows, d)``.

        ConfigError: the LM cannot be loaded, or has no such layer. DataError: a response is empty, or alone longer than
        the LM can read.
        """
        windows = [examples[start : start + _WINDOW] for start in range(0, len(examples), _WINDOW)] or [examples]
        parts = []
        for window in windows:
            documents = self.lm.tokenise(window)
            parts.append(self.lm.hidden_states(documents, self._settings.layer, self._settings.tokens))
            if on_rows is not None and len(window):
                on_rows(len(window))
        return np.concatenate(parts)

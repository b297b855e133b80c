"""What methods that read a language model share."""

from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar, Generic, TypeVar

from airrep.attributors.base import Attributor
from airrep.corpus.corpus import Corpus
from airrep.errors import ConfigError, DataError
from airrep.lm.model import TargetLM, load_lm
from airrep.lm.settings import LmSettings
from airrep.scoring.pooling import Pool

S = TypeVar("S", bound=LmSettings)


class LanguageAttributor(Attributor, Generic[S]):
    """A method that reads a language model.

    Raises:
        ConfigError: activations are to be recomputed, which no such method does.
    """

    pool: ClassVar[Pool] = "sum"

    def __init__(self, settings: S) -> None:
        if settings.checkpointing:
            raise ConfigError(f"{self.name}: checkpointing=true saves nothing here. Lower batch_tokens instead.")
        self._settings = settings

    @property
    def settings(self) -> S:
        return self._settings

    @cached_property
    def lm(self) -> TargetLM:
        """The language model, loaded when it is first needed."""
        return load_lm(self._settings)

    @property
    def execution(self) -> Mapping[str, str]:
        return {"precision": self.lm.execution.precision}

    def fit(self, train: Corpus) -> None:
        """Check that the LM can read every example.

        Raises:
            DataError: it cannot.
        """
        refused = self.lm.unusable(train)
        if refused:
            row = min(refused)
            raise DataError(
                f"{self.name}: {len(refused):,} of {len(train):,} examples cannot be read by the LM; the first, "
                f"'{train[row].id}': {refused[row]}"
            )

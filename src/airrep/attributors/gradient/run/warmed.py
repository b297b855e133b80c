"""Base class of methods that read what `airrep warmup` wrote."""

from functools import cached_property
from pathlib import Path
from typing import ClassVar, TypeVar

from airrep.attributors.language import LanguageAttributor
from airrep.errors import ConfigError
from airrep.lm.files import recorded_reading
from airrep.lm.folders.forms import find_lm
from airrep.lm.model import TargetLM, load_lm
from airrep.lm.settings import LmSettings
from airrep.lm.warmup import Warmup, open_warmup

S = TypeVar("S", bound=LmSettings)


class ReadsWarmup(LanguageAttributor[S]):
    """A method whose ``lm`` is a warm-up, and which also reads the LM that the warm-up began from."""

    wanted: ClassVar[str] = ""
    """End of the error for an unsuitable ``lm``: what is missing, and the command that makes a warm-up."""

    @cached_property
    def warmup(self) -> Warmup:
        """The warm-up (ConfigError: ``lm`` is not a warm-up, or lacks what the method reads)."""
        path = Path(self._settings.lm)
        warmup = open_warmup(path if path.is_dir() else find_lm(self._settings.lm).folder)
        if warmup is None or not self.suits(warmup):
            raise ConfigError(f"{self.name}: lm {self._settings.lm} {self.wanted}")
        return warmup

    def suits(self, warmup: Warmup) -> bool:  # noqa: ARG002 - a method may need more
        """Return whether a warm-up has what the method reads."""
        return True

    @cached_property
    def lm(self) -> TargetLM:
        """The LM that the warm-up began from, after :meth:`prepare`; loaded when it is first needed.

        ConfigError: the LM is gone or has changed, or :meth:`prepare` fails.
        """
        lm = load_lm(self._base)
        if lm.files.digest(lm.settings.trust_remote_code) != self.warmup.base["files"]:
            raise ConfigError(
                f"{self.name}: {lm.name} is not the LM that {self.warmup.path} was fine-tuned from. Name that LM: "
                "--set base=MODEL"
            )
        self.prepare(lm)
        return lm

    def prepare(self, lm: TargetLM) -> None:
        """Change the loaded LM into the one that the method reads; by default, nothing."""

    @property
    def _base(self) -> LmSettings:
        """Settings of the LM that the warm-up began from; settings that are not given are those of the warm-up."""
        own = self._settings.model_dump(include=set(LmSettings.model_fields) - {"lm", "base", "merged"})
        asked = {name: value for name, value in own.items() if value is not None}
        name = self._settings.base or self.warmup.base["name"]
        if Path(name).is_absolute() and not Path(name).is_dir():
            raise ConfigError(
                f"{self.name}: {self.warmup.path} was fine-tuned from {name}, which no longer exists. Set its new "
                "folder: --set base=MODEL"
            )
        return LmSettings.of(
            {**recorded_reading(self.warmup.path), **asked, "lm": name, "merged": self.warmup.base.get("merged")}
        )

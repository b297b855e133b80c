"""Methods that read a warm-up of airrep."""

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
    """A method whose ``lm`` is a warm-up, and which reads the LM that the warm-up began from."""

    wanted: ClassVar[str] = ""
    """Requirements of the warm-up, and the command that makes it, for an error."""

    @cached_property
    def warmup(self) -> Warmup:
        """The warm-up (ConfigError: the LM is none, or it lacks what is read)."""
        path = Path(self._settings.lm)
        warmup = open_warmup(path if path.is_dir() else find_lm(self._settings.lm).folder)
        if warmup is None or not self.suits(warmup):
            raise ConfigError(f"{self.name}: lm {self._settings.lm} {self.wanted}")
        return warmup

    def suits(self, warmup: Warmup) -> bool:  # noqa: ARG002 - a method may ask for more
        """Tell whether a warm-up has what is read."""
        return True

    @cached_property
    def lm(self) -> TargetLM:
        """The LM that the warm-up began from, prepared; it is loaded when it is first needed.

        Raises:
            ConfigError: it is gone or another one now, or as :meth:`prepare`.
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
        """Make of the LM what is read."""

    @property
    def _base(self) -> LmSettings:
        """Settings of that LM, which reads as the warm-up did where nothing else is asked for."""
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

"""Every exception that airrep raises on purpose.

::

    AirRepError
    ├── ConfigError (ValueError)         a setting, flag or argument that cannot hold
    ├── DataError (ValueError)           a record, file or text that cannot be used
    ├── ArtifactError (OSError)          a directory that airrep wrote, or should write, is not as it must be
    ├── NotFittedError (RuntimeError)    an attributor was asked before it had seen the training corpus
    ├── TrainingError (ArithmeticError)  a fine-tune or a training run cannot continue
    └── MissingExtraError (ImportError)  an optional dependency is not installed

Messages are one line: *where: what is wrong; what is expected. What to do.*
"""


class AirRepError(Exception):
    """Base of every exception that airrep raises on purpose."""


class ConfigError(AirRepError, ValueError):
    """A setting, flag or argument that cannot hold."""


class DataError(AirRepError, ValueError):
    """A record, file or text that cannot be used."""


class ArtifactError(AirRepError, OSError):
    """A directory that airrep wrote, or should write, is not as it must be."""


class NotFittedError(AirRepError, RuntimeError):
    """An attributor was asked for features before it had seen the training corpus."""


class TrainingError(AirRepError, ArithmeticError):
    """A fine-tune or a training run cannot continue: its loss is not finite, or memory is short."""


class MissingExtraError(AirRepError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature}: needs an optional dependency. Install it with: pip install 'airrep[{extra}]'")

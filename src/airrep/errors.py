"""Every exception that airrep raises on purpose.

::

    AirRepError
    ├── ConfigError (ValueError)         a setting, flag or argument is not valid
    │   └── UnknownSettingError          a setting does not exist
    ├── DataError (ValueError)           a record, file or text cannot be used
    ├── ArtifactError (OSError)          a directory of airrep is missing, altered, unfinished or in the way
    ├── NotFittedError (RuntimeError)    an attributor was used before it had seen the training corpus
    ├── TrainingError (ArithmeticError)  a fine-tune or a training run cannot continue
    └── MissingExtraError (ImportError)  an optional dependency is not installed, or cannot be used

Each message is one line that says where, what is wrong, and what to do.
"""

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from logging import Logger
from pathlib import Path

__all__ = [
    "AirRepError",
    "ArtifactError",
    "ConfigError",
    "DataError",
    "MissingExtraError",
    "NotFittedError",
    "TrainingError",
]

_TOLD: set[str] = set()
"""Warnings already given in this process."""
BESIDE = 1000
"""Most files of a folder whose names are compared with a missing file's name."""
NAMED = 8
"""Most names that an error lists."""

LM = ("torch", "transformers", "scipy")
"""Modules that every language model needs."""


class AirRepError(Exception):
    """Base of every exception that airrep raises on purpose.

    Example:
        >>> try:
        ...     airrep.read_corpus("nowhere.jsonl")
        ... except airrep.AirRepError as error:
        ...     print(error)
        nowhere.jsonl: no such file or folder. Check the path.
    """


class ConfigError(AirRepError, ValueError):
    """A setting, flag or argument is not valid.

    Example:
        >>> try:
        ...     index.top(queries, k=0)
        ... except airrep.errors.ConfigError as error:
        ...     print(error)
        top: k is 0; expected at least 1. Ask for one example or more.
    """


class DataError(AirRepError, ValueError):
    """A record, file or text cannot be used.

    Example:
        >>> try:
        ...     airrep.Corpus.from_records([{"prompt": "Who?"}])
        ... except airrep.errors.DataError as error:
        ...     print(str(error)[:47])
        records: record 1: no prompt and response found
    """


class ArtifactError(AirRepError, OSError):
    """A directory of airrep is missing, altered, unfinished or in the way.

    Example:
        >>> try:
        ...     airrep.Index("nowhere")
        ... except airrep.errors.ArtifactError as error:
        ...     print(error)
        nowhere: does not exist; expected a directory that airrep wrote. Check the path.
    """


class NotFittedError(AirRepError, RuntimeError):
    """An attributor was used before it had seen the training corpus.

    Example:
        >>> try:
        ...     airrep.make_attributor("tfidf").encode_train(train)
        ... except airrep.errors.NotFittedError as error:
        ...     print(error)
        tfidf: has not seen the training corpus. Call fit(train) first, or build an index.
    """


class TrainingError(AirRepError, ArithmeticError):
    """A fine-tune or a training run cannot continue: its loss is not finite, or memory is short.

    Example:
        >>> try:
        ...     raise airrep.errors.TrainingError("step 7: the loss is NaN. Lower the learning rate.")
        ... except airrep.AirRepError as error:
        ...     print(error)
        step 7: the loss is NaN. Lower the learning rate.
    """


class UnknownSettingError(ConfigError):
    """A setting does not exist; *where* begins the message, and *known* are the settings that exist there."""

    def __init__(self, where: str, name: str, known: Iterable[str]) -> None:
        self.where, self.name, self.known = where, name, sorted(known)
        listed, meant = nearest(name, self.known), near(name, self.known, "Correct the name.")
        super().__init__(f"{where}: '{name}' is not a setting here; expected one of {listed}. {meant}")


class MissingExtraError(AirRepError, ImportError):
    """An optional dependency is not installed, or cannot be used; see :func:`need`.

    Example:
        >>> issubclass(airrep.errors.MissingExtraError, ImportError)
        True
    """

    def __init__(self, feature: str, extra: str, reason: str = "", broken: str = "") -> None:
        """Give the pip command; a *broken* package, which pip would keep, is uninstalled first."""
        told = f"{feature}: needs an optional dependency" + (f": {reason}" if reason else "")
        removal = f"pip uninstall -y {broken} && " if broken else ""
        super().__init__(f"{told}. Install it with: {removal}pip install 'airrep[{extra}]'")


def caution(log: Logger, text: str) -> None:
    """Log a warning once per process, because one command may open an index or an LM several times."""
    if text not in _TOLD:
        _TOLD.add(text)
        log.warning("%s", text)


def escaped(text: str) -> str:
    r"""Return text on one line that can be encoded: line breaks and lone surrogates become escapes such as ``\n``."""
    one_line = text.replace("\r", "\\r").replace("\n", "\\n")
    return one_line.encode("utf-8", "backslashreplace").decode()


def first_line(error: BaseException) -> str:
    """Return the first line of a library's error message without its full stop, or the error's type if it is empty."""
    text = str(error).strip().replace(":\n\t", ": ")  # torch says only in the second line what does not fit
    return text.partition("\n")[0].rstrip(".:")[:300] or type(error).__name__


def many(count: int, one: str, several: str = "") -> str:
    """Return a number with its noun: "1 example", "2,000 examples"; *several* is a plural that does not end in -s."""
    return f"{count:,} {one if count == 1 else several or f'{one}s'}"


def near(name: object, known: Iterable[str], otherwise: str = "Choose one.") -> str:
    """Return "Did you mean ...?" with the *known* name that is similar to an unknown one, or *otherwise*."""
    return _meant(name, {one: one for one in known}, otherwise)


def nearest(name: object, known: Collection[str]) -> str:
    """Return all *known* names if they are few, else the most similar ones, and how many more there are."""
    by_letters = {_letters(one): one for one in known}
    if len(by_letters) <= NAMED:
        return ", ".join(known)
    found = get_close_matches(_letters(name), by_letters, NAMED, cutoff=0)
    return f"{', '.join(by_letters[one] for one in found)} and {len(by_letters) - NAMED} more"


def near_path(path: Path, otherwise: str = "Check the path.") -> str:
    """Return :func:`near` for a path that does not exist, from names in its folder, compared without suffixes."""
    try:
        beside = {one.stem: one.name for one in islice(path.parent.iterdir(), BESIDE)}
    except (OSError, ValueError):
        return otherwise
    return _meant(path.stem, beside, otherwise)


def _meant(name: object, known: Mapping[str, str], otherwise: str) -> str:
    by_letters = {_letters(one): shown for one, shown in known.items()}
    found = get_close_matches(_letters(name), by_letters, n=1)
    return f"Did you mean '{by_letters[found[0]]}'?" if found else otherwise


def _letters(name: object) -> str:
    return str(name).lower().replace("_", "-")


def check_unicode(what: str, text: str) -> None:
    """Raise ConfigError for text that cannot be encoded as UTF-8; the message calls it *what*."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"{what} '{escaped(text[:80])}': holds a lone surrogate at character {error.start + 1}; valid Unicode is "
            "expected. Remove it."
        ) from None


_FIT: set[str] = set()
"""Packages whose versions were checked and fit, kept because reading metadata takes a hundredth of a second."""


def need(feature: str, extra: str, *modules: str) -> None:
    """Import the modules of an extra that a feature needs; call it before a folder is made or a model is read.

    Raises:
        MissingExtraError: a module is missing, has a version that airrep does not support, or cannot be imported.

    Example:
        >>> need("exports", "pandas", "pandas")
    """
    for name in modules:
        if (package := name.partition(".")[0]) not in _FIT:
            _check_version(feature, extra, package)
            _FIT.add(package)
        try:
            import_module(name)
        except Exception as error:  # such as a missing shared library, or an incompatible package
            if isinstance(error, ModuleNotFoundError) and error.name == name:
                raise MissingExtraError(feature, extra, f"{name} is not installed") from error
            told = " ".join(str(error).split())[:200].rstrip(".")
            reason = f"{name} is installed, but cannot be imported ({type(error).__name__}: {told})"
            from importlib.metadata import packages_distributions

            named = packages_distributions().get(package, [name])[0]
            raise MissingExtraError(feature, extra, reason, named) from error


def has(module: str) -> bool:
    """Return True if a module is installed, without importing it (but its parent packages)."""
    try:
        return find_spec(module) is not None
    except ImportError:
        return False


def _check_version(feature: str, extra: str, name: str) -> None:
    """Raise MissingExtraError for an unsupported version; a package without metadata is only imported later."""
    from importlib.metadata import PackageNotFoundError, requires, version  # here: slow, and most need no extra

    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    with suppress(PackageNotFoundError):
        known = [Requirement(line) for line in requires("airrep") or ()]
        wanted = [one.specifier for one in known if canonicalize_name(one.name) == canonicalize_name(name)]
        installed = version(name)
        if not all(one.contains(installed, prereleases=True) for one in wanted):
            asked = ", ".join(map(str, wanted))
            raise MissingExtraError(feature, extra, f"{name} {installed} is installed, but airrep needs {asked}")

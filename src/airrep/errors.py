"""Every exception that airrep raises on purpose.

::

    AirRepError
    ├── ConfigError (ValueError)         a setting, flag or argument that cannot hold
    ├── DataError (ValueError)           a record, file or text that cannot be used
    ├── ArtifactError (OSError)          a directory that airrep wrote, or should write, is not as it must be
    ├── NotFittedError (RuntimeError)    an attributor was asked before it had seen the training corpus
    ├── TrainingError (ArithmeticError)  a fine-tune or a training run cannot continue
    └── MissingExtraError (ImportError)  an optional dependency is not installed, or cannot be used

Messages are one line: *where: what is wrong; what is expected. What to do.*
"""

from collections.abc import Iterable, Mapping
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
"""Cautions of this process."""
BESIDE = 1000
"""Files of a folder whose names are compared with one that is not there."""

LM = ("torch", "transformers", "scipy")
"""Modules behind every language model."""


class AirRepError(Exception):
    """Base of every exception that airrep raises on purpose.

    Example:
        >>> try:
        ...     airrep.read_corpus("nowhere.jsonl")
        ... except airrep.AirRepError as error:
        ...     print(error)
        nowhere.jsonl: no such file or folder. Check the path
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
    """An attributor was asked for features before it had seen the training corpus.

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


class MissingExtraError(AirRepError, ImportError):
    """An optional dependency is not installed, or cannot be used; see :func:`need`.

    Example:
        >>> issubclass(airrep.errors.MissingExtraError, ImportError)
        True
    """

    def __init__(self, feature: str, extra: str, reason: str = "", broken: str = "") -> None:
        """Name the pip command; of a *broken* package, which pip would leave as it is, with its removal before."""
        told = f"{feature}: needs an optional dependency" + (f": {reason}" if reason else "")
        removal = f"pip uninstall -y {broken} && " if broken else ""
        super().__init__(f"{told}. Install it with: {removal}pip install 'airrep[{extra}]'")


def caution(log: Logger, text: str) -> None:
    """Warn of something once in a process: one command opens an index or an LM several times."""
    if text not in _TOLD:
        _TOLD.add(text)
        log.warning("%s", text)


def escaped(text: str) -> str:
    """Text as one line that every output takes: line breaks and halves of surrogate pairs as Python writes them."""
    one_line = text.replace("\r", "\\r").replace("\n", "\\n")
    return one_line.encode("utf-8", "backslashreplace").decode()


def first_line(error: BaseException) -> str:
    """Return what an error of a library says in its first line, without its full stop; or else its type."""
    return str(error).strip().partition("\n")[0].rstrip(".:")[:300] or type(error).__name__


def near(name: object, known: Iterable[str], otherwise: str = "Choose one.") -> str:
    """Advise on a name that is none of some known ones: ask whether the nearest is meant, if one is near."""
    return _meant(name, {one: one for one in known}, otherwise)


def near_path(path: Path, otherwise: str = "Check the path.") -> str:
    """Return the same of a path at which nothing is, by the names beside it; endings, which are alike, do not count."""
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
    """Refuse text that no file can hold as UTF-8 (ConfigError); errors call it *what*."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"{what} '{escaped(text[:80])}': holds a lone surrogate at character {error.start + 1}; valid Unicode is "
            "expected. Remove it."
        ) from None


_FIT: set[str] = set()
"""Packages whose versions were looked at and fit: their metadata take a hundredth of a second to read."""


def need(feature: str, extra: str, *modules: str) -> None:
    """Import the modules of an extra that a feature needs; ask before a folder is made or a model is read.

    Raises:
        MissingExtraError: one is absent, of another version than `pyproject.toml` asks for, or cannot be imported.

    Example:
        >>> need("exports", "pandas", "pandas")
    """
    for name in modules:
        if (package := name.partition(".")[0]) not in _FIT:
            _check_version(feature, extra, package)
            _FIT.add(package)
        try:
            import_module(name)
        except Exception as error:  # also of a shared library that is missing, and of packages that do not fit others
            if isinstance(error, ModuleNotFoundError) and error.name == name:
                raise MissingExtraError(feature, extra, f"{name} is not installed") from error
            told = " ".join(str(error).split())[:200].rstrip(".")
            reason = f"{name} is installed, but cannot be imported ({type(error).__name__}: {told})"
            from importlib.metadata import packages_distributions

            named = packages_distributions().get(package, [name])[0]
            raise MissingExtraError(feature, extra, reason, named) from error


def has(module: str) -> bool:
    """Tell whether a module is installed; it is not imported."""
    try:
        return find_spec(module) is not None
    except ImportError:
        return False


def _check_version(feature: str, extra: str, name: str) -> None:
    """Refuse a version that airrep was not made for; where a package tells none, its import shows whether it works."""
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

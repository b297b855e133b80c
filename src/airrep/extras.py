"""Optional packages, which come with the extras of airrep: whether they can be used."""

from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec

from airrep.errors import MissingExtraError

LM = ("torch", "transformers")
"""Modules behind every language model."""


def need(feature: str, extra: str, *modules: str) -> None:
    """Import the modules of an extra that a feature needs; ask before a folder is made or a model is read.

    Raises:
        MissingExtraError: one is absent, of another version than `pyproject.toml` asks for, or cannot be imported.

    Example:
        >>> need("exports", "pandas", "pandas")
    """
    for name in modules:
        _check_version(feature, extra, name.partition(".")[0])
        try:
            import_module(name)
        except Exception as error:  # also of a shared library that is missing, and of packages that do not fit others
            if isinstance(error, ModuleNotFoundError) and error.name == name:
                raise MissingExtraError(feature, extra) from error
            told = " ".join(str(error).split())[:200].rstrip(".")
            reason = f"{name} is installed, and cannot be imported ({type(error).__name__}: {told})"
            from importlib.metadata import packages_distributions

            package = packages_distributions().get(name.partition(".")[0], [name])[0]
            raise MissingExtraError(feature, extra, reason, package) from error


def has(module: str) -> bool:
    """Whether a module is installed; it is not imported."""
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
            raise MissingExtraError(feature, extra, f"{name} {installed} is installed; expected {asked}")

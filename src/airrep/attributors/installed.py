"""Methods of other packages, found by their entry points."""

import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NamedTuple, TypeVar, get_args

from airrep.attributors.base import Attributor
from airrep.errors import AirRepError, ConfigError, caution, first_line
from airrep.runtime.settings import Settings

GROUP = "airrep.attributors"
"""Group of entry points in which a package declares its methods."""
LONGEST = 200
"""Most characters that are shown of another package's error."""


class Package(NamedTuple):
    """A package that declares methods."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


@dataclass(frozen=True)
class Factory:
    """The object that an entry point names, which makes an attributor from settings."""

    function: Callable[..., Attributor]
    """A subclass of Attributor, or a function that returns an attributor; it takes settings, or no argument."""
    settings: type[Settings]
    """The type of the argument; plain Settings, which have no fields, if the function takes no argument."""
    takes_settings: bool

    @property
    def summary(self) -> str:
        """First line of the docstring, without its full stop."""
        lines = (inspect.getdoc(self.function) or "").splitlines()
        return lines[0].removesuffix(".") if lines else ""

    @property
    def place(self) -> tuple[str, str]:
        """Module and qualified name of the function."""
        return getattr(self.function, "__module__", ""), getattr(self.function, "__qualname__", "")

    def fact(self, name: str, otherwise: str) -> str:
        """Return the text of an attribute of the function, such as ``needs``; *otherwise* if it has none."""
        told = getattr(self.function, name, None)
        return told if isinstance(told, str) and told else otherwise


@dataclass(frozen=True)
class InstalledMethod:
    """A method that a package declares; the package is imported when :attr:`factory` is first read."""

    name: str
    package: Package
    entry: EntryPoint

    def __str__(self) -> str:
        return f"method '{self.name}' of the package {self.package}"

    @cached_property
    def factory(self) -> Factory:
        """The object that the entry point names (ConfigError: it cannot be imported, or airrep cannot call it)."""
        if not self.name.isidentifier():
            raise ConfigError(f"{self}: the name is not a Python identifier. Rename the entry point in the package.")
        try:
            found = self.entry.load()
            return _factory(found)
        except (Exception, SystemExit) as error:  # whatever a package does as it is imported
            raise ConfigError(
                f"{self}: cannot be loaded from '{one_line(self.entry.value)}': {_told(error)}. "
                "Correct or update the package, or uninstall it."
            ) from error

    def make(self, settings: Settings) -> Attributor:
        """Make an attributor with these settings (ConfigError: the package fails, or makes something else)."""
        factory = self.factory
        try:
            made = factory.function(settings) if factory.takes_settings else factory.function()
        except AirRepError:
            raise
        except Exception as error:
            raise ConfigError(
                f"{self}: cannot be created: {_told(error)}. Correct its settings, or the package."
            ) from error
        self._check(made, factory)
        return made

    def _check(self, made: object, factory: Factory) -> None:
        """Refuse an attributor that an index could not be opened with again."""
        problem = ""
        if not isinstance(made, Attributor):
            problem = f"makes a {type(made).__name__}, not an airrep.Attributor"
        elif made.name != self.name:
            problem = f"makes an attributor with another name, '{made.name}'"
        elif not isinstance(made.settings, factory.settings):
            problem = f"makes an attributor whose settings are {type(made.settings).__name__}, not those it was given"
        if problem:
            raise ConfigError(
                f"{self}: {one_line(problem)}. Correct the package: docs/own-methods.md says what is expected."
            )


def one_line(text: object) -> str:
    """Return another package's text on one line of at most :data:`LONGEST` characters."""
    line = " ".join("".join(sign if sign.isprintable() else " " for sign in str(text)).split())
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def _told(error: BaseException) -> str:
    told = one_line(error)
    return f"{type(error).__name__}: {told}".rstrip(".") if told else type(error).__name__


def _factory(found: Any) -> Factory:
    """Describe the object of an entry point (TypeError: airrep cannot call it)."""
    if not callable(found):
        raise TypeError(
            f"the object is a {type(found).__name__}, but must be a subclass of airrep.Attributor or a function"
        )
    parameters = inspect.signature(found, eval_str=True).parameters.values()
    needed = [one for one in parameters if one.kind <= one.POSITIONAL_OR_KEYWORD]
    if not needed:
        return Factory(found, Settings, takes_settings=False)
    kind = _chosen(found, needed[0].annotation)
    if (count := len([one for one in needed if one.default is one.empty])) > 1:
        raise TypeError(
            f"a method's class or function must need only one argument, the settings, but this one needs {count}"
        )
    if not (isinstance(kind, type) and issubclass(kind, Settings)):
        raise TypeError(
            f"the argument '{needed[0].name}' of the method's class or function must be annotated with a subclass of "
            "airrep's Settings"
        )
    return Factory(found, kind, takes_settings=True)


def _chosen(found: Any, kind: Any) -> Any:
    """Return a type; for the type variable of a generic base class, the type that the subclass chose."""
    if not isinstance(kind, TypeVar) or not isinstance(found, type):
        return kind
    bases = (base for one in found.__mro__ for base in one.__dict__.get("__orig_bases__", ()))
    return next((chosen for base in bases for chosen in get_args(base) if isinstance(chosen, type)), None)


def installed_methods() -> Mapping[str, tuple[InstalledMethod, ...]]:
    """Return the methods that installed packages declare, sorted by name, without importing a package.

    A name has several methods if several packages declare it. Damaged metadata, of whatever package, give a warning.
    """
    found: dict[str, list[InstalledMethod]] = {}
    try:
        for entry in entry_points(group=GROUP):
            assert entry.dist is not None
            package = Package(one_line(entry.dist.name), one_line(entry.dist.version))
            found.setdefault(one_line(entry.name), []).append(InstalledMethod(one_line(entry.name), package, entry))
    except Exception as error:  # whatever is in the files; airrep must list its own methods all the same
        told = f"methods of other packages are missing: the metadata of a package are damaged ({first_line(error)})"
        caution(logging.getLogger(__name__), f"{told}. Run: pip check")
    return {name: tuple(found[name]) for name in sorted(found)}


def installed_method(name: str) -> InstalledMethod | None:
    """Return the installed method of this name; None if no package declares it (ConfigError: two packages do)."""
    found = installed_methods().get(name, ())
    if len(found) > 1:
        both = " and ".join(str(one.package) for one in found)
        raise ConfigError(f"method '{name}': several packages declare it: {both}. Uninstall all but one.")
    return found[0] if found else None

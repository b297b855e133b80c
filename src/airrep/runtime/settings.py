"""Immutable, checked settings, read from YAML and ``key=value``."""

import ast
import errno
import re
from collections.abc import Iterator, Mapping, Sequence
from inspect import cleandoc, getsource
from itertools import pairwise
from os import PathLike, fspath
from pathlib import Path
from textwrap import dedent
from typing import Any, ClassVar, Self, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from airrep.errors import ConfigError, UnknownSettingError, first_line, near

LONGEST_SHOWN = 200
"""Most characters of a wrong value that an error shows."""


def count_or_share(value: Any) -> int | str:
    """Parse a number of examples from 1 on, or a percentage as text, such as ``"99%"`` (ValueError: neither)."""
    text = str(value).replace(" ", "")
    try:
        share = float(text.removesuffix("%"))
    except ValueError:
        share = 0.0
    if text.endswith("%") and 0 < share < 100:
        return text
    if text.isascii() and text.isdecimal() and share >= 1:
        return int(text)
    raise ValueError("the number of examples must be at least 1, or a percentage above 0% and below 100%, such as 99%")


def count_of(value: int | str, total: int) -> int:
    """Return a number unchanged, or a percentage of *total*, rounded; the result may be 0."""
    return value if isinstance(value, int) else round(float(value.removesuffix("%")) / 100 * total)


class Settings(BaseModel):
    """Base class of all settings: frozen; unknown names are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    added: ClassVar[tuple[str, ...]] = ()
    """Fields added in later versions. They are not written if they have their defaults, so that requests and
    fingerprints of older artifacts do not change."""

    @model_validator(mode="before")
    @classmethod
    def _as_texts(cls, values: Any) -> Any:
        """Convert paths, which other stages return, to text."""
        if not isinstance(values, Mapping):
            return values
        return {name: fspath(one) if isinstance(one, PathLike) else one for name, one in values.items()}

    @model_serializer(mode="wrap")
    def _without_added(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = write(self)
        known = type(self).model_fields
        return {
            name: value
            for name, value in values.items()
            if name not in self.added or getattr(self, name) != known[name].default
        }

    @classmethod
    def meanings(cls) -> dict[str, str]:
        """Return each field's description, from the text below it in the source, which is read only when called."""
        told = {name: field.description for name, field in cls.model_fields.items() if field.description}
        kinds = [kind for kind in reversed(cls.__mro__) if issubclass(kind, Settings)]
        return {name: text for kind in kinds for name, text in _texts_below(kind)} | told

    @classmethod
    def given(cls, settings: Self | Mapping[str, Any] | None, where: str = "settings") -> Self:
        """Return settings unchanged, a mapping as settings, or the defaults for None; errors as for :meth:`of`."""
        return settings if isinstance(settings, cls) else cls.of(dict(settings or {}), where)

    @classmethod
    def of(cls, values: dict[str, Any], where: str = "settings") -> Self:
        """Check *values* and fill in the defaults; paths are converted to text.

        ConfigError: a name does not exist, or a value is not valid.
        """
        try:
            return cls(**values)
        except ValidationError as error:
            problems = error.errors()
            told = problems[0].get("ctx", {}).get("error")
            if isinstance(told, ConfigError):  # its message already says what to do
                raise told from error
            unknown = next((one["loc"] for one in problems if one["type"] == "extra_forbidden"), None)
            if unknown is not None:  # a typo comes first
                raise UnknownSettingError(where, ".".join(map(str, unknown)), cls.model_fields) from error
            raise ConfigError(f"{where}: {_first_problem(error)}") from error
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:  # raised by a check that looks for a file
                raise
            raise ConfigError(
                f"{where}: '{str(error.filename)[:LONGEST_SHOWN]}…': is too long for a path. Correct the value."
            ) from error


def _texts_below(kind: type) -> Iterator[tuple[str, str]]:
    """Yield the fields of a class with the texts below them in its source."""
    try:
        body = cast(ast.ClassDef, ast.parse(dedent(getsource(kind))).body[0]).body
    except OSError:  # a class from an interactive session has no source
        return
    for node, after in pairwise(body):
        named = isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        if named and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            yield ast.unparse(cast(ast.AnnAssign, node).target), cleandoc(str(after.value.value))


def _first_problem(error: ValidationError) -> str:
    problem = error.errors()[0]
    name = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "missing":
        flag = "--lm MODEL" if name == "lm" else f"--set {name}=..."
        return f"'{name}' is not set and has no default. Pass {flag}."
    shown = repr(problem["input"])
    shown = shown if len(shown) <= LONGEST_SHOWN else f"{shown[:LONGEST_SHOWN]}…"
    several = isinstance(problem["input"], list | tuple) and any(
        isinstance(one, dict | BaseModel) for one in problem["input"]
    )
    own = problem["type"] == "value_error"  # from airrep's own checks; pydantic's messages begin with a capital letter
    reason = problem["msg"].removeprefix("Value error, ") if own else problem["msg"].lower()
    # A list of mappings would hide the reason, and airrep's own reason says what is wrong with it.
    value = ("" if own else f"{name}: ") if several else f"{name}={shown}: " if name else ""
    known = re.findall("'([^']*)'", problem["ctx"]["expected"]) if problem["type"] == "literal_error" else []
    if own and ". " in reason:  # it says what to do
        return f"{value}{reason.removesuffix('.')}."
    return f"{value}{reason}. {near(problem['input'], known, 'Correct the value.')}"


def read_settings(texts: Sequence[str]) -> dict[str, Any]:
    """Read settings from YAML files and from ``key=value`` texts with YAML values, which override the files.

    ConfigError: a file is missing or not a mapping, a text has another form, or a key is given twice.
    """
    values: dict[str, Any] = {}
    for path in (Path(text) for text in texts if _is_file(text)):
        found = read_yaml(path)
        if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
            raise ConfigError(f"{path}: must be a YAML mapping of settings, with lines such as 'shard_rows: 4096'.")
        values |= found
    seen: set[str] = set()
    for override in (text for text in texts if not _is_file(text)):
        name, equals, value = override.partition("=")
        if not equals or not name.strip():
            raise ConfigError(
                f"--set {override}: is neither key=value nor a YAML file. Write --set max_tokens=256, for example."
            )
        if name.strip() in seen:
            raise ConfigError(f"--set {override}: '{name.strip()}' is set twice. Remove one of the two.")
        seen.add(name.strip())
        value = value.strip() if name[-1].isspace() else value  # spaces around = are no part of a text
        # key='' in a shell arrives without a value and means an empty text. key=null is None.
        values[name.strip()] = _read_value(value, f"--set {override}") if value else ""
    return values


def _read_value(text: str, where: str) -> Any:
    """Read a typed value as YAML, but leave a text that is not quoted as it is.

    YAML would drop '### {prompt}' as a comment, join the lines of a template, and read 'query: ' as a mapping.
    """
    first = text.lstrip()[:1]
    if "{prompt}" in text and first not in ("'", '"'):
        return text
    found = _parse_yaml(text, where)
    as_typed = isinstance(found, str | dict) or (found is None and "#" in text)
    return text if as_typed and first not in tuple("'\"{|>!&") else found


def read_yaml(path: Path) -> Any:
    """Return the content of a YAML file (ConfigError: it cannot be read, or is not YAML)."""
    try:
        return _parse_yaml(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}. Give the path of a YAML file.") from error


def _is_file(text: str) -> bool:
    return "=" not in text and text.endswith((".yaml", ".yml", ".json"))


def _parse_yaml(text: str, where: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark, reason = error.problem_mark or error.context_mark, error.problem or error.context or "of another form"
        place = "" if mark is None or "\n" not in text.strip() else f":{mark.line + 1}"
        raise ConfigError(f"{where}{place}: is not valid YAML: {reason}. Correct it.") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that does not exist
        raise ConfigError(f"{where}: is not valid YAML: {first_line(error)}. Correct it.") from error

"""Settings on the command line: flags of their fields, and what --set takes."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from inspect import Parameter as Option
from itertools import pairwise
from typing import Annotated, Any, Literal, NamedTuple, cast

import typer

_KINDS: Mapping[str, type] = {"int": int, "float": float, "bool": bool, "str": str}
"""Types of flags, by the text of a field's type; any other flag is text, which the settings check."""


class _Field(NamedTuple):
    """A field of settings, read from the source."""

    kind: type
    default: Any
    least: int | None
    text: str
    """First sentence of its docstring."""


@dataclass(frozen=True)
class Setting:
    """Annotation of a rarely used parameter: it has no flag of its own, and --set takes it by name."""

    text: str
    """Its help."""
    least: float | None = None


@dataclass(frozen=True)
class SetFlag:
    """Annotation of the parameter that receives the settings given with --set, by name."""

    text: str


@dataclass(frozen=True)
class SettingsFlags:
    """Flags for some fields of a class of settings; a command receives the typed ones by field name.

    The fields are read from the source, because importing settings would load numpy and pydantic for every ``--help``.
    """

    source: str
    """Module and class, such as ``"airrep.lm.settings:LmSettings"``."""
    names: tuple[str, ...]
    rare: tuple[str, ...] = ()
    """Fields without a flag, which --set takes by name."""
    mode: Literal["layered", "own"] = "layered"
    """With "layered", --set may also give these fields, so a flag that was not typed leaves them unset; with "own",
    only the flags give them, with the fields' own defaults and limits."""

    def taken(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of these flags, by name."""
        return {name: values[name] for name in (*self.names, *self.rare)}

    def options(self) -> Iterator[Option]:
        """Yield one option for each field."""
        fields = _fields(*self.source.split(":"))
        for name in (*self.names, *self.rare):
            kind, default, least, text = fields[name]
            spelt, value = f"--{name.replace('_', '-')}", default
            shown: Any = Setting(f"{text}.", least)
            if name in self.rare:
                pass
            elif self.mode == "own":
                spelt_out = [] if kind is bool else [spelt]  # Typer adds --no-NAME to a bool without a spelling
                shown = typer.Option(*spelt_out, min=least, help=f"{text}.")
                value = str(default) if kind is str and default is not None else default
            else:
                shown, value = typer.Option(spelt, help=f"{text}{_shown(default)}."), None
            taken: Any = kind if value is not None else kind | None
            hint: Any = Annotated[taken, shown]
            yield Option(name, Option.KEYWORD_ONLY, default=value, annotation=hint)


def _shown(default: Any) -> str:
    first = default[0] if isinstance(default, tuple) else default
    return f" (default {first:,})" if type(first) is int and first > 0 else ""


@cache
def _fields(module: str, name: str) -> dict[str, _Field]:
    source = cast(Any, find_spec(module)).loader.get_source(module)
    body = next(node.body for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == name)
    return {
        node.target.id: _field(node, _docstring(after))
        for node, after in pairwise(body)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def _docstring(node: ast.stmt) -> str:
    """Return the first sentence of a docstring without its full stop; empty without a docstring."""
    if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
        return ""
    return " ".join(str(node.value.value).split()).partition(". ")[0].removesuffix(".")


def _field(node: ast.AnnAssign, text: str) -> _Field:
    value, least = node.value, None
    if isinstance(value, ast.Call):  # Field(default=..., ge=...)
        given = {word.arg: word.value for word in value.keywords}
        value, least = given.get("default"), _literal(given.get("ge"))
    kind = _KINDS.get(ast.unparse(node.annotation).removesuffix(" | None"), str)
    return _Field(kind, _literal(value), least, text)


def _literal(value: ast.expr | None) -> Any:
    """Return the value of a literal; None for a name, whose value is unknown here."""
    try:
        return None if value is None else ast.literal_eval(value)
    except ValueError:
        return None

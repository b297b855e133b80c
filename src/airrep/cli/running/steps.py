"""Steps: commands with their options, by the names that the command line has."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, TypeAlias

import typer
from typer.core import TyperCommand, TyperGroup

from airrep.errors import ConfigError, near
from airrep.runtime.remote.places import url_of

Context: TypeAlias = Any  # these two are of a private module of Typer
Parameter: TypeAlias = Any

UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # it has no public name in Typer
PROGRAM = "airrep"
NOT_RECORDED = ("replace", "json")
"""Flags that say how a command is run once, not what it makes."""


@dataclass(frozen=True)
class Step:
    """A command, and its options by the names of their flags; arguments by the names that ``--help`` gives them."""

    command: str
    """Such as ``index`` or ``evaluate lds``."""
    options: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The step as configs and histories write it."""
        return {self.command: dict(self.options)}


class Commands:
    """All commands of the command line: their steps as words, and words as steps."""

    def __init__(self, root: TyperGroup) -> None:
        self._root = root
        self._commands = dict(_leaves(root))

    @classmethod
    def of(cls, context: Context) -> "Commands":
        """The commands of the program in which a command runs."""
        root = context.find_root().command
        assert isinstance(root, TyperGroup)
        return cls(root)

    def named(self, name: str) -> TyperCommand:
        """A command by its name.

        Raises:
            ConfigError: there is none.
        """
        if name not in self._commands:
            raise ConfigError(f"'{name}' is no command. {near(name, self._commands, f'See: {PROGRAM} --help')}")
        return self._commands[name]

    def words(self, step: Step) -> list[str]:
        """The command line of a step, without the program.

        Raises:
            ConfigError: no such command or option, or a value of another form.
        """
        command = self.named(step.command)
        given = {_known_name(command, name): value for name, value in step.options.items()}
        options: list[str] = []
        arguments: list[str] = []
        for name, parameter in fields(command).items():
            found = list(_words(name, parameter, given.get(name)))
            (arguments if _is_argument(parameter) else options).extend(found)
        dashed = any(word.startswith("-") for word in arguments)
        rest = [*options, "--", *arguments] if dashed else [*arguments, *options]
        return [*step.command.split(), *rest]

    def parsed(self, step: Step, parent: Context | None = None) -> Context:
        """A step, read as the command line reads it; nothing is run.

        Raises:
            ConfigError: as of :meth:`words`, or something is missing or cannot be read.
        """
        words = self.words(step)[len(step.command.split()) :]
        return self._context(step.command, words, parent)

    def step_of_line(self, line: str) -> Step:
        """The step of a command line as it was typed.

        Raises:
            ConfigError: this airrep has no such command or option.
        """
        program, *words = shlex.split(line) or [""]
        count = next((count for count in (2, 1) if " ".join(words[:count]) in self._commands), 0)
        if program != PROGRAM or not count:
            raise ConfigError(f"'{line}' is no command of {PROGRAM}")
        name = " ".join(words[:count])
        return step_of(self._context(name, words[count:], None), name)

    def _context(self, name: str, words: Sequence[str], parent: Context | None) -> Context:
        try:
            return self.named(name).make_context(name, list(words), parent=parent)
        except UsageError as error:
            raise ConfigError(usage_text(error, f"{PROGRAM} {name}")) from error


def usage_text(error: Exception, command: str) -> str:
    """What is wrong with a command line, on one line, and where help is."""
    told = error.format_message() if hasattr(error, "format_message") else str(error)
    return f"{' '.join(told.split()).removesuffix('.')}. See: {command} --help"


def _leaves(group: TyperGroup, before: str = "") -> Iterator[tuple[str, TyperCommand]]:
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from _leaves(command, f"{before}{name} ")
        elif isinstance(command, TyperCommand):
            yield before + name, command


def fields(command: TyperCommand) -> dict[str, Parameter]:
    """Options and arguments of a command by the names that steps have for them."""
    return {_name(parameter): parameter for parameter in command.params if parameter.name != "help"}


def _name(parameter: Parameter) -> str:
    if not _is_argument(parameter):
        return str(max(parameter.opts, key=len)).lstrip("-")
    shown = re.search("[A-Z]+", parameter.metavar or "")  # [LABELS...] is `labels`
    return shown[0].lower() if shown else str(parameter.name)


def _is_argument(parameter: Parameter) -> bool:
    return bool(parameter.param_type_name == "argument")


def _takes_several(parameter: Parameter) -> bool:
    return bool(parameter.nargs == -1 if _is_argument(parameter) else parameter.multiple)


def _known_name(command: TyperCommand, name: object) -> str:
    known = fields(command)
    text = str(name)
    found = text if text in known else text.replace("_", "-")
    if found not in known:
        meant = near(text, known, "Correct the name.")
        raise ConfigError(f"'{text}' is no option here; expected one of {', '.join(known)}. {meant}")
    return found


def _words(name: str, parameter: Parameter, value: Any) -> Iterator[str]:
    """The words of one option; none where its value is None."""
    if value is None:
        return
    flag = "" if _is_argument(parameter) else parameter.opts[0]
    if getattr(parameter, "is_flag", False):
        if not isinstance(value, bool):
            raise ConfigError(f"{name}: is {value!r}; expected true or false")
        yield from [flag] if value else parameter.secondary_opts[:1]
        return
    if _takes_several(parameter):
        texts = [_text(name, one) for one in _items(name, value)]
    elif isinstance(value, list | dict):
        raise ConfigError(f"{name}: is a {_kind(value)}; expected one value")
    else:
        texts = [_text(name, value)]
    for text in texts:
        yield from [flag, text] if flag else [text]


def _items(name: str, value: Any) -> list[Any]:
    """The values of an option that may be repeated; a mapping stands for ``key=value`` texts."""
    if isinstance(value, dict):
        return [f"{key}={_value_text(name, inner)}" for key, inner in value.items()]
    return value if isinstance(value, list) else [value]


def _kind(value: object) -> str:
    return "list" if isinstance(value, list) else "mapping"


def _text(name: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float | date):
        raise ConfigError(f"{name}: is {'null' if value is None else repr(value)[:40]}; expected a text or a number")
    return str(value)


def _value_text(name: str, value: object) -> str:
    """A value of ``key=value``: a text as it is, but for one of --set that YAML would read as something else."""
    if isinstance(value, str):
        plain = not name.endswith("set") or _from_yaml(value) == value
        return value if plain else json.dumps(value, ensure_ascii=False)
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{name}: has a value that cannot be written on a command line") from error


def _from_yaml(text: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        return None


def step_of(context: Context, name: str) -> Step:
    """The step of a command that was parsed: what was given, without defaults and without :data:`NOT_RECORDED`."""
    options: dict[str, Any] = {}
    assert isinstance(context.command, TyperCommand)
    for field, parameter in sorted(fields(context.command).items(), key=lambda item: not _is_argument(item[1])):
        source = context.get_parameter_source(parameter.name)
        value = context.params.get(parameter.name)
        if value is None or source is None or source.name != "COMMANDLINE" or field in NOT_RECORDED:
            continue
        options[field] = _mapped(field, [_plain(one) for one in value]) if _is_list(value) else _plain(value)
    return Step(name, options)


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple)


def _plain(value: Any) -> Any:
    """A value as YAML has it; a path as text."""
    if isinstance(value, bool | int | float):
        return value
    return (url_of(value) if isinstance(value, Path) else None) or str(value)


def _mapped(name: str, values: list[Any]) -> Any:
    """``key=value`` texts of --set as a mapping, where that gives the same texts again; other lists as they are."""
    if not name.endswith("set"):
        return values
    pairs = [str(value).partition("=") for value in values]
    mapping = {key: _from_yaml(text) for key, _, text in pairs}
    same = len(mapping) == len(values) and _items(name, _jsonable(mapping)) == values
    return mapping if same else values


def _jsonable(mapping: dict[str, Any]) -> dict[str, Any]:
    """The mapping; empty where a value is no JSON value, a date, say."""
    try:
        json.dumps(mapping, allow_nan=False)
    except (TypeError, ValueError):
        return {}
    return mapping


def shell_line(words: Sequence[str]) -> str:
    """A command line for a shell."""
    return shlex.join([PROGRAM, *words])

"""Configs of whole runs: read, checked, printed."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from airrep._version import __version__
from airrep.cli.running.steps import Commands, Step
from airrep.errors import ConfigError
from airrep.runtime.settings import read_yaml

FILL_IN = "FILL-IN"
"""Value of an option that an artifact does not record."""
NO_STEPS = ("run", "serve")
"""Commands that are no steps: a run within a run, and a page that ends with Ctrl-C."""
LARGEST = 2**20
"""Bytes of a config that are read at most."""
KEYS = ("airrep", "folder", "steps")


@dataclass(frozen=True)
class NumberedStep:
    """A step of a config, with its place in it."""

    number: int
    """Counted from 1."""
    name: str
    """Its own name, or that of its command."""
    step: Step

    def __str__(self) -> str:
        return f"step {self.number} ({self.name})"


@dataclass(frozen=True)
class RunConfig:
    """A whole run: commands in order, and the folder that their paths begin in."""

    path: Path
    folder: Path
    steps: tuple[NumberedStep, ...]

    def failed(self, step: NumberedStep, problem: object) -> ConfigError:
        """The error of a step, told with its place."""
        return ConfigError(f"{self.path}: {step}: {problem}")

    def check(self, commands: Commands) -> None:
        """Check all steps before the first runs: commands, options, and the form of their values.

        Raises:
            ConfigError: one of them cannot be run; the error names it.
        """
        for step in self.steps:
            try:
                if step.step.command in NO_STEPS:
                    raise ConfigError(f"'{step.step.command}' cannot be a step. Leave it out.")
                _check_filled(step.step)
                commands.parsed(step.step)
            except ConfigError as error:
                raise self.failed(step, _ended(error)) from error

    def changed(self, texts: Sequence[str]) -> "RunConfig":
        """The config with other values: ``STEP.OPTION=VALUE``, where a step is its number or its name.

        Raises:
            ConfigError: of another form, or no such step.
        """
        steps = list(self.steps)
        for text in texts:
            found = re.fullmatch(r"(.+?)\.([^.=]+)(?:\.([^=]+))?=(.*)", text, re.DOTALL)
            if found is None:
                raise ConfigError(f"--set {text}: is not of the form STEP.OPTION=VALUE. Write --set top.k=5, say.")
            name, option, key, value = found.groups()
            place = self._place(name, text)
            steps[place] = _with_option(steps[place], option, key, _parse(value, text))
        return replace(self, steps=tuple(steps))

    def _place(self, name: str, text: str) -> int:
        found = [place for place, step in enumerate(self.steps) if name in (str(step.number), step.name)]
        if len(found) != 1:
            known = ", ".join(f"{step.number} ({step.name})" for step in self.steps)
            what = f"several steps are called '{name}'" if found else f"there is no step '{name}'"
            raise ConfigError(f"--set {text}: {what}; expected one of {known}. Give its number.")
        return found[0]


def _with_option(step: NumberedStep, option: str, key: str | None, value: Any) -> NumberedStep:
    """A step with another value of an option, or of one key of a mapping."""
    options = dict(step.step.options)
    inner = options.get(option)
    options[option] = value if key is None else {**(inner if isinstance(inner, dict) else {}), key: value}
    return replace(step, step=Step(step.step.command, options))


def _parse(value: str, text: str) -> Any:
    try:
        return yaml.safe_load(value)
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"--set {text}: the value is not YAML. Correct it.") from error


def _check_filled(step: Step) -> None:
    for name, value in step.options.items():
        several = value if isinstance(value, list) else [value]
        if FILL_IN in several:
            raise ConfigError(f"{name} is still {FILL_IN}, since no artifact recorded it. Write what it was")


def _ended(error: ConfigError) -> str:
    text = str(error)
    return text if text.endswith((".", "?", "--help")) else f"{text}. Correct it."


def read_config(path: Path) -> RunConfig:
    """Read a config; its options are checked by :meth:`RunConfig.check`.

    Raises:
        ConfigError: it cannot be read, or is no list of steps.
    """
    if path.is_file() and path.stat().st_size > LARGEST:
        raise ConfigError(f"{path}: has {path.stat().st_size:,} bytes; expected a list of steps. Give another file.")
    try:
        content = read_yaml(path)
    except (ValueError, RecursionError) as error:  # dates that do not exist, lists too deep
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{path}: is not YAML: {str(error).splitlines()[0]}. Correct it.") from error
    if not isinstance(content, dict) or not isinstance(content.get("steps"), list) or not content["steps"]:
        raise ConfigError(f"{path}: has no steps; expected 'steps:' with lines such as '- index: {{...}}'. Add them.")
    unknown = next((key for key in content if key not in KEYS), None)
    if unknown is not None:
        raise ConfigError(f"{path}: '{unknown}' is unknown; expected {', '.join(KEYS)}. Correct the name.")
    _check_version(path, content.get("airrep"))
    folder = content.get("folder", ".")
    if not isinstance(folder, str):
        raise ConfigError(f"{path}: folder is {folder!r}; expected a path. Correct it.")
    steps = [_numbered(path, number, value) for number, value in enumerate(content["steps"], 1)]
    return RunConfig(path, path.parent / folder, tuple(steps))


def _check_version(path: Path, version: object) -> None:
    """Refuse a config of a newer airrep; 0.x is any 0."""
    wanted = [int(part) for part in re.findall(r"\d+", str(version or 0))][:2]
    own = [int(part) for part in re.findall(r"\d+", __version__)][:2]
    if wanted > own[: len(wanted)]:
        raise ConfigError(f"{path}: is of airrep {version}; this is {__version__}. Update it: pip install -U airrep")


def _numbered(path: Path, number: int, value: object) -> NumberedStep:
    """A step of a config: a mapping of one command, and its own name beside if it has one."""
    named = dict(value) if isinstance(value, dict) else {}
    name = named.pop("name", None)
    if len(named) != 1:
        raise ConfigError(f"{path}: step {number}: is not one command with its options; expected 'index: {{...}}'.")
    ((command, options),) = named.items()
    if not isinstance(options, dict | None):
        raise ConfigError(f"{path}: step {number} ({command}): expected options by name, not {options!r}. Correct it.")
    return NumberedStep(number, str(name or command), Step(str(command), options or {}))


@dataclass
class WrittenStep:
    """A step as it is printed, with what a reader must know."""

    step: Step
    comments: Mapping[str, str] = field(default_factory=dict)
    """By option."""
    before: Sequence[str] = ()
    """Comments before it."""


def config_text(steps: Sequence[WrittenStep], folder: Path, head: Sequence[str] = ()) -> str:
    """A config as YAML, for a file in the current folder."""
    lines = [f"# {_one_line(text)}" for text in head]
    lines.append(f'airrep: "{__version__}"')
    if folder.resolve() != Path.cwd().resolve():
        lines.append(_yaml({"folder": os.path.relpath(folder.resolve(), Path.cwd().resolve())})[0])
    lines.append("steps:")
    for step in steps:
        lines += [f"  # {_one_line(text)}" for text in step.before]
        lines.append(f"  - {step.step.command}:{'' if step.step.options else ' {}'}")
        for name, value in step.step.options.items():
            first, *others = _yaml({name: value})
            comment = step.comments.get(name)
            lines.append(f"      {first}" + (f"  # {_one_line(comment)}" if comment else ""))
            lines += [f"      {line}" for line in others]
    return "\n".join(lines) + "\n"


def _yaml(value: Mapping[str, Any]) -> list[str]:
    """Lines of one name and its value, a list or mapping on one line."""
    ((name, content),) = value.items()
    flow = isinstance(content, list | dict)
    made = content if flow else value
    text = yaml.safe_dump(made, default_flow_style=flow, sort_keys=False, allow_unicode=True, width=10**6)
    lines = [str(line) for line in text.rstrip("\n").splitlines()]
    return [f"{name}: {lines[0]}", *lines[1:]] if flow else lines


def _one_line(text: str) -> str:
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())

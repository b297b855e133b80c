"""The experiments' commands are such that the command line takes, and their READMEs name steps that exist."""

import re
import runpy
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.core import TyperGroup
from typer.main import get_command

from airrep.cli.app import app

FOLDER = Path(__file__).parents[2] / "experiments"
COMMANDS = get_command(app)
NAMES = sorted(path.parent.name for path in FOLDER.glob("*/config.yaml"))
CALLS = sorted(
    {
        shlex.join(shlex.split(line, comments=True)[2:])
        for readme in FOLDER.glob("*/README.md")
        for line in re.findall(r"^python experiments/run\.py .*$", readme.read_text(), flags=re.MULTILINE)
        if " NAME" not in line
    }
)


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[str], list[str]]:
    """What `run.py ARGUMENTS --list` prints, a command each."""
    main = runpy.run_path(str(FOLDER / "run.py"))["main"]

    def call(arguments: str) -> list[str]:
        monkeypatch.setattr(sys, "argv", ["run.py", *shlex.split(arguments), "--list"])
        main()
        return [line.removeprefix("$ ") for line in capsys.readouterr().out.splitlines()]

    return call


def _parse(words: list[str]) -> None:
    command: Any = COMMANDS
    while isinstance(command, TyperGroup):
        words = words[1:]
        command = command.commands[words[0]]
    command.make_context(words[0], words[1:])


@pytest.mark.parametrize("name", NAMES)
def test_every_command_is_one_that_airrep_takes_or_a_script(name: str, listed: Callable[[str], list[str]]) -> None:
    commands = listed(name)
    assert commands
    for command in commands:
        program, *words = shlex.split(command)
        if program == "python":
            assert (FOLDER / words[0]).is_file(), command
        else:
            assert program == "airrep"
            _parse([program, *words])


def test_commands_whose_cost_was_measured_are_such_that_airrep_takes() -> None:
    costs = yaml.safe_load((FOLDER / "smollm2" / "costs.yaml").read_text())
    for part in (part for parts in costs.values() for part in parts):
        assert part["seconds"] > 0
        _parse(shlex.split(part["command"]))


def test_a_command_with_an_option_that_airrep_lacks_does_not_pass() -> None:
    with pytest.raises(Exception, match=r"No such option: --rat"):
        _parse(shlex.split("airrep label subsets data.jsonl --lm lm --out labels --rat 2"))


@pytest.mark.parametrize("call", CALLS)
def test_every_call_in_a_readme_runs_something(call: str, listed: Callable[[str], list[str]]) -> None:
    assert listed(call.replace(" --list", ""))

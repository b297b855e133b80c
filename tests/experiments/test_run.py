"""Running the commands of an experiment."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "experiments" / "run.py"
CONFIG = """
tables:
  role: {tasks: {rate: 1}, safety: {rate: 2}}
  method: {tfidf: }
  size: {25: , 50: }
steps:
  - {name: data, only: {size: 25}, commands: ["airrep sample"]}
  - {name: labels, each: [role], commands: ["airrep label {role} --rate {rate}"]}
  - {name: evaluate, each: [role, method], commands: ["airrep evaluate {role} {method}"]}
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, with one small experiment."""
    spec = importlib.util.spec_from_file_location("experiments_run", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "config.yaml").write_text(CONFIG)
    monkeypatch.setattr(script, "HERE", tmp_path)
    return script


@pytest.fixture
def list_commands(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., list[str]]:
    """What the script lists, asked with some arguments."""

    def run(*arguments: str) -> list[str]:
        monkeypatch.setattr(sys, "argv", ["run.py", "small", "--list", *arguments])
        script.main()
        return capsys.readouterr().out.splitlines()

    return run


TASKS, SAFETY = "$ airrep label tasks --rate 1", "$ airrep label safety --rate 2"


@pytest.mark.parametrize(
    ("asked", "listed"),
    [
        ("--step labels --step evaluate --only role=safety", [SAFETY, "$ airrep evaluate safety tfidf"]),
        ("--step labels --only role=tasks --only role=safety", [TASKS, SAFETY]),
        ("--step data --only size=25", ["$ airrep sample"]),
        ("--step data --only size=50", []),
    ],
)
def test_chosen_steps_and_turns_alone_are_listed(
    list_commands: Callable[..., list[str]], asked: str, listed: list[str]
) -> None:
    assert list_commands(*asked.split()) == listed


def test_an_experiment_that_does_not_exist_is_refused_in_a_line_that_names_those_that_do(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["run.py", "large"])
    with pytest.raises(SystemExit, match=r"^large: has no config; expected one of: small\.$"):
        script.main()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--step", "label"], "--step label: is no step here; expected one of: data, labels, evaluate."),
        (["--step", "labels", "--step", "all"], "--step all: is no step here; expected one of: data, labels, evaluate"),
        (["--only", "rôle=tasks"], "--only rôle=tasks: is no turn of a loop; expected KEY=VALUE, KEY one of: role, "),
        (["--only", "role"], "--only role: is no turn of a loop; expected KEY=VALUE, KEY one of: role, method, size."),
        (["--only", "role=task"], "--only role=task: role has no such value; expected one of: tasks, safety."),
    ],
)
def test_steps_and_turns_that_do_not_exist_are_refused_in_a_line_that_names_what_does(
    list_commands: Callable[..., list[str]], capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        list_commands(*arguments)
    assert str(ended.value.code).startswith(message)
    assert "\n" not in str(ended.value.code)
    assert capsys.readouterr().out == ""

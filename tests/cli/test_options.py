"""Options that are settings: their names and defaults are the settings' own."""

import re
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Annotated, Any, get_args, get_type_hints

import pytest
import typer
from typer.testing import CliRunner

from airrep.cli.evaluate_commands import SelectionOptions
from airrep.cli.label_commands import SamplingOptions, WarmupOptions
from airrep.cli.options import ComputeOptions, OutputOptions, ReadingOptions, shared_options
from airrep.cli.plan_commands import PlanOptions
from airrep.cli.train_commands import TeacherOptions, TrainingOptions
from airrep.evaluation.select.select import SelectSettings
from airrep.labels.plan import SamplingSettings
from airrep.labels.teacher import TeacherSettings
from airrep.lm.settings import LmSettings
from airrep.lm.warmup import warm_up
from airrep.planning.plan_request import PlanRequest
from airrep.runtime.settings import Settings
from airrep.training.settings import TrainingSettings


@pytest.mark.parametrize(
    ("options", "settings", "prefix"),
    [
        (SamplingOptions, SamplingSettings, ""),
        (ComputeOptions, LmSettings, ""),
        (TrainingOptions, TrainingSettings, ""),
        (SelectionOptions, SelectSettings, ""),
        (TeacherOptions, TeacherSettings, "teacher_"),
    ],
)
def test_flags_have_the_names_and_defaults_of_settings(options: type, settings: type[Settings], prefix: str) -> None:
    """They are handed on by their names; a default is left to the settings, or is the same, and so in the help."""
    hints = get_type_hints(options, include_extras=True)
    for field in fields(options):
        if field.name in ("teacher", "teacher_queries"):
            continue
        default = settings.model_fields[field.name.removeprefix(prefix)].default
        assert field.default in (None, default), field.name
        beside = get_args(hints[field.name])[1]
        shown = re.search(r"\(([\d,]+)\)", beside) if isinstance(beside, str) else None
        if shown:
            number = default[0] if isinstance(default, tuple) else default
            assert shown[1] == f"{number:,}", field.name


def test_what_is_planned_has_the_names_and_defaults_of_a_request() -> None:
    wanted = {field.name: field.default for field in fields(PlanRequest)}
    for field in fields(PlanOptions):
        assert str(field.default) == str(wanted[field.name]), field.name
        assert field.default is not MISSING


def test_a_warm_up_takes_its_options_by_name() -> None:
    assert {field.name for field in fields(WarmupOptions)} <= set(warm_up.__annotations__)


def run(command: Callable[..., None], *arguments: str) -> Any:
    app = typer.Typer()
    app.command()(shared_options(command))
    return CliRunner().invoke(app, arguments)


def test_a_command_takes_option_classes_and_gives_their_fields_other_help() -> None:
    taken = []

    def command(
        name: Annotated[str, typer.Argument()],
        *,
        reading: ReadingOptions,
        delivery: Annotated[OutputOptions, {"run": "Keep it here."}],
        dry_run: Annotated[bool, "Only look."] = False,
    ) -> None:
        taken.append((name, reading, delivery, dry_run))

    assert run(command, "a", "--id-field", "key", "--json", "--dry-run").exit_code == 0
    assert taken == [("a", ReadingOptions(id_field="key"), OutputOptions(as_json=True), True)]
    shown = run(command, "--help").output
    assert "Keep it here." in shown
    assert "Only look." in shown
    assert "Reading data" in shown
    assert "--no-dry-run" not in shown
    assert "Also write the result" not in shown
    assert run(command, "a", "--no-dry-run").exit_code == 2

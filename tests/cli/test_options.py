"""Options that are settings: their names and defaults are the settings' own."""

import re
from collections.abc import Callable
from dataclasses import fields
from typing import Annotated, Any, get_args, get_type_hints

import pytest
import typer
from typer.testing import CliRunner
from worlds.commands import runner

from airrep.cli.evaluate_commands import SelectionOptions
from airrep.cli.flags import SettingsFlags
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

SIMPLE = (int, float, bool, str)


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        (SamplingOptions, SamplingSettings),
        (ComputeOptions, LmSettings),
        (TrainingOptions, TrainingSettings),
        (SelectionOptions, SelectSettings),
        (get_type_hints(TeacherOptions, include_extras=True)["settings"], TeacherSettings),
    ],
)
def test_flags_are_the_fields_of_settings(options: Any, settings: type[Settings]) -> None:
    """What is read from the source is what pydantic knows: type, default, limit, docstring."""
    flags: SettingsFlags = get_args(options)[1]
    assert flags.source == f"{settings.__module__}:{settings.__name__}"
    for name, option in zip(flags.names, flags.options(), strict=True):
        known = settings.model_fields[name]
        kind, shown = get_args(option.annotation)
        assert option.name == flags.prefix + name
        words = " ".join(str(known.description).split()).partition(". ")[0].removesuffix(".")
        assert shown.help.startswith(words), name
        if flags.mode == "own":
            assert option.default == known.default, name
            assert shown.min == next((limit.ge for limit in known.metadata if hasattr(limit, "ge")), None), name
        else:
            assert option.default is None, name
            number = re.search(r" \(([\d,]+)\)\.$", shown.help)
            default = known.default[0] if isinstance(known.default, tuple) else known.default
            assert (number and number[1]) == (f"{default:,}" if type(default) is int and default > 0 else None), name
        simple = {annotation for annotation in (known.annotation, *get_args(known.annotation)) if annotation in SIMPLE}
        assert (kind in SIMPLE and kind in simple) or kind in (str, str | None) or get_args(kind)[0] in simple, name


def test_what_is_planned_has_the_fields_of_a_request() -> None:
    wanted = {field.name: field.default for field in fields(PlanRequest)}
    for option in get_args(PlanOptions)[1].options():
        assert str(option.default) == str(wanted[option.name]), option.name


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


def test_an_option_given_twice_of_which_one_counts_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = runner(capsys, monkeypatch)
    ran = run("explain", "idx", "--prompt", "p", "--response", "r", "--better", "a", "--better=b")
    assert (ran.status, ran.out) == (1, "")
    assert ran.err == (
        "airrep: error: explain: --better is given 2 times, and one value counts; expected it once. "
        "Leave the others out.\n"
    )
    assert "--count is given 2 times" in run("select", "idx", "q", "--count", "3", "--count", "3").err
    assert "report: --title is given 3 times" in run("report", "r", *(["--title", "t"] * 3), "--out", "o").err
    assert "lds: --pool is given 2 times" in run("evaluate", "lds", "i", "--pool", "sum", "--pool", "mean").err
    ran = run("index", "data.jsonl", "--out", "o", "--set", "ngrams=1", "--set", "ngrams=2", "--set", "view=response")
    assert "--set ngrams=2: 'ngrams' is set already" in ran.err


def test_an_argument_given_as_an_option_is_told_its_place(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = runner(capsys, monkeypatch)
    ran = run("top", "idx", "--queries", "q.jsonl")
    assert (ran.status, ran.out) == (1, "")
    assert ran.err == (
        "airrep: error: top: --queries is no option; expected airrep top [OPTIONS] {INDEX} [QUERIES]. "
        "Give the value alone, at its place.\n"
    )
    assert "lds: --index is no option; expected airrep evaluate lds" in run("evaluate", "lds", "--index=i").err
    assert "No such option: --nope" in run("top", "idx", "q", "--nope").err


def test_flags_and_options_that_may_be_repeated_are_as_before(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = runner(capsys, monkeypatch)
    assert run("methods", "tfidf", "--json", "--json").status == 0
    assert "times" not in run("delete", "idx", "--id", "a", "--id", "b").err

"""Options that are settings: their names and defaults are the settings' own."""

import json
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, get_args

import pytest
import typer
from typer.testing import CliRunner
from worlds.commands import Run

from airrep.cli.evaluate_commands import SelectionOptions
from airrep.cli.flags import Setting, SettingsFlags
from airrep.cli.label_commands import SamplingOptions, WarmupOptions
from airrep.cli.options import ComputeOptions, OutputOptions, ReadingOptions, TuningOptions, shared_options
from airrep.cli.train_commands import TrainingOptions
from airrep.errors import ConfigError
from airrep.evaluation.select import SelectSettings
from airrep.labels.plan import SamplingSettings
from airrep.lm.settings import LmSettings
from airrep.lm.warmup import warm_up
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
    ],
)
def test_flags_are_the_fields_of_settings(options: Any, settings: type[Settings]) -> None:
    """What is read from the source is what pydantic knows: type, default, limit, docstring."""
    flags: SettingsFlags = get_args(options)[1]
    assert flags.source == f"{settings.__module__}:{settings.__name__}"
    for name, option in zip((*flags.names, *flags.rare), flags.options(), strict=True):
        known = settings.model_fields[name]
        kind, shown = get_args(option.annotation)
        assert option.name == name
        words = " ".join(settings.meanings()[name].split()).partition(". ")[0].removesuffix(".")
        if name in flags.rare:
            assert (shown.text, option.default) == (f"{words}.", known.default), name
            assert shown.least == next((limit.ge for limit in known.metadata if hasattr(limit, "ge")), None), name
            continue
        assert shown.help.startswith(words), name
        if flags.mode == "own":
            assert option.default == known.default, name
            assert shown.min == next((limit.ge for limit in known.metadata if hasattr(limit, "ge")), None), name
        else:
            assert option.default is None, name
            number = re.search(r" \(default ([\d,]+)\)\.$", shown.help)
            default = known.default[0] if isinstance(known.default, tuple) else known.default
            assert (number and number[1]) == (f"{default:,}" if type(default) is int and default > 0 else None), name
        simple = {annotation for annotation in (known.annotation, *get_args(known.annotation)) if annotation in SIMPLE}
        assert (kind in SIMPLE and kind in simple) or kind in (str, str | None) or get_args(kind)[0] in simple, name


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


def test_an_option_given_twice_of_which_one_counts_is_refused(run: Run) -> None:
    ran = run("top", "idx", "--prompt", "p", "--response", "r", "--better", "a", "--better=b")
    assert (ran.status, ran.out) == (1, "")
    assert ran.err == ("airrep: error: top: --better is given 2 times, but it takes only one value. Give it once.\n")
    assert "--count is given 2 times" in run("select", "idx", "q", "--count", "3", "--count", "3").err
    assert "report: --out is given 3 times" in run("report", "r", *(["--out", "o"] * 3)).err
    assert "evaluate: --pool is given 2 times" in run("evaluate", "i", "--pool", "sum", "--pool", "mean").err
    ran = run("index", "data.jsonl", "--out", "o", "--set", "ngrams=1", "--set", "ngrams=2", "--set", "view=response")
    assert "--set ngrams=2: 'ngrams' is set twice" in ran.err


def test_an_argument_as_an_option_is_told(run: Run) -> None:
    ran = run("top", "idx", "--queries", "q.jsonl")
    assert (ran.status, ran.out) == (1, "")
    assert ran.err == (
        "airrep: error: top: --queries is not an option, but an argument. Give its value without the name: "
        "airrep top [OPTIONS] {INDEX} [QUERIES]\n"
    )
    assert "evaluate: --index is not an option" in run("evaluate", "--index=i").err
    assert "No such option: --nope" in run("top", "idx", "q", "--nope").err


def test_flags_and_options_that_may_be_repeated_are_as_before(run: Run) -> None:
    assert run("show", "tfidf", "--json", "--json").status == 0
    assert "times" not in run("delete", "idx", "--id", "a", "--id", "b").err


def told(capsys: pytest.CaptureFixture[str], lm: str, **options: Any) -> tuple[Any, list[str]]:
    """Settings of the fine-tunes, and what is said of them."""
    tuning = TuningOptions(**options).of_lm(lm, reading=ReadingOptions())[1]
    return tuning, capsys.readouterr().err.splitlines()


def test_fine_tunes_take_the_settings_of_a_training_where_none_is_given(tmp_path: Path, capsys) -> None:
    config = tmp_path / "run.yaml"
    config.write_text("base_model: b\nlearning_rate: 3e-4\nnum_epochs: 4\nsample_packing: true\n")
    tuning, lines = told(capsys, "owner/name", training=config, settings={"epochs": 7})
    assert (tuning.learning_rate, tuning.epochs, tuning.schedule) == (3e-4, 7, "cosine")
    assert len(lines) == 1
    assert "learning_rate 0.0003" in lines[0]
    assert f"from {config}; not followed: sample_packing; set on the command line: epochs" in lines[0]
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="does not contain the learning rate"):
        told(capsys, "owner/name", training=tmp_path / "empty")


def test_the_rate_is_told_where_nobody_said_it(tmp_path: Path, capsys) -> None:
    tuning, lines = told(capsys, "owner/name", settings={"epochs": 3})
    assert tuning.learning_rate == 2e-5
    (line,) = lines
    assert line.startswith("fine-tunes use airrep's default learning rate: learning_rate 2e-05, 3 epochs, batch 32, ")
    assert "--training" in line
    assert told(capsys, "owner/name", settings={"learning_rate": 2e-5})[1] == []


def test_what_lies_beside_an_adapter_is_read_by_itself(tmp_path: Path, capsys) -> None:
    adapter = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]}
    (tmp_path / "adapter_config.json").write_text(json.dumps(adapter))
    tuning, lines = told(capsys, str(tmp_path))
    assert (tuning.lora_rank, tuning.lora_targets, tuning.learning_rate) == (4, ("q_proj",), 2e-5)
    assert ["airrep's default learning rate" in line for line in lines] == [False, True]
    (tmp_path / "args.json").write_text(json.dumps({"learning_rate": 1e-3, "tuner_type": "lora"}))
    tuning, lines = told(capsys, str(tmp_path))
    assert (tuning.lora_rank, tuning.learning_rate) == (4, 1e-3)
    assert len(lines) == 1
    as_it_is, lines = told(capsys, str(tmp_path), settings={"merged": True, "learning_rate": 1})
    assert as_it_is.lora_rank is None  # of another training than the one that is asked about
    assert lines == []
    (tmp_path / "args.json").write_text("{")
    tuning, lines = told(capsys, str(tmp_path), settings={"learning_rate": 1})
    assert tuning.lora_rank is None
    assert len(lines) == 1
    assert lines[0].startswith(f"{tmp_path / 'args.json'}: cannot be read as JSON (JSONDecodeError). Restore the file.")


def test_what_few_people_set_is_given_by_set_alone(tmp_path: Path) -> None:
    taken: list[tuple[Any, ...]] = []

    def command(
        order: Annotated[int, Setting("Words.", 4)] = 8, vote: Annotated[list[int] | None, Setting("K.", 1)] = None
    ) -> None:
        """Do it."""
        taken.append((order, vote))

    (tmp_path / "own.yaml").write_text("order: 5\nvote: [2]\n")
    assert run(command).exit_code == 0
    assert run(command, "--set", "order=6", "--set", "vote=3,4").exit_code == 0
    assert run(command, "--set", str(tmp_path / "own.yaml"), "--set", "order=7").exit_code == 0
    assert taken == [(8, None), (6, [3, 4]), (7, [2])]
    assert "--set order=...: Words (default 8)." in run(command, "--help").output
    for wrong, told in {"order=x": "integer", "order=3": "4 or more", "size=1": "Use one of order, vote"}.items():
        error = run(command, "--set", wrong).exception
        assert isinstance(error, ConfigError)
        assert told in str(error)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("audit index q.jsonl --nearly 0.5", "--set nearly=VALUE"),
        ("index d.jsonl --out i --config a.yaml", "--set FILE.yaml"),
        ("index d.jsonl --out i --shard 1/2", "--part i/n"),
        ("mix index q.jsonl --axolotl d", "--write axolotl=DIR"),
        ("evaluate i --labels l --removals", "airrep recognizes labels of removals"),
        ("evaluate lds i --labels l", "airrep evaluate INDEX... --labels LABELS"),
        ("judge index", "airrep prove INDEX QUERIES --lm MODEL --budget"),
    ],
)
def test_what_is_gone_says_what_to_type(line: str, told: str, run: Run) -> None:
    ran = run(*line.split())
    assert ran.status in (1, 2)
    assert told in ran.err
    assert ran.err.count("\n") == 1

"""The command `airrep plan`."""

import json
from pathlib import Path

import pytest
from worlds.commands import runner
from worlds.small_world import TEXTS
from worlds.tiny_bert import tiny_folder
from worlds.tiny_lms import tiny_lm

import airrep
from airrep.errors import ConfigError
from airrep.runtime.engine import InProcess


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """Runs a command in a folder with data and models; returns status, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    tiny_lm(tmp_path / "lm")
    tiny_folder(tmp_path / "encoder", ((16, 16, True),))
    lines = (json.dumps(example.to_dict()) + "\n" for example in TEXTS)
    (tmp_path / "data.jsonl").write_text("".join(lines))
    return runner(capsys, monkeypatch)


TINY = ("--lm", "lm", "--encoder", "encoder", "--train-layers", "1", "--seconds", "2", "--set", "rank=2", "--size", "8")


@pytest.fixture
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure in this process: starting others takes long."""
    monkeypatch.setattr("airrep.planning.plan_request.LocalProcesses", lambda workers: InProcess())


@pytest.mark.usefixtures("_here")
def test_a_plan_is_written_printed_and_compared_with_a_real_run(run, tmp_path: Path) -> None:
    airrep.build_index(TEXTS, tmp_path / "index", "airrep", settings={"encoder": "encoder"})
    arguments = ("plan", "data.jsonl", *TINY, "--method", "tracin", "--against", "index", "--out", "plan")
    status, shown, told = run(*arguments)
    assert status == 0
    assert "measuring tracin" in told
    assert "against tracin:" in shown
    assert "index: 400 examples by airrep" in shown.replace("\n", " ")
    value = json.loads((tmp_path / "plan" / "result.json").read_bytes())
    assert value["corpus"] == 400
    assert value["command"].startswith("airrep plan data.jsonl --lm lm")
    assert [method["name"] for method in value["methods"]] == ["airrep", "tracin"]
    (real,) = value["last_real"]
    assert real["measured_seconds"] > 0
    assert real["predicted_seconds"] > 0
    status, _, told = run(*arguments)
    assert status == 1
    assert "exists already" in told


@pytest.mark.usefixtures("_here")
def test_methods_without_lm_are_planned_without_one(run, tmp_path: Path) -> None:
    airrep.build_index(TEXTS, tmp_path / "index", "dsir")
    asked = ("plan", "data.jsonl", "--encoder", "encoder", "--method", "dsir", "--seconds", "2", "--device", "cpu")
    status, shown, told = run(*asked, "--against", "index", "--out", "plan")
    assert status == 0, told
    assert "plan: no LM: nothing is fine-tuned, so the encoder is taken as it is" in told
    assert "measuring labels" not in told
    assert "400 examples; " in shown
    assert "without labels and training of its own. Seconds are those of one core" in " ".join(shown.split())
    value = json.loads((tmp_path / "plan" / "result.json").read_bytes())
    assert [method["name"] for method in value["methods"]] == ["airrep", "dsir"]
    assert list(value["methods"][0]["fixed_parts"]) == ["fit"]
    assert (value["lm"], value["crossovers"]) == (None, [])
    assert value["last_real"][0]["what"].startswith("index: 400 examples by dsir")
    assert run("report", "plan", "--out", "plan.html").status == 0
    for more, message in (
        (("--method", "logra"), "plan: method 'logra' reads a language model. Give --lm, or leave it out."),
        (("--set", "epochs=3"), "plan: 'epochs' is a setting of fine-tuning, and there is no LM. Give --lm, or"),
        (("--train-layers", "1"), "--train-layers: belongs to labels and training, which need an LM. Give --lm, or"),
        (("--steps", "7"), "--steps: belongs to labels and training, which need an LM. Give --lm, or leave it out."),
        (("--set", "max_tokens=3"), "plan: none of the methods has a setting 'max_tokens'"),
    ):
        ran = run(*asked, *more)
        assert (ran.status, message in ran.err) == (1, True), ran.err


@pytest.mark.usefixtures("_here")
def test_what_is_planned_by_default_depends_on_the_lm(run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    def benchmark(request, tell):
        asked.append(request.methods)
        raise ConfigError("enough")

    monkeypatch.setattr("airrep.planning.plan_request.run_benchmarks", benchmark)
    for flags in ((), ("--lm", "lm"), ("--set", "lm=lm")):
        assert "enough" in run("plan", "data.jsonl", *flags).err
    assert asked == [("channels",), ("channels", "logra"), ("channels", "logra")]


@pytest.mark.usefixtures("_here")
def test_the_newest_runs_below_the_current_folder_are_compared_with(run, tmp_path: Path) -> None:
    airrep.build_index(TEXTS, tmp_path / "runs" / "index", "airrep", settings={"encoder": "encoder"})
    status, shown, told = run("plan", "data.jsonl", *TINY, "--method", "tracin", "--json")
    assert status == 0
    assert "will be compared with runs/index; --against names others" in told
    (real,) = json.loads(shown)["last_real"]
    assert real["what"] == "index: 400 examples by airrep, with its fit"


@pytest.mark.slow
def test_a_plan_without_data_takes_the_texts_that_come_along_and_says_so(run) -> None:
    arguments = ("plan", "--examples", "1000000", *TINY[:-4], "--method", "tracin", "--set", "rank=2", "--json")
    status, shown, told = run(*arguments)
    assert status == 0
    assert "the texts that come with airrep are taken as typical" in told
    value = json.loads(shown)
    assert value["corpus"] == 1_000_000
    tracin = value["methods"][1]
    assert tracin["store_bytes"] == pytest.approx(1_000_000 * tracin["store_bytes_per_example"])
    assert 2**26 < tracin["memory_bytes"] < 2**36


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--lm", "lm"), "plan: expected DATA or --examples"),
        (("data.jsonl", "--lm", "lm", "--seconds", "0"), "plan: seconds is 0; expected 1 or more"),
        (("data.jsonl", "--lm", "lm", "--examples", "-3"), "plan: examples is -3; expected 1 or more"),
        (("data.jsonl", "--lm", "lm", "--method", "magic"), "method 'magic': does not exist"),
        (("data.jsonl", "--lm", "lm", "--against", "lm"), "lm: no index, labels or encoder below it"),
        (("data.jsonl", "--lm", "lm", "--set", "learning_rate=-1"), "learning_rate=-1: input should be greater than 0"),
    ],
)
def test_nonsense_is_one_line_and_costs_no_time(run, arguments: tuple[str, ...], message: str) -> None:
    status, shown, told = run("plan", *arguments)
    assert status == 1
    assert shown == ""
    assert message in told
    assert "measuring" not in told


def test_fine_tunes_are_planned_as_a_training_was(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flag of --set counts before it; without an LM it belongs to nothing."""
    wishes = []

    def stopped(wish, *_):
        wishes.append(wish)
        raise ConfigError("measured enough")

    monkeypatch.setattr("airrep.planning.plan_request.run_benchmarks", stopped)
    (tmp_path / "run.yaml").write_text("base_model: b\nlearning_rate: 3e-4\nnum_epochs: 4\n")
    given = ("--training", "run.yaml", "--set", "batch_examples=3")
    told = run("plan", "data.jsonl", *TINY, *given).err
    (wish,) = wishes
    assert (wish.tuning.epochs, wish.tuning.learning_rate, wish.tuning.batch_examples) == (4, 3e-4, 3)
    assert wish.learning.epochs == 4
    assert "from run.yaml" in told
    assert "set here: batch_examples" in told
    run("plan", "data.jsonl", *TINY, "--set", "batch_examples=3")
    assert wishes[1].tuning.model_fields_set == {"batch_examples"}
    assert "--training: belongs to labels and training" in run("plan", "data.jsonl", "--training", "run.yaml").err
    assert len(wishes) == 2


@pytest.mark.usefixtures("_here")
def test_too_few_examples_are_told(run, tmp_path: Path) -> None:
    lines = (tmp_path / "data.jsonl").read_text().splitlines()[:20]
    (tmp_path / "few.jsonl").write_text("\n".join(lines))
    status, _, told = run("plan", "few.jsonl", *TINY)
    assert status == 1
    assert "20 examples are too few to measure on; expected 64 or more" in told

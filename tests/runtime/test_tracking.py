"""Numbers reach trackio, wandb and MLflow; what goes wrong there ends nothing."""

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from worlds.commands import Run, done
from worlds.small_world import make_corpus
from worlds.trackers import TRACKERS, write_trackers

from airrep.errors import ConfigError
from airrep.runtime.tracking import LONGEST, Tracker


@pytest.fixture
def logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(tmp_path / "modules")
    for name in TRACKERS:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield write_trackers(tmp_path / "modules")
    for name in TRACKERS:
        sys.modules.pop(name, None)


def lines(file: Path) -> list[list[Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.mark.parametrize("name", TRACKERS)
def test_a_run_is_logged_from_beginning_to_end(name: str, logged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told: list[str] = []
    tracker = Tracker(
        f"{name}:mine", "train encoder", {"lm": "x" * 999, "out": Path("o"), "queries": None}, told.append
    )
    tracker.log({"loss": 1.5, "pairs": 3, "name": "a", "none": None, "bad": math.nan, "yes": True})
    tracker.log({"LDS × 100": 12.0}, step=7)
    tracker.log({"loss": 1.0}, step=3)  # no step goes back: wandb would drop it
    tracker.finish(failed=True)
    tracker.log({"loss": 0.5})
    expected = {"lm": "x" * LONGEST, "out": "o"}
    began = [["init", "mine"], ["start", "train encoder"], ["params", expected]]
    failed = {"trackio": None, "wandb": 1, "mlflow": "FAILED"}[name]
    assert lines(logged) == [
        *(began if name == "mlflow" else [["init", "mine", "train encoder", expected]]),
        ["log", {"loss": 1.5, "pairs": 3.0}, 1],
        ["log", {"LDS _ 100": 12.0}, 7],
        ["log", {"loss": 1.0}, 7],
        ["finish", failed],
    ]
    assert told == []
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("moment", ["init", "log", "finish"])
def test_a_tracker_that_fails_is_told_once(moment: str, logged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKER_FAILS", moment)
    told: list[str] = []
    tracker = Tracker("wandb", "run", {}, told.append)
    for _ in range(2):
        tracker.log({"loss": 1.0})
    tracker.finish()
    assert told == ["--track: nothing is logged from here on (OSError: no network at all); the work goes on"]
    assert len(lines(logged)) == {"init": 0, "log": 1, "finish": 3}[moment]


def test_what_is_no_tracker_is_refused(logged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"--track tracio: is not a tracker. It must be trackio, .*'trackio'"):
        Tracker("tracio", "run", {}, print)
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ConfigError, match="mlflow cannot be imported. Install it: pip install mlflow"):
        Tracker("mlflow", "run", {}, print)
    monkeypatch.setenv("RANK", "1")  # of torchrun's processes the first logs
    Tracker("wandb", "run", {}, print).log({"loss": 1.0})
    Tracker(None, "run", {}, print).log({"loss": 1.0})
    assert lines(logged) == []


def test_an_evaluation_is_logged_and_one_that_fails_says_so(
    logged: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, corpus in (("train", make_corpus(30)), ("queries", make_corpus(6, "q"))):
        Path(f"{name}.jsonl").write_text("".join(json.dumps(one.to_dict()) + "\n" for one in corpus))
    assert run("index", "train.jsonl", "--out", "index", "--method", "tfidf").status == 0
    asked = ("evaluate", "index", "--queries", "queries.jsonl", "--track", "wandb:mine", "--json", "--out", "judged")
    ran = done(run(*asked))
    found = json.loads(ran.out)  # nothing of the tracker stands in it
    began, numbers, ended = lines(logged)
    assert began[:3] == ["init", "mine", "evaluate judged"]
    assert began[3]["queries"] == "queries.jsonl"
    assert numbers == ["log", {"classify/index": found["rows"][0]["value"]}, 1]
    assert ended == ["finish", 0]
    logged.unlink()
    assert run("evaluate", "index", "--queries", "gone.jsonl", "--track", "wandb").status == 1
    assert [one[0] for one in lines(logged)] == ["init", "finish"]
    assert lines(logged)[1] == ["finish", 1]
    logged.unlink()
    assert "is not a tracker" in run("evaluate", "gone", "--queries", "gone.jsonl", "--track", "me").err

"""Dry runs: each command prints what its work will take, and writes nothing."""

import re
from pathlib import Path
from typing import Any

import pytest
from worlds.commands import Run, done
from worlds.small_world import WORDED
from worlds.toy_farm import QUERIES, TRAIN, make_plan
from worlds.training_world import planted

from airrep.planning import budget
from airrep.planning.budget import Costs, LearnPlan

WRITTEN = ("plan", "train.jsonl", "queries.jsonl", "worded.jsonl")


@pytest.fixture
def run(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    make_plan(Path("plan"))
    for name, corpus in (("train", TRAIN), ("queries", QUERIES), ("worded", WORDED)):
        corpus.to_jsonl(Path(f"{name}.jsonl"))
    return run


def told(run: Run, *arguments: str) -> str:
    """What a dry run prints; nothing is written."""
    ran = done(run(*arguments, "--dry-run"))
    assert sorted(path.name for path in Path().iterdir()) == sorted(WRITTEN)
    return str(ran.out)


def test_an_index_is_measured_and_not_made(run: Run) -> None:
    printed = told(run, "index", "worded.jsonl", "--out", "index", "--method", "tfidf", "--workers", "2")
    names = [line.split()[0] for line in printed.splitlines()]
    assert {"examples", "time", "disk"} <= set(names)
    assert f"{len(WORDED)}; measured on" in printed
    assert " on 2\n" in printed


def test_the_recipe_that_is_named_is_the_one_that_is_measured(run: Run) -> None:
    Path("words.yaml").write_text("channels:\n- method: tfidf\n")
    printed = [
        run("index", "worded.jsonl", "--out", "index", *more, "--dry-run").out
        for more in ((), ("--recipe", "text"), ("--recipe", "words.yaml"))
    ]
    usual, text, words = (re.findall("disk +(.*?) each", out) for out in printed)
    assert usual == text != words
    assert run("index", "worded.jsonl", "--out", "index", "--recipe", "nothing", "--dry-run").status == 1


LABEL = ("label", "plan", "train.jsonl", "--queries", "queries.jsonl", "--out", "labels")


def test_labels_are_timed_with_their_seeds_and_their_share(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "measure_lm", lambda *_: (1.0, 0.5))
    monkeypatch.setattr("airrep.lm.settings.LmSettings.before", lambda own: own)
    assert "fine-tunes  20;" in told(run, *LABEL, "--lm", "small", "--seeds", "2")
    assert "fine-tunes  3;" in told(run, *LABEL, "--lm", "small", "--part", "2/3")
    ran = run(*LABEL, "--import", "losses.npy", "--dry-run")
    assert ran.status == 1
    assert "--dry-run" in ran.err


def test_a_training_counts_steps(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "measure_encoder", lambda *_: (0.1, 4))
    learn = [planted(1, "a", n=30, q=8, m=10, size=6)]
    monkeypatch.setattr("airrep.labels.gather.gather", lambda part, *_, **__: learn if part else [])
    monkeypatch.setattr("airrep.labels.gather.label_lineage", lambda *_, **__: {})
    assert "steps   30;" in told(run, "train", "labels", "--out", "encoder", "--steps", "30")


def test_adapting_tells_its_plan_and_when_an_encoder_pays(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = LearnPlan(
        size=4, subsets=6, held_out_subsets=8, pool=20, held_out_pool=10, queries=5, held_out_queries=4, epochs=1,
        train_layers=1, steps=6,
    )  # fmt: skip
    costs: dict[str, Any] = {"fine_tune": 0.4, "evaluate": 0.1, "encode": 0.01, "layers": 2}
    monkeypatch.setattr("airrep.planning.adapt.measure_machine", lambda *_: Costs(**costs))
    monkeypatch.setattr("airrep.planning.adapt.choose", lambda *_: plan)
    monkeypatch.setattr("airrep.planning.adapt.Adaptation._usable", lambda *_: [None] * 1000)
    monkeypatch.setattr("airrep.planning.adapt.check_enough", lambda _: None)
    monkeypatch.setattr("airrep.lm.settings.LmSettings.before", lambda own: own)
    printed = told(run, "adapt", "worded.jsonl", "--lm", "small", "--out", "adapted", "--budget", "1h")
    assert "22 fine-tunes to do" in printed
    assert "takes less time than computing their gradients" in printed


def test_a_command_that_is_gone_names_what_to_type(run: Run) -> None:
    ran = run("plan", "train.jsonl")
    assert (ran.status, ran.out) == (2, "")
    assert "--dry-run" in ran.err
    assert ran.err.count("\n") == 1

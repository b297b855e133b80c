"""The command evaluate --why, on labels that cost nothing."""

import json
from pathlib import Path

import pytest
from worlds.commands import done, refused
from worlds.toy_farm import FINE_TUNE, QUERIES, TRAIN, ToyWorld

from airrep.labels.farm import label
from airrep.labels.plan import SamplingSettings
from airrep.labels.sampling import sample

DATA = ("--data", "train.jsonl", "--data", "queries.jsonl")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Labels with two seeds and with one, and their data."""
    folder = tmp_path_factory.mktemp("world")
    for name, corpus in (("train", TRAIN), ("queries", QUERIES)):
        lines = (json.dumps(example.to_dict()) + "\n" for example in corpus)
        (folder / f"{name}.jsonl").write_text("".join(lines))
    sizes = {"instances": 1, "train_count": 30, "query_count": 6, "subsets": 12, "size": 6}
    plan = sample(TRAIN, folder / "plan", SamplingSettings(**sizes), QUERIES)
    for name, seeds in (("labels", 2), ("one", 1)):
        label(plan, TRAIN, QUERIES, ToyWorld(), FINE_TUNE, folder / name, seeds=seeds)
    return folder


@pytest.fixture
def run(folder, run, monkeypatch):
    """Run the command line in this process: its status, stdout and stderr."""
    monkeypatch.chdir(folder)
    if not Path("tfidf").exists():
        assert run("index", "train.jsonl", "--method", "tfidf", "--out", "tfidf")[0] == 0
    return run


def test_diagnose_prints_findings_worst_first_with_anchors_and_ends_well_whatever_it_finds(run):
    status, out, err = run("evaluate", "--why", "--labels", "labels", *DATA)
    assert (status, err) == (0, "")
    assert "6 queries, 12 subsets of 6 examples, and 2 seeds. Advice on each finding: docs/diagnosis.md." in out
    assert "#reliability-of-the-labels" in out
    words = [word for line in out.splitlines() if (word := line.strip("│ ").split(" ")[0]) in ("bad", "look", "good")]
    assert words == sorted(words, key=["bad", "look", "good"].index)
    assert {"bad", "good"} <= set(words)


def test_diagnose_says_what_a_second_seed_would_cost_by_the_times_that_labelling_noted(run):
    status, out, _ = run("evaluate", "--why", "--labels", "one", *DATA, "--json")
    assert status == 0
    found = {one["anchor"]: one for one in json.loads(out)["findings"]}
    assert found["reliability-of-the-labels"]["level"] == "unknown"
    assert "16 fine-tunes, about 0 s on one core" in found["reliability-of-the-labels"]["verdict"]


def test_diagnose_looks_at_an_index_and_writes_what_it_found_once(run):
    asked = ("evaluate", "tfidf", "--why", "--labels", "labels", *DATA, "--out", "run")
    _, out, err = done(run(*asked))
    assert "#nearly-constant-group-scores" in out
    assert "run: written" in err
    kept = json.loads(Path("run/result.json").read_text())
    assert kept["command"] == "airrep " + " ".join(asked)
    assert {one["about"] for one in kept["findings"]} == {"labels", "tfidf"}
    status, out, err = run(*asked, "--json")
    assert (status, json.loads(out)) == (0, kept)
    assert "run: was finished already" in err
    refused(run(*asked, "--pool", "mean"), "run: holds a diagnosis made with another pool (was None, now mean)")
    assert run(*asked, "--pool", "mean", "--replace")[0] == 0
    status, out, _ = run("show", "run", "--verify")
    assert status == 0
    assert "diagnosis" in out


def test_diagnose_refuses_an_index_of_other_data_in_one_line(run):
    run("index", "queries.jsonl", "--method", "tfidf", "--out", "small")
    refused(run("evaluate", "small", "--why", "--labels", "labels", *DATA), "small: lacks the example")


@pytest.mark.parametrize("beside", ["--set what_if=true", "--tune labels#0", "--tag role=x", "--set resamples=60"])
def test_what_a_diagnosis_would_leave_without_effect_is_refused(run, beside):
    status, out, err = run("evaluate", "tfidf", "--why", "--labels", "labels", *DATA, *beside.split())
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert beside.split()[0] in err
    assert "--why" in err

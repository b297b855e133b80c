"""Predictions beside real runs: indexes, labels, encoders."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from worlds.plan_world import MEASURES, WISH
from worlds.small_world import make_corpus
from worlds.tiny_lms import tiny_lm
from worlds.toy_farm import FINE_TUNE, QUERIES, TRAIN, ToyWorld, make_plan
from worlds.training_world import planted, tiny_settings

import airrep
from airrep.errors import ArtifactError, ConfigError
from airrep.labels.farm import label
from airrep.labels.labels import open_labels
from airrep.lm.settings import LmSettings
from airrep.planning.plan_request import Measures
from airrep.planning.real_runs import BY_THE_CLOCK, OTHER_LM, last_runs, real_run, runs_against
from airrep.planning.trials import MethodTrial, Repeats
from airrep.runtime.costs import label_cost, training_cost
from airrep.runtime.devices import resolve_precision
from airrep.runtime.metering import COSTS
from airrep.training.train import train_encoder

TFIDF = MethodTrial(Repeats((1.0, 2.0), (100.0, 200.0), (5, 10)), (20,), 1e9, "cpu", fits=((160.0, 0.8), (320.0, 1.6)))
WITH_TFIDF = replace(WISH, methods=("tfidf",))
ALL = Measures({**MEASURES.methods, "tfidf": TFIDF}, MEASURES.labels, MEASURES.training)


def _index(folder: Path, fit: float = 2.0, cpu: float = 3.0, threads: int = 1) -> Path:
    """An index of 100 examples that is said to have taken so long."""
    airrep.build_index(make_corpus(100), folder, "tfidf")
    lines = [json.loads(line) for line in (folder / COSTS).read_text().splitlines()]
    for line in lines:
        line.update(cpu=fit if line["stage"] == "fit" else cpu, threads=threads, rows={})
    (folder / COSTS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_an_index_is_predicted_by_its_own_number_of_examples(tmp_path: Path) -> None:
    found = real_run(WITH_TFIDF, _index(tmp_path / "index")).compare(ALL)
    assert found.what == "index: 100 examples by tfidf, with its fit"
    assert found.measured_seconds == pytest.approx(2 + 3)
    assert found.predicted_seconds == pytest.approx(100 * (20 * 0.01 + 0.1))  # a fit costs 0.1 s for each example
    assert found.conditions == ()
    assert found.memory_bytes is not None
    assert found.memory_bytes[0] > 1e9
    assert found.memory_bytes[1] > 2**24


def test_what_was_different_there_is_said(tmp_path: Path) -> None:
    index = _index(tmp_path / "index", threads=4)
    found = real_run(replace(WITH_TFIDF, texts=make_corpus(100, "other"), settings={"ngrams": 2}), index)
    assert set(found.conditions) == {"ngrams 1, planned 2", "4 threads, planned 1", "other texts"}


def test_a_plan_is_of_new_indexes(tmp_path: Path) -> None:
    """Of all linear maps, whatever the pool, which costs nothing."""
    lm, train = tiny_lm(tmp_path / "lm"), make_corpus(12)
    given = {"lm": lm, "rank": 2, "store": "none"}
    wish = replace(WISH, texts=train, lm=LmSettings(lm=lm), methods=("tracin",), settings={"rank": 2})
    for name, more in {"new": {}, "sum": {"pool": "sum"}, "paper": {"preset": "paper"}}.items():
        airrep.build_index(train, tmp_path / name, "tracin", settings={**given, **more})
        told = set(real_run(wish, tmp_path / name).conditions)
        maps = {"modules None, planned ['all-linear']"}
        assert told & maps == (maps if name == "paper" else set())
        assert not any("pool" in one or "temperature" in one for one in told)


def test_runs_that_cannot_be_compared_are_refused(tmp_path: Path) -> None:
    index = _index(tmp_path / "index")
    with pytest.raises(ConfigError, match="is of method 'tfidf', which is not planned for. Add --method tfidf"):
        real_run(WISH, index)
    (index / COSTS).unlink()
    with pytest.raises(ConfigError, match="what it cost is not known: it was not recorded"):
        real_run(WITH_TFIDF, index)
    make_plan(tmp_path / "plan")
    with pytest.raises(ConfigError, match="is of kind 'subsets'; expected an index, labels or an encoder"):
        real_run(WISH, tmp_path / "plan")
    with pytest.raises(ArtifactError, match="does not exist"):
        real_run(WISH, tmp_path / "nothing")


def test_labels_are_predicted_by_their_own_subsets_and_queries(tmp_path: Path) -> None:
    label(make_plan(tmp_path / "plan"), TRAIN, QUERIES, ToyWorld(), FINE_TUNE, tmp_path / "labels")
    found = real_run(WISH, tmp_path / "labels").compare(MEASURES)
    assert found.what == "labels: 10 fine-tunes on 6 examples"
    epochs = FINE_TUNE.epochs / WISH.tuning.epochs
    assert found.predicted_seconds == pytest.approx(10 * 6 * 20 * 0.002 * epochs + 10 * 4 * 20 * 0.0005)
    cost = label_cost(tmp_path / "labels")
    assert cost is not None
    assert found.measured_seconds == cost.cpu_seconds
    assert "other texts" in found.conditions
    assert any(condition.startswith("lm ") for condition in found.conditions)


def test_labels_of_before_are_compared_by_the_clock(tmp_path: Path) -> None:
    label(make_plan(tmp_path / "plan"), TRAIN, QUERIES, ToyWorld(), FINE_TUNE, tmp_path / "labels")
    path = tmp_path / "labels" / "times.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    without = [{name: value for name, value in line.items() if name != "cpu"} | {"seconds": 2.0} for line in lines]
    path.write_text("".join(json.dumps(line) + "\n" for line in without))
    found = real_run(WISH, tmp_path / "labels")
    assert found.measured == 20
    assert BY_THE_CLOCK in found.conditions


def test_an_encoder_is_predicted_by_the_texts_of_its_steps(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path, steps=3)
    made = train_encoder([planted(1, "a")], [], tmp_path / "encoder", settings)
    found = real_run(WISH, made.path).compare(MEASURES)
    cost = training_cost(made.path)
    assert cost is not None
    assert found.predicted_seconds == pytest.approx(cost.texts * 20 * 0.003)
    assert found.measured_seconds == cost.step_cpu_seconds
    assert found.what == f"encoder: 3 training steps over {cost.texts:,} texts"
    assert "train_layers all, planned 2" in found.conditions


def test_the_newest_run_of_each_kind_below_a_folder_is_found(tmp_path: Path) -> None:
    old, new = _index(tmp_path / "runs" / "old"), _index(tmp_path / "runs" / "deep" / "new")
    for age, folder in ((1000, old), (2000, new)):
        os.utime(folder, (age, age))
    label(make_plan(tmp_path / "plan"), TRAIN, QUERIES, ToyWorld(), FINE_TUNE, tmp_path / "labels")  # another LM
    (tmp_path / "runs" / "linked").symlink_to(new)
    found = last_runs(WITH_TFIDF, tmp_path)
    assert list(found) == [new]
    assert found[new].subject == "tfidf"
    (new / COSTS).write_text("")  # what it cost is not known
    assert list(last_runs(WITH_TFIDF, tmp_path)) == [old]
    assert last_runs(WISH, tmp_path) == {}


def test_runs_of_the_same_settings_and_texts_come_before_newer_ones(tmp_path: Path) -> None:
    train = make_corpus(100)
    made = [
        ("same", train, {}),
        ("newer", train, {}),
        ("other_texts", make_corpus(100, "other"), {}),
        ("other_settings", train, {"ngrams": 2}),
        ("neither", make_corpus(100, "other"), {"ngrams": 2}),
    ]
    for age, (name, corpus, settings) in enumerate(made, 1):
        airrep.build_index(corpus, tmp_path / name, "tfidf", settings=settings)
        os.utime(tmp_path / name, (1000 * age, 1000 * age))
    wish = replace(WITH_TFIDF, texts=train)
    for best in ("newer", "same", "other_texts", "neither"):
        assert [path.name for path in last_runs(wish, tmp_path)] == [best]
        for gone in (best, *(["other_settings"] if best == "other_texts" else [])):
            shutil.rmtree(tmp_path / gone)


def test_unfinished_hidden_and_altered_runs_are_passed_over(tmp_path: Path) -> None:
    good = _index(tmp_path / "good")
    for name in (".hidden/run", "work.partial", "altered", "a/b/c/d/too_deep"):
        shutil.copytree(good, tmp_path / name)
    (tmp_path / "altered" / "manifest.json").write_text("{}")
    assert list(last_runs(WITH_TFIDF, tmp_path)) == [good]


def test_labels_in_the_making_are_found_by_their_lm(tmp_path: Path) -> None:
    label(make_plan(tmp_path / "plan"), TRAIN, QUERIES, ToyWorld(), FINE_TUNE, tmp_path / "labels")
    same = replace(WISH, lm=WISH.lm.model_copy(update={"lm": open_labels(tmp_path / "labels").state["lm"]["name"]}))
    (tmp_path / "labels" / "manifest.json").unlink()
    found = last_runs(same, tmp_path)
    assert [run.subject for run in found.values()] == ["labels"]
    assert last_runs(WISH, tmp_path) == {}


def test_another_lm_of_the_same_name_is_told(tmp_path: Path) -> None:
    label(make_plan(tmp_path / "plan"), TRAIN, QUERIES, ToyWorld(), FINE_TUNE, tmp_path / "labels")
    made_with = open_labels(tmp_path / "labels").state["lm"]
    run = real_run(replace(WISH, lm=WISH.lm.model_copy(update={"lm": made_with["name"]})), tmp_path / "labels")
    for fingerprint, told in ((made_with["fingerprint"], False), ("0" * 64, True)):
        measured = replace(MEASURES, labels=replace(MEASURES.labels, fingerprint=fingerprint))
        assert (OTHER_LM in run.compare(measured).conditions) == told


def test_another_precision_is_told(tmp_path: Path) -> None:
    """Of labels, planned for in what ``"auto"`` means on this machine, and of training, which is tried in float32."""
    label(make_plan(tmp_path / "plan"), TRAIN, QUERIES, ToyWorld(), FINE_TUNE, tmp_path / "labels")
    made_in = open_labels(tmp_path / "labels").state["precision"]
    other = "bfloat16" if made_in == "float32" else "float32"
    for planned, told in ((made_in, False), (other, True), ("auto", resolve_precision("auto", "cpu") != made_in)):
        wish = replace(WISH, lm=WISH.lm.model_copy(update={"precision": planned, "device": "cpu"}))
        conditions = real_run(wish, tmp_path / "labels").compare(MEASURES).conditions
        assert (f"in {made_in}, planned {other}" in conditions) == told
    for precision, told in (
        ("float32", False),
        ("bfloat16", True),
        ("auto", resolve_precision("auto", "cpu") != "float32"),
    ):
        settings = tiny_settings(tmp_path, steps=1, precision=precision)
        made = train_encoder([planted(1, "a")], [], tmp_path / precision, settings)
        conditions = real_run(WISH, made.path).compare(MEASURES).conditions
        assert any("planned float32" in each for each in conditions) == told


def test_a_folder_of_runs_may_be_given(tmp_path: Path) -> None:
    first, other = _index(tmp_path / "runs" / "first"), _index(tmp_path / "other")
    found = runs_against(WITH_TFIDF, [tmp_path / "runs", other])
    assert [run.what.split(":")[0] for run in found] == [first.name, other.name]
    with pytest.raises(ConfigError, match="no index, labels or encoder below it is planned for"):
        runs_against(WISH, [tmp_path / "runs"])
    with pytest.raises(ArtifactError, match="does not exist"):
        runs_against(WISH, [tmp_path / "nothing"])

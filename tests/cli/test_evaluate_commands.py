"""The commands evaluate and datamodels, on labels that cost nothing."""

import json
import shlex
import shutil
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest
from worlds.commands import done, refused
from worlds.small_world import tree, write_published
from worlds.tiny_lms import tiny_lm
from worlds.toy_farm import FINE_TUNE, ToyLearner, ToyWorld

from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ConfigError
from airrep.evaluation.result import Evaluation
from airrep.labels.farm import label
from airrep.labels.labels import Labels
from airrep.labels.plan import SamplingSettings, open_plan
from airrep.labels.sampling import sample
from airrep.reports.tables import signed

TOPICS = ("apples", "bees", "clocks", "dunes", "elms", "flutes", "gates", "hills")


def _corpus(prefix: str, count: int) -> Corpus:
    return Corpus.from_examples(
        Example(f"{topic} question {prefix}{number}", "answer", f"{prefix}{number}", source=topic)
        for number, topic in zip(range(count), cycle(TOPICS), strict=False)
    )


TRAIN, QUERIES = _corpus("train", 60), _corpus("query", 8)


class TopicLearner(ToyLearner):
    """Moves towards the topics it reads, so that examples of a query's own topic help it."""

    def tokenise(self, examples: Sequence[Example]) -> np.ndarray:
        topics = [TOPICS.index(example.prompt.split()[0]) for example in examples]
        return np.eye(8, dtype=np.float32)[topics].reshape(-1, 8)


class TopicWorld(ToyWorld):
    def __call__(self) -> TopicLearner:
        return TopicLearner(self)


LABELS = ("--data", "train.jsonl", "--data", "queries.jsonl")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Labels of two instances with two seeds, their data, and an index of it."""
    folder = tmp_path_factory.mktemp("world")
    for name, corpus in (("train", TRAIN), ("queries", QUERIES)):
        lines = (json.dumps(example.to_dict()) + "\n" for example in corpus)
        (folder / f"{name}.jsonl").write_text("".join(lines))
    sizes = {"instances": 2, "train_count": 24, "query_count": 4, "subsets": 16, "size": 6}
    plan = sample(TRAIN, folder / "plan", SamplingSettings(**sizes, disjoint_instances=True), QUERIES)
    label(plan, TRAIN, QUERIES, TopicWorld(), FINE_TUNE, folder / "labels", seeds=2)
    settings = SamplingSettings(
        kind="removals", instances=1, train_count=24, query_count=4, subsets=2, removals=10, removal_size=2
    )
    removals = sample(TRAIN, folder / "removal-plan", settings, QUERIES)
    label(removals, TRAIN, QUERIES, TopicWorld(), FINE_TUNE, folder / "removals", seeds=2)
    settings = SamplingSettings(kind="removals", instances=1, train_count=40, query_count=4, removals_by="source")
    sources = sample(TRAIN, folder / "source-plan", settings, QUERIES)
    label(sources, TRAIN, QUERIES, TopicWorld(), FINE_TUNE, folder / "sources", seeds=2)
    return folder


@pytest.fixture
def run(folder, run, monkeypatch):
    """Run the command line in this process: its status, stdout and stderr."""
    monkeypatch.chdir(folder)
    if not Path("tfidf").exists():
        assert run("index", "train.jsonl", "--method", "tfidf", "--out", "tfidf")[0] == 0
    return run


JUDGE = ("--labels", "labels#0", *LABELS, "--set", "resamples=50")


def test_evaluate_lds_prints_one_table_for_several_indexes(run):
    out = done(run("evaluate", "tfidf", "words=tfidf", *JUDGE)).out
    assert out.count("tfidf") >= 2  # as a path, and as a method
    assert "words" in out
    assert "[0.0, 0.0]" in out
    assert "1.000" in out  # p of a row against its like
    assert "4 queries and 16 subsets of labels/0" in out
    assert "noise ceiling " in out


def test_evaluate_lds_writes_an_artifact_with_tags_and_its_command(run):
    chosen = ("--pool", "attention", "--tune", "labels#1", "--tag", "role=tasks", "--tag", "size=6", "--json")
    command = ("evaluate", "my words=tfidf", *JUDGE, *chosen, "--out", "run")
    out = done(run(*command)).out
    found = json.loads(out)
    assert found["facts"]["tuned_on"] == ["labels/1"]
    assert found["rows"][0]["minus_first"] is None
    assert found["rows"][0]["name"] == "my words"
    assert found["tags"] == {"role": "tasks", "size": "6"}
    assert shlex.split(found["command"]) == ["airrep", *command]
    assert json.loads(Path("run/result.json").read_text()) == found
    before = tree(Path("run"))
    status, out, err = run(*command)
    assert (status, json.loads(out)) == (0, found)
    assert "run: was finished already" in err
    refused(run("evaluate", "tfidf", *JUDGE, "--out", "run"), "made with another")
    assert tree(Path("run")) == before
    assert run("show", "run", "--verify")[0] == 0
    assert run("evaluate", "tfidf", *JUDGE, "--out", "run", "--replace")[0] == 0
    assert Evaluation.read("run").rows[0].name == "tfidf"


def test_show_prints_what_evaluating_and_comparing_printed(run):
    asked = {
        "made-lds": ("evaluate", "tfidf", "words=tfidf", *JUDGE),
        "made-loo": ("evaluate", "tfidf", "--labels", "removals", *LABELS, "--set", "resamples=50"),
        "made-compare": ("compare", "made-lds"),
    }
    for folder, command in asked.items():
        status, printed, err = run(*command, "--out", folder)
        assert status == 0, err
        shown = done(run("show", folder)).out
        assert "95 %" in printed
        assert printed.strip() in shown


def test_evaluate_loo_shows_the_effects_noise(run):
    out = done(run("evaluate", "tfidf", "--labels", "removals", *LABELS, "--set", "resamples=50")).out
    assert "LOO × 100" in out
    assert "Pearson" in out
    assert "4 queries and 10 removals of removals/0" in out
    said = " ".join(out.split())
    assert "signal-to-noise ratio of the effects: " in said
    assert "variance between removals minus the part due to seeds, divided by that part; 0 = only chance" in said
    assert "same sign" not in out.lower()
    out = done(run("evaluate", "tfidf", "--labels", "removals", *LABELS, "--set", "what_if=true")).out
    assert "same sign" in out.lower()
    assert "a removal raised a query's loss" in " ".join(out.split())
    found = json.loads(run("evaluate", "tfidf", "--labels", "removals", *LABELS, "--json").out)
    assert found["facts"]["signal_to_noise"] is not None
    assert found["measure"] == "loo"
    whole = ("--set", "what_if=true")
    refused(run("evaluate", "tfidf", "--labels", "labels#0", *LABELS, *whole), "its first fine-tune must")
    refused(run("evaluate", "tfidf", "--labels", "removals", *LABELS, "--pool", "sum:2"), "has no temperature")
    tuned = ("--labels", "removals", "--tune", "labels#1")
    refused(run("evaluate", "tfidf", *LABELS, *tuned), "--tune")
    refused(run("evaluate", "--labels", "labels#0", *LABELS), "no index is given")


def test_a_random_part_is_left_out_by_a_percentage(run):
    """The field's removals: 95 % of the pool are kept, and what is left out predicts."""
    drawn = "sample train.jsonl --queries queries.jsonl --out part --instances 1 --train-count 40 --query-count 4"
    err = done(run(*drawn.split(), "--subsets", "12", "--size", "95%")).err
    assert "12 subsets of 38" in err
    label("part", TRAIN, QUERIES, TopicWorld(), FINE_TUNE, "part-labels", seeds=2)
    out = done(run("evaluate", "tfidf", "--labels", "part-labels", *LABELS, "--set", "resamples=50")).out
    said = " ".join(out.split())
    assert "predicted from the 2 examples" in said
    assert "signal-to-noise ratio of the effects: " in said
    refused(run("evaluate", "tfidf", "--labels", "part-labels", *LABELS, "--tune", "labels#1"), "--tune")


@pytest.mark.parametrize("asked", ["--subsets 9", "--size 3"])
@pytest.mark.parametrize("removals", ["--removals 3", "--set removals_by=source"])
def test_sizes_of_random_subsets_beside_removals_are_refused(run, asked, removals):
    drawn = f"sample train.jsonl --out idle --instances 1 {removals} {asked}".split()
    refused(run(*drawn), f"{asked.split()[0]} works only with random subsets")
    assert not Path("idle").exists()


def test_evaluate_loo_tells_what_each_source_did(run):
    judged = ("evaluate", "tfidf", "--labels", "sources", *LABELS, "--set", "what_if=true", "--set", "resamples=50")
    status, out, err = run(*judged)
    assert status == 0, err
    told = done(run(*judged, "--json")).out
    (removed,) = json.loads(told)["facts"]["removed"]
    assert {one["name"] for one in removed} == {f"source {topic}" for topic in TOPICS}
    assert sum(one["examples"] for one in removed) == 40
    labels = Labels("sources")
    losses = labels.losses(0).astype(float)
    pool = set(labels.plan.train_rows(0))
    for j, one in enumerate(removed, start=1):
        assert {f"source {TRAIN[row].source}" for row in pool - set(labels.plan.subset_rows(0, j))} == {one["name"]}
        effects = (losses[:, :, j] - losses[:, :, 0]).mean(axis=0)
        assert one["effect"] == pytest.approx(effects.mean(), abs=1e-6)
        assert one["helped"] == (effects > 0).mean()
        (line,) = (line for line in out.splitlines() if f" {one['name']} " in line)
        assert signed(one["effect"]) in line


def test_labels_of_two_fine_tunings_in_one_value_are_named(run):
    faster = FINE_TUNE.model_copy(update={"learning_rate": 0.5})
    label(open_plan("plan"), TRAIN, QUERIES, TopicWorld(), faster, "faster")
    status, _, err = run("evaluate", "tfidf", *LABELS, "--labels", "labels#0", "--labels", "faster#1", "--json")
    assert status == 0
    assert "faster: has labels (measured losses) made with fine_tune.learning_rate 0.5, but" in err


def test_the_same_labels_given_twice_are_refused_as_are_equal_names(run):
    shutil.copytree("labels", "moved/labels-copy", dirs_exist_ok=True)
    asked = ("evaluate", "tfidf", *LABELS, "--labels")
    refused(run(*asked, "labels#0,0"), "labels/0 and labels/0 have the same examples")
    refused(run(*asked, "labels#0", "--labels", "moved/labels-copy#0"), "labels/0 and labels-copy/0 have")
    refused(
        run(*asked, "labels#0", "--tune", "moved/labels-copy"),
        "labels-copy/0 (a train/query split) are also in --labels (as labels/0)",
    )
    ran = run("evaluate", "--why", "--labels", "labels", "--labels", "labels#1", *LABELS)
    refused(ran, "labels/1 and labels/1 have the same")
    loo = ("evaluate", "tfidf", *LABELS, "--labels", "removals", "--labels", "removals")
    refused(run(*loo), "removals/0 and removals/0 have the same")
    refused(run("evaluate", "x=nowhere", "x=tfidf", *JUDGE), "two rows are called 'x'")


def test_runs_are_compared_pair_by_pair(run):
    for pool in ("sum", "mean", "attention"):
        assert run("evaluate", f"{pool}=tfidf", *JUDGE, "--pool", pool, "--out", f"in-{pool}")[0] == 0
    out = done(run("compare", "in-sum", "in-mean", "in-attention", "--set", "resamples=50", "--out", "compared")).out
    assert "p-values adjusted (Holm) for 3 pairs of indexes; 50 bootstrap draws" in out
    out = done(run("compare", "in-sum", "in-mean", "in-attention", "--to", "sum", "--json")).out
    assert [(pair["one"], pair["other"]) for pair in json.loads(out)["pairs"]] in (
        [("mean", "sum"), ("attention", "sum")],
        [("attention", "sum"), ("mean", "sum")],
    )
    before = tree(Path("compared"))
    again = ("compare", "in-sum", "in-mean", "in-attention", "--set", "resamples=50", "--out", "compared")
    assert "was finished already" in run(*again)[2]
    refused(run("compare", "in-sum", "in-mean", "--out", "compared"), "compared: holds a comparison made with another")
    assert tree(Path("compared")) == before
    assert run("evaluate", "tfidf", "--labels", "labels#1", *LABELS, "--out", "elsewhere")[0] == 0
    refused(run("compare", "in-sum", "elsewhere"), "elsewhere and in-sum cannot be compared")
    refused(run("compare", "in-sum"), "the evaluations hold only one result")
    refused(run("compare", "labels"), "labels: is of kind 'labels'; expected 'evaluation'")


def test_labels_in_the_published_layout_bring_their_data(run):
    write_published(Path("bench/flan"), TRAIN.take(range(30)), QUERIES)
    assert run("index", "bench/flan/train.jsonl", "--method", "tfidf", "--out", "flan-index")[0] == 0
    out = done(run("evaluate", "flan-index", "--labels", "bench/flan", "--set", "resamples=50")).out
    assert "8 queries and 6 subsets of flan" in out
    assert "the noise ceiling is unknown, because there is only one seed" in out
    refused(run("evaluate", "flan-index", "--labels", "bench"), "holds several benchmarks (flan)")
    refused(run("evaluate", "flan-index", "--labels", "labels"), "train data")


def test_selections_are_fine_tuned_on_as_a_training_was(run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def stopped(*arguments, **_):
        asked.append(arguments[2])
        raise ConfigError("asked enough")

    monkeypatch.setattr("airrep.evaluation.select.DataSelection", stopped)
    (folder / "run.yaml").write_text("base_model: b\nlearning_rate: 3e-4\nnum_epochs: 4\n")
    line = ("evaluate", "tfidf", "--queries", "queries.jsonl", "--lm", "owner/name")
    line += ("--by", "source", "--count", "2")
    told = run(*line, "--training", "run.yaml", "--set", "epochs=7")[2]
    assert (asked[0].epochs, asked[0].learning_rate) == (7, 3e-4)
    assert "from run.yaml; set on the command line: epochs" in told
    assert "airrep's default learning rate" in run(*line, "--set", "epochs=7")[2]
    assert asked[1].model_fields_set == {"epochs"}
    status, _, refused = run(*line[:-1], "100000")  # bad input is refused before anything is told
    assert (status, refused.count("\n"), len(asked)) == (1, 1, 2)
    assert "--count" in refused


def test_the_top_is_dropped_and_facts_are_traced(run, folder: Path) -> None:
    """Both measures from the command line: shown again, compared, on a page; what does not go together is refused."""
    lm = tiny_lm(folder / "lm")
    few = folder / "few.jsonl"
    few.write_text("".join(line + "\n" for line in (folder / "queries.jsonl").read_text().splitlines()[:3]))
    judged = ("evaluate", "tfidf", "words=tfidf", "--queries", "few.jsonl")
    tuned = ("--lm", lm, "--set", "epochs=1", "--set", "learning_rate=0.01")
    for name, more, told in (
        ("dropped", ("--remove", "2,25%"), ("rise × 100", "Top 15", "60 training examples and ")),
        ("traced", ("--rows", "source", "--count", "2"), ("MRR × 100", "Recall@10", "Tail patch")),
    ):
        command = (*judged, *tuned, *more)
        printed = done(run(*command, "--out", name)).out
        said = " ".join(printed.split())
        assert all(word in said for word in told), said
        assert "was finished already" in run(*command, "--out", name)[2]
        assert printed.strip() in run("show", name)[1]
        assert "Holm" in run("compare", name)[1]
    assert run("report", "dropped", "traced", "--out", "effects.html")[0] == 0
    assert "Drop the top and retrain" in (page := Path("effects.html").read_text())
    assert "Trace of facts" in page
    out = done(run(*judged, "--rows", "source", "--json")).out
    assert json.loads(out)["facts"]["queries_without_facts"] == sum(not one.source for one in QUERIES.take([0, 1, 2]))
    refused(run(*judged, "--remove", "2"), "--remove needs --queries and --lm")
    refused(run("evaluate", "tfidf", "--rows", "source"), "Add --queries")
    refused(run(*judged, *tuned, "--rows", "source"), "--rows with --lm needs --count")
    refused(run(*judged, *tuned, "--remove", "31"), "--remove 31: is 31 of 60 examples. Remove 1 to 30")
    refused(
        run(*judged, *tuned, "--remove", "2", "--rows", "source"), "--rows has no effect with --queries and --remove"
    )
    refused(run(*judged, *tuned, "--remove", "2", "--partial"), "--partial has no effect")


def test_settings_of_one_index_are_given_by_its_name(run):
    ran = run("evaluate", "a=tfidf", *JUDGE, "--set", "b:ngrams=2")
    refused(ran, "--set b:ngrams: does not begin with the name of an index")
    refused(run("evaluate", "a=tfidf", *JUDGE, "--set", "a:nothing=2"), "'nothing' is not a setting here")
    refused(run("evaluate", "a=tfidf", *JUDGE, "--set", "a:ngrams=2"), "with another model or other settings")
    assert run("evaluate", "a=tfidf", *JUDGE, "--set", "a:ngrams=1")[0] == 0


def test_bad_names_and_tags_are_refused(run):
    refused(run("evaluate", "=tfidf", *JUDGE), "'=tfidf': does not name an index")
    refused(run("evaluate", "tfidf", "tfidf", *JUDGE), "two rows are called 'tfidf'")
    refused(run("evaluate", "tfidf", *JUDGE, "--tag", "role"), "--tag role: must be key=value")
    twice = ("--tag", "a=1", "--tag", "a=2")
    refused(run("evaluate", "tfidf", *JUDGE, *twice), "--tag a=2: the key 'a' is given twice")


def test_evaluate_refuses_other_data_and_other_indexes(run):
    run("index", "queries.jsonl", "--method", "tfidf", "--out", "small")
    refused(run("evaluate", "small", "--labels", "labels#0", *LABELS), "small: lacks the example")
    refused(run("evaluate", "tfidf", "--labels", "labels", "--data", "train.jsonl"), "other queries data")
    refused(run("evaluate", "tfidf", "--labels", "labels#7", *LABELS), "there is no instance (train/query split) '7'")


@pytest.mark.slow
def test_datamodels_are_fitted_indexed_and_evaluated(run):
    status, out, err = run("train", "--method", "datamodels", "labels#0", *LABELS, "--out", "dm", "--set", "folds=4")
    assert status == 0, err
    assert "R² × 100" in out
    assert "next: airrep index dm/train.jsonl --method datamodels --set weights=dm" in err
    done(run("index", "dm/train.jsonl", "--method", "datamodels", "--set", "weights=dm", "--out", "dmi"))
    out = done(run("evaluate", "dmi", "--labels", "labels#0", *LABELS, "--json")).out
    assert json.loads(out)["rows"][0]["value"] > 0.9  # these are the subsets it was fitted on
    refused(run("evaluate", "dmi", "--labels", "labels#1", *LABELS), "Method datamodels knows only these")
    train = ("train", "--method", "datamodels")
    refused(run(*train, "labels", *LABELS, "--out", "x"), "labels: these labels (measured losses) have 2 instances")
    refused(run(*train, "labels#0", *LABELS, "--out", "dm"), "another settings.folds (was 4, now 5)")
    assert run("show", "dm", "--verify")[0] == 0


@pytest.mark.parametrize(
    "beside", ["--held-out labels#1", "--test labels#1", "--set mixed=true", "--dry-run", "--steps 3"]
)
def test_datamodels_refuse_options_of_an_encoder(run, beside):
    asked = ("train", "labels#0", "--method", "datamodels", *LABELS, "--out", "idle", *beside.split())
    refused(run(*asked), beside.split()[0].removeprefix("--"))
    assert not Path("idle").exists()


def test_what_lacks_is_named(run):
    refused(run("evaluate", "i", "--lm", "m"), "--queries, and --count or --remove")
    refused(run("evaluate", "i", "--queries", "q.jsonl", "--count", "3"), "--count needs --lm")
    refused(run("evaluate", "i", "--queries", "q.jsonl", "--why"), "so it needs --labels")

"""The commands evaluate, datamodels and stack, on labels that cost nothing."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from toy_farm import FINE_TUNE, ToyLearner, ToyWorld

from airrep import cli
from airrep.corpus import Corpus, Example
from airrep.farm import label
from airrep.sampling import SamplingSettings, sample

TOPICS = ("apples", "bees", "clocks", "dunes", "elms", "flutes", "gates", "hills")


def _corpus(prefix: str, count: int) -> Corpus:
    return Corpus.from_examples(
        Example(f"{TOPICS[number % 8]} question {prefix}{number}", "answer", f"{prefix}{number}")
        for number in range(count)
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
    return folder


@pytest.fixture
def run(folder, capsys, monkeypatch):
    """Run the command line in this process: its status, stdout and stderr."""
    monkeypatch.chdir(folder)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["airrep", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
            raise SystemExit(0)
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    if not Path("tfidf").exists():
        assert run("index", "train.jsonl", "--method", "tfidf", "--out", "tfidf")[0] == 0
    return run


def _refused(ran: tuple[int, str, str], words: str) -> None:
    status, out, err = ran
    assert (status, out, err.count("\n")) == (1, "", 1), err
    assert err.startswith("airrep: error: ")
    assert words in err


def test_evaluate_lds_prints_one_table_for_several_indexes(run):
    status, out, err = run("evaluate", "lds", "tfidf", "tfidf", "--labels", "labels#0", *LABELS)
    assert status == 0, err
    assert out.count("tfidf") == 4  # twice as a path, twice as a method
    assert "+0.0 to +0.0" in out
    assert "4 queries and 16 subsets of labels/0" in out
    assert "noise ceiling +" in out


def test_evaluate_lds_writes_json_and_tunes(run):
    chosen = ("--pool", "attention", "--tune", "labels#1", "--json", "--out", "run")
    status, out, err = run("evaluate", "lds", "tfidf", "--labels", "labels#0", *LABELS, *chosen)
    assert status == 0, err
    table = json.loads(out)
    assert table["tuned_on"] == ["labels/1"]
    assert table["methods"][0]["minus_first"] is None
    assert json.loads(Path("run/result.json").read_text()) == table
    _refused(run("evaluate", "lds", "tfidf", "--labels", "labels#0", *LABELS, "--out", "run"), "exists already")


def test_evaluate_refuses_other_data_and_other_indexes(run):
    run("index", "queries.jsonl", "--method", "tfidf", "--out", "small")
    _refused(run("evaluate", "lds", "small", "--labels", "labels#0", *LABELS), "small: lacks the example")
    _refused(run("evaluate", "lds", "tfidf", "--labels", "labels", "--data", "train.jsonl"), "other queries data")
    _refused(run("evaluate", "lds", "tfidf", "--labels", "labels#7", *LABELS), "has no instance '7'")


@pytest.mark.slow
def test_datamodels_are_fitted_indexed_and_evaluated(run):
    status, out, err = run("datamodels", "labels#0", *LABELS, "--out", "dm", "--set", "folds=4")
    assert status == 0, err
    assert "R² × 100" in out
    assert "next: airrep index dm/train.jsonl --method datamodels --set weights=dm" in err
    status, _, err = run("index", "dm/train.jsonl", "--method", "datamodels", "--set", "weights=dm", "--out", "dmi")
    assert status == 0, err
    status, out, err = run("evaluate", "lds", "dmi", "--labels", "labels#0", *LABELS, "--json")
    assert status == 0, err
    assert json.loads(out)["methods"][0]["lds"]["lds"] > 0.9  # these are the subsets it was fitted on
    _refused(run("evaluate", "lds", "dmi", "--labels", "labels#1", *LABELS), "datamodels know nothing of unseen")
    _refused(run("datamodels", "labels", *LABELS, "--out", "x"), "labels: has 2 instances; expected one")
    _refused(run("datamodels", "labels#0", *LABELS, "--out", "dm"), "another settings.folds (4; now 5)")
    assert run("show", "dm", "--verify")[0] == 0


@pytest.mark.slow
def test_a_stack_is_learnt_and_says_whether_it_is_worth_it(run):
    members = ("--member", "tfidf", "--member", "tfidf:ngrams=2,min_count=2")
    status, out, err = run("stack", "labels#1", "--held-out", "labels#0", *LABELS, *members, "--out", "stack")
    assert status == 0, err
    assert "The stack is not shown to beat its best member" in out  # its members are two of a kind
    assert "next: airrep index DATA --method stack --set stack=stack" in err
    status, _, err = run("index", "train.jsonl", "--method", "stack", "--set", "stack=stack", "--out", "si")
    assert status == 0, err
    status, out, err = run("evaluate", "lds", "si", "--labels", "labels#0", *LABELS, "--json")
    assert status == 0, err
    assert json.loads(out)["methods"][0]["lds"]["lds"] > 0.3


def test_stack_refuses_what_it_cannot_use(run):
    base = ("stack", "labels#0", *LABELS, "--out", "bad")
    _refused(run(*base, "--held-out", "labels#0", "--member", "tfidf"), "was learnt from; expected unseen ones")
    _refused(run(*base, "--held-out", "labels#1", "--member", "tfidff"), "method 'tfidff': does not exist")
    _refused(run(*base, "--held-out", "labels#1", "--member", "tfidf:n=1"), "'n' is not a setting here")
    _refused(run(*base, "--held-out", "labels#1", "--member", "tfidf:no.yaml"), "no.yaml: cannot be read")
    assert not Path("bad").exists()

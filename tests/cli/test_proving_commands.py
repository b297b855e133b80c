"""Commands that fine-tune to answer: prove, judge; and the draws that need no options."""

import json
from pathlib import Path

import pytest
from worlds.commands import Run, done, refused
from worlds.small_world import make_corpus
from worlds.tiny_lms import tiny_lm

import airrep
from airrep.planning.budget import Costs

ASKED = ("--prompt", "question e 3", "--response", "answer 21")
QUICK = ("--seeds", "2", "--set", "context=5", "--set", "learning_rate=1e-3")


@pytest.fixture
def run(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """The command line in this process, in a folder with data, an index and an LM."""
    monkeypatch.chdir(tmp_path)
    for name, corpus in (("train", make_corpus(60)), ("queries", make_corpus(12, "q"))):
        corpus.to_jsonl(f"{name}.jsonl")
    airrep.build_index(make_corpus(60), "index", "tfidf")
    tiny_lm(tmp_path / "lm")
    return run


def test_prove_ends_in_a_sentence(run: Run) -> None:
    ran = done(run("prove", "index", "--lm", "lm", "--rows", "e3,e4", "--rows", "e5", *ASKED, *QUICK, "--out", "run"))
    assert ran.out.strip().splitlines()[-1].startswith("Without these 3 rows the answer's loss ")
    assert "running 6 fine-tunes in sets of three." in ran.err
    assert "next: airrep report run/proof --out proof.html" in ran.err
    told = json.loads(
        run("prove", "index", "--lm", "lm", "--rows", "e3,e4,e5", *ASKED, *QUICK, "--out", "run", "--json").out
    )
    assert told == airrep.open("run/proof").to_dict()
    assert [row["example"]["id"] for row in told["rows"]] == ["e3", "e4", "e5"]
    assert run("report", "run/proof", "--out", "proof.html").status == 0
    assert told["sentence"].split(";")[0] in Path("proof.html").read_text().replace("&#39;", "'")
    assert "made by: airrep prove index --lm lm --rows e3,e4,e5 " in run("show", "run/proof").out
    assert run("rerun", "run/proof").status == 0


def test_prove_takes_what_other_commands_write(run: Run) -> None:
    Path("top.json").write_text(run("top", "index", *ASKED, "-k", "3", "--json").out)
    assert run("top", "index", *ASKED, "-k", "3", "--out", "top").status == 0
    wanted = {hit.example.id for hit in airrep.open("top")[0]}  # type: ignore[index]
    for file in ("top.json", "top"):
        ran = done(run("prove", "index", "--lm", "lm", "--from", file, *ASKED, *QUICK, "--json"))
        assert {row["example"]["id"] for row in json.loads(ran.out)["rows"]} == wanted
    ran = run("prove", "index", "queries.jsonl", "--lm", "lm", "--where", "label == 'label 0' and year == 2000", *QUICK)
    assert ran.status == 0, ran.err
    assert "the loss of the 12 answers" in ran.out


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ((), "no options name the rows"),
        (("--rows", "e1", "--where", "label == 'label 0'"), "2 options name the rows"),
        (("--rows", "e1,absent"), "has no example with id 'absent'"),
        (
            ("--where", "year > 1990"),
            "60 named rows with random rows, at least 120 other rows are needed, but the index has 0",
        ),
        (("--where", "year > 3000"), "no example matches"),
        (("--from", "absent.jsonl"), "cannot be read as a list of rows"),
        (("--rows", "e1", "--better", "answer 21"), "its better answer is the same text"),
        (("--rows", "e1", "--set", "learning_rate=-1"), "learning_rate"),
    ],
)
def test_prove_refuses_in_one_line(run: Run, flags: tuple[str, ...], told: str) -> None:
    ran = run("prove", "index", "--lm", "lm", *ASKED, *flags)
    assert ran.status == 1
    assert told in ran.err
    assert ran.err.strip().splitlines()[-1].startswith("airrep: error: ")
    assert not Path("index-proofs").exists()


def test_judge_ends_in_a_sentence(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airrep.planning.judge.measure_machine", lambda *_: COSTS)
    monkeypatch.setattr("airrep.planning.judge.MOST_SUBSETS", 20)
    asked = ("prove", "index", "queries.jsonl", "--lm", "lm", "--set", "learning_rate=3e-3", "--out", "run")
    ran = done(run(*asked, "--budget", "5m"))
    last = ran.out.strip().splitlines()[-1]
    assert last.startswith(("On your data ", "Nothing can be judged on your data"))
    assert "counting" in ran.out
    told = json.loads(run(*asked, "--budget", "30m", "--json").out)
    assert (told["sentence"], told["kind"]) == (last, "judgement")
    assert run("report", "run/evaluation", "--out", "page.html").status == 0
    assert last[:40] in Path("page.html").read_text()
    shown = run("show", "run/evaluation").out
    assert last in shown
    assert "made by: airrep prove index queries.jsonl " in shown


COSTS = Costs(fine_tune=0.01, evaluate=0.001, encode=0.001, layers=2)


@pytest.mark.parametrize(
    ("budget", "told"), [("5", "is not a duration"), ("0s", "is not a duration"), ("2s", "minutes, more workers")]
)
def test_judge_refuses_a_budget_in_one_line(run: Run, monkeypatch: pytest.MonkeyPatch, budget: str, told: str) -> None:
    # A fast machine may afford a small judgement within seconds: the costs are those of a slow one.
    slow = Costs(fine_tune=30.0, evaluate=1.0, encode=1.0, layers=2)
    monkeypatch.setattr("airrep.planning.judge.measure_machine", lambda *_: slow)
    ran = run("prove", "index", "queries.jsonl", "--lm", "lm", "--budget", budget)
    assert ran.status == 1
    assert told in ran.err
    assert not Path("index-judged").exists()


def test_sample_says_what_was_chosen_and_evaluate_what_is_missing(run: Run) -> None:
    ran = done(run("sample", "train.jsonl", "--queries", "queries.jsonl", "--out", "subsets"))
    assert "1 instance, each of 60 examples and 12 queries; 100 subsets of 12, so 100 fine-tunes" in ran.err
    refused(run("evaluate", "index"), "airrep prove index QUERIES --lm MODEL --budget 30m")
    ran = run("evaluate", "index", "--labels", "subsets")
    assert ran.status == 1
    assert "airrep label subsets DATA --lm MODEL --out LABELS" in ran.err
    for other in ("index", "train.jsonl"):
        refused(run("evaluate", "index", "--labels", other), "airrep prove")

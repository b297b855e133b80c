"""The command evaluate, by the queries' classes and by selection."""

import json
from pathlib import Path

import pytest
from worlds.commands import Ran, Run, done, refused
from worlds.small_world import tree
from worlds.tiny_lms import tiny_lm
from worlds.toy_answers import ParrotWorld, make_tasks


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data, queries with and without labels, and a small LM."""
    folder = tmp_path_factory.mktemp("world")
    for name, corpus in (
        ("train", make_tasks(30, "t")),
        ("queries", make_tasks(6, "q")),
        ("other", make_tasks(9, "o")),
    ):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(one.to_dict()) + "\n" for one in corpus))
    bare = '{"id": "bare", "prompt": "towns without", "response": "label"}\n'
    (folder / "gaps.jsonl").write_text((folder / "queries.jsonl").read_text() + bare)
    (folder / "few.jsonl").write_text("".join((folder / "train.jsonl").read_text().splitlines(keepends=True)[:9]))
    tiny_lm(folder / "lm")
    return folder


@pytest.fixture
def run(folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command line in this process: its status, stdout and stderr."""
    monkeypatch.chdir(folder)
    for name in ("train", "few"):
        if not Path(f"{name}-index").exists():
            assert run("index", f"{name}.jsonl", "--method", "tfidf", "--out", f"{name}-index")[0] == 0
    return run


CLASSIFY = ("evaluate", "words=train-index")
SELECT = ("evaluate", "words=train-index", "--queries", "queries.jsonl", "--lm", "lm", "--count", "3")
QUICK = ("--set", "max_new_tokens=4", "--set", "learning_rate=1e-2", "--set", "epochs=1", "--set", "device=cpu")


def test_classify_prints_accuracy_beside_chance(run: Run) -> None:
    out = done(run(*CLASSIFY, "again=train-index", "--queries", "queries.jsonl", "--set", "vote=3,5")).out
    for words in ("words", "again", "Macro", "Vote@3", "Vote@5", "100.0", "would be 30.0", "query were '"):
        assert words in out, words
    assert "6 queries of 3 classes (field label), 30 training examples" in out
    assert "training examples without a class (they never match): 3" in out


def test_classify_writes_once_and_shows_what_is_there(run: Run) -> None:
    asked = (*CLASSIFY, "--queries", "queries.jsonl", "--json", "--tag", "role=tasks", "--out", "classified")
    status, out, err = run(*asked)
    assert status == 0, err
    value = json.loads(out)
    assert value["measure"] == "classify"
    assert value["tags"] == {"role": "tasks"}
    assert value["command"].startswith("airrep evaluate words=train-index --queries queries.jsonl")
    before = tree(Path("classified"))
    status, again, err = run(*asked)
    assert (status, json.loads(again)) == (0, value)
    assert "classified: was finished already" in err
    assert tree(Path("classified")) == before
    refused(run(*asked, "--set", "vote=2"), "another settings.votes")
    assert run(*asked, "--set", "vote=2", "--replace")[0] == 0
    assert run("show", "classified", "--verify")[0] == 0


def test_classify_by_other_channels_is_another_evaluation(run: Run) -> None:
    Path("recipe.yaml").write_text("- method: ngram\n- method: tfidf\n")
    Path("words.yaml").write_text("- method: ngram\n")
    assert run("index", "train.jsonl", "--recipe", "recipe.yaml", "--out", "channels-index")[0] == 0
    asked = ("evaluate", "d=channels-index", "--queries", "queries.jsonl", "--out", "by-channels")
    assert run(*asked)[0] == 0
    refused(run(*asked, "--set", "d:recipe=words.yaml"), "by-channels")
    assert "was finished already" in run(*asked, "--set", "d:recipe=recipe.yaml")[2]


def test_classify_refuses_in_one_line(run: Run) -> None:
    refused(run(*CLASSIFY, "--queries", "gaps.jsonl"), 'no label; the first: "bare"')
    refused(run(*CLASSIFY, "few-index", "--queries", "queries.jsonl"), "few-index and ")
    refused(run(*CLASSIFY, "--queries", "queries.jsonl", "--set", "vote=31"), "one query has only 30")
    refused(run(*CLASSIFY, "--queries", "queries.jsonl", "--by", "nothing"), 'there is no field "nothing"')
    refused(run(*CLASSIFY, "--queries", "queries.jsonl", "--where", "label =="), "invalid syntax")
    status, out, err = run(
        *CLASSIFY, "--queries", "gaps.jsonl", "--set", "skip_unlabelled=true", "--where", "label != 'towns'"
    )
    assert status == 0, err
    assert "7 queries (1 left out) of 3 classes (field label), 21 training examples" in out
    assert "queries with a class that no training example has (counted as wrong): 2" in out


@pytest.mark.slow
def test_select_goes_the_whole_way_and_is_done_once(run: Run) -> None:
    chosen = ("--set", "full=true", "--set", "selecting=other.jsonl", "--tag", "role=tasks")
    asked = (*SELECT, *QUICK, *chosen, "--out", "selected")
    _, out, err = done(run(*asked))
    for words in ("words", "random", "full", "none", "over tasks", "colours", "numbers", "towns"):
        assert words in out, words
    assert "For each of 3 tasks (field label), 3 of 30 training examples were selected to suit other queries." in out
    assert "the LM lm was fine-tuned on the training examples" in out
    assert "selected: written" in err
    assert not Path("selected.partial").exists()
    before = tree(Path("selected"))
    _, out, err = done(run(*asked, "--json"))
    assert "selected: was finished already" in err
    assert json.loads(out)["tags"] == {"role": "tasks"}
    assert [row["name"] for row in json.loads(out)["rows"]] == ["words", "random", "full", "none"]
    assert tree(Path("selected")) == before
    refused(run(*asked, "--seeds", "2"), "another seeds (was 1, now 2)")


def test_select_goes_on_from_what_partial_left_out(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = (*SELECT, "--set", "random=false", "--set", "retries=0", "--json")
    log = Path("log")

    def select(*more: str, poison: str = "", out: str = "left") -> Ran:
        monkeypatch.setattr("airrep.labels.fine_tuner._loader", lambda lm: ParrotWorld(str(log), poison=poison))
        return run(*asked, "--out", out, *more)

    assert select(out="elsewhere")[0] == 0
    first, *others = [set(line.split()[1:]) for line in log.read_text().splitlines()]
    poison = min(first - set().union(*others))
    log.unlink()
    status, out, err = select("--partial", poison=poison)
    assert status == 0, err
    assert len(json.loads(out)["facts"]["failed"]) == 1
    before = tree(Path("left"))
    assert "left: was finished already" in select("--partial", poison=poison)[2]
    status, out, err = select(poison=poison)
    assert (status, out) == (1, "")
    assert "left: some fine-tunes had failed and are missing" in err
    assert "fine-tunes failed (1)" in err
    assert tree(Path("left")) == before
    status, out, err = select()
    assert status == 0, err
    assert (json.loads(out)["facts"]["failed"], json.loads(out)["rows"][0]["dropped"]) == ([], 0)
    assert len(log.read_text().splitlines()) == 3 + 1 + 1  # the others were made once
    assert "left: was finished already" in select()[2]


def test_select_refuses_in_one_line(run: Run) -> None:
    rate = ("--set", "learning_rate=1e-2")
    refused(run(*SELECT, "--set", "learning=1"), "'learning' is not a setting here")
    refused(run(*SELECT[:-1], "31", *rate), "--count is 31, but only 30 training examples")
    refused(run(*SELECT, "--set", "selecting=gaps.jsonl", *rate), 'query "bare": has no label')
    refused(
        run(*SELECT, "--set", "max_new_tokens=64", *rate, "--set", "device=cpu"),
        "max_new_tokens is 64. Set it below max_tokens, 64.",
    )
    refused(run(*SELECT, "--set", "engine=boat", *rate), "--set engine=boat: does not exist")
    refused(run(*SELECT[:-2]), "--count")


def test_repeated_queries_are_told(run: Run) -> None:
    ran = run("evaluate", "train-index", "--queries", "queries.jsonl", "--json")
    lines = Path("queries.jsonl").read_text().splitlines()
    Path("twice.jsonl").write_text("\n".join([*lines, *(line.replace('"q', '"again-q') for line in lines)]) + "\n")
    again = run("evaluate", "train-index", "--queries", "twice.jsonl", "--json")
    assert json.loads(ran.out)["facts"]["repeated_queries"] == 0
    facts = json.loads(again.out)["facts"]
    assert (facts["repeated_queries"], facts["distinct_queries"]) == (len(lines), len(lines))
    assert "that repeat other queries' texts" in run("evaluate", "train-index", "--queries", "twice.jsonl").out.replace(
        "\n", " "
    )


def test_options_that_contradict_or_say_nothing_are_refused(run: Run) -> None:
    select, mix = ("select", "train-index", "queries.jsonl"), ("mix", "train-index", "queries.jsonl", "--by", "label")
    for words, told in (
        ((*select, "--count", "3", "--set", "tokenizer=words", "--json"), "--set tokenizer"),
        ((*select, "--by", "label", "--most", "a=1", "--most", "a=2", "--json"), "has a limit already"),
        ((*select, "--by", "label", "--most", "20", "--most", "a=2", "--json"), "so --most cannot be repeated"),
        ((*mix, "--write", "yaml=w.yaml", "--write", "llama-factory=x/../w.yaml"), "name this place"),
        ((*mix, "--write", "axolotl=same", "--out", "same"), "twice"),
        (("compare", "found", "--set", "resamples=3"), "50"),
    ):
        ran = run(*words)
        assert ran.status in (1, 2)
        assert told in ran.err
    assert not Path("w.yaml").exists()
    assert not Path("same").exists()

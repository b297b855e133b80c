"""Command line: each command, its exit status, where its words go."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from small_world import make_corpus

import airrep
from airrep import cli


class Ran(NamedTuple):
    """What a command did."""

    status: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run the command line in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["airrep", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
            raise SystemExit(0)
        printed = capsys.readouterr()
        return Ran(int(ended.value.code or 0), printed.out, printed.err)

    return run


def write(path: str, corpus: airrep.Corpus) -> str:
    Path(path).write_text("".join(json.dumps(example.to_dict()) + "\n" for example in corpus))
    return path


@pytest.fixture
def world(run: Run) -> Run:
    """A TF-IDF index of thirty examples, and four queries."""
    write("queries.jsonl", make_corpus(4, "q"))
    ran = run("index", write("train.jsonl", make_corpus(30)), "--out", "runs/index", "--method", "tfidf")
    assert ran.status == 0, ran.err
    assert ran.out == ""
    assert "built: 30 examples, method tfidf; next: airrep top runs/index QUERIES" in ran.err
    return run


def test_index_twice_is_told(world: Run) -> None:
    ran = world("index", "train.jsonl", "--out", "runs/index", "--method", "tfidf")
    assert ran.status == 0
    assert "was finished already: 30 examples" in ran.err
    ran = world("index", "train.jsonl", "--out", "runs/index", "--method", "tfidf", "--set", "ngrams=2")
    assert ran.status == 1
    assert ran.err.startswith("airrep: error: runs/index: holds an index made with another attributor")
    assert ran.err.count("\n") == 1


def test_top_as_json_and_as_table(world: Run) -> None:
    ran = world("top", "runs/index", "queries.jsonl", "-k", "3", "--json")
    result = json.loads(ran.out)
    assert ran.err == ""
    assert [len(query["hits"]) for query in result["queries"]] == [3] * 4
    assert result["provenance"]["method"] == "tfidf"
    assert result["order"] == "most helpful first"
    index = airrep.open_index("runs/index")
    assert result["provenance"]["index"] == index.fingerprint
    assert result == index.top(airrep.read_corpus("queries.jsonl"), k=3).to_dict()
    table = world("top", "runs/index", "queries.jsonl", "-k", "3", "--least").out
    assert "most harmful for q0" in table
    assert "higher = more helpful" in table


def test_typed_query(world: Run) -> None:
    ran = world("top", "runs/index", "--prompt", "question e 7", "--response", "answer 18", "-k", "1", "--json")
    assert json.loads(ran.out)["queries"][0]["hits"][0]["example"]["id"] == "e7"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "queries: expected a file, or --prompt and --response"),
        (("queries.jsonl", "--prompt", "a"), "queries: expected a file, or --prompt and --response"),
        (("--prompt", "a"), "--prompt and --response belong together"),
        (("nowhere.jsonl",), "nowhere.jsonl"),
        (("queries.jsonl", "-k", "31"), "31"),
        (("queries.jsonl", "--where", "flavour == 1"), "flavour"),
        (("queries.jsonl", "--where", "__import__('os')"), "where"),
    ],
)
def test_bad_questions_end_in_one_line(world: Run, arguments: tuple[str, ...], message: str) -> None:
    ran = world("top", "runs/index", *arguments)
    assert ran.status == 1
    assert ran.out == ""
    assert ran.err.startswith("airrep: error: ")
    assert ran.err.count("\n") == 1
    assert message in ran.err


def test_query_file_of_another_schema(world: Run) -> None:
    Path("other.jsonl").write_text('{"text": "no prompt here"}\n')
    ran = world("top", "runs/index", "other.jsonl")
    assert ran.status == 1
    assert "other.jsonl:1" in ran.err
    assert "prompt/response" in ran.err


def test_group_by_field_and_by_file(world: Run) -> None:
    by_field = json.loads(world("group", "runs/index", "queries.jsonl", "--by", "label", "--json").out)
    assert [group["name"] for group in by_field["groups"]] == ["label 0", "label 1", "label 2"]
    groups = {f"label {label}": [f"e{row}" for row in range(label, 30, 3)] for label in range(3)}
    Path("groups.json").write_text(json.dumps(groups))
    by_file = json.loads(world("group", "runs/index", "queries.jsonl", "--groups", "groups.json", "--json").out)
    assert by_file == by_field
    assert "groups for q0" in world("group", "runs/index", "queries.jsonl", "--by", "source", "--pool", "mean").out
    ran = world("group", "runs/index", "queries.jsonl")
    assert (ran.status, "expected one of --by FIELD and --groups FILE" in ran.err) == (1, True)
    ran = world("group", "runs/index", "queries.jsonl", "--by", "label", "--pool", "max")
    assert (ran.status, "--pool max: does not exist" in ran.err) == (1, True)


@pytest.mark.parametrize("content", ["{}", "[]", '{"a": []}', '{"a": "e1"}', '{"a": [1, "e1"]}', "{", '{"a": [true]}'])
def test_bad_group_files_are_told(world: Run, content: str) -> None:
    Path("groups.json").write_text(content)
    ran = world("group", "runs/index", "queries.jsonl", "--groups", "groups.json")
    assert ran.status == 1
    assert ran.err.startswith("airrep: error: groups.json: is not")


def test_what_if(world: Run) -> None:
    removed = json.loads(world("what-if", "runs/index", "queries.jsonl", "--remove", 'source == "forum"', "--json").out)
    kept = json.loads(world("what-if", "runs/index", "queries.jsonl", "--keep", 'source != "forum"', "--json").out)
    assert removed == kept
    assert (removed["removed"], removed["kept"]) == (10, 20)
    assert (
        "without 10 examples (20 kept)"
        in world("what-if", "runs/index", "queries.jsonl", "--remove", 'source == "forum"').out
    )
    assert world("what-if", "runs/index", "queries.jsonl").status == 1


def test_select_writes_a_training_file_with_reasons(world: Run) -> None:
    ran = world("select", "runs/index", "queries.jsonl", "--count", "5", "--out", "picked.jsonl")
    assert ran.status == 0, ran.err
    picked = airrep.read_corpus("picked.jsonl")
    assert len(picked) == 5
    reasons = [example.metadata["selected_by"] for example in picked]
    assert [(reason["rank"], reason["query"]) for reason in reasons] == sorted(
        (reason["rank"], reason["query"]) for reason in reasons
    )
    ran = world("select", "runs/index", "queries.jsonl", "--count", "5", "--out", "picked.jsonl")
    assert (ran.status, "picked.jsonl: exists already; nothing is overwritten" in ran.err) == (1, True)
    ran = world("select", "runs/index", "queries.jsonl", "--count", "31", "--out", "more.jsonl")
    assert (ran.status, "there are 30 examples to choose from" in ran.err) == (1, True)
    assert not Path("more.jsonl").exists()


def test_report_from_runs(world: Run) -> None:
    world("top", "runs/index", "queries.jsonl", "-k", "3", "--out", "runs/top")
    ran = world("group", "runs/index", "queries.jsonl", "--by", "source", "--out", "runs/group")
    assert "written to runs/group; next: airrep report runs/group --out report.html" in ran.err
    ran = world("report", "runs/top", "runs/group", "--out", "page.html")
    assert ran.status == 0, ran.err
    page = Path("page.html").read_text()
    assert "question q 0" in page
    assert "forum" in page
    ran = world("report", "runs/index", "--out", "other.html")
    assert (ran.status, "is of kind 'index'; expected a run of" in ran.err) == (1, True)


def test_append_delete_compact_show(world: Run) -> None:
    assert "9 examples added, 39 in all" in world("append", "runs/index", write("m.jsonl", make_corpus(9, "m"))).err
    assert "13 examples deleted, 26 left" in world("delete", "runs/index", "--where", 'label == "label 0"').err
    assert "1 examples deleted, 25 left" in world("delete", "runs/index", "--id", "e1").err
    assert "25 examples in 1 shards" in world("compact", "runs/index").err
    shown = world("show", "runs/index", "--verify")
    assert "25 of" in shown.out
    assert "files have the checksums of the manifest" in shown.err
    assert json.loads(world("show", "runs/index", "--json").out)["generation"] == 4
    assert world("delete", "runs/index").status == 1
    ran = world("show", "nowhere")
    assert (ran.status, "nowhere: does not exist; expected a directory that airrep wrote" in ran.err) == (1, True)


def test_settings_from_a_file(run: Run) -> None:
    write("train.jsonl", make_corpus(6))
    Path("tfidf.yaml").write_text("ngrams: 2\n")
    ran = run(
        "index", "train.jsonl", "--out", "i", "--method", "tfidf", "--config", "tfidf.yaml", "--set", "min_count=2"
    )
    assert ran.status == 0, ran.err
    assert airrep.open_index("i").manifest["settings"] == {"ngrams": 2, "min_count": 2}
    for arguments, message in (
        (("--config", "none.yaml"), "none.yaml: cannot be read"),
        (("--set", "ngrams"), "is not of the form key=value"),
        (("--set", "words=2"), "'words' is not a setting here; expected one of min_count, ngrams"),
        (("--encoder", "default"), "'encoder' is not a setting here"),
    ):
        ran = run("index", "train.jsonl", "--out", "j", "--method", "tfidf", *arguments)
        assert (ran.status, message in ran.err) == (1, True), ran.err


def test_records_left_out_are_counted(run: Run) -> None:
    write("train.jsonl", make_corpus(6))
    with Path("train.jsonl").open("a") as stream:
        stream.write('{"prompt": "no response"}\n')
    ran = run("index", "train.jsonl", "--out", "i", "--method", "tfidf")
    assert (ran.status, "train.jsonl:7" in ran.err) == (1, True)
    ran = run("index", "train.jsonl", "--out", "i", "--method", "tfidf", "--skip-invalid")
    assert ran.status == 0
    assert "1 records left out, the first: train.jsonl:7" in ran.err


def test_usage_errors_end_with_2_and_version_with_0(run: Run) -> None:
    assert run("index").status == 2
    assert run("no-such-command").status == 2
    assert run("top", "a", "b", "-k", "many").status == 2
    assert run("--version") == (0, f"airrep {airrep.__version__}\n", "")
    assert "Index" in run("--help").out or "index" in run("--help").out


def test_methods_are_listed(run: Run) -> None:
    listed = run("methods").out
    assert "NOT yet trained for attribution" in listed
    assert [method["name"] for method in json.loads(run("methods", "--json").out)] == list(airrep.METHODS)


def test_interruption_ends_with_130(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("airrep.corpus.open_source", interrupt)
    ran = run("index", "train.jsonl", "--out", "i")
    assert ran.status == 130
    assert "airrep: interrupted; run the same command again to go on" in ran.err


def test_out_is_checked_before_the_work(world: Run) -> None:
    before = airrep.open_index("runs/index").fingerprint
    ran = world("top", "runs/index", "queries.jsonl", "--out", "runs/index", "--replace")
    assert (ran.status, ran.out) == (1, "")
    assert "is of kind 'index', not 'top', so it is not replaced" in ran.err
    assert airrep.open_index("runs/index").fingerprint == before
    ran = world("what-if", "runs/index", "queries.jsonl", "--remove", 'id == "none"')
    assert (ran.status, '--remove id == "none": no example fulfils it' in ran.err) == (1, True)


def test_texts_cannot_steer_the_terminal(world: Run) -> None:
    query = {"id": "\x1b[31m[bold]red", "prompt": "\u202eback\x07", "response": "[link]x"}
    Path("odd.jsonl").write_text(json.dumps(query))
    for arguments in (("top", "-k", "2"), ("group", "--by", "label"), ("what-if", "--remove", 'label == "label 1"')):
        printed = world(arguments[0], "runs/index", "odd.jsonl", *arguments[1:]).out
        assert not {"\x1b", "\x07", "\u202e"} & set(printed)


def test_a_reader_that_stops_early_ends_the_command_quietly(world: Run) -> None:
    command = f"{sys.executable} -m airrep.cli top runs/index queries.jsonl -k 30 | head -1"
    ended = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert ended.stderr == ""
    assert "most helpful for q0" in ended.stdout


@pytest.mark.slow
def test_demo_runs_whole(run: Run) -> None:
    ran = run("demo", "--out", "demo")
    assert ran.status == 0, ran.err
    assert "most helpful for" in ran.out
    assert "airrep index YOUR.jsonl" in ran.out
    assert len(airrep.read_corpus("demo/selected.jsonl")) == 100
    assert "not yet trained" in Path("demo/report.html").read_text().lower()
    again = run("demo", "--out", "demo")
    assert again.status == 0, again.err


def test_completion_is_offered() -> None:
    environment = {**os.environ, "_AIRREP_COMPLETE": "complete_bash", "COMP_WORDS": "airrep me", "COMP_CWORD": "1"}
    command = [sys.executable, "-c", "from airrep.cli import main; main()"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "methods" in ended.stdout

"""Commands record themselves in what they make, and run again."""

import json
import shlex
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from worlds.commands import Ran, Run, done, refused
from worlds.small_world import make_corpus
from worlds.tiny_lms import tiny_lm

import airrep
from airrep import dropped
from airrep.cli.app import MODULES
from airrep.cli.running.history import HISTORY, read_history
from airrep.cli.running.once import SHORT
from airrep.errors import ArtifactError


@pytest.fixture
def run(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run the command line in this process, in a folder with data."""
    monkeypatch.chdir(tmp_path)
    write("train.jsonl", make_corpus(30))
    write("q.jsonl", make_corpus(4, "q"))
    return run


def write(path: str, corpus: airrep.Corpus) -> None:
    Path(path).write_text("".join(json.dumps(example.to_dict()) + "\n" for example in corpus))


def do(run: Run, line: str) -> Ran:
    return done(run(*shlex.split(line)))


def lines(path: str) -> list[str]:
    return [one.line for one in read_history(Path(path))]


def fingerprint(path: str) -> str:
    return airrep.Index(path).fingerprint


INDEX = "index train.jsonl --out runs/index --method tfidf --set shard_rows=8"


def test_a_result_is_made_again_as_it_was_typed(run: Run) -> None:
    do(run, INDEX)
    asked = "airrep top runs/index q.jsonl -k 3 --least --where 'label != \"label 1\"' --out runs/top"
    do(run, f"{asked.removeprefix('airrep ')} --json")
    assert lines("runs/top") == [asked]
    assert f"made by: {asked}" in do(run, "show runs/top").out
    assert run("top", "runs/index", "--response", "it's\n \té", "--out", "runs/two").status == 0
    assert "--response $'it\\'s\\n \\x09é' --out" in do(run, "show runs/two").out
    before = airrep.open("runs/top").to_dict()
    write("q.jsonl", make_corpus(3, "q"))
    assert run("rerun", "runs/top").status == 1, "nothing is overwritten"
    assert airrep.open("runs/top").to_dict() == before
    do(run, "rerun runs/index runs/top --replace")
    assert len(airrep.open("runs/top")) == 3
    assert lines("runs/top") == [asked]


def test_what_is_finished_is_found(run: Run) -> None:
    do(run, INDEX)
    before = Path("runs/index/manifest.json").stat().st_mtime_ns
    do(run, "rerun runs/index")
    assert Path("runs/index/manifest.json").stat().st_mtime_ns == before
    assert len(lines("runs/index")) == 1


def test_changes_of_an_index_run_again_in_order(run: Run) -> None:
    write("more.jsonl", make_corpus(5, "more"))
    do(run, INDEX)
    for line in ("append runs/index more.jsonl", "append runs/index more.jsonl", "delete runs/index --id e3 --compact"):
        do(run, line)
    assert [one.words[0] for one in read_history(Path("runs/index"))] == ["index", "append", "delete"]
    before = fingerprint("runs/index")
    do(run, "rerun runs/index --replace")
    assert fingerprint("runs/index") == before
    assert [one.words[0] for one in read_history(Path("runs/index"))] == ["index", "append", "delete"]


def test_labels_record_each_call_that_added_to_them(run: Run) -> None:
    tiny_lm(Path("lm"))
    do(run, "sample train.jsonl --out subsets --instances 1 --set train_count=8 --query-count 2 --subsets 2 --size 3")
    tuning = "--set epochs=1 --set learning_rate=1e-2 --set precision=float32"
    for seeds in (1, 2, 2):
        do(run, f"label subsets train.jsonl --lm lm --out labels --seeds {seeds} {tuning}")
    assert [one.words[one.words.index("--seeds") + 1] for one in read_history(Path("labels"))] == ["1", "2"]
    assert do(run, "show labels").out.count("made by: airrep label subsets train.jsonl --lm lm ") == 2


def test_the_folder_of_a_command_moves_with_its_project(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("project").mkdir()
    shutil.copy("train.jsonl", "project")
    monkeypatch.chdir("project")
    do(run, INDEX)
    monkeypatch.chdir("..")
    shutil.move("project", "moved")
    assert str(Path.cwd()) not in Path("moved/runs/index", HISTORY).read_text(), "no path of the machine"
    write("moved/train.jsonl", make_corpus(20))
    do(run, "rerun moved/runs/index --replace")
    assert len(airrep.Index("moved/runs/index")) == 20


def test_what_nobody_recorded_is_told(run: Run) -> None:
    airrep.build_index(make_corpus(5), "index", "tfidf")
    refused(run("rerun", "index"), "index: records no command")
    do(run, "serve --help")
    assert not Path("index", HISTORY).exists()


def test_what_an_earlier_version_recorded_is_told_in_one_line(run: Run) -> None:
    do(run, INDEX)
    step = {"index": {"data": "train.jsonl", "out": "runs/index", "set": {"preset": "paper"}}}
    path = Path("runs/index", HISTORY)
    path.write_text(json.dumps({"airrep": "0.1.0", "step": step, "folder": "../..", "inputs": {}}) + "\n")
    write("more.jsonl", make_corpus(5, "more"))
    do(run, "append runs/index more.jsonl")
    before = fingerprint("runs/index")
    ran = run("rerun", "runs/index", "--replace")
    assert (ran.status, ran.err.count("\n"), fingerprint("runs/index")) == (1, 1, before)
    assert 'data="train.jsonl"' in ran.err
    assert "airrep index --help" in ran.err
    assert 'index data="train.jsonl"' in do(run, "show runs/index").out


@pytest.mark.parametrize("more", ["", " --replace"])
def test_a_command_whose_reader_stops_early_is_recorded(run: Run, monkeypatch: pytest.MonkeyPatch, more: str) -> None:
    do(run, INDEX)
    asked = f"top runs/index q.jsonl --out runs/top{more}"
    if more:
        do(run, asked)

    def stop(*_: object, **__: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("airrep.cli.show.results.print_top", stop)
    with suppress(BrokenPipeError):
        run(*asked.split())
    assert lines("runs/top") == ["airrep top runs/index q.jsonl --out runs/top"]


def test_a_command_that_fails_is_not_recorded(run: Run) -> None:
    airrep.build_index(make_corpus(5), "index", "tfidf")
    assert run("index", "train.jsonl", "--out", "index").status == 1
    assert run("append", "index", "nowhere.jsonl").status == 1
    assert lines("index") == []


def test_a_history_that_is_no_history_is_told_and_a_cut_line_is_left_out(run: Run) -> None:
    do(run, INDEX)
    path = Path("runs/index", HISTORY)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"words": ["app')
    assert len(lines("runs/index")) == 1
    path.write_bytes(b'{"words": 1}\n')
    with pytest.raises(ArtifactError, match=HISTORY):
        read_history(Path("runs/index"))


@pytest.mark.parametrize("name", sorted(dropped.COMMANDS))
def test_a_dropped_command_prints_what_to_type_instead(run: Run, name: str) -> None:
    ran = run(*name.split(), "a", "--out", "b")
    assert (ran.status > 0, ran.out, ran.err.count("\n")) == (True, "", 1)
    assert dropped.COMMANDS[name] in ran.err


def test_help_all_of_all_lists_the_commands(run: Run) -> None:
    ran = run("--help-all")
    assert (ran.status, ran.err) == (0, "")
    assert "evaluate" in ran.out


@pytest.mark.parametrize("name", sorted(SHORT))
def test_help_fits_a_screen_and_help_all_has_every_option(run: Run, name: str) -> None:
    short, whole = (run(*name.split(), flag) for flag in ("--help", "--help-all"))
    assert (short.status, whole.status) == (0, 0), short.err + whole.err
    assert len(short.out.splitlines()) <= 40
    assert f"$ airrep {name}" in short.out
    assert len(SHORT[name].options.split()) <= 6
    for option in SHORT[name].options.split():
        assert f"-{option} " in short.out, option
        assert f"-{option} " in whole.out, option


def test_every_command_has_short_help() -> None:
    assert {name.split()[0] for name in SHORT} == {name for names in MODULES.values() for name in names}


def test_a_setting_is_named_only_where_the_command_has_it(run: Run) -> None:
    assert "--set drop_duplicates=VALUE" in run("select", "i", "q", "--drop-duplicates").err
    assert "No such option: --top" in run("top", "i", "q", "--top", "3").err

"""Input of strangers that once crashed a command, steered the terminal or said nothing."""

import json
from pathlib import Path

import pytest
from worlds.commands import Ran, Run, refused
from worlds.small_world import make_corpus

import airrep
from airrep.runtime.hub import check_own_code


@pytest.fixture
def run(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run the command line in this process, in a folder with an index whose names are hostile."""
    monkeypatch.chdir(tmp_path)
    examples = [airrep.Example("red cats", f"run {n} fast", f"e{n}", metadata={"k\x1b[31m": "v\x07"}) for n in range(9)]
    airrep.build_index(examples, "index", "ngram")
    make_corpus(3, "q").to_jsonl("q.jsonl")

    def checked(*arguments: str) -> Ran:
        ran = run(*arguments)
        assert not set("\x1b\x07") & set(ran.out + ran.err)
        return ran

    return checked


def test_names_of_fields_cannot_steer_the_terminal(run: Run) -> None:
    status, out, _ = run("show", "index")
    assert status == 0
    assert "k\N{REPLACEMENT CHARACTER}[31m" in out


GROUPS = ["[" * 100_000, "[[1e400]]", '{"a": "b"}', "[[99999999999999999999]]", "\x00", '{"\\ud800": ["e1"]}']


@pytest.mark.parametrize("text", GROUPS, ids=range(len(GROUPS)))
def test_files_of_groups_that_are_none(run: Run, text: str) -> None:
    Path("groups.json").write_text(text)
    refused(run("group", "index", "q.jsonl", "--by", "groups.json"))


def test_a_filter_on_a_field_that_no_example_has_is_told_as_that(run: Run) -> None:
    for command in (["top"],):
        status, _, err = run(command[0], "index", "q.jsonl", "--where", "source == 'none'", *command[1:])
        assert (status, err.count("\n")) == (1, 1)
        assert "no example has a source" in err


@pytest.mark.parametrize(
    ("name", "told"), [("", "the path is empty"), (" ", "the path is empty"), ("a" * 5000, "too long")]
)
def test_names_that_no_file_has(run: Run, name: str, told: str) -> None:
    status, _, err = run("index", name, "--out", "new", "--method", "tfidf")
    assert (status, err.count("\n")) == (1, 1)
    assert told in err
    assert len(err) < 300


def test_many_files_that_ask_for_code_are_counted(tmp_path: Path) -> None:
    for number in range(9):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "config.json").write_text(json.dumps({"auto_map": {"AutoModel": "code.Model"}}))
    with pytest.raises(airrep.errors.ConfigError, match="and 6 more refers to it"):
        check_own_code("lm", "folder", tmp_path, trusted=False)

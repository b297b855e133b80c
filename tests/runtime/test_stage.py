"""Long stages: found finished, claimed, resumed for the same request alone, named when whole."""

import json
from pathlib import Path
from typing import Any

import pytest

from airrep.errors import ArtifactError
from airrep.runtime.artifacts import LOCK, locked, make_partial, partial_path, read_manifest, seal
from airrep.runtime.stage import REQUEST, Stage

OTHER = "an unfinished note of another text"


def has_work(partial: Path) -> bool:
    return (partial / "work").exists()


def stage_of(out: Path, text: str = "one", **more: Any) -> Stage:
    request = {"text": text, "settings": {"seed": 0}, "test": more.pop("test", 0)}
    return Stage(out, "note", "a note made", request, holds_work=has_work, other=OTHER, **more)


def make(stage: Stage, *, stop: bool = False) -> list[str]:
    """Make a note; gives the names of what an earlier run had left there."""
    with stage.making() as folder:
        found = sorted(path.name for path in folder.iterdir())
        (folder / "work").touch()
        if stop:
            raise InterruptedError
        seal(folder, "note", {"request": dict(stage.request)})
    return found


def interrupt(stage: Stage) -> None:
    with pytest.raises(InterruptedError):
        make(stage, stop=True)


def test_what_is_finished_is_found_and_another_request_is_told_by_its_first_difference(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert stage_of(out).finished() is None
    make(stage_of(out))
    manifest = stage_of(out).finished(verify=True)
    assert manifest == read_manifest(out, "note")
    assert set(manifest["files"]) == {REQUEST, "work"}
    with pytest.raises(ArtifactError, match=r"out: holds a note made with another text \(was one"):
        stage_of(out, "two").finished()
    shown = {"shown": lambda request: {"words": request["text"]}}
    with pytest.raises(ArtifactError, match=r"another words \(was one"):
        stage_of(out, "two", **shown).finished()
    listed = {"shown": lambda request: {"words": [request["text"] + "0" * 60, *"xyz"]}}
    with pytest.raises(ArtifactError, match=r"another words \(was one000000000, x, y, …"):
        stage_of(out, "two", **listed).finished()
    assert stage_of(out, "two", replace=True).finished() is None
    with pytest.raises(ArtifactError, match="is of kind 'note', not 'index'"):
        Stage(out, "index", "an index made", {}, replace=True).finished()


def test_only_when_asked_is_every_byte_of_what_is_finished_checked(tmp_path: Path) -> None:
    make(stage_of(tmp_path / "out"))
    (tmp_path / "out/work").write_text("altered")
    assert stage_of(tmp_path / "out").finished() is not None
    with pytest.raises(ArtifactError, match="work: has 7 bytes"):
        stage_of(tmp_path / "out").finished(verify=True)


def test_an_interrupted_stage_is_resumed_by_the_same_request_and_then_named(tmp_path: Path) -> None:
    out = tmp_path / "out"
    interrupt(stage_of(out))
    assert not out.exists()
    assert json.loads((partial_path(out) / REQUEST).read_bytes()) == stage_of(out).request
    assert make(stage_of(out)) == [LOCK, REQUEST, "work"]
    assert out.is_dir()
    assert not partial_path(out).exists()


def test_a_file_that_a_killed_run_was_writing_is_removed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    interrupt(stage_of(out))
    (partial_path(out) / ".airrep-0123456789abcdef.tmp").write_bytes(b"half")
    assert make(stage_of(out)) == [LOCK, REQUEST, "work"]


def test_work_for_another_request_is_refused_and_given_up_only_to_be_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out"
    interrupt(stage_of(out))
    with pytest.raises(ArtifactError, match=r"out\.partial: holds an unfinished note of another text"):
        make(stage_of(out, "two"))
    assert make(stage_of(out)) == [LOCK, REQUEST, "work"]
    interrupt(stage_of(out, replace=True))
    assert make(stage_of(out, "two", replace=True)) == [LOCK, REQUEST]


@pytest.mark.parametrize("damaged", ['{"text": "on', "[]", "no JSON"])
def test_a_damaged_request_is_another_one(tmp_path: Path, damaged: str) -> None:
    out = tmp_path / "out"
    interrupt(stage_of(out))
    (partial_path(out) / REQUEST).write_text(damaged)
    with pytest.raises(ArtifactError, match="unfinished note of another text"):
        make(stage_of(out))
    (partial_path(out) / "work").unlink()  # nothing is lost then
    assert make(stage_of(out)) == [LOCK, REQUEST]


def test_what_does_not_decide_unfinished_work_may_differ(tmp_path: Path) -> None:
    out = tmp_path / "out"
    interrupt(stage_of(out, ignoring=("test",)))
    assert make(stage_of(out, test=1, ignoring=("test",))) == [LOCK, REQUEST, "work"]
    assert read_manifest(out)["request"]["test"] == 1
    with pytest.raises(ArtifactError, match=r"another test \(was 1"):
        stage_of(out, ignoring=("test",)).finished()


def test_a_stage_that_is_only_resumed_keeps_its_name_and_what_it_is_told_to(tmp_path: Path) -> None:
    out = tmp_path / "out"
    one, two = ({"text": text} for text in ("one", "two"))
    with Stage(out, "note", "a note begun", one, holds_work=has_work).resuming() as folder:
        (folder / "work").touch()
        (folder / "stray").touch()
    assert not out.exists()
    with pytest.raises(ArtifactError, match=r"a note begun with another text \(was one"):
        with Stage(out, "note", "a note begun", two, holds_work=has_work).resuming():
            pytest.fail("took what was begun for another request")
    with Stage(out, "note", "a note begun", two, True, has_work, keep=("work",)).resuming() as folder:
        assert sorted(path.name for path in folder.iterdir()) == [LOCK, REQUEST, "work"]


def test_a_stage_that_cannot_be_resumed_begins_anew_and_keeps_no_request(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "out", "note", "a note made", {"text": "one"})
    interrupt(stage)
    assert make(stage) == [LOCK]
    assert not (tmp_path / "out" / REQUEST).exists()


def test_what_is_not_ours_and_what_another_process_makes_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("years of work")
    for replace in (False, True):
        for work in (stage_of(tmp_path / "mine", replace=replace).finished, lambda: make(stage_of(tmp_path / "mine"))):
            with pytest.raises(ArtifactError, match="was not written by airrep, so it is not replaced"):
                work()
    assert (tmp_path / "mine/thesis.txt").read_text() == "years of work"
    with locked(make_partial(tmp_path / "out")), pytest.raises(ArtifactError, match="another process is writing there"):
        make(stage_of(tmp_path / "out"))


def test_a_body_that_does_not_seal_gives_no_artifact(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="is unfinished"), stage_of(tmp_path / "out").making():
        pass
    assert not (tmp_path / "out").exists()

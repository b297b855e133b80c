"""Artifacts: whole or not there, and never silently altered."""

import errno
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airrep.errors import ArtifactError
from airrep.runtime import publishing as files
from airrep.runtime.artifacts import (
    MANIFEST,
    canonical_json,
    check_digests,
    check_free,
    check_sizes,
    json_digest,
    locked,
    new_artifact,
    partial_path,
    read_manifest,
)


def make(path: Path, text: str = "hello", **options: bool) -> None:
    with new_artifact(path, "note", {"about": "a test"}, **options) as folder:
        files.write_file(folder / "note.txt", text.encode())


def test_artifact_holds_its_files_and_checksums(tmp_path: Path) -> None:
    make(tmp_path / "a")
    manifest = read_manifest(tmp_path / "a", "note")
    assert manifest["about"] == "a test"
    assert manifest["files"]["note.txt"]["bytes"] == 5
    check_digests(tmp_path / "a", manifest["files"])
    assert not partial_path(tmp_path / "a").exists()


def test_existing_artifact_is_kept_unless_replaced(tmp_path: Path) -> None:
    make(tmp_path / "a")
    with pytest.raises(ArtifactError, match="exists already"):
        make(tmp_path / "a", "other")
    assert (tmp_path / "a/note.txt").read_text() == "hello"
    make(tmp_path / "a", "other", replace=True)
    assert (tmp_path / "a/note.txt").read_text() == "other"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_replace_spares_what_airrep_did_not_write(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("years of work")
    with pytest.raises(ArtifactError, match="was not written by airrep, so it is not replaced"):
        make(tmp_path / "mine", replace=True)
    assert (tmp_path / "mine/thesis.txt").read_text() == "years of work"


def test_replace_spares_artifacts_of_another_kind_and_backups(tmp_path: Path) -> None:
    make(tmp_path / "a")
    (tmp_path / "a.old").mkdir()
    with pytest.raises(ArtifactError, match="is of kind 'note', not 'top', so it is not replaced"):
        check_free(tmp_path / "a", "top", replace=True)
    make(tmp_path / "a", "other", replace=True)
    assert (tmp_path / "a.old").is_dir()
    (tmp_path / "b.partial").mkdir()
    (tmp_path / "b.partial/notes.txt").write_text("mine")
    with pytest.raises(ArtifactError, match=r"b\.partial: was not written by airrep, but is in the way"):
        make(tmp_path / "b")


def test_symbolic_links_are_written_through(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("target")
    for text in ("one", "two"):
        make(tmp_path / "link", text, replace=text == "two")
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "target/note.txt").read_text() == text


def test_failure_leaves_no_finished_looking_artifact(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), new_artifact(tmp_path / "a", "note", {}) as folder:
        files.write_file(folder / "note.txt", b"half")
        raise ZeroDivisionError
    with pytest.raises(ArtifactError, match="is unfinished"):
        read_manifest(tmp_path / "a")
    make(tmp_path / "a")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.unlink(), r"has no manifest\.json"),
        (lambda path: path.write_bytes(path.read_bytes()[:-10]), "is not valid JSON"),
        (lambda path: path.write_bytes(path.read_bytes().replace(b"a test", b"a tent")), "was altered after"),
        (lambda path: path.write_text("[]"), "is not a manifest of airrep"),
        (lambda path: path.write_text('{"format": 99}'), "was written by a newer airrep .in format 99"),
    ],
)
def test_bad_manifest_is_told(tmp_path: Path, damage, message: str) -> None:
    make(tmp_path / "a")
    damage(tmp_path / "a" / MANIFEST)
    with pytest.raises(ArtifactError, match=message):
        read_manifest(tmp_path / "a")


def test_a_folder_that_holds_an_artifact_names_it(tmp_path: Path) -> None:
    make(tmp_path / "runs" / "note")
    for kind in (None, "note"):
        with pytest.raises(ArtifactError, match=r"runs: has no manifest.json. Did you mean .*runs/note\?"):
            read_manifest(tmp_path / "runs", kind)
    with pytest.raises(ArtifactError, match="expected a directory that airrep wrote"):
        read_manifest(tmp_path / "runs", "index")


def test_other_kind_and_absence_are_told(tmp_path: Path) -> None:
    make(tmp_path / "a")
    with pytest.raises(ArtifactError, match="is of kind 'note'"):
        read_manifest(tmp_path / "a", "index")
    with pytest.raises(ArtifactError, match="b: does not exist"):
        read_manifest(tmp_path / "b")


def test_altered_missing_and_cut_files_are_told(tmp_path: Path) -> None:
    make(tmp_path / "a")
    files = read_manifest(tmp_path / "a")["files"]
    note = tmp_path / "a/note.txt"
    note.write_text("hellO")
    check_sizes(tmp_path / "a", files)
    with pytest.raises(ArtifactError, match=r"note\.txt: was altered after it was written"):
        check_digests(tmp_path / "a", files)
    note.write_text("hell")
    with pytest.raises(ArtifactError, match=r"note\.txt: has 4 bytes"):
        check_sizes(tmp_path / "a", files)
    note.unlink()
    with pytest.raises(ArtifactError, match=r"note\.txt: is missing"):
        check_sizes(tmp_path / "a", files)


def test_second_writer_is_refused(tmp_path: Path) -> None:
    with locked(tmp_path):
        with pytest.raises(ArtifactError, match="another process is writing there"), locked(tmp_path):
            pytest.fail("two writers at once")
    with locked(tmp_path):
        pass


@pytest.mark.parametrize(
    ("number", "reason"),
    [(errno.ENOSPC, "the disk is full"), (errno.EACCES, "no permission to write"), (errno.EROFS, "read-only")],
)
def test_system_errors_say_why_and_what_next(tmp_path: Path, number: int, reason: str) -> None:
    with pytest.raises(ArtifactError, match=rf"{reason}.*; what was there before is unchanged\. .*same command again"):
        with files.writing(tmp_path):
            raise OSError(number, "refused")


def test_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    files.write_file(path, b"old")

    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(files, "sync", full)
    with pytest.raises(ArtifactError, match="the disk is full"):
        files.write_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_json_has_one_spelling() -> None:
    assert canonical_json({"b": 1, "a": "ü"}) == canonical_json({"a": "ü", "b": 1})
    assert json.loads(canonical_json([1])) == [1]
    assert json_digest({"b": 1, "a": 2}) == json_digest({"a": 2, "b": 1})
    assert canonical_json([np.int64(1), {"a": np.float32(0.5)}]) == canonical_json([1, {"a": 0.5}])
    with pytest.raises(TypeError, match="Object of type set is not JSON serializable"):
        canonical_json({1})


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.dictionaries(st.integers(), inner),
)


@given(VALUES)
def test_json_is_that_of_the_library(value: object) -> None:
    expected = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"
    assert canonical_json(value).decode() == expected


def test_unfinished_work_of_a_long_stage_is_not_emptied(tmp_path: Path) -> None:
    begun = tmp_path / "x.partial"
    begun.mkdir()
    (begun / ".lock").touch()
    (begun / "request.json").write_text("{}")
    (begun / "shard").write_text("hours")
    with pytest.raises(ArtifactError, match=r"x\.partial: holds the unfinished work of another command"):
        with new_artifact(tmp_path / "x", "top", {}):
            raise AssertionError("it was begun")
    assert (begun / "shard").read_text() == "hours"
    with new_artifact(tmp_path / "x", "top", {}, replace=True):
        pass
    assert not begun.exists()

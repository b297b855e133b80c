"""Publishing: whole under the name or as before, whoever is killed, whoever else writes, whatever lies in the way."""

import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from worlds.kills import kill_at, list_changes

from airrep.errors import ArtifactError
from airrep.runtime import publishing as files
from airrep.runtime.artifacts import new_artifact, read_manifest, seal, tidy
from airrep.runtime.remote import outputs


def make(path: Path, text: str, **options: bool) -> None:
    with new_artifact(path, "note", {"about": text}, **options) as folder:
        files.write_file(folder / "note.txt", text.encode())


def about(path: Path) -> str:
    """What a whole artifact is about; every byte of it is checked."""
    manifest = read_manifest(path, "note", verify=True)
    assert (path / "note.txt").read_text() == manifest["about"]
    return str(manifest["about"])


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("exchanges", [True, False])
def test_a_version_stands_under_the_name_at_every_moment_of_a_replacement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchanges: bool
) -> None:
    """Where the system cannot exchange two names, a kill between two renames leaves neither; a rerun puts it back."""
    if not exchanges:
        monkeypatch.setattr(files, "_exchange", lambda one, other: False)
    out, gone = tmp_path / "a", 0

    def replace() -> None:
        make(out, "new", replace=True)

    make(out, "old")
    for change in range(len(list_changes(replace, tmp_path))):
        shutil.rmtree(out)
        make(out, "old")
        assert kill_at(replace, tmp_path, change, torn=change % 3)
        gone += not out.exists()
        with pytest.raises(ArtifactError, match="exists already"):  # the old version is back, or the new one is there
            make(out, "new")
        assert about(out) in ("old", "new")
        replace()
        assert about(out) == "new"
        assert names(tmp_path) == ["a"]
    assert gone == (0 if exchanges else 1)


def test_a_manifest_names_what_was_written_not_what_lies_there(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("hello")
    for left in (".manifest.json.tmp", ".airrep-0123456789abcdef.tmp", ".nfs0001", "other.txt"):
        (tmp_path / left).write_text("left over")
    seal(tmp_path, "note", {}, written=["note.txt"])
    assert set(read_manifest(tmp_path, "note", verify=True)["files"]) == {"note.txt"}
    seal(tmp_path, "note", {})
    assert set(read_manifest(tmp_path, "note", verify=True)["files"]) == {"note.txt", "other.txt"}


def test_temporary_files_have_names_that_nobody_can_guess(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    sync = files.sync
    monkeypatch.setattr(files, "sync", lambda path: (seen.append(path.name), sync(path)))
    for text in (b"one", b"two"):
        files.write_file(tmp_path / "a.txt", text)
    temporary = [name for name in seen if name.endswith(".tmp")]
    assert len(set(temporary)) == 2
    assert names(tmp_path) == ["a.txt"]


def test_links_are_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user of a shared folder may put a link wherever airrep writes."""
    victim = tmp_path / "victim.txt"
    victim.write_text("precious")
    monkeypatch.setattr(files.secrets, "token_hex", lambda _: "guessed")
    for write in (
        lambda: files.write_file(tmp_path / "a.txt", b"overwritten"),
        lambda: files.append_line(tmp_path / "log.jsonl", "overwritten"),
    ):
        for name in (".airrep-guessed.tmp", "log.jsonl", ".a.txt.tmp"):
            (tmp_path / name).unlink(missing_ok=True)
            (tmp_path / name).symlink_to(victim)
        with pytest.raises(ArtifactError, match="cannot be written"):
            write()
        assert victim.read_text() == "precious"


def test_links_in_place_of_unfinished_work_are_refused_and_those_in_it_removed(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/thesis.txt").write_text("years of work")
    (tmp_path / "theirs/.lock").touch()
    (tmp_path / "a.partial").symlink_to("theirs")
    with pytest.raises(ArtifactError, match=r"a\.partial: is a symbolic link, which airrep did not make"):
        make(tmp_path / "a", "new")
    (tmp_path / "a.partial").unlink()
    (tmp_path / "a.partial").mkdir()
    (tmp_path / "a.partial/.lock").symlink_to("../theirs/thesis.txt")
    with pytest.raises(ArtifactError, match=r"\.lock: is a symbolic link"):
        make(tmp_path / "a", "new")
    (tmp_path / "theirs/.lock").unlink()
    (tmp_path / "a.partial/.lock").unlink()
    (tmp_path / "a.partial/.lock").touch()
    (tmp_path / "a.partial/link").symlink_to("../theirs")
    make(tmp_path / "a", "new")
    assert about(tmp_path / "a") == "new"
    assert names(tmp_path / "theirs") == ["thesis.txt"]


def test_many_writers_of_one_file_do_not_collide(tmp_path: Path) -> None:
    path, failures = tmp_path / "a.txt", []
    contents = [bytes([letter]) * 100_000 for letter in range(97, 105)]

    def write(content: bytes) -> None:
        for _ in range(10):
            try:
                files.write_file(path, content)
            except ArtifactError as error:
                failures.append(error)

    writers = [threading.Thread(target=write, args=(content,)) for content in contents]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        if path.exists():
            assert path.read_bytes() in contents
        files.remove_leftovers(tmp_path)
    assert not failures
    assert path.read_bytes() in contents
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.parametrize(
    "write",
    [lambda out: outputs.write_output(out / "a", b"new"), lambda out: write_folder(out / "a")],
    ids=["file", "folder"],
)
def test_what_killed_writers_left_is_removed_by_the_next(tmp_path: Path, write: Callable[[Path], None]) -> None:
    for change in range(len(list_changes(lambda: write(tmp_path / "counted"), tmp_path))):
        out = tmp_path / str(change)
        kill_at(lambda out=out: write(out), tmp_path, change, torn=change % 3)
        if (out / "a").is_dir():
            shutil.rmtree(out / "a")
        write(out)
        assert names(out) == ["a"]


def write_folder(out: Path) -> None:
    with outputs.new_folder(out) as folder:
        (folder / "one.txt").write_text("one")
        (folder / "more").mkdir()
        (folder / "more/two.txt").write_text("two")


def test_what_a_living_writer_has_not_finished_stays(tmp_path: Path) -> None:
    with outputs.new_folder(tmp_path / "a") as folder:
        (folder / "one.txt").write_text("one")
        files.remove_leftovers(tmp_path)
        tidy(tmp_path / "other")
    assert (tmp_path / "a/one.txt").read_text() == "one"


def test_a_log_loses_the_line_that_was_cut_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    files.append_line(path, '{"number": 1}')
    with path.open("a") as stream:
        stream.write('{"numb')
    files.append_line(path, '{"number": 2}')
    assert path.read_text() == '{"number": 1}\n{"number": 2}\n'
    path.write_text("x" * 200_000)
    files.append_line(path, "whole")
    assert path.read_text() == "whole\n"


def test_a_failed_replacement_of_a_folder_keeps_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "a", "old")

    def refuse(one: Path, other: Path) -> bool:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(files, "_exchange", refuse)
    with pytest.raises(ArtifactError, match="there is no permission to write"):
        make(tmp_path / "a", "new", replace=True)
    assert about(tmp_path / "a") == "old"
    monkeypatch.undo()
    make(tmp_path / "a", "new", replace=True)
    assert about(tmp_path / "a") == "new"


def test_content_in_pieces_is_written_as_it_comes_and_appears_whole(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")

    def pieces() -> Iterator[bytes]:
        yield b"x" * 2**20
        (unfinished,) = tmp_path.glob(".airrep-*")
        assert unfinished.stat().st_size == 2**20  # the first piece is on the disk before the second is made
        assert path.read_bytes() == b"old"
        yield b"y"

    files.write_file(path, pieces())
    assert path.read_bytes() == b"x" * 2**20 + b"y"

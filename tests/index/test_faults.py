"""Full disks and missing permissions, then a rerun that gives the bytes of an undisturbed run."""

import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from worlds.kills import in_child
from worlds.small_world import HashAttributor, make_corpus, tree

import airrep
from airrep.errors import ArtifactError

TRAIN, MORE = make_corpus(120), make_corpus(60, "more")


def build(out: Path) -> None:
    airrep.build_index(TRAIN, out, HashAttributor(), shard_rows=8)


def append(out: Path) -> None:
    airrep.Index(out, HashAttributor()).append(MORE)


@pytest.fixture
def built(tmp_path: Path) -> Path:
    build(tmp_path / "built")
    return tmp_path / "built"


def limited(size: int, work: Callable[[], None]) -> None:
    """Run work while no file may grow beyond *size* bytes; it must end in the named error."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    with pytest.raises(ArtifactError, match=r"cannot be written: .*; what was there before is unchanged"):
        work()


@pytest.mark.parametrize("size", [0, 100, 400, 600, 1500, 3000, 8000])
def test_full_disk_during_build_and_append(tmp_path: Path, built: Path, size: int) -> None:
    out = tmp_path / "other"
    assert os.waitpid(in_child(lambda: limited(size, lambda: build(out))), 0)[1] == 0
    assert not out.exists()
    build(out)
    before = tree(out)
    assert before == tree(built)
    assert os.waitpid(in_child(lambda: limited(size, lambda: append(out))), 0)[1] == 0
    airrep.Index(out, HashAttributor()).verify()
    append(out)
    append(built)
    assert tree(out) == tree(built)


def test_no_permission_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *args: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "mkdir", refuse)
        with pytest.raises(ArtifactError, match="other: cannot be written: there is no permission to write"):
            build(tmp_path / "other")
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ArtifactError, match="was not written by airrep"):
        build(tmp_path / "file")
    with pytest.raises(ArtifactError, match="a parent of it is a file|exists"):
        build(tmp_path / "file" / "below")
    build(tmp_path / "other")

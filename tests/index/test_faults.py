"""Faults: kills and full disks at any moment, then a rerun that gives the bytes of an undisturbed run."""

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from worlds.kills import in_child
from worlds.small_world import HashAttributor, make_corpus, tree

import airrep
from airrep.errors import ArtifactError

TRAIN, MORE = make_corpus(120), make_corpus(60, "more")
KILLS = 18


def build(out: Path) -> None:
    airrep.build_index(TRAIN, out, HashAttributor(), shard_rows=8)


def append(out: Path) -> None:
    airrep.Index(out, HashAttributor()).append(MORE)


def change(out: Path) -> None:
    """Delete a third, then compact."""
    index = airrep.Index(out, HashAttributor())
    if len(index.where(source="forum")):
        index = index.delete(index.where(source="forum"))
    index.compact()


def killed_after(seconds: float, work: Callable[[], None]) -> bool:
    """Kill the work after some time; whether the kill came before its end."""
    child = in_child(work)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def check_kills(work: Callable[[Path], None], start: Path | None, scratch: Path) -> None:
    """Kill work at random moments; after each kill, a rerun gives the bytes of an undisturbed run."""
    undisturbed = scratch / "undisturbed"
    if start is not None:
        shutil.copytree(start, undisturbed)
    begun = time.monotonic()
    assert os.waitpid(in_child(lambda: work(undisturbed)), 0)[1] == 0
    length, expected = time.monotonic() - begun, tree(undisturbed)
    moments = random.Random(2505)
    kills = 0
    for trial in range(KILLS):
        out = scratch / f"trial-{trial}"
        if start is not None:
            shutil.copytree(start, out)
        moment = moments.uniform(0, length)
        if killed_after(moment, lambda out=out: work(out)):
            kills += 1
        else:
            length = moment  # the work takes less than that, whatever it took on a busy machine
        if start is not None:
            airrep.Index(out, HashAttributor()).verify()
        work(out)
        assert tree(out) == expected
        assert not (scratch / f"trial-{trial}.partial").exists()
    assert kills >= KILLS // 3


@pytest.fixture
def built(tmp_path: Path) -> Path:
    build(tmp_path / "built")
    return tmp_path / "built"


def test_kills_during_build(tmp_path: Path) -> None:
    check_kills(build, None, tmp_path)


def test_kills_during_append(tmp_path: Path, built: Path) -> None:
    check_kills(append, built, tmp_path)


def test_kills_during_delete_and_compact(tmp_path: Path, built: Path) -> None:
    check_kills(change, built, tmp_path)


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


@pytest.mark.slow
def test_kills_of_the_command_itself(tmp_path: Path) -> None:
    """The real encoder, in a process of its own, killed three times and then left to finish."""
    train = Path(airrep.__file__).parent / "data" / "queries.jsonl"
    command = [sys.executable, "-m", "airrep.cli.app", "index", str(train), "--set", "shard_rows=4", "--out"]
    subprocess.run([*command, str(tmp_path / "whole")], check=True, capture_output=True)
    for seconds in (3.0, 3.6, 4.2):
        process = subprocess.Popen([*command, str(tmp_path / "killed")], stderr=subprocess.DEVNULL)
        time.sleep(seconds)
        process.kill()
        process.wait()
    subprocess.run([*command, str(tmp_path / "killed")], check=True, capture_output=True)
    assert tree(tmp_path / "killed") == tree(tmp_path / "whole")

"""An index that is made in parts and joined: the bytes of one build, and one-line refusals of what does not fit."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds.commands import Run, done, refused
from worlds.small_world import HashAttributor, make_corpus, tree
from worlds.tiny_lms import tiny_lm

import airrep
from airrep.errors import ArtifactError, ConfigError, DataError
from airrep.index.sharing import build_part, join_parts, open_part

TRAIN = make_corpus(50)


def parts_of(folder: Path, method: Any = None, count: int = 3, **more: Any) -> list[Path]:
    """All parts of an index of the fifty examples, in shards of 8."""
    for number in range(1, count + 1):
        chosen = HashAttributor() if method is None else method
        build_part(TRAIN, folder / f"p{number}", f"{number}/{count}", chosen, shard_rows=8, **more)
    return [folder / f"p{number}" for number in range(1, count + 1)]


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("hash", None),
        ("tfidf", {}),
        ("ngram", {}),
        ("bm25", {}),
        pytest.param("logra", {"rank": 2, "store": "none", "device": "cpu", "precision": "float32"}),
        ("channels", {"channels": [{"method": "ngram"}, {"method": "tfidf", "weight": 0.5, "relative": True}]}),
    ],
)
def test_joined_parts_are_the_index_of_one_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, settings: Any
) -> None:
    if method == "logra":
        settings = {**settings, "lm": tiny_lm(tmp_path / "lm")}
    chosen = HashAttributor() if method == "hash" else method
    whole = airrep.build_index(TRAIN, tmp_path / "whole", chosen, settings=settings, shard_rows=8)
    parts = parts_of(tmp_path, chosen, settings=settings)
    joined = join_parts(parts[::-1], tmp_path / "joined")
    if method != "hash":
        monkeypatch.setattr("airrep.index.building.fit", None)  # finished parts are recognised without learning again
        assert parts_of(tmp_path, chosen, settings=settings) == parts
    assert tree(tmp_path / "joined") == tree(tmp_path / "whole")
    joined.verify()
    opened = airrep.Index(tmp_path / "joined", HashAttributor() if method == "hash" else None)
    queries = make_corpus(4, "q")
    wanted = whole.group_scores(queries, by="source").scores
    np.testing.assert_array_equal(opened.group_scores(queries, by="source").scores, wanted)
    assert join_parts(parts, tmp_path / "joined").path == tmp_path / "joined"


def test_what_is_learnt_comes_from_the_corpus_or_another_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = build_part(TRAIN, tmp_path / "p1", "1/2", "tfidf", shard_rows=8)
    with monkeypatch.context() as patch:
        patch.setattr("airrep.index.building.fit", None)
        build_part(TRAIN, tmp_path / "p2", "2/2", "tfidf", shard_rows=8, state=first.path)
    airrep.build_index(TRAIN, tmp_path / "whole", "tfidf", shard_rows=8)
    join_parts([tmp_path / "p1", tmp_path / "p2"], tmp_path / "joined")
    assert tree(tmp_path / "joined") == tree(tmp_path / "whole")
    with pytest.raises(ArtifactError, match=r"p1: was built with tfidf, not bm25\. Give another part"):
        build_part(TRAIN, tmp_path / "p3", "2/2", "bm25", shard_rows=8, state=first.path)
    with pytest.raises(ArtifactError, match=r"p1: holds a part of an index made with another corpus"):
        build_part(make_corpus(40), tmp_path / "p3", "2/2", "tfidf", shard_rows=8, state=first.path)
    state = next((tmp_path / "p1" / "state").iterdir())
    state.write_bytes(state.read_bytes()[:-1] + b"x")
    with pytest.raises(ArtifactError, match="was altered after it was written"):
        build_part(TRAIN, tmp_path / "p3", "2/2", "tfidf", shard_rows=8, state=first.path)


def test_parts_that_make_no_index_are_refused(tmp_path: Path) -> None:
    one, two, three = parts_of(tmp_path / "a")
    out = tmp_path / "joined"
    told = r"append: 1 of 3 parts are missing: 2\. Make them with: airrep index … --part 2/3"
    with pytest.raises(ArtifactError, match=told):
        join_parts([one, three], out)
    shutil.copytree(two, tmp_path / "again")
    with pytest.raises(ArtifactError, match=r"again: is part 2/3, and so is .*p2\. Remove one"):
        join_parts([one, two, tmp_path / "again", three], out)
    for name, other in {"seed": HashAttributor("other"), "method": "tfidf"}.items():
        foreign = build_part(TRAIN, tmp_path / name, "3/3", other, shard_rows=8)
        message = rf"{name}: holds a part of an index made with another .*Leave it out\."
        with pytest.raises(ArtifactError, match=message):
            join_parts([one, two, foreign.path], out)
    cut = build_part(TRAIN, tmp_path / "cut", "4/4", HashAttributor(), shard_rows=8)
    with pytest.raises(ArtifactError, match=r"cut: is part 4/4, but .*p1 is part 1/3"):
        join_parts([one, two, three, cut.path], out)
    whole = airrep.build_index(TRAIN, tmp_path / "whole", HashAttributor(), shard_rows=8)
    with pytest.raises(ArtifactError, match="whole"):
        join_parts([one, two, whole.path], out)
    with pytest.raises(ConfigError, match="append: no parts are given"):
        join_parts([], out)
    features = next((three / "shards").glob("*/*/features.npy"))
    content = bytearray(features.read_bytes())
    content[-1] ^= 1
    features.write_bytes(content)
    with pytest.raises(ArtifactError, match=r"features\.npy: was altered after it was written"):
        join_parts([one, two, three], out)
    assert not out.exists()


def test_parts_of_versions_that_read_alike_are_joined(tmp_path: Path) -> None:
    """Earlier versions did not count the earlier turns of conversations."""
    said = [{"role": role, "content": role} for role in ("user", "assistant") * 2]
    data = airrep.Corpus.from_records({"id": str(n), "messages": said} for n in range(16))
    build_part(data, tmp_path / "new", "1/2", HashAttributor(), shard_rows=8)
    old = airrep.Corpus(data.table, reading=replace(data.reading, earlier_turns=0))
    build_part(old, tmp_path / "old", "2/2", HashAttributor(), shard_rows=8)
    assert join_parts([tmp_path / "old", tmp_path / "new"], tmp_path / "joined").reading.earlier_turns == 16


def test_states_that_machines_rounded_differently_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Rounding(HashAttributor):
        drift = "0"

        def save_state(self, folder: Path) -> None:
            (folder / "learnt").write_text(self.drift)

    first = build_part(TRAIN, tmp_path / "p1", "1/2", Rounding(), shard_rows=8)
    monkeypatch.setattr(Rounding, "drift", "1")
    build_part(TRAIN, tmp_path / "p2", "2/2", Rounding(), shard_rows=8)
    with pytest.raises(
        ArtifactError,
        match=r"p2: the numbers that its method learnt differ .* Build this part again with: --set state=.*p1",
    ):
        join_parts([first.path, tmp_path / "p2"], tmp_path / "joined")


@pytest.mark.parametrize("share", ["0/3", "4/3", "3", "a/b", "-1/2", "1/0", ""])
def test_shares_that_cannot_be_are_refused(tmp_path: Path, share: str) -> None:
    with pytest.raises(ConfigError, match=r"must be i/n with i from 1 to n, such as 3/10"):
        build_part(TRAIN, tmp_path / "p", share, HashAttributor())


def test_more_parts_than_shards_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--part 2/8: 50 examples make only 7 shards of 8"):
        build_part(TRAIN, tmp_path / "p", "2/8", HashAttributor(), shard_rows=8)


class Stop(BaseException):
    """Stands for a signal."""


def test_interrupted_parts_and_joins_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    airrep.build_index(TRAIN, tmp_path / "whole", HashAttributor(), shard_rows=8)

    def stop(done: int, _total: int) -> None:
        if done >= 8:
            raise Stop

    with pytest.raises(Stop):
        build_part(TRAIN, tmp_path / "p1", "1/3", HashAttributor(), shard_rows=8, progress=stop)
    assert not (tmp_path / "p1").exists()
    parts = parts_of(tmp_path)
    assert len(open_part(parts[0]).shards) == 3
    copied: list[str] = []

    def copy_two(source: Path, target: Path) -> Any:
        copied.append(source.name)
        if len(copied) == 3:
            raise Stop
        return shutil.copytree(source, target)

    with monkeypatch.context() as patch, pytest.raises(Stop):
        patch.setattr("airrep.index.sharing.shutil.copytree", copy_two)
        join_parts(parts, tmp_path / "joined")
    assert not (tmp_path / "joined").exists()
    join_parts(parts, tmp_path / "joined")
    assert tree(tmp_path / "joined") == tree(tmp_path / "whole")


def test_the_command_line_makes_and_joins_parts(tmp_path: Path, run: Run) -> None:
    TRAIN.to_jsonl(tmp_path / "train.jsonl")
    common = ["index", str(tmp_path / "train.jsonl"), "--method", "tfidf", "--set", "shard_rows=8"]
    for number in (1, 2):
        more = ["--set", f"state={tmp_path / 'p1'}"] if number == 2 else []
        out = ["--out", str(tmp_path / f"p{number}"), "--part", f"{number}/2", *more]
        assert run(*common, *out).status == 0
    joined = done(run("append", *(str(tmp_path / name) for name in ("joined", "p1", "p2"))))
    assert "joined: 50 examples, method tfidf" in joined.err
    assert run(*common, "--out", str(tmp_path / "whole")).status == 0
    assert tree(tmp_path / "joined") == tree(tmp_path / "whole")
    refused(run(*common, "--out", str(tmp_path / "x"), "--set", f"state={tmp_path / 'p1'}"))
    with pytest.raises(DataError):
        build_part([], tmp_path / "none", "1/1", "tfidf")

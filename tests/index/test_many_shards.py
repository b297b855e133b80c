"""Many shards: within the limit of open files, merged by appends, the same answers whatever they were cut into."""

import errno
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds.kills import in_child
from worlds.small_world import HashAttributor, make_corpus

import airrep
from airrep.arrays import map_array
from airrep.attributors.text.lexical import TfidfAttributor
from airrep.errors import ArtifactError
from airrep.index import encoding, shards
from airrep.index.editing import count_merged
from airrep.index.encoding import with_appended
from airrep.index.shards import SHARD, Sieve, reading
from airrep.runtime import artifacts

QUERIES = make_corpus(3, "q")


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def with_few_files(work: Callable[[], object]) -> int:
    """Exit status of work in a process that may open 20 more files than it has."""

    def limited() -> None:
        limit = open_files() + 20
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        work()

    return os.waitstatus_to_exitcode(os.waitpid(in_child(limited), 0)[1])


def use(path: Path) -> None:
    """Ask, append, delete, compact, verify."""
    index = airrep.Index(path, HashAttributor())
    index.top(QUERIES, k=3)
    index.group_scores(QUERIES, by="source")
    index = index.append(make_corpus(5, "more"))
    index = index.delete([0])
    index.compact().verify()


def test_more_shards_than_a_process_may_have_files_open(tmp_path: Path) -> None:
    airrep.build_index(make_corpus(60), tmp_path / "index", HashAttributor(), shard_rows=1)
    assert with_few_files(lambda: use(tmp_path / "index")) == 0


def test_no_file_stays_open(tmp_path: Path) -> None:
    index = airrep.build_index(make_corpus(60), tmp_path / "index", HashAttributor(), shard_rows=2)
    before = open_files()
    index.top(QUERIES, k=3)
    assert [str(index.example(row).id) for row in (0, 59)] == ["e0", "e59"]
    assert open_files() < before + 5  # of 150 files


def test_an_exhausted_limit_is_not_called_a_damage(tmp_path: Path) -> None:
    for number, words in ((errno.EMFILE, "ulimit -n 4096"), (errno.ENOMEM, "too little memory")):
        with pytest.raises(ArtifactError, match=f"cannot be read, although it is not damaged: .*{words}"):
            with reading(tmp_path / "features.npy"):
                raise OSError(number, os.strerror(number))
    index = airrep.build_index(make_corpus(9), tmp_path / "index", HashAttributor(), shard_rows=1)
    held = []

    def exhausted() -> None:
        limit = open_files() + 2
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        while True:
            try:
                held.append(os.open("/dev/null", os.O_RDONLY))
            except OSError:
                break
        with pytest.raises(ArtifactError, match="cannot open more files"):
            index.top(QUERIES, k=3)
        with pytest.raises(ArtifactError, match="cannot open more files"):
            index.verify()
        with pytest.raises(ArtifactError, match="cannot open more files"):
            index.delete([0])

    assert os.waitstatus_to_exitcode(os.waitpid(in_child(exhausted), 0)[1]) == 0


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(5, 3), (0, 3), (7,), ()])
def test_a_mapped_array_is_the_one_that_was_saved(tmp_path: Path, shape: tuple[int, ...], order: str) -> None:
    array = np.asarray(np.random.default_rng(0).random(shape), np.float16, order=order)
    np.save(tmp_path / "a.npy", array)
    found = map_array(tmp_path / "a.npy")
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)
    if array.size:
        with pytest.raises(ValueError, match="read-only"):
            found[...] = 0


def test_an_array_file_of_another_length_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(10))
    content = (tmp_path / "a.npy").read_bytes()
    for bad in (content[:-1], content + b"x", content[:50], b"", content.replace(b"(10,)", b"(99,)")):
        (tmp_path / "a.npy").write_bytes(bad)
        with pytest.raises(ValueError, match="magic string|differs from its header|EOF"):
            map_array(tmp_path / "a.npy")


def test_appends_merge_small_shards_and_change_no_answer(tmp_path: Path) -> None:
    whole = airrep.build_index(make_corpus(100), tmp_path / "whole", HashAttributor(), shard_rows=16)
    index = airrep.build_index(make_corpus(100)[:20], tmp_path / "index", HashAttributor(), shard_rows=16)
    index = index.delete([3, 18])
    done = 20
    for count in (1, 1, 1, 2, 30, 1, 7, 16, 21):
        index = index.append(make_corpus(100)[done : done + count])
        done += count
        small = [shard.rows for shard in index.shards if shard.rows < 16]
        assert len(small) <= 4 + 1
        assert [shard.start for shard in index.shards] == list(np.cumsum([0, *(s.rows for s in index.shards)])[:-1])
        index.verify()
    assert done == len(index) + 2 == 100
    assert [shard.rows for shard in index.shards] == [16, 16, 16, 16, 16, 16, 4]
    assert {path.name for path in (tmp_path / "index/shards").iterdir()} == {s.folder.name for s in index.shards}
    whole = whole.delete([3, 18])
    for got, expected in zip(index.top(QUERIES, k=50), whole.top(QUERIES, k=50), strict=True):
        assert [(hit.row, hit.score) for hit in got] == [(hit.row, hit.score) for hit in expected]
    assert [shard.folder.name for shard in index.shards] == [shard.folder.name for shard in whole.shards]


@pytest.mark.parametrize(("more", "full"), [(1, 4096), (10, 4096), (999, 1000), (7, 8)])
def test_small_shards_and_rewriting_grow_with_the_logarithm_alone(more: int, full: int) -> None:
    sizes, written = [full], 0
    for _ in range(3 * full // more + 2):
        count = count_merged(sizes, more, full)
        gathered = sum(sizes[len(sizes) - count :]) + more
        sizes = [
            *sizes[: len(sizes) - count],
            *[full] * (gathered // full),
            *([gathered % full] if gathered % full else []),
        ]
        written += gathered
        assert sum(size < full for size in sizes) <= np.log2(full) + 1
    assert written <= sum(sizes) * (np.log2(full) + 1)


def test_damage_of_a_small_shard_is_not_merged_away(tmp_path: Path) -> None:
    index = airrep.build_index(make_corpus(5), tmp_path / "index", HashAttributor(), shard_rows=16)
    path = next(index.shards[0].folder.glob("*/features.npy"))
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ArtifactError, match=r"features\.npy: was altered after it was written"):
        index.append(make_corpus(5, "more"))


def test_rows_keep_their_numbers_for_openings_of_before(tmp_path: Path) -> None:
    before = airrep.build_index(make_corpus(5), tmp_path / "index", HashAttributor(), shard_rows=16)
    before.append(make_corpus(5, "more"))
    assert len(before.delete([2])) == 9
    before.compact()
    with pytest.raises(ArtifactError, match="was compacted or built anew"):
        before.delete([3])


def test_the_manifest_does_not_grow_with_appends(tmp_path: Path) -> None:
    index = airrep.build_index(make_corpus(4), tmp_path / "index", HashAttributor(), shard_rows=4)
    sizes = []
    for number in range(24):
        index = index.append(make_corpus(1, f"more {number} "))
        sizes.append((len(index.shards), len(index.manifest["corpora"]), (index.path / "manifest.json").stat().st_size))
    assert {corpora for _, corpora, _ in sizes} == {2}
    assert index.manifest["corpora"][1]["rows"] == index.manifest["corpora"][1]["appends"] == 24
    by_shards = {shards: size for shards, _, size in sizes}  # the last of each number of shards
    assert all(abs(size - by_shards[shards]) < 300 for shards, _, size in sizes)  # a record's length varies a little


def test_appends_made_in_another_way_have_an_entry_of_their_own() -> None:
    def entry(fingerprint: str, precision: str) -> dict[str, object]:
        return {"fingerprint": fingerprint, "rows": 1, "precision": precision}

    corpora = [entry("built", "float32")]
    for number in range(6):
        corpora = with_appended(corpora, entry(f"more {number}", ("float32", "bfloat16")[number % 2]))
    noted = [(one["rows"], one.get("appends"), one["precision"]) for one in corpora]
    assert noted == [(1, None, "float32"), (3, 3, "float32"), (3, 3, "bfloat16")]
    other = with_appended(
        [entry("built", "float32"), *(entry(f"more {n}", "float32") for n in (4, 2))], entry("more 0", "float32")
    )
    assert other[1]["fingerprint"] != corpora[1]["fingerprint"]  # their order is known


@pytest.mark.parametrize("count", [5, 16, 20])
def test_row_numbers_of_an_index_that_was_built_anew_and_appended_to_are_void(tmp_path: Path, count: int) -> None:
    """The built corpus is the same, and as many rows were appended: the examples tell."""

    def build() -> airrep.Index:
        return airrep.build_index(make_corpus(5), tmp_path / "index", HashAttributor(), shard_rows=16, replace=True)

    before = build().append(make_corpus(count, "more"))
    build().append(make_corpus(count, "other"))
    with pytest.raises(ArtifactError, match="was compacted or built anew"):
        before.delete([6])
    build().append(make_corpus(count, "more")).append(make_corpus(30, "still"))
    assert before.delete([6]).deleted.tolist() == [6]


def test_an_append_reads_only_what_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = airrep.build_index(make_corpus(64), tmp_path / "index", HashAttributor(), shard_rows=4)
    read: list[str] = []
    for module in (artifacts, shards):
        plain = artifacts.check_file

        def noted(path: Path, entry: dict[str, object], plain: Any = plain) -> None:
            read.append(path.name)
            plain(path, entry)

        monkeypatch.setattr(module, "check_file", noted)
    monkeypatch.setattr(encoding, "read_record", lambda folder: read.append(SHARD) or shards.read_record(folder))
    index.append(make_corpus(4, "more"))
    assert read == [SHARD]  # of the new shard: no text, no feature and no record of the other sixteen


def test_appends_in_a_row_read_each_file_once_and_see_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = airrep.build_index(make_corpus(40), tmp_path / "i", HashAttributor(), shard_rows=2)
    read, parse = [0], artifacts._parse_manifest
    taken: list[str] = []
    sizes = artifacts.os.stat

    def stat(path: Any, *given: Any, **named: Any) -> Any:
        taken.append(str(path))
        return sizes(path, *given, **named)

    def parsed(folder: Path, kind: str | None) -> Any:
        read[0] += 1
        return parse(folder, kind)

    old = index.shards[3].folder.name
    monkeypatch.setattr(artifacts, "_parse_manifest", parsed)
    monkeypatch.setattr(artifacts.os, "stat", stat)
    for number in range(3):
        index = index.append(make_corpus(2, f"more{number}"))
    assert read == [3], "what was written is read once, and what was there is known"
    assert not [path for path in taken if path.endswith(f"{old}/{SHARD}")]
    monkeypatch.undo()
    index.append(make_corpus(2, "others"))
    again = index.append(make_corpus(2, "mine"))  # by an opening that does not know of the others
    assert len(again) == 50
    airrep.Index(tmp_path / "i").verify()


def test_appends_in_a_row_load_what_the_method_learnt_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[Path] = []
    own = TfidfAttributor.load_state
    monkeypatch.setattr(TfidfAttributor, "load_state", lambda self, folder: loads.append(folder) or own(self, folder))
    airrep.build_index(make_corpus(9), tmp_path / "index", "tfidf")
    index = airrep.Index(tmp_path / "index")
    for number in range(3):
        index = index.append(make_corpus(2, f"more {number} "))
    index = index.delete([1]).compact().append(make_corpus(2, "last "))
    assert len(loads) == 1
    assert len(index.top(QUERIES, k=99)[0]) == len(index) == 16


def test_an_index_that_was_built_anew_meanwhile_is_not_asked_by_what_was_learnt_before(tmp_path: Path) -> None:
    opened = airrep.build_index(make_corpus(9), tmp_path / "index", "tfidf")
    old = opened.attributor.fingerprint
    airrep.build_index(make_corpus(9, "new"), tmp_path / "index", "tfidf", replace=True)
    now = opened.reopened()
    assert now.attributor.fingerprint == now.manifest["attributor"] != old


@pytest.mark.parametrize("wanted", [1, 50, 5000])
def test_keys_that_are_looked_for_are_told_from_others(wanted: int) -> None:
    drawn = np.random.default_rng(wanted)
    keys = np.sort(drawn.integers(-(2**63), 2**63 - 1, wanted, np.int64))
    sieve = Sieve(keys)
    for number in range(50):
        others = np.sort(drawn.integers(-(2**63), 2**63 - 1, 2000, np.int64))
        assert not sieve.holds_some(others)
        assert not sieve.holds_some(np.array([keys[0] ^ 2**40]))  # the same low bits
        assert sieve.holds_some(np.sort(np.append(others, keys[number % wanted])))
    assert not sieve.holds_some(keys[:0])


def test_an_id_that_was_altered_is_told_and_not_called_missing(tmp_path: Path) -> None:
    index = airrep.build_index(make_corpus(64), tmp_path / "index", HashAttributor(), shard_rows=16)
    path = index.shards[2].folder / "examples.arrow"
    path.write_bytes(path.read_bytes().replace(b"e32", b"f32"))
    with pytest.raises(ArtifactError, match=r"examples\.arrow: was altered"):
        airrep.Index(index.path, HashAttributor()).rows_of(["e32"])


def test_examples_of_many_rows_are_those_of_each(tmp_path: Path) -> None:
    index = airrep.build_index(make_corpus(20), tmp_path / "index", HashAttributor(), shard_rows=3)
    rows = np.array([7, 0, 19, 7, 3, 2])
    assert index.examples(rows) == [index.example(row) for row in rows.tolist()]
    assert index.examples(np.empty(0, np.int64)) == []


def test_features_of_rows_are_theirs_in_their_order(tmp_path: Path) -> None:
    index = airrep.build_index(make_corpus(20), tmp_path / "index", HashAttributor(), shard_rows=3)
    whole = np.concatenate([shard.features()[index.method] for shard in index.shards])
    rows = np.array([7, 0, 19, 7, 3, 2])
    np.testing.assert_array_equal(index.features(rows)[index.method], whole[rows])

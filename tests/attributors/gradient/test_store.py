"""The store of gradients: nothing twice, nothing lost, nothing altered unseen."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load
from worlds.small_world import make_corpus, tree

from airrep.attributors.gradient.store import (
    CHUNK,
    GradientStore,
    by_chunks,
    chunk_rows,
    chunks,
    keep_arrays,
    pack_arrays,
    recall_arrays,
    store_folder,
)
from airrep.corpus.corpus import Example
from airrep.errors import ArtifactError
from airrep.runtime.artifacts import array_digest
from airrep.runtime.metering import measuring


class Computer:
    """Rows that say which example they are of; counts what was asked for."""

    def __init__(self, most: int | None = None) -> None:
        self.asked: list[str] = []
        self.most = most

    def __call__(self, examples: Sequence[Example]) -> np.ndarray:
        if self.most is not None and len(self.asked) >= self.most:
            raise KeyboardInterrupt
        self.asked += [example.id for example in examples]
        return np.array([[len(example.prompt), int(example.id[1:])] for example in examples], np.float32)


def test_each_text_is_computed_once_whoever_asks(tmp_path: Path) -> None:
    corpus, computer = make_corpus(20), Computer()
    first = GradientStore(tmp_path, "a" * 64, 2).rows(corpus, computer)
    backwards = GradientStore(tmp_path, "a" * 64, 2).rows(list(corpus)[::-1], computer)
    np.testing.assert_array_equal(backwards[::-1], first)
    assert sorted(computer.asked) == sorted(example.id for example in corpus)
    store = GradientStore(tmp_path, "b" * 64, 2)
    store.rows([corpus[0], corpus[0]], computer)
    assert computer.asked[20:] == ["e0"], "another recipe has rows of its own, equal texts are computed once"


def test_copies_of_a_text_count_once_in_what_its_rows_cost(tmp_path: Path) -> None:
    corpus = list(make_corpus(4))
    with measuring() as meter:
        GradientStore(tmp_path, "a" * 64, 2).rows(corpus * 5, Computer())
    (rows,) = meter.spent.rows.values()
    assert (rows.asked, rows.fresh) == (4, 4)


def test_an_interruption_loses_a_chunk_and_the_rest_gives_the_same_bytes(tmp_path: Path) -> None:
    corpus = make_corpus(CHUNK * 2 + 5)
    with pytest.raises(KeyboardInterrupt):
        GradientStore(tmp_path / "cut", "a" * 64, 2).rows(corpus, Computer(most=CHUNK))
    computer = Computer()
    resumed = GradientStore(tmp_path / "cut", "a" * 64, 2).rows(corpus, computer)
    assert computer.asked == [example.id for example in corpus][CHUNK:]
    whole = GradientStore(tmp_path / "whole", "a" * 64, 2).rows(corpus, Computer())
    np.testing.assert_array_equal(resumed, whole)
    assert tree(tmp_path / "cut") == tree(tmp_path / "whole")


def test_progress_adds_up(tmp_path: Path) -> None:
    told: list[int] = []
    store = GradientStore(tmp_path, "a" * 64, 2)
    store.rows(make_corpus(3), Computer())
    store.rows(make_corpus(10), Computer(), told.append)
    assert sum(told) == 10
    assert store.rows([], Computer(), told.append).shape == (0, 2)


def test_without_a_folder_nothing_is_kept() -> None:
    corpus, computer = make_corpus(4), Computer()
    store = GradientStore(None, "a" * 64, 2)
    np.testing.assert_array_equal(store.rows(corpus, computer), store.rows(corpus, computer))
    assert len(computer.asked) == 8


def test_an_altered_block_is_named(tmp_path: Path) -> None:
    GradientStore(tmp_path, "a" * 64, 2).rows(make_corpus(3), Computer())
    (block,) = tmp_path.rglob("*.safetensors")
    content = bytearray(block.read_bytes())
    content[-1] ^= 1
    block.write_bytes(content)
    told = r"was altered after it was written\. Delete the file: airrep makes it again"
    with pytest.raises(ArtifactError, match=told):
        GradientStore(tmp_path, "a" * 64, 2).rows(make_corpus(3), Computer())
    block.unlink()
    GradientStore(tmp_path, "a" * 64, 2).rows(make_corpus(3), Computer())


def test_arrays_come_back_as_they_were_whatever_their_order_in_memory(tmp_path: Path) -> None:
    arrays = {
        "rows": np.arange(6.0).reshape(2, 3),
        "columns": np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
    }
    for found in (load(pack_arrays(arrays)), arrays):
        assert {name: array.tolist() for name, array in found.items()} == {n: a.tolist() for n, a in arrays.items()}
    assert recall_arrays(tmp_path, "k" * 64) is None
    keep_arrays(tmp_path, "k" * 64, arrays)
    found = recall_arrays(tmp_path, "k" * 64)
    assert found is not None
    assert {name: array_digest(array) for name, array in found.items()} == {
        name: array_digest(array) for name, array in arrays.items()
    }
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(ArtifactError, match="was altered"):
        recall_arrays(tmp_path, "k" * 64)
    keep_arrays(None, "k" * 64, arrays)
    assert recall_arrays(None, "k" * 64) is None


def _ask(folder: Path) -> int:
    return len(GradientStore(folder, "a" * 64, 2).rows(make_corpus(64), Computer()))


def test_two_that_write_the_same_rows_at_once_do_each_other_no_harm(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        for turn in range(10):
            assert list(pool.map(_ask, [tmp_path / str(turn)] * 4)) == [64] * 4
    assert not [path for path in tmp_path.rglob("*") if path.suffix == ".tmp"]


def test_a_folder_that_cannot_be_made_is_told_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match=r"cannot be written.*AIRREP_CACHE=FOLDER.*store=none"):
        GradientStore(tmp_path / "file" / "below", "a" * 64, 2).rows(make_corpus(3), Computer())
    with pytest.raises(ArtifactError, match="cannot be written"):
        keep_arrays(tmp_path / "file" / "below", "k" * 64, {})


def test_a_query_reads_no_block_but_its_own(tmp_path: Path) -> None:
    GradientStore(tmp_path, "a" * 64, 2).rows(make_corpus(5), Computer())
    (block,) = tmp_path.rglob("*.safetensors")
    content = bytearray(block.read_bytes())
    content[-1] ^= 1
    block.write_bytes(content)
    assert len(GradientStore(tmp_path, "a" * 64, 2).rows(make_corpus(1, "q"), Computer())) == 1


def test_chunks_are_smaller_where_rows_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [chunk_rows(dimension) for dimension in (1, 2**15, 2**18, 2**30)] == [CHUNK, 512, 64, 1]
    monkeypatch.setattr("airrep.attributors.gradient.store.NUMBERS", 4)
    made = by_chunks(make_corpus(5), 2, Computer())
    assert made[:, 1].tolist() == [0, 1, 2, 3, 4]


def test_the_folder_is_the_users_cache_unless_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRREP_CACHE", str(tmp_path))
    assert store_folder(None) == tmp_path / "gradients"
    assert store_folder("somewhere") == Path("somewhere")
    assert store_folder("none") is None
    monkeypatch.delenv("AIRREP_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own"))
    assert store_folder(None) == tmp_path / "own" / "airrep" / "gradients"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert store_folder(None) == tmp_path / "home" / ".cache" / "airrep" / "gradients"


def test_chunks_cover_all() -> None:
    assert [len(part) for part in chunks(make_corpus(7), 3)] == [3, 3, 1]

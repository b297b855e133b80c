"""Features in files of other tools are read as they meant them."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from worlds.feature_stores import write_logix, write_trak

from airrep.attributors.feature_files import open_query_features, open_train_features
from airrep.errors import DataError

DRAWN = np.random.default_rng(0)


def drawn(*shape: int, kind: str = "float32") -> np.ndarray:
    """Numbers around 0."""
    return DRAWN.standard_normal(shape).astype(kind)


@pytest.mark.parametrize("kind", ["float16", "float32", "float64", ">f4"])
def test_an_npy_file_of_any_floating_point_kind_is_read_as_float32(kind: str, tmp_path: Path) -> None:
    array = drawn(5, 3, kind=kind)
    np.save(tmp_path / "x.npy", array)
    file = open_train_features(tmp_path / "x.npy")
    assert (file.rows, file.dimension, file.ids) == (5, 3, None)
    found = file.take(np.array([4, 0, 4]))
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, array[[4, 0, 4]].astype(np.float32))
    assert file.largest() == np.abs(array.astype(np.float32)).max()


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e300])
def test_a_feature_that_is_not_finite_names_its_row(bad: float, tmp_path: Path) -> None:
    array = drawn(5, 3, kind="float64")
    array[3, 1] = bad
    np.save(tmp_path / "x.npy", array)
    file = open_query_features(tmp_path / "x.npy")
    assert len(file.take(np.array([0, 4]))) == 2
    with pytest.raises(DataError, match=r"x\.npy: row 3 has a feature that is not finite"):
        file.largest()


@pytest.mark.parametrize(
    ("array", "shape"),
    [
        (np.zeros(3), r"float64 of shape \(3,\)"),
        (np.zeros((2, 3), int), "int64"),
        (np.zeros((2, 2), complex), "complex"),
    ],
)
def test_an_array_of_another_form_is_refused(array: np.ndarray, shape: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(DataError, match=rf"x\.npy: holds {shape}.*; expected float16, float32 or float64"):
        open_train_features(tmp_path / "x.npy")


def test_a_pickle_is_not_opened(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([[{}]], object))
    with pytest.raises(DataError, match=r"cannot be read as \.npy"):
        open_train_features(tmp_path / "x.npy")


def test_what_is_no_feature_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.npy: there is no such file; expected features as \.npy, the folder of"):
        open_train_features(tmp_path / "none.npy")
    (tmp_path / "x.txt").write_text("")
    with pytest.raises(DataError, match=r"x\.txt: is not such a file; expected .*, STORE/scores/NAME\.mmap of a TRAK"):
        open_query_features(tmp_path / "x.txt")
    (tmp_path / "cut.npy").write_bytes(b"\x93NUMPY\x01\x00")
    with pytest.raises(DataError, match=r"cut\.npy: cannot be read as \.npy"):
        open_train_features(tmp_path / "cut.npy")


@pytest.mark.parametrize("kind", ["float16", "float32"])
@pytest.mark.parametrize("checkpoints", [1, 3])
def test_a_trak_store_gives_the_scores_of_trak(checkpoints: int, kind: str, tmp_path: Path) -> None:
    features = [drawn(6, 4, kind=kind) for _ in range(checkpoints)]
    chances = [np.abs(drawn(6, 1, kind=kind)) for _ in range(checkpoints)]
    targets = [drawn(3, 4, kind=kind) for _ in range(checkpoints)]
    scores = write_trak(tmp_path / "store", features, chances, targets)
    train, queries = open_train_features(tmp_path / "store"), open_query_features(scores)
    found = queries.take(np.arange(3)) @ train.take(np.arange(6)).T
    sums = sum(g.astype(float) @ f.astype(float).T for g, f in zip(targets, features, strict=True))
    wanted = sums / checkpoints * (sum(c.astype(float) for c in chances) / checkpoints).T
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_a_trak_store_that_is_not_ready_is_refused(tmp_path: Path) -> None:
    one = [drawn(6, 4)], [drawn(6, 1)], [drawn(3, 4)]
    write_trak(tmp_path / "store", *one, finalized=False)
    with pytest.raises(DataError, match=r"features of checkpoint 0 are not ready\. Call finalize_features"):
        open_train_features(tmp_path / "store")
    (tmp_path / "store" / "id_0.json").unlink()
    with pytest.raises(DataError, match=r"features of checkpoint any are not ready"):
        open_train_features(tmp_path / "store")


def test_an_experiment_that_a_trak_store_does_not_have_is_refused(tmp_path: Path) -> None:
    write_trak(tmp_path / "store", [drawn(6, 4)], [drawn(6, 1)], [drawn(3, 4)])
    with pytest.raises(DataError, match=r"other_grads\.mmap: cannot be read"):
        open_query_features(tmp_path / "store" / "scores" / "other.mmap")


def logged(count: int, kind: str = "float32") -> list[tuple[str, list[np.ndarray]]]:
    """Gradients of two modules for each of some examples."""
    return [(f"e{number}", [drawn(2, 3, kind=kind), drawn(4, 1, kind=kind)]) for number in range(count)]


@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_a_logix_log_gives_the_gradients_of_all_modules_side_by_side(kind: str, tmp_path: Path) -> None:
    examples = logged(11, kind)
    file = open_train_features(write_logix(tmp_path / "log", examples))
    wanted = np.stack([np.concatenate([array.ravel() for array in arrays]) for _, arrays in examples])
    assert (file.rows, file.dimension, file.ordered) == (11, 10, True)
    assert file.ids == tuple(name for name, _ in examples)
    for rows in ([*range(11)], [10, 0, 4, 4], []):
        found = file.take(np.array(rows, np.int64))
        np.testing.assert_array_equal(found, wanted[rows].astype(np.float32))


def test_chunks_of_several_processes_follow_one_another_and_have_no_order(tmp_path: Path) -> None:
    examples = logged(5)
    write_logix(tmp_path / "log", examples[3:], rank=10)
    file = open_train_features(write_logix(tmp_path / "log", examples[:3], rank=2))
    assert (file.ids, file.ordered) == (("e0", "e1", "e2", "e3", "e4"), False)


def cut(chunk: Path) -> None:
    """Take a chunk's last bytes."""
    chunk.write_bytes(chunk.read_bytes()[:-4])


def rewrite(key: str, value: object) -> Callable[[Path], None]:
    """Change what a chunk's record says of its second example."""

    def change(chunk: Path) -> None:
        path = chunk.with_name("log_rank_0_chunk_0_metadata.json")
        records = json.loads(path.read_text())
        records[1][key] = value
        path.write_text(json.dumps(records))

    return change


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut, "is not as its record says"),
        (rewrite("offset", 3), "is not as its record says"),
        (rewrite("dtype", "float64"), "is not the record of a LogIX log"),
        (rewrite("shape", [[2, 3]]), "is not the record of a LogIX log"),
        (lambda chunk: chunk.with_name("log_rank_0_chunk_0_metadata.json").unlink(), "cannot be read as JSON"),
        (lambda chunk: chunk.with_name("log_rank_0_chunk_0_metadata.json").write_text("[]"), "is not the record"),
        (lambda chunk: chunk.with_name("log_rank_0_chunk_0_metadata.json").write_text("{"), "cannot be read as JSON"),
    ],
)
def test_a_damaged_logix_log_is_refused(damage: Callable[[Path], None], message: str, tmp_path: Path) -> None:
    write_logix(tmp_path / "log", logged(6))
    damage(tmp_path / "log" / "log_rank_0_chunk_0.mmap")
    with pytest.raises(DataError, match=message):
        open_train_features(tmp_path / "log")


def test_a_logix_log_of_activations_or_of_two_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"logs 'forward'; expected gradients"):
        open_train_features(write_logix(tmp_path / "one", logged(3), kind="forward"))
    write_logix(tmp_path / "two", logged(3))
    write_logix(tmp_path / "two", [(name, arrays[:1]) for name, arrays in logged(3)], rank=1)
    with pytest.raises(DataError, match=r"its chunks have other modules or ranks"):
        open_train_features(tmp_path / "two")


def test_the_fingerprint_is_that_of_the_content(tmp_path: Path) -> None:
    array = drawn(4, 2)
    for name in ("a", "b"):
        np.save(tmp_path / f"{name}.npy", array)
    np.save(tmp_path / "c.npy", array + 1)
    one, same, other = (open_train_features(tmp_path / f"{name}.npy").fingerprint for name in "abc")
    assert one == same != other

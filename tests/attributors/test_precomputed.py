"""Features that were made elsewhere: matched to examples, kept apart from queries', refused when they do not fit."""

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import airrep
from airrep.attributors.base import Attributor
from airrep.attributors.methods import make_attributor
from airrep.attributors.precomputed import _DIGESTED, FeatureFile, _digest
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ConfigError, DataError, NotFittedError
from airrep.runtime.artifacts import json_digest

SCALES = [1.0, 1e-9, 1e9]


def corpus(count: int, kind: str = "train") -> Corpus:
    """Examples, each of its own text."""
    return Corpus.from_examples(Example(f"{kind} {n}", f"answer {n}", f"{kind}-{n}") for n in range(count))


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    """Numbers around 0."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def saved(path: Path, array: np.ndarray) -> str:
    """Write an array; returns the path."""
    np.save(path, array)
    return str(path)


def written(path: Path, examples: Corpus) -> str:
    """Write a data file; returns the path."""
    path.write_text("".join(json.dumps(example.to_dict()) + "\n" for example in examples))
    return str(path)


def fitted(examples: Corpus, **settings: Any) -> Attributor:
    """The method, fitted."""
    attributor = make_attributor("precomputed", settings)
    attributor.fit(examples)
    return attributor


def test_precomputed_conforms(tmp_path: Path) -> None:
    features = drawn(8, 5)
    features[2] = features[1]  # the suite's examples 1 and 2 have one text
    for array in (features, features * 1e-9):
        train = saved(tmp_path / "x.npy", array)
        airrep.check_attributor(lambda path=train: make_attributor("precomputed", {"train": path}))


@pytest.mark.parametrize("scale", SCALES)
def test_an_index_scores_training_examples_by_their_features(scale: float, tmp_path: Path) -> None:
    train, features = corpus(10), scale * drawn(10, 4)
    path = saved(tmp_path / "x.npy", features)
    index = airrep.build_index(train, tmp_path / "index", "precomputed", settings={"train": path}, shard_rows=4)
    wanted = features[:3] @ features.T
    for row, hits in zip(wanted, airrep.Index(index.path).top(train[:3], k=4), strict=True):
        assert [hit.row for hit in hits] == np.argsort(-row, kind="stable")[:4].tolist()
        np.testing.assert_allclose(
            [hit.score for hit in hits], np.sort(row)[::-1][:4], rtol=5e-3, atol=1e-3 * np.abs(wanted).max()
        )


@pytest.mark.parametrize("scale", SCALES)
def test_queries_have_features_of_their_own_and_outlive_their_file(scale: float, tmp_path: Path) -> None:
    train, queries = corpus(10), corpus(4, "query")
    phi, psi = scale * drawn(10, 4), drawn(4, 4, seed=1)
    settings = {
        "train": saved(tmp_path / "x.npy", phi),
        "queries": saved(tmp_path / "q.npy", psi),
        "query_data": written(tmp_path / "q.jsonl", queries),
    }
    built = airrep.build_index(train, tmp_path / "index", "precomputed", settings=settings)
    assert not built.attributor.symmetric
    path = built.path
    for name in ("x.npy", "q.npy", "q.jsonl"):
        (tmp_path / name).unlink()
    asked = list(queries)[::-1]
    wanted = psi[::-1] @ phi.T
    for row, hits in zip(wanted, airrep.Index(path).top(asked, k=3), strict=True):
        np.testing.assert_allclose(
            [hit.score for hit in hits], np.sort(row)[::-1][:3], rtol=5e-3, atol=1e-3 * np.abs(wanted).max()
        )
    with pytest.raises(DataError, match=r'^precomputed: example "train-0" is not in .*q\.jsonl, so it has no features'):
        airrep.Index(path).top(train[0], k=3)


def test_features_of_usual_size_are_stored_as_they_are(tmp_path: Path) -> None:
    train, features = corpus(10), drawn(10, 4)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    settings = {"train": saved(tmp_path / "x.npy", features)}
    index = airrep.build_index(train, tmp_path / "index", "precomputed", settings=settings)
    np.testing.assert_allclose(index.features(np.arange(10))["precomputed"], features, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("scale", [1.0, 1e-2, 1e3])
@pytest.mark.parametrize("order", ["order-1", "order-2", "order-inf"])
def test_pools_of_any_order_undo_the_scale(order: str, scale: float, tmp_path: Path) -> None:
    train, features = corpus(10), scale * drawn(10, 4).astype(np.float16).astype(np.float32) / 4
    path, groups = saved(tmp_path / "x.npy", features), [[0, 3], [5, 6, 7]]
    index = airrep.build_index(train, tmp_path / "index", "precomputed", settings={"train": path})
    if order == "order-inf" and scale > 1:
        with pytest.raises(DataError, match="^pool order-inf"):
            index.group_scores(train[:2], groups, order)
        return
    wide, found = features.astype(np.float64), airrep.Index(index.path).group_scores(train[:2], groups, order).scores
    for place, rows in enumerate(groups):
        outer, total, m = wide[rows].T @ wide[rows], wide[rows].sum(axis=0), len(rows)
        effects = {
            "order-1": total / (10 - m),
            "order-2": ((10 - 2 * m) * total + outer @ total) / (10 - m) ** 2,
            "order-inf": np.linalg.solve(10 * np.eye(4) - outer, total),
        }
        np.testing.assert_allclose(found[:, place], wide[:2] @ effects[order], rtol=2e-3)


def test_the_pool_is_a_setting(tmp_path: Path) -> None:
    train, path = corpus(6), saved(tmp_path / "x.npy", drawn(6, 4))
    for pool in ("sum", "mean", "attention"):
        settings = {"train": path, "pool": pool}
        index = airrep.build_index(train, tmp_path / pool, "precomputed", settings=settings)
        assert index.group_scores(train[:2], [range(3)]).provenance.pool == pool


def test_examples_are_known_by_id_and_text_and_else_by_text(tmp_path: Path) -> None:
    train = Corpus.from_examples(Example("same", "text", name) for name in ("a", "b"))
    features = drawn(2, 3)
    attributor = fitted(train, train=saved(tmp_path / "x.npy", features))
    found = attributor.encode_train(list(train)[::-1]) / attributor.feature_scale
    np.testing.assert_array_equal(found, features[::-1])
    found = attributor.encode_queries([Example("same", "text", "c")]) * attributor.feature_scale
    np.testing.assert_array_equal(found, features[:1])
    with pytest.raises(DataError, match=r'example "a" is not in the training corpus, so it has no features'):
        attributor.encode_train([Example("other", "text", "a")])


def test_another_number_of_rows_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "x.npy", drawn(5, 3))
    with pytest.raises(DataError, match=r"x\.npy: has 5 rows, but the training corpus has 6 examples"):
        fitted(corpus(6), train=path)
    settings = {"train": path, "queries": saved(tmp_path / "q.npy", drawn(2, 3))}
    with pytest.raises(DataError, match=r"q\.npy: has 2 rows, but the .*q\.jsonl has 3 examples"):
        fitted(corpus(5), **settings, query_data=written(tmp_path / "q.jsonl", corpus(3)))


def test_features_of_another_width_or_not_finite_are_refused(tmp_path: Path) -> None:
    path, data = saved(tmp_path / "x.npy", drawn(5, 3)), written(tmp_path / "q.jsonl", corpus(2))
    with pytest.raises(DataError, match=r"q\.npy: has 4 features in each row, but the training features have 3"):
        fitted(corpus(5), train=path, queries=saved(tmp_path / "q.npy", drawn(2, 4)), query_data=data)
    saved(tmp_path / "x.npy", np.full((5, 3), np.nan))
    with pytest.raises(DataError, match=r"row 0 has a feature that is not finite"):
        fitted(corpus(5), train=path)


def test_half_of_the_settings_of_queries_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "x.npy", drawn(5, 3))
    for given, lacking in (("queries", "query_data"), ("query_data", "queries")):
        with pytest.raises(ConfigError, match=rf"^precomputed: {given} is set without {lacking}"):
            fitted(corpus(5), train=path, **{given: path})


def test_what_was_not_fitted_says_so(tmp_path: Path) -> None:
    attributor = make_attributor("precomputed", {"train": str(tmp_path / "x.npy")})
    with pytest.raises(NotFittedError, match=r"^precomputed: has not seen the training corpus"):
        attributor.encode_train(corpus(2))


def test_features_that_changed_since_are_refused(tmp_path: Path) -> None:
    train, path = corpus(6), saved(tmp_path / "x.npy", drawn(6, 4))
    index = airrep.build_index(train, tmp_path / "index", "precomputed", settings={"train": path})
    saved(tmp_path / "x.npy", drawn(6, 4, seed=1))
    with pytest.raises(DataError, match=r"x\.npy: was changed after the index was built"):
        airrep.Index(index.path).top(train[0], k=1)
    (tmp_path / "x.npy").unlink()
    with pytest.raises(DataError, match=r"x\.npy: does not exist"):
        airrep.Index(index.path).top(train[0], k=1)


def test_new_examples_without_features_are_not_appended(tmp_path: Path) -> None:
    settings = {"train": saved(tmp_path / "x.npy", drawn(6, 4))}
    index = airrep.build_index(corpus(6), tmp_path / "index", "precomputed", settings=settings)
    with pytest.raises(DataError, match=r'example "new-0" is not in the training corpus'):
        index.append(corpus(2, "new"))


def test_the_fingerprint_covers_features_examples_and_queries(tmp_path: Path) -> None:
    path, other = saved(tmp_path / "x.npy", drawn(4, 3)), saved(tmp_path / "y.npy", drawn(4, 3, seed=1))
    moved = saved(tmp_path / "moved.npy", drawn(4, 3))
    queries = {"queries": path, "query_data": written(tmp_path / "q.jsonl", corpus(4))}
    different = [
        fitted(corpus(4), train=path),
        fitted(corpus(4, "other"), train=path),
        fitted(corpus(4), train=other),
        fitted(corpus(4), train=path, **queries),
    ]
    assert len({each.fingerprint for each in different}) == len(different)
    assert fitted(corpus(4), train=moved, pool="mean").fingerprint == different[0].fingerprint


@pytest.mark.parametrize("kind", ["float16", "float32", "float64", ">f4"])
def test_an_array_of_any_floating_point_kind_is_read_as_float32(kind: str, tmp_path: Path) -> None:
    array = drawn(5, 3).astype(kind)
    np.save(tmp_path / "x.npy", array)
    save_file({"features": array.astype(array.dtype.newbyteorder("="))}, tmp_path / "x.safetensors")
    for name in ("x.npy", "x.safetensors"):
        file = FeatureFile(tmp_path / name)
        assert (file.rows, file.dimension) == (5, 3)
        found = file.take(np.array([4, 0, 4]))
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, array[[4, 0, 4]].astype(np.float32))
        assert file.largest() == np.abs(array.astype(np.float32)).max()


def test_bfloat16_is_read_and_a_type_that_numpy_lacks_is_refused(tmp_path: Path) -> None:
    array = drawn(5, 3)
    bits = array.view(np.uint32) >> 16
    for kind, stored in (("BF16", bits.astype("<u2")), ("F8_E4M3", bits.astype(np.uint8))):
        head = {"x": {"dtype": kind, "shape": [5, 3], "data_offsets": [0, stored.nbytes]}}
        text = json.dumps(head).encode()
        (tmp_path / f"{kind}.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + stored.tobytes())
    found = FeatureFile(tmp_path / "BF16.safetensors").take(np.arange(5))
    np.testing.assert_array_equal(found, (bits << 16).view(np.float32))
    with pytest.raises(DataError, match=r"F8_E4M3\.safetensors: cannot be read"):
        FeatureFile(tmp_path / "F8_E4M3.safetensors")


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e300])
def test_a_feature_that_is_not_finite_names_its_row(bad: float, tmp_path: Path) -> None:
    array = drawn(5, 3).astype(float)
    array[3, 1] = bad
    file = FeatureFile(Path(saved(tmp_path / "x.npy", array)))
    assert len(file.take(np.array([0, 4]))) == 2
    with pytest.raises(DataError, match=r"x\.npy: row 3 "):
        file.largest()


@pytest.mark.parametrize(
    ("array", "named"),
    [
        (np.zeros(3), r"float64 of shape \(3,\)"),
        (np.zeros((2, 3), int), "int64"),
        (np.zeros((2, 2), complex), "complex"),
        (np.array([[{}]], object), r"cannot be read as \.npy"),  # a pickle is not opened
    ],
)
def test_an_array_of_another_form_is_refused(array: np.ndarray, named: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(DataError, match=rf"x\.npy: .*{named}"):
        FeatureFile(tmp_path / "x.npy")


@pytest.mark.parametrize("name", ["none.npy", "x.txt", "cut.npy", "cut.safetensors", "two.safetensors"])
def test_what_is_no_feature_file_is_refused(name: str, tmp_path: Path) -> None:
    for damaged in ("x.txt", "cut.npy", "cut.safetensors"):
        (tmp_path / damaged).write_bytes(b"\x93NUMPY\x01\x00")
    save_file({"a": drawn(2, 2), "b": drawn(2, 2)}, tmp_path / "two.safetensors")
    with pytest.raises(DataError, match=f"{name}: .*npy|{name}: cannot be read"):
        FeatureFile(tmp_path / name)


def test_the_keys_of_many_examples_take_little_memory_and_the_digest_that_they_had(tmp_path: Path) -> None:
    for count in (1, 2, _DIGESTED, _DIGESTED + 1):
        keys = np.random.default_rng(0).integers(0, 2**64, (count, 2), np.uint64)
        assert _digest(keys) == json_digest(keys.tolist())
    assert _digest(np.empty((0, 2), np.uint64)) == json_digest([])
    train, path = corpus(60_000), saved(tmp_path / "f.npy", drawn(60_000, 2))
    attributor = make_attributor("precomputed", {"train": path})
    tracemalloc.start()
    attributor.fit(train)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 12e6  # 28 MB where texts of all keys were held
